//! Files that travel inside the binary: shipped configs and example rows, at the paths under
//! which a checkout of the Python reference has them.
//!
//! They are the last search root, so that a name like `--resources-server
//! example_single_tool_call` works from an empty folder, and a file on disk always wins.

use gym_server::config::EmbeddedFile;

/// Every embedded file.
pub static FILES: &[EmbeddedFile] = &[
    EmbeddedFile {
        path: "resources_servers/example_multi_step/configs/example_multi_step.yaml",
        bytes: include_bytes!(
            "../assets/resources_servers/example_multi_step/configs/example_multi_step.yaml"
        ),
    },
    EmbeddedFile {
        path: "resources_servers/example_multi_step/data/example.jsonl",
        bytes: include_bytes!("../assets/resources_servers/example_multi_step/data/example.jsonl"),
    },
    EmbeddedFile {
        path: "resources_servers/example_sandbox/configs/example_sandbox.yaml",
        bytes: include_bytes!(
            "../assets/resources_servers/example_sandbox/configs/example_sandbox.yaml"
        ),
    },
    EmbeddedFile {
        path: "resources_servers/example_sandbox/data/example.jsonl",
        bytes: include_bytes!("../assets/resources_servers/example_sandbox/data/example.jsonl"),
    },
    EmbeddedFile {
        path: "resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt.yaml",
        bytes: include_bytes!(
            "../assets/resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt.yaml"
        ),
    },
    EmbeddedFile {
        path: "resources_servers/example_session_state_mgmt/data/example.jsonl",
        bytes: include_bytes!(
            "../assets/resources_servers/example_session_state_mgmt/data/example.jsonl"
        ),
    },
    EmbeddedFile {
        path: "resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml",
        bytes: include_bytes!(
            "../assets/resources_servers/example_single_tool_call/configs/example_single_tool_call.yaml"
        ),
    },
    EmbeddedFile {
        path: "resources_servers/example_single_tool_call/data/example.jsonl",
        bytes: include_bytes!(
            "../assets/resources_servers/example_single_tool_call/data/example.jsonl"
        ),
    },
    EmbeddedFile {
        path: "responses_api_agents/simple_agent/configs/simple_agent.yaml",
        bytes: include_bytes!(
            "../assets/responses_api_agents/simple_agent/configs/simple_agent.yaml"
        ),
    },
    EmbeddedFile {
        path: "responses_api_models/openai_model/configs/openai_model.yaml",
        bytes: include_bytes!(
            "../assets/responses_api_models/openai_model/configs/openai_model.yaml"
        ),
    },
    EmbeddedFile {
        path: "responses_api_models/scripted_model/configs/scripted_model.yaml",
        bytes: include_bytes!(
            "../assets/responses_api_models/scripted_model/configs/scripted_model.yaml"
        ),
    },
    EmbeddedFile {
        path: "responses_api_models/vllm_model/configs/vllm_model.yaml",
        bytes: include_bytes!("../assets/responses_api_models/vllm_model/configs/vllm_model.yaml"),
    },
];

/// The bytes of the embedded file at `path`, e.g.
/// `resources_servers/example_multi_step/data/example.jsonl`.
#[must_use]
pub fn find(path: &str) -> Option<&'static [u8]> {
    FILES.iter().find(|file| file.path == path).map(|file| file.bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gym_server::config::{GlobalConfig, LoadRequest, load};
    use gym_server::instance::ServerType;
    use serde_json::Value;

    use super::*;

    const BUILTINS: &[(ServerType, &str)] = &[
        (ServerType::ResourcesServers, "example_single_tool_call"),
        (ServerType::ResourcesServers, "example_multi_step"),
        (ServerType::ResourcesServers, "example_sandbox"),
        (ServerType::ResourcesServers, "example_session_state_mgmt"),
        (ServerType::ResponsesApiModels, "vllm_model"),
        (ServerType::ResponsesApiModels, "openai_model"),
        (ServerType::ResponsesApiModels, "scripted_model"),
        (ServerType::ResponsesApiAgents, "simple_agent"),
    ];

    const EXAMPLES: [&str; 4] = [
        "example_single_tool_call",
        "example_multi_step",
        "example_sandbox",
        "example_session_state_mgmt",
    ];

    fn fleet(environment: &str, model: &str, overrides: &[&str]) -> GlobalConfig {
        let request = LoadRequest {
            resources_server: Some(environment.to_owned()),
            model_type: Some(model.to_owned()),
            overrides: overrides.iter().map(|token| (*token).to_owned()).collect(),
            environment_variables: BTreeMap::new(),
            cwd: "/nonexistent".into(),
            embedded: FILES,
            builtins: BUILTINS,
            ..LoadRequest::default()
        };
        load(&request).unwrap_or_else(|error| panic!("{environment} {model}: {error}"))
    }

    #[test]
    fn every_example_runs_with_every_model_from_an_empty_folder() {
        let policy = ["+policy_base_url=http://h/v1", "+policy_api_key=k", "+policy_model_name=m"];
        for environment in EXAMPLES {
            assert_eq!(fleet(environment, "scripted_model", &[]).instances().len(), 3);
            for model in ["vllm_model", "openai_model"] {
                let config = fleet(environment, model, &policy);
                let block = config.instance_config("policy_model").unwrap().block;
                assert!(block.values().any(|value| value == "http://h/v1"), "{block:?}");
            }
        }
    }

    #[test]
    fn the_agent_of_an_example_names_its_example_rows() {
        for environment in EXAMPLES {
            let config = fleet(environment, "scripted_model", &[]);
            let agent = &config.instances()[1];
            assert_eq!(agent.server_type, ServerType::ResponsesApiAgents);
            let block = config.instance_config(&agent.name).unwrap().block;
            let path = block["datasets"][0]["jsonl_fpath"].as_str().unwrap().to_owned();
            assert!(find(&path).is_some(), "{path}");
        }
    }

    #[test]
    fn there_are_five_rows_of_every_example_and_each_declares_its_tools() {
        for environment in EXAMPLES {
            let path = format!("resources_servers/{environment}/data/example.jsonl");
            let text = std::str::from_utf8(find(&path).unwrap()).unwrap();
            let rows: Vec<Value> =
                text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(rows.len(), 5, "{path}");
            for row in rows {
                let params = &row["responses_create_params"];
                assert!(!params["input"].as_array().unwrap().is_empty());
                assert!(!params["tools"].as_array().unwrap().is_empty());
            }
        }
    }

    #[test]
    fn expected_synonym_values_are_sums_of_code_points() {
        let text = find("resources_servers/example_multi_step/data/example.jsonl").unwrap();
        for line in std::str::from_utf8(text).unwrap().lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            let sum = |word: &Value| word.as_str().unwrap().chars().map(u32::from).sum::<u32>();
            let words = row["expected_synonyms"].as_array().unwrap();
            let values: Vec<u32> = words.iter().map(sum).collect();
            assert_eq!(row["expected_synonym_values"], Value::from(values));
            assert_eq!(row["minefield_label_value"], Value::from(sum(&row["minefield_label"])));
        }
    }
}
