//! Which servers of a config make up an environment, and which rows drive it.

use gym_server::config::{ConfigError, GlobalConfig};
use gym_server::instance::{Endpoint, InstanceConfig, InstanceError, ServerType};
use serde_json::Value;

const RESOURCES_SERVER: &str = "resources_server";
const MODEL_SERVER: &str = "model_server";

/// An agent and the servers it refers to.
#[derive(Clone, Debug)]
pub struct Environment {
    pub agent: Endpoint,
    pub resources: Endpoint,
    pub model: Endpoint,
    /// Path of the example rows below a search root, as configured.
    pub examples: Option<String>,
}

/// One row to drive.
#[derive(Clone, Debug)]
pub struct Row {
    /// Line in its file, from 1.
    pub line: usize,
    pub text: String,
}

/// Why there is nothing to test.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// The config cannot be resolved.
    #[error("an agent of the config cannot be read")]
    Config(#[from] ConfigError),
    /// An agent's block does not fit.
    #[error("an agent of the config is not complete")]
    Instance(#[from] InstanceError),
    /// No agent refers to the resources server.
    #[error("no agent of the config refers to the resources server {0:?}")]
    NoAgent(String),
    /// The config has no agent with a resources server.
    #[error("the config has no agent with a resources server")]
    Empty,
    /// There are no rows.
    #[error("agent {agent:?} has no dataset of type `example`")]
    NoExamples { agent: String },
    /// The rows cannot be found.
    #[error("{path:?} is under none of the search roots")]
    NotFound { path: String },
    /// The rows cannot be read.
    #[error("failed to read {path:?}")]
    Read { path: String, source: std::io::Error },
    /// The file has no row.
    #[error("{path:?} has no rows")]
    NoRows { path: String },
}

impl EnvironmentError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoExamples { .. } => Some("name the rows with --input PATH".to_owned()),
            Self::NotFound { .. } => {
                Some("name the directory that holds it with --search-dir DIR".to_owned())
            }
            Self::Empty | Self::NoAgent(_) => Some(
                "add an agent to the config, such as responses_api_agents/simple_agent, whose \
                 resources_server names it"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

/// Every environment of a config; `wanted` is the implementation or the instance of a resources
/// server, with or without a flavor.
pub fn find(
    config: &GlobalConfig,
    wanted: Option<&str>,
) -> Result<Vec<Environment>, EnvironmentError> {
    let wanted = wanted.map(|name| name.split('/').next().unwrap_or(name));
    let is_wanted = |resources: &str| {
        wanted.is_none_or(|wanted| {
            resources == wanted
                || config.instance(resources).is_ok_and(|found| found.implementation == wanted)
        })
    };
    let mut environments = Vec::new();
    for instance in config.instances() {
        if instance.server_type != ServerType::ResponsesApiAgents {
            continue;
        }
        let agent = config.instance_config(&instance.name)?;
        let resources = agent
            .block
            .get(RESOURCES_SERVER)
            .and_then(|reference| reference.get("name").and_then(Value::as_str));
        if resources.is_some_and(is_wanted) {
            environments.push(Environment {
                agent: agent.own_endpoint(),
                resources: agent.endpoint_of(RESOURCES_SERVER)?,
                model: agent.endpoint_of(MODEL_SERVER)?,
                examples: examples(&agent),
            });
        }
    }
    match (environments.is_empty(), wanted) {
        (false, _) => Ok(environments),
        (true, Some(wanted)) => Err(EnvironmentError::NoAgent(wanted.to_owned())),
        (true, None) => Err(EnvironmentError::Empty),
    }
}

fn examples(agent: &InstanceConfig) -> Option<String> {
    let datasets = agent.block.get("datasets")?.as_array()?;
    let is_example = |dataset: &&Value| dataset.get("type") == Some(&Value::from("example"));
    let path = datasets.iter().find(is_example)?.get("jsonl_fpath")?;
    path.as_str().map(str::to_owned)
}

/// The rows that drive an environment: those of `input`, else its examples.
pub fn rows(
    config: &GlobalConfig,
    environment: &Environment,
    input: Option<&str>,
    limit: Option<usize>,
) -> Result<Vec<Row>, EnvironmentError> {
    let path = input.or(environment.examples.as_deref()).ok_or_else(|| {
        EnvironmentError::NoExamples { agent: environment.agent.name().to_owned() }
    })?;
    let found = config
        .roots()
        .find(path)
        .ok_or_else(|| EnvironmentError::NotFound { path: path.to_owned() })?;
    let bytes =
        found.read().map_err(|source| EnvironmentError::Read { path: found.display(), source })?;
    let rows = rows_of(&String::from_utf8_lossy(&bytes), limit);
    if rows.is_empty() {
        return Err(EnvironmentError::NoRows { path: found.display() });
    }
    Ok(rows)
}

fn rows_of(text: &str, limit: Option<usize>) -> Vec<Row> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| Row { line: index + 1, text: line.to_owned() })
        .take(limit.filter(|&limit| limit > 0).unwrap_or(usize::MAX))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_are_no_rows_but_count_as_lines() {
        let lines = |limit| -> Vec<_> {
            rows_of("{}\n\n{}\n{}\n", limit).into_iter().map(|row| row.line).collect()
        };
        assert_eq!(lines(None), [1, 3, 4]);
        assert_eq!(lines(Some(2)), [1, 3]);
        assert_eq!(lines(Some(0)), [1, 3, 4]);
    }
}
