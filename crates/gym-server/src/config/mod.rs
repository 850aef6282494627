//! The merged config of a fleet: YAML files, `env.yaml`, command-line overrides.
//!
//! A config is a `serde_json::Value` whose `${…}` stay unresolved until somebody asks, because
//! every process resolves them for itself. [`load`] does what a supervisor needs: it merges,
//! follows directives, finds the instances, gives them hosts and ports and says which program
//! serves each. [`GlobalConfig::from_child_env`] is the other end: what a server process reads.
//!
//! Every mistake is one [`ConfigError`] that names file, line or key, what was expected and, in
//! [`ConfigError::hint`], the fix. Nothing here reads the process environment.

mod assemble;
mod closest;
mod directives;
mod emit;
mod error;
mod files;
mod global;
mod instances;
mod interpolate;
mod interpolation_text;
mod load;
mod marks;
mod mask;
mod merge;
mod override_value;
mod overrides;
mod ports;
mod program;
mod roots;
mod scalar;
mod selectors;
mod yaml;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Reads one YAML (or JSON) document that is no config: a script, a list.
///
/// # Errors
///
/// [`ConfigError`] with file, line and column; `file` is the name it gives.
pub fn parse_yaml(text: &str, file: &str) -> Result<serde_json::Value, ConfigError> {
    yaml::parse(text, file).map(|document| document.value)
}

pub use emit::to_yaml;
pub use error::{ConfigError, Origin, Problem, Unserved};
pub use global::{GlobalConfig, Instance};
pub use load::{load, load_with_ports};
pub use mask::masked;
pub use overrides::string_override;
pub use ports::{PortSource, SystemPorts};
pub use program::Program;
pub use roots::{FoundFile, Roots};

use crate::instance::ServerType;

/// One file that travels inside the binary, at its path below a search root.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedFile {
    /// Path below the search root, with `/` as separator.
    pub path: &'static str,
    /// Content.
    pub bytes: &'static [u8],
}

/// Everything that decides what a config is.
#[derive(Clone, Debug, Default)]
pub struct LoadRequest {
    /// `--config` values, in order.
    pub config_paths: Vec<String>,
    /// `+key=value` and `++key=value`, in order.
    pub overrides: Vec<String>,
    /// `--resources-server NAME[/FLAVOR]`.
    pub resources_server: Option<String>,
    /// `--model-type NAME[/FLAVOR]`.
    pub model_type: Option<String>,
    /// `--environment NAME[/FLAVOR]`.
    pub environment: Option<String>,
    /// `--benchmark NAME[/FLAVOR]`.
    pub benchmark: Option<String>,
    /// `--search-dir` values, in order.
    pub search_dirs: Vec<PathBuf>,
    /// The environment of the process.
    pub environment_variables: BTreeMap<String, String>,
    /// Working directory.
    pub cwd: PathBuf,
    /// Files inside the binary: the last search root.
    pub embedded: &'static [EmbeddedFile],
    /// Servers inside the binary.
    pub builtins: &'static [(ServerType, &'static str)],
    /// Whether instances without a port get a free one.
    pub assign_ports: bool,
}
