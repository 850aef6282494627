//! Span groups: static switches, and the registry that turns names into switches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::lock;

/// The group that presets and `all` leave out.
pub(super) const TRACING: &str = "tracing";
/// The wildcard.
const ALL: &str = "all";

/// A named switch over a set of spans; off until a registered group is chosen at setup.
#[derive(Debug)]
pub struct Group {
    name: &'static str,
    enabled: AtomicBool,
    long_lived: bool,
    scope: AtomicU16,
    /// Its place among all that are registered, from one; zero when it is not.
    number: AtomicU16,
}

/// The group of [`span!`](crate::span!): on whenever telemetry is.
pub static ALWAYS: Group = Group::new("always");

impl Group {
    /// A group by name, to be passed to [`register`].
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            enabled: AtomicBool::new(false),
            long_lived: false,
            scope: AtomicU16::new(0),
            number: AtomicU16::new(0),
        }
    }

    /// Its spans are worth telling of when the process ends inside them, or while they are open: each has a start
    /// record until it ends.
    pub const fn long_lived(mut self) -> Self {
        self.long_lived = true;
        self
    }

    pub(super) fn is_long_lived(&self) -> bool {
        self.long_lived
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Whether spans of the group exist; one relaxed load.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    pub(super) fn scope(&self) -> u16 {
        self.scope.load(Ordering::Relaxed)
    }

    pub(super) fn number(&self) -> u16 {
        self.number.load(Ordering::Relaxed)
    }

    pub(super) fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }
}

/// A preset: its name and the groups or presets that it stands for.
pub type Preset = (&'static str, &'static [&'static str]);

#[derive(Debug)]
pub(super) struct Registry {
    /// Index + 1 = scope; 0 is lens itself.
    scopes: Vec<Scope>,
    /// Scopes that log records named, by name.
    targets: BTreeMap<&'static str, u16>,
    groups: Vec<&'static Group>,
    presets: Vec<Preset>,
    /// What setup chose; applied to groups that are registered later too.
    spec: Option<String>,
}

/// An instrumentation scope.
#[derive(Clone, Copy, Debug)]
struct Scope {
    name: &'static str,
    /// That of this crate, or empty where others are told of.
    version: &'static str,
}

/// More targets of log records than a program has modules that log; what exceeds it has no scope of its own.
const MAX_TARGETS: usize = 256;

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    scopes: Vec::new(),
    targets: BTreeMap::new(),
    groups: Vec::new(),
    presets: Vec::new(),
    spec: None,
});

/// Keeps every other thread from the registry.
pub(super) type Held = MutexGuard<'static, Registry>;

/// Waits until no other thread is in the registry, and lets none in.
pub(super) fn hold() -> Held {
    lock(&REGISTRY)
}

/// Makes groups and presets known under a namespace, which becomes the instrumentation scope of their spans.
///
/// Presets of the same name unite across namespaces. Registering again changes nothing.
pub fn register(
    namespace: &'static str,
    groups: &'static [&'static Group],
    presets: &'static [Preset],
) {
    let mut registry = lock(&REGISTRY);
    let known = registry.scopes.iter().position(|scope| scope.name == namespace);
    let index = known.unwrap_or_else(|| {
        registry.scopes.push(Scope { name: namespace, version: env!("CARGO_PKG_VERSION") });
        registry.scopes.len() - 1
    });
    let scope = u16::try_from(index + 1).unwrap_or(0);
    for group in groups {
        if !registry.groups.iter().any(|known| std::ptr::eq(*known, *group)) {
            group.scope.store(scope, Ordering::Relaxed);
            registry.groups.push(group);
            let number = u16::try_from(registry.groups.len()).unwrap_or(0);
            group.number.store(number, Ordering::Relaxed);
        }
    }
    for preset in presets {
        if !registry.presets.contains(preset) {
            registry.presets.push(*preset);
        }
    }
    if let Some(spec) = registry.spec.clone() {
        registry.apply(&spec);
    }
}

/// Whether any registered group of this name is on. Slow; sites use [`Group::is_enabled`].
pub fn is_span_group_enabled(name: &str) -> bool {
    lock(&REGISTRY)
        .groups
        .iter()
        .any(|group| group.is_enabled() && group.name.eq_ignore_ascii_case(name.trim()))
}

/// What a comma list of groups and presets means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupSelection {
    /// Names of the groups that are on, sorted.
    pub names: Vec<&'static str>,
    /// One line for each unknown name.
    pub warnings: Vec<String>,
}

/// Resolves a comma list against what is registered, without switching anything.
pub fn resolve_groups(spec: &str) -> GroupSelection {
    lock(&REGISTRY).resolve(spec)
}

impl Registry {
    fn resolve(&self, spec: &str) -> GroupSelection {
        let mut names = BTreeSet::new();
        let mut warnings = Vec::new();
        for name in spec.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if !self.expand(name, &mut names, 0) {
                warnings.push(self.unknown(name));
            }
        }
        GroupSelection { names: names.into_iter().collect(), warnings }
    }

    /// Adds what `name` stands for; false when nothing has that name.
    fn expand(&self, name: &str, names: &mut BTreeSet<&'static str>, depth: u8) -> bool {
        if name.eq_ignore_ascii_case(ALL) {
            names
                .extend(self.groups.iter().map(|group| group.name).filter(|name| *name != TRACING));
            return true;
        }
        let mut found = false;
        for (preset, members) in &self.presets {
            if preset.eq_ignore_ascii_case(name) && depth < 4 {
                found = true;
                for member in *members {
                    self.expand(member, names, depth + 1);
                }
            }
        }
        for group in &self.groups {
            if group.name.eq_ignore_ascii_case(name) {
                found = true;
                names.insert(group.name);
            }
        }
        found
    }

    fn unknown(&self, name: &str) -> String {
        let lower = name.to_ascii_lowercase();
        let known = self.groups.iter().map(|group| group.name);
        let known = known.chain(self.presets.iter().map(|(preset, _)| *preset)).chain([ALL]);
        let closest = known.min_by_key(|known| edit_distance(&lower, known));
        let hint = closest.map(|known| format!("; did you mean {known:?}?")).unwrap_or_default();
        format!("unknown span group {name:?} is ignored{hint}")
    }

    fn apply(&mut self, spec: &str) -> Vec<String> {
        let selection = self.resolve(spec);
        for group in &self.groups {
            group.set_enabled(selection.names.contains(&group.name));
        }
        selection.warnings
    }
}

/// Whether a comma list names nothing at all, not even something unknown.
pub(super) fn is_empty(spec: &str) -> bool {
    spec.split(',').all(|name| name.trim().is_empty())
}

/// Switches groups on and off; returns warnings about unknown names.
pub(super) fn enable(spec: &str) -> Vec<String> {
    let mut registry = lock(&REGISTRY);
    registry.spec = Some(spec.to_owned());
    ALWAYS.set_enabled(true);
    registry.apply(spec)
}

/// Switches everything off.
pub(super) fn disable_all() {
    let mut registry = lock(&REGISTRY);
    registry.spec = None;
    ALWAYS.set_enabled(false);
    for group in &registry.groups {
        group.set_enabled(false);
    }
}

/// The scope of a name that is only known at run time; the library's own once there are too many.
#[cfg(feature = "opentelemetry")]
pub(super) fn scope_of(name: &str) -> u16 {
    /// Names live for ever.
    const MAX_SCOPES: usize = 4_096;
    let mut registry = lock(&REGISTRY);
    let known = registry.scopes.iter().position(|known| known.name == name);
    let index = known.or_else(|| {
        let has_room = registry.scopes.len() < MAX_SCOPES;
        has_room.then(|| {
            let name = Box::leak(name.to_owned().into_boxed_str());
            registry.scopes.push(Scope { name, version: "" });
            registry.scopes.len() - 1
        })
    });
    index.and_then(|index| u16::try_from(index + 1).ok()).unwrap_or(0)
}

/// Name and version of a scope by its number.
pub(super) fn scope(number: u16) -> (&'static str, &'static str) {
    let found = usize::from(number)
        .checked_sub(1)
        .and_then(|index| lock(&REGISTRY).scopes.get(index).copied());
    found.map_or(("lens", env!("CARGO_PKG_VERSION")), |scope| (scope.name, scope.version))
}

/// The number of the scope that is called like the target of a log record; `None` when there are too many.
pub(super) fn scope_of_target(target: &str) -> Option<u16> {
    if target.is_empty() {
        return Some(0);
    }
    let mut registry = lock(&REGISTRY);
    if let Some(number) = registry.targets.get(target) {
        return Some(*number);
    }
    if registry.targets.len() >= MAX_TARGETS {
        return None;
    }
    let known = registry.scopes.iter().position(|scope| scope.name == target);
    let name: &'static str = Box::leak(Box::from(target));
    let index = known.unwrap_or_else(|| {
        registry.scopes.push(Scope { name, version: "" });
        registry.scopes.len() - 1
    });
    let number = u16::try_from(index + 1).ok()?;
    registry.targets.insert(name, number);
    Some(number)
}

/// The name of the group with a number.
pub(super) fn group_name(number: u16) -> &'static str {
    let index = usize::from(number).checked_sub(1);
    index.and_then(|index| Some(lock(&REGISTRY).groups.get(index)?.name)).unwrap_or_default()
}

/// The number of the scope that was registered as the `index`-th.
pub(super) fn scope_number(index: usize) -> Option<u16> {
    lock(&REGISTRY).scopes.get(index)?;
    u16::try_from(index + 1).ok()
}

/// Levenshtein distance over characters.
fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, left) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (index, right) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(left != *right);
            diagonal = row[index + 1];
            row[index + 1] = substituted.min(diagonal + 1).min(row[index] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    static JOB: Group = Group::new("job");
    static SERVER: Group = Group::new("server");
    static LIBRARY: Group = Group::new("tracing");

    fn registry() -> Registry {
        Registry {
            scopes: Vec::new(),
            targets: BTreeMap::new(),
            groups: vec![&JOB, &SERVER, &LIBRARY],
            presets: vec![("default", &["job"]), ("default", &["server"]), ("one", &["JOB"])],
            spec: None,
        }
    }

    #[test]
    fn presets_unite_names_mix_and_case_does_not_matter() {
        let registry = registry();
        assert_eq!(registry.resolve(" Default ").names, ["job", "server"]);
        assert_eq!(registry.resolve("ONE, tracing,").names, ["job", "tracing"]);
        assert!(registry.resolve("").names.is_empty());
    }

    #[test]
    fn all_leaves_out_tracing() {
        assert_eq!(registry().resolve("all").names, ["job", "server"]);
    }

    #[test]
    fn unknown_name_is_ignored_with_the_closest_name() {
        let selection = registry().resolve("servr,job");
        assert_eq!(selection.names, ["job"]);
        let expected = "unknown span group \"servr\" is ignored; did you mean \"server\"?";
        assert_eq!(selection.warnings, [expected]);
    }
}
