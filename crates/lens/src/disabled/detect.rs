//! Nothing is detected.

use std::collections::BTreeMap;
use std::path::Path;

use crate::Value;

/// An environment, by name.
pub type Environment = BTreeMap<String, String>;
/// What was detected, by attribute.
pub type Detected = Vec<(&'static str, Value)>;

/// Nothing.
pub fn all(_env: &Environment, _root: &Path) -> Detected {
    Detected::new()
}

/// Nothing.
pub fn local(_env: &Environment, _root: &Path) -> Detected {
    Detected::new()
}

/// Nothing.
pub fn slurm(_env: &Environment) -> Detected {
    Detected::new()
}

/// Nothing.
pub fn kubernetes(_env: &Environment, _root: &Path) -> Detected {
    Detected::new()
}

/// GPUs that nobody looks for.
pub mod gpu {
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use super::Environment;

    /// How long `nvidia-smi` may take.
    pub const LIMIT: Duration = Duration::from_millis(1_500);

    /// Which GPUs this process may use.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Visible {
        /// All of the host.
        All,
        /// Those listed.
        Listed(Vec<String>),
    }

    impl Visible {
        /// None.
        pub fn from_env(_env: &Environment) -> Self {
            Self::Listed(Vec::new())
        }

        /// `false`.
        pub fn takes(&self, _index: &str, _uuid: &str) -> bool {
            false
        }
    }

    /// `None`.
    pub fn count(_env: &Environment) -> Option<usize> {
        None
    }

    /// `None`.
    pub fn program(_env: &Environment) -> Option<PathBuf> {
        None
    }

    /// What one GPU does.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Sample {
        /// Its index.
        pub index: String,
        /// Its UUID.
        pub uuid: String,
        /// Percent of the time in which it computed.
        pub utilization_percent: Option<f64>,
        /// MiB of its memory in use.
        pub memory_used_mib: Option<f64>,
        /// MiB of memory.
        pub memory_total_mib: Option<f64>,
    }

    /// `None`.
    pub fn sample(_program: &Path, _visible: &Visible, _limit: Duration) -> Option<Vec<Sample>> {
        None
    }
}
