//! The named shares of a rollout's wall clock.

use std::ops::{AddAssign, Index, IndexMut};

/// A share of a rollout's wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Band {
    /// Waited for the driver to dispatch it.
    Admission,
    /// Set its session up.
    Setup,
    /// Waited for a connection.
    Pool,
    /// Slept before a request was made again.
    Retry,
    /// Was on its way between processes.
    Network,
    /// Waited in the engine.
    Queue,
    /// The engine read the prompt.
    Prefill,
    /// The engine wrote.
    Decode,
    /// A model call that is not split further.
    Model,
    /// A tool ran.
    Tool,
    /// Was verified.
    Verify,
    /// Code ran in a sandbox.
    Sandbox,
    /// The agent's own code.
    Agent,
    /// None of these.
    Other,
}

impl Band {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 14] = [
        Self::Admission,
        Self::Setup,
        Self::Pool,
        Self::Retry,
        Self::Network,
        Self::Queue,
        Self::Prefill,
        Self::Decode,
        Self::Model,
        Self::Tool,
        Self::Verify,
        Self::Sandbox,
        Self::Agent,
        Self::Other,
    ];

    /// As tables and JSON call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admission => "admission",
            Self::Setup => "setup",
            Self::Pool => "pool",
            Self::Retry => "retry",
            Self::Network => "network",
            Self::Queue => "queue",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Model => "model",
            Self::Tool => "tool",
            Self::Verify => "verify",
            Self::Sandbox => "sandbox",
            Self::Agent => "agent",
            Self::Other => "other",
        }
    }
}

/// Nanoseconds by band.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bands([u64; Band::ALL.len()]);

impl Bands {
    /// Nanoseconds of all bands.
    pub fn total_nanos(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Every band with its nanoseconds, in the order of tables.
    pub fn iter(&self) -> impl Iterator<Item = (Band, u64)> {
        Band::ALL.into_iter().zip(self.0)
    }
}

impl Index<Band> for Bands {
    type Output = u64;

    fn index(&self, band: Band) -> &u64 {
        &self.0[band as usize]
    }
}

impl IndexMut<Band> for Bands {
    fn index_mut(&mut self, band: Band) -> &mut u64 {
        &mut self.0[band as usize]
    }
}

impl AddAssign for Bands {
    fn add_assign(&mut self, other: Self) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own += other;
        }
    }
}
