//! Gym's span groups: which sets of spans exist.
//!
//! A site is gated by one of these statics and costs one relaxed load when its group is off.
//! `default`, `per_rollout` and `all` are presets; a spec mixes presets and names, separated by
//! commas, in any case.

use std::sync::Once;

use lens::Group;

use crate::semconv;

/// The whole of a collection, driver side.
pub static JOB: Group = Group::new(name::JOB).long_lived();
/// The start of a fleet and of its servers.
pub static STARTUP: Group = Group::new(name::STARTUP).long_lived();
/// SERVER spans.
pub static SERVER: Group = Group::new(name::SERVER).long_lived();
/// CLIENT spans.
pub static HTTP_CLIENT: Group = Group::new(name::HTTP_CLIENT);
/// Rollouts, on the driver and in the agent.
pub static ROLLOUT: Group = Group::new(name::ROLLOUT).long_lived();
/// The agent's own loop.
pub static AGENT: Group = Group::new(name::AGENT).long_lived();
/// Model calls.
pub static MODEL_CALL: Group = Group::new(name::MODEL_CALL).long_lived();
/// Verification.
pub static VERIFY: Group = Group::new(name::VERIFY).long_lived();
/// Sandboxes.
pub static SANDBOX: Group = Group::new(name::SANDBOX);
/// No spans: gates the metric of semaphore waits.
pub static CONCURRENCY: Group = Group::new(name::CONCURRENCY);

/// Every group of Gym.
pub static ALL_GROUPS: &[&Group] = &[
    &AGENT,
    &CONCURRENCY,
    &HTTP_CLIENT,
    &JOB,
    &MODEL_CALL,
    &ROLLOUT,
    &SANDBOX,
    &SERVER,
    &STARTUP,
    &VERIFY,
];

/// The groups without which a trace does not join across processes.
pub static CROSS_PROCESS_SPINE: &[&Group] = &[&SERVER, &HTTP_CLIENT, &ROLLOUT];

/// Names of groups and presets, as a spec writes them.
pub mod name {
    /// [`super::JOB`].
    pub const JOB: &str = "job";
    /// [`super::STARTUP`].
    pub const STARTUP: &str = "startup";
    /// [`super::SERVER`].
    pub const SERVER: &str = "server";
    /// [`super::HTTP_CLIENT`].
    pub const HTTP_CLIENT: &str = "http_client";
    /// [`super::ROLLOUT`].
    pub const ROLLOUT: &str = "rollout";
    /// [`super::AGENT`].
    pub const AGENT: &str = "agent";
    /// [`super::MODEL_CALL`].
    pub const MODEL_CALL: &str = "model_call";
    /// [`super::VERIFY`].
    pub const VERIFY: &str = "verify";
    /// [`super::SANDBOX`].
    pub const SANDBOX: &str = "sandbox";
    /// What libraries say through `tracing`; in no preset, and not in `all`.
    pub const TRACING: &str = "tracing";
    /// [`super::CONCURRENCY`].
    pub const CONCURRENCY: &str = "concurrency";

    /// Preset: the job and its rollouts, hop by hop.
    pub const DEFAULT: &str = "default";
    /// Preset: everything below a rollout.
    pub const PER_ROLLOUT: &str = "per_rollout";
    /// Preset: everything that is registered.
    pub const ALL: &str = "all";
}

/// What each preset but `all` switches on.
pub const PRESETS: &[(&str, &[&str])] = &[
    (name::DEFAULT, &[name::JOB, name::STARTUP, name::SERVER, name::HTTP_CLIENT, name::ROLLOUT]),
    (
        name::PER_ROLLOUT,
        &[
            name::SERVER,
            name::HTTP_CLIENT,
            name::ROLLOUT,
            name::VERIFY,
            name::AGENT,
            name::MODEL_CALL,
            name::CONCURRENCY,
        ],
    ),
];

/// Names that the Python reference takes; one that it does not know switches its telemetry off.
pub(crate) const KNOWN_TO_REFERENCE: &[&str] = &[
    name::DEFAULT,
    name::PER_ROLLOUT,
    name::ALL,
    name::JOB,
    name::SERVER,
    name::HTTP_CLIENT,
    name::ROLLOUT,
    name::AGENT,
    name::MODEL_CALL,
    name::VERIFY,
    name::SANDBOX,
    // Inherited from its training siblings.
    "checkpoint",
    "evaluate",
    "model_init",
    "load_checkpoint",
    "step",
    "forward_backward",
    "optimizer",
];

/// Makes Gym's groups and presets known; every entry point does it.
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| lens::register(semconv::SCOPE, ALL_GROUPS, PRESETS));
}

/// What a spec switches on, of all groups registered in this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupSet {
    names: Vec<&'static str>,
    warnings: Vec<String>,
}

impl GroupSet {
    /// Names of the groups, sorted.
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }

    /// Whether a group is in it.
    pub fn contains(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// One sentence for every name that nothing is registered under.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Resolves a spec; empty in a build without telemetry.
pub fn resolve(spec: &str) -> GroupSet {
    register();
    let selection = lens::resolve_groups(spec);
    GroupSet { names: selection.names, warnings: selection.warnings }
}
