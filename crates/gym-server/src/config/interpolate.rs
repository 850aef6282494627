//! `${…}`: references to other values, and a few functions.
//!
//! `${a.b}` and `${a[0]}` refer from the top, `${.b}` and `${..b}` from the mapping that holds the
//! value. `${oc.env:VAR,default}` reads the environment that the config was loaded with,
//! `${oc.decode:TEXT}` types a text, `${oc.select:key,default}` refers with a default. A value
//! that is nothing but one `${…}` takes the type of what it refers to; inside a longer text it is
//! written as Python would write it. `\${` stands for itself.

use std::collections::BTreeMap;

use serde_json::Value;

use super::closest::closest;
use super::error::ConfigError;
use super::interpolation_text::expand;
use super::marks::{Marks, Path, Segment, child, segments};
use super::merge::is_missing;

pub(super) const MAX_DEPTH: usize = 64;

/// Resolves values of one tree against its root and an environment.
pub(super) struct Resolver<'a> {
    pub(super) root: &'a Value,
    pub(super) environment: &'a BTreeMap<String, String>,
    pub(super) marks: &'a Marks,
}

/// Why a `${…}` has no value.
pub(super) struct Fault {
    pub(super) reason: String,
    pub(super) hint: Option<String>,
    /// A default may stand in for a value that does not exist, not for a mistake.
    pub(super) absent: bool,
}

impl Fault {
    pub(super) fn new(reason: impl Into<String>, hint: Option<String>) -> Self {
        Self { reason: reason.into(), hint, absent: false }
    }
}

/// Whether a value contains a `${`.
pub(super) fn has_interpolation(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("${"),
        Value::Array(items) => items.iter().any(has_interpolation),
        Value::Object(map) => map.values().any(has_interpolation),
        _ => false,
    }
}

impl Resolver<'_> {
    /// The value at `path` with everything below it resolved.
    pub(super) fn resolve(&self, value: &Value, path: &mut Path) -> Result<Value, ConfigError> {
        match value {
            Value::String(text) if text.contains("${") => expand(self, text, path.as_str(), 0)
                .map_err(|fault| ConfigError::Interpolation {
                    at: self.marks.find(path.as_str()),
                    path: path.as_str().to_owned(),
                    reason: fault.reason,
                    hint: fault.hint,
                }),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .map(|(index, item)| path.with_index(index, |path| self.resolve(item, path)))
                .collect(),
            Value::Object(map) => {
                let mut resolved = serde_json::Map::with_capacity(map.len());
                for (key, value) in map {
                    let value = path.with_key(key, |path| self.resolve(value, path))?;
                    resolved.insert(key.clone(), value);
                }
                Ok(Value::Object(resolved))
            }
            other => Ok(other.clone()),
        }
    }

    /// A value found while following a reference: it may refer on, from its own place.
    fn follow(&self, value: &Value, path: &str, depth: usize) -> Result<Value, Fault> {
        match value {
            Value::String(text) if text.contains("${") => expand(self, text, path, depth + 1),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .map(|(index, item)| self.follow(item, &format!("{path}[{index}]"), depth))
                .collect(),
            Value::Object(map) => map
                .iter()
                .map(|(key, value)| Ok((key.clone(), self.follow(value, &join(path, key), depth)?)))
                .collect::<Result<serde_json::Map<_, _>, Fault>>()
                .map(Value::Object),
            other => Ok(other.clone()),
        }
    }

    /// The value that a reference names, resolved.
    pub(super) fn reference(&self, key: &str, path: &str, depth: usize) -> Result<Value, Fault> {
        let full = absolute(key, path).ok_or_else(|| {
            Fault::new(
                format!("`${{{key}}}` is not a reference"),
                Some("write `${section.key}`".into()),
            )
        })?;
        if depth > MAX_DEPTH {
            return Err(Fault::new(format!("`${{{key}}}` refers back to itself"), None));
        }
        let steps = segments(&full).unwrap_or_default();
        let mut at = self.root;
        let mut walked = String::new();
        for step in &steps {
            if at.as_str().is_some_and(|text| text.contains("${")) {
                let resolved = self.follow(at, &walked, depth + 1)?;
                // What a reference leads to is owned here; walking on borrows from the copy.
                return self.walk_owned(&resolved, &steps, &walked, &full);
            }
            at = child(at, step).ok_or_else(|| absent(at, step, &full))?;
            walked = match step {
                Segment::Key(name) => join(&walked, name),
                Segment::Index(index) => format!("{walked}[{index}]"),
            };
        }
        if is_missing(at) {
            return Err(Fault {
                reason: format!("`${{{key}}}` refers to {full}, which has no value yet (`???`)"),
                hint: Some(format!("set it: `++{full}=<value>`")),
                absent: true,
            });
        }
        self.follow(at, &full, depth)
    }

    fn walk_owned(
        &self,
        value: &Value,
        steps: &[Segment],
        walked: &str,
        full: &str,
    ) -> Result<Value, Fault> {
        let done = segments(walked).map_or(0, |steps| steps.len());
        let mut at = value;
        for step in &steps[done..] {
            at = child(at, step).ok_or_else(|| absent(at, step, full))?;
        }
        Ok(at.clone())
    }
}

fn absent(at: &Value, step: &Segment, full: &str) -> Fault {
    let near = match (at, step) {
        (Value::Object(map), Segment::Key(name)) => closest(name, map.keys().map(String::as_str)),
        _ => None,
    };
    let set = match flag(full) {
        Some(flag) => format!("set it: `{flag} <value>` or `++{full}=<value>`"),
        None => format!("set it: `++{full}=<value>`"),
    };
    Fault {
        reason: format!("`${{{full}}}` refers to {full}, which does not exist"),
        hint: Some(match near {
            Some(near) => format!("{set}; or did you mean {near}?"),
            None => set,
        }),
        absent: true,
    }
}

/// The flag that sets a key.
fn flag(key: &str) -> Option<&'static str> {
    match key {
        "policy_base_url" => Some("--model-url"),
        "policy_api_key" => Some("--model-api-key"),
        "policy_model_name" => Some("--model"),
        _ => None,
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The dotted path from the top that `key` means inside the mapping that holds `path`.
fn absolute(key: &str, path: &str) -> Option<String> {
    let relative = key.trim_start_matches('.');
    let dots = key.len() - relative.len();
    segments(relative)?;
    let mut base = path;
    for _ in 0..dots {
        if base.is_empty() {
            return None;
        }
        base = base.rfind(['.', '[']).map_or("", |end| &base[..end]);
    }
    Some(if dots == 0 { relative.to_owned() } else { join(base, relative) })
}
