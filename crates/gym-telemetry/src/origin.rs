//! Where a setting's value came from.

use std::fmt;

/// Who decided a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// An environment variable, by name.
    Variable(&'static str),
    /// The `telemetry:` block.
    Block,
    /// Made up for this fleet.
    Generated,
    /// Nobody said anything.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Variable(name) => f.write_str(name),
            Origin::Block => f.write_str("`telemetry:` block"),
            Origin::Generated => f.write_str("generated"),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// A value and who decided it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Who decided it.
    pub origin: Origin,
}

impl<T> Sourced<T> {
    pub(crate) fn new(value: T, origin: Origin) -> Sourced<T> {
        Sourced { value, origin }
    }
}

impl<T> std::ops::Deref for Sourced<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}
