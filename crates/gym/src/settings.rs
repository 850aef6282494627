//! From what was typed to a config: flags become overrides, and the overrides that were typed come after them.

use std::path::PathBuf;

use gym_server::config::{self, ConfigError, GlobalConfig, LoadRequest, string_override};

use crate::args::{ConfigSource, ModelFlags};
use crate::printer::Printer;

/// Overrides of the flags that name the policy model.
pub fn model_overrides(model: &ModelFlags) -> Vec<String> {
    let flags = [
        ("policy_model_name", &model.model),
        ("policy_base_url", &model.model_url),
        ("policy_api_key", &model.model_api_key),
    ];
    flags
        .into_iter()
        .filter_map(|(key, value)| value.as_deref().map(|value| string_override(key, value)))
        .collect()
}

/// The override of `--verbose`.
pub fn verbose_override(verbose: bool) -> Vec<String> {
    if verbose { vec!["+verbose=true".to_owned()] } else { Vec::new() }
}

/// What a command asks of the config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// Instances without a port get a free one: they are about to be started.
    Assign,
    /// Ports stay as configured: nothing will be started.
    Keep,
}

/// Loads the config behind a command line and says what looked odd in it.
///
/// `flags` are the overrides of the command's own flags, in the order in which it declares them.
///
/// # Errors
///
/// Those of [`config::load`].
pub fn load(
    source: &ConfigSource,
    flags: Vec<String>,
    ports: Ports,
    printer: &Printer,
) -> Result<GlobalConfig, ConfigError> {
    let config = config::load(&request(source, flags, ports))?;
    for warning in config.warnings() {
        printer.warn(warning);
    }
    Ok(config)
}

/// Loads a config for its settings alone; it may have no instance.
///
/// # Errors
///
/// Those of [`config::load`].
pub fn load_data(
    source: &ConfigSource,
    flags: Vec<String>,
    printer: &Printer,
) -> Result<GlobalConfig, ConfigError> {
    load(source, flags, Ports::Keep, printer)
}

fn request(source: &ConfigSource, flags: Vec<String>, ports: Ports) -> LoadRequest {
    let mut overrides = flags;
    overrides.extend(source.overrides.iter().cloned());
    LoadRequest {
        config_paths: source.config.clone(),
        overrides,
        resources_server: source.resources_server.clone(),
        model_type: source.model_type.clone(),
        environment: source.environment.clone(),
        benchmark: source.benchmark.clone(),
        search_dirs: source.search_dir.clone(),
        environment_variables: gym_telemetry::environment(),
        cwd: std::env::current_dir().unwrap_or_else(|_| PathBuf::from(".")),
        embedded: gym_envs::assets::FILES,
        builtins: gym_envs::builtin::BUILTINS,
        assign_ports: ports == Ports::Assign,
    }
}
