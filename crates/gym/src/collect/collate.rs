//! The rows of a split: those of every dataset of the config, each with its agent.

use std::path::{Path, PathBuf};

use gym_server::config::{FoundFile, GlobalConfig, Roots};
use gym_server::instance::ServerType;
use serde::Deserialize;
use serde_json::json;

use super::error::CollectError;
use super::files::RunFiles;
use super::members::{Members, compacted};
use super::output::replace;
use super::plan::keys;
use super::prepare::json_reason;
use super::prompt::Prompt;

/// A dataset of an agent, as far as collation cares.
#[derive(Debug, Deserialize)]
struct Dataset {
    #[serde(default)]
    name: String,
    r#type: String,
    jsonl_fpath: String,
    #[serde(default)]
    num_repeats: Option<u32>,
    #[serde(default)]
    prompt_config: Option<String>,
}

/// What collation made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collated {
    pub path: PathBuf,
    pub rows: usize,
    /// Names of the datasets.
    pub datasets: Vec<String>,
}

/// Writes the rows of every dataset of `split` into one file beside the output. Data files are looked for under
/// `roots`.
pub fn collate(
    config: &GlobalConfig,
    roots: &Roots,
    split: &str,
    output: &Path,
) -> Result<Collated, CollectError> {
    let mut out = Vec::new();
    let mut rows = 0;
    let mut datasets = Vec::new();
    let mut available: Vec<String> = Vec::new();
    for (agent, dataset) in datasets_of(config)? {
        if dataset.r#type != split {
            if !available.contains(&dataset.r#type) {
                available.push(dataset.r#type);
            }
            continue;
        }
        rows += append_rows(&agent, &dataset, roots, &mut out)?;
        datasets.push(dataset.name);
    }
    if datasets.is_empty() {
        return Err(CollectError::NoDatasets { split: split.to_owned(), available });
    }
    let path = RunFiles::preprocessed(output, split);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(CollectError::write(parent))?;
    }
    replace(&path, &out)?;
    Ok(Collated { path, rows, datasets })
}

fn datasets_of(config: &GlobalConfig) -> Result<Vec<(String, Dataset)>, CollectError> {
    let mut found = Vec::new();
    let agents = config
        .instances()
        .iter()
        .filter(|instance| instance.server_type == ServerType::ResponsesApiAgents);
    for agent in agents {
        let path =
            format!("{}.{}.{}.datasets", agent.name, agent.server_type, agent.implementation);
        let Some(datasets) = config.get(&path) else { continue };
        let datasets: Vec<Dataset> = serde_json::from_value(datasets).map_err(|error| {
            CollectError::Datasets { agent: agent.name.clone(), reason: error.to_string() }
        })?;
        found.extend(datasets.into_iter().map(|dataset| (agent.name.clone(), dataset)));
    }
    Ok(found)
}

fn append_rows(
    agent: &str,
    dataset: &Dataset,
    roots: &Roots,
    out: &mut Vec<u8>,
) -> Result<usize, CollectError> {
    let missing = |path: &str| CollectError::MissingData {
        dataset: dataset.name.clone(),
        path: path.to_owned(),
        roots: roots.describe(),
    };
    let file = roots.find(&dataset.jsonl_fpath).ok_or_else(|| missing(&dataset.jsonl_fpath))?;
    let prompt = match &dataset.prompt_config {
        None => None,
        Some(path) => Some(read_prompt(&roots.find(path).ok_or_else(|| missing(path))?)?),
    };
    let shown = PathBuf::from(file.display());
    let bytes = file.read().map_err(CollectError::read(&shown))?;
    let agent_ref =
        json!({"type": ServerType::ResponsesApiAgents.as_str(), "name": agent}).to_string();
    let mut rows = 0;
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let bad =
            |reason: String| CollectError::BadRow { path: shown.clone(), line: index + 1, reason };
        let text = std::str::from_utf8(line).map_err(|_| bad("not UTF-8".to_owned()))?.trim();
        if text.is_empty() {
            continue;
        }
        let text = compacted_row(text).map_err(|error| bad(json_reason(&error)))?;
        let row = Members::parse(&text).map_err(|error| bad(json_reason(&error)))?;
        let params = match &prompt {
            None => None,
            Some(prompt) => {
                let params = row.get(keys::CREATE_PARAMS).unwrap_or("{}");
                let params = Members::parse(params)
                    .map_err(|_| bad(format!("`{}` must be an object", keys::CREATE_PARAMS)))?;
                Some(params.spliced(&[("input", &prompt.messages(&row).map_err(bad)?)]))
            }
        };
        let mut changes = vec![(keys::AGENT_REF, agent_ref.as_str())];
        changes.extend(params.as_deref().map(|params| (keys::CREATE_PARAMS, params)));
        for _ in 0..dataset.num_repeats.unwrap_or(1) {
            row.splice_into(&changes, out);
            out.push(b'\n');
            rows += 1;
        }
    }
    Ok(rows)
}

fn compacted_row(text: &str) -> Result<String, serde_json::Error> {
    Members::parse(text)?;
    Ok(compacted(text))
}

/// Reads a prompt config.
pub fn read_prompt(file: &FoundFile) -> Result<Prompt, CollectError> {
    let path = PathBuf::from(file.display());
    let bytes = file.read().map_err(CollectError::read(&path))?;
    let text = String::from_utf8_lossy(&bytes);
    let value =
        parse_yaml(&text).map_err(|reason| CollectError::Prompt { path: path.clone(), reason })?;
    Prompt::from_value(&value).map_err(|reason| CollectError::Prompt { path, reason })
}

/// Reads a small YAML mapping.
pub fn parse_yaml(text: &str) -> Result<serde_json::Value, String> {
    match GlobalConfig::from_yaml_text(text, std::collections::BTreeMap::new()) {
        Ok(config) => Ok(config.value().clone()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn config(datasets: &str) -> GlobalConfig {
        let text = format!(
            "weather_agent:\n  responses_api_agents:\n    simple_agent:\n      entrypoint: app.py\n      host: 127.0.0.1\n      port: 1\n      datasets: {datasets}\n"
        );
        GlobalConfig::from_yaml_text(&text, BTreeMap::new()).unwrap()
    }

    #[test]
    fn the_rows_of_a_split_are_put_together_with_their_agent() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("d.jsonl"),
            "{\"responses_create_params\": {}, \"id\": 1}\n\n",
        )
        .unwrap();
        let roots = Roots::new(&[], None, dir.path(), &[]);
        let config = config(
            "[{name: t, type: train, jsonl_fpath: d.jsonl, num_repeats: 2}, {name: e, type: example, jsonl_fpath: none.jsonl}]",
        );
        let output = dir.path().join("out.jsonl");
        let collated = collate(&config, &roots, "train", &output).unwrap();
        assert_eq!((collated.rows, collated.datasets.as_slice()), (2, ["t".to_owned()].as_slice()));
        assert_eq!(collated.path, dir.path().join("out/preprocessed_datasets/train.jsonl"));
        let text = std::fs::read_to_string(&collated.path).unwrap();
        let line = r#"{"responses_create_params":{},"id":1,"agent_ref":{"type":"responses_api_agents","name":"weather_agent"}}"#;
        assert_eq!(text, format!("{line}\n{line}\n"));

        let error = collate(&config, &roots, "example", &output).unwrap_err();
        assert_eq!(error.to_string(), "data file \"none.jsonl\" of dataset \"e\" does not exist");
        let error = collate(&config, &roots, "benchmark", &output).unwrap_err();
        assert_eq!(error.to_string(), "no dataset of the config is of split \"benchmark\"");
        assert_eq!(error.hint().unwrap(), "it has train, example; or give the rows with --input");
    }

    #[test]
    fn the_prompt_of_a_dataset_builds_its_input() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("d.jsonl"), "{\"q\":\"why\"}\n").unwrap();
        std::fs::write(dir.path().join("p.yaml"), "user: \"{q}?\"\n").unwrap();
        let roots = Roots::new(&[], None, dir.path(), &[]);
        let config =
            config("[{name: b, type: benchmark, jsonl_fpath: d.jsonl, prompt_config: p.yaml}]");
        let collated = collate(&config, &roots, "benchmark", &dir.path().join("o.jsonl")).unwrap();
        let text = std::fs::read_to_string(collated.path).unwrap();
        assert!(
            text.contains(
                r#""responses_create_params":{"input":[{"role":"user","content":"why?"}]}"#
            ),
            "{text}"
        );
    }

    #[test]
    fn malformed_data_is_named_by_file_and_line() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("d.jsonl"), "{}\n{\n").unwrap();
        let roots = Roots::new(&[], None, dir.path(), &[]);
        let config = config("[{name: t, type: train, jsonl_fpath: d.jsonl}]");
        let message =
            collate(&config, &roots, "train", &dir.path().join("o.jsonl")).unwrap_err().to_string();
        assert!(message.contains("d.jsonl\", line 2: "), "{message}");
    }
}
