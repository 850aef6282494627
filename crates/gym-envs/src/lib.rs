//! The built-in agent, model and resources servers.
//!
//! [`builtin`] is the table of them. Their shipped configs and example rows are in [`assets`].

pub mod assets;
pub mod builtin;
pub mod example_multi_step;
pub mod example_sandbox;
pub mod example_session_state_mgmt;
pub mod example_single_tool_call;
pub mod openai_model;
pub mod scripted_model;
pub mod serve_openai;
pub mod simple_agent;
pub mod vllm_model;
