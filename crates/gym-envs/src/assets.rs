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
