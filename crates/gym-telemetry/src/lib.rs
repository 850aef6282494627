//! The telemetry block of a Gym config, span groups, metrics, hand-over to children.

pub mod env_vars;
pub mod semconv;
