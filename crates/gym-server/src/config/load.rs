//! From a [`LoadRequest`] to a [`GlobalConfig`].

use std::sync::Arc;

use gym_telemetry::env_vars;
use serde_json::{Map, Value};

use super::assemble::Assembly;
use super::error::{ConfigError, Origin};
use super::files::{CONFIG_PATHS, Loader, env_file, path_list, take_config_paths};
use super::global::GlobalConfig;
use super::instances;
use super::interpolate::{Resolver, has_interpolation};
use super::marks::Path;
use super::merge::{merge_documents, missing_keys};
use super::overrides::{Override, apply_all};
use super::ports::{PortSource, SystemPorts};
use super::roots::Roots;
use super::selectors::Selector;
use super::yaml::Document;
use super::{LoadRequest, directives};
use crate::instance::ServerType;

/// Loads a config.
///
/// # Errors
///
/// One [`ConfigError`] for the first thing that is wrong.
pub fn load(request: &LoadRequest) -> Result<GlobalConfig, ConfigError> {
    load_with_ports(request, &mut SystemPorts::default())
}

/// Loads a config and takes ports from `source`.
///
/// # Errors
///
/// As for [`load`].
pub fn load_with_ports(
    request: &LoadRequest,
    source: &mut dyn PortSource,
) -> Result<GlobalConfig, ConfigError> {
    let extra = request.environment_variables.get(env_vars::GYM_EXTRA_ROOTS).map(String::as_str);
    let roots = Roots::new(&request.search_dirs, extra, &request.cwd, request.embedded);
    let mut warnings = Vec::new();
    let mut document = merge_layers(request, &roots, &mut warnings)?;

    directives::follow_directives(&mut document.value, &document.marks)?;
    let missing = missing_keys(&document.value);
    if !missing.is_empty() {
        return Err(ConfigError::Missing { keys: missing });
    }
    copy_skip_verification(&mut document.value);
    Assembly { request, roots, document, warnings }.assemble(source)
}

/// Files, then `env.yaml`, then overrides.
fn merge_layers(
    request: &LoadRequest,
    roots: &Roots,
    warnings: &mut Vec<String>,
) -> Result<Document, ConfigError> {
    let mut paths: Vec<(String, Origin)> =
        request.config_paths.iter().map(|path| (path.clone(), Origin::Unknown)).collect();
    let selectors = [
        (Selector::Benchmark, &request.benchmark),
        (Selector::Environment, &request.environment),
        (Selector::ResourcesServer, &request.resources_server),
        (Selector::ModelType, &request.model_type),
    ];
    for (selector, value) in selectors {
        if let Some(value) = value {
            paths.push((selector.resolve(value, roots, warnings)?, Origin::Unknown));
        }
    }
    let mut overrides = Vec::new();
    for token in &request.overrides {
        let parsed = Override::parse(token)?;
        match parsed.config_paths() {
            Some(items) if !items.iter().any(has_interpolation) => {
                let origin = Origin::Override(Arc::from(token.as_str()));
                let items = Value::Array(items.clone());
                paths.extend(path_list(&items, |_| origin.clone())?);
            }
            _ => overrides.push(parsed),
        }
    }
    let mut overrides = apply_all(overrides)?;
    let mut environment_file = env_file(roots)?.unwrap_or_default();
    if environment_file.value.is_null() {
        environment_file.value = Value::Object(Map::new());
    }

    let known = {
        let mut known = environment_file.clone();
        merge_documents(&mut known, overrides.clone())?;
        known
    };
    let resolver = Resolver {
        root: &known.value,
        environment: &request.environment_variables,
        marks: &known.marks,
    };
    for document in [&mut overrides, &mut environment_file] {
        if let Some(value) = document.value.get_mut(CONFIG_PATHS) {
            *value = resolver.resolve(value, &mut Path::from(CONFIG_PATHS))?;
        }
    }
    let replaced = take_config_paths(&mut overrides)?;
    let from_environment_file = take_config_paths(&mut environment_file)?;
    if !replaced.is_empty() {
        paths = replaced;
    } else if paths.is_empty() {
        paths = from_environment_file;
    }

    let mut loader = Loader::new(roots);
    for (path, origin) in paths {
        loader.load(&path, origin)?;
    }
    warnings.append(&mut loader.warnings);
    let mut document = loader.merged;
    if let Some(map) = document.value.as_object_mut() {
        map.insert(CONFIG_PATHS.to_owned(), loader.paths.into());
    }
    merge_documents(&mut document, environment_file)?;
    merge_documents(&mut document, overrides)?;
    Ok(document)
}

/// The top-level switch reaches every agent that has none of its own.
fn copy_skip_verification(config: &mut Value) {
    let Some(map) = config.as_object_mut() else { return };
    for key in ["skip_verification", "skip_verification_reward"] {
        let Some(value) = map.get(key).cloned() else { continue };
        for (_, instance) in map.iter_mut().filter(|(name, _)| !instances::is_reserved(name)) {
            let agents = instance.get_mut(ServerType::ResponsesApiAgents.as_str());
            let blocks = agents.and_then(Value::as_object_mut).into_iter().flatten();
            for block in blocks.filter_map(|(_, block)| block.as_object_mut()) {
                block.entry(key).or_insert_with(|| value.clone());
            }
        }
    }
}
