//! The table of built-in implementations.

use std::process::ExitCode;

use gym_server::agent::{self, AgentServer};
use gym_server::http::Service;
use gym_server::instance::{InstanceConfig, ServerType};
use gym_server::model::server::{self as model, ModelServer};
use gym_server::program::{Cause, run_instance};
use gym_server::resources::{self, FromInstance, ResourcesServer};

use crate::example_multi_step::ExampleMultiStep;
use crate::example_sandbox::ExampleSandbox;
use crate::example_session_state_mgmt::ExampleSessionStateMgmt;
use crate::example_single_tool_call::ExampleSingleToolCall;
use crate::openai_model::OpenAiModel;
use crate::scripted_model::ScriptedModel;
use crate::simple_agent::SimpleAgent;
use crate::vllm_model::VllmModel;

type Make = fn(&InstanceConfig) -> Result<Service, Cause>;

const TABLE: &[(ServerType, &str, Make)] = &[
    (ServerType::ResourcesServers, "example_multi_step", resources_server::<ExampleMultiStep>),
    (ServerType::ResourcesServers, "example_sandbox", resources_server::<ExampleSandbox>),
    (
        ServerType::ResourcesServers,
        "example_session_state_mgmt",
        resources_server::<ExampleSessionStateMgmt>,
    ),
    (
        ServerType::ResourcesServers,
        "example_single_tool_call",
        resources_server::<ExampleSingleToolCall>,
    ),
    (ServerType::ResponsesApiAgents, "simple_agent", agent_server::<SimpleAgent>),
    (ServerType::ResponsesApiModels, "openai_model", model_server::<OpenAiModel>),
    (ServerType::ResponsesApiModels, "scripted_model", model_server::<ScriptedModel>),
    (ServerType::ResponsesApiModels, "vllm_model", model_server::<VllmModel>),
];

/// Type and name of every built-in implementation.
pub const BUILTINS: &[(ServerType, &str)] = &{
    let mut names = [(ServerType::ResourcesServers, ""); TABLE.len()];
    let mut index = 0;
    while index < TABLE.len() {
        names[index] = (TABLE[index].0, TABLE[index].1);
        index += 1;
    }
    names
};

/// The routes of a built-in instance.
///
/// # Errors
///
/// When there is no such implementation, or the instance's block does not fit it.
pub fn service(instance: &InstanceConfig) -> Result<Service, Cause> {
    let made = TABLE.iter().find(|(server_type, name, _)| {
        *server_type == instance.server_type && *name == instance.implementation
    });
    match made {
        Some((_, _, make)) => make(instance),
        None => Err(Unknown::of(instance).into()),
    }
}

/// Serves an instance with its built-in implementation, as this process, until it is told to end.
#[must_use]
pub fn run(instance: InstanceConfig) -> ExitCode {
    run_instance(instance, service)
}

/// An implementation that is not built in.
#[derive(Debug, thiserror::Error)]
#[error("there is no built-in {server_type} {implementation:?}; the built-in ones are {known}")]
struct Unknown {
    server_type: ServerType,
    implementation: String,
    known: String,
}

impl Unknown {
    fn of(instance: &InstanceConfig) -> Self {
        let known: Vec<_> = BUILTINS
            .iter()
            .filter(|(server_type, _)| *server_type == instance.server_type)
            .map(|(_, name)| *name)
            .collect();
        Unknown {
            server_type: instance.server_type,
            implementation: instance.implementation.clone(),
            known: known.join(", "),
        }
    }
}

fn resources_server<S: ResourcesServer + FromInstance>(
    instance: &InstanceConfig,
) -> Result<Service, Cause> {
    Ok(resources::service(S::from_instance(instance)?, instance))
}

fn agent_server<S: AgentServer + FromInstance>(
    instance: &InstanceConfig,
) -> Result<Service, Cause> {
    Ok(agent::service(S::from_instance(instance)?, instance))
}

fn model_server<S: ModelServer + FromInstance>(
    instance: &InstanceConfig,
) -> Result<Service, Cause> {
    Ok(model::service(S::from_instance(instance)?, instance))
}
