//! Behaviour of the whole loader.

use std::path::Path;

use serde_json::{Value, json};

use super::*;

mod directives;
mod emit;
mod instances;
mod interpolate;
mod layers;
mod overrides;
mod yaml;

/// Ports 10001, 10002, … of which some are taken.
pub(super) struct CountedPorts {
    next: u16,
    taken: Vec<u16>,
}

impl CountedPorts {
    pub(super) fn new(taken: &[u16]) -> Self {
        Self { next: 10000, taken: taken.to_vec() }
    }
}

impl PortSource for CountedPorts {
    fn propose(&mut self, _low: u16, _high: u16) -> u16 {
        self.next += 1;
        self.next
    }

    fn is_free(&mut self, port: u16) -> bool {
        !self.taken.contains(&port)
    }
}

pub(super) const BUILTINS: &[(ServerType, &str)] = &[
    (ServerType::ResourcesServers, "weather"),
    (ServerType::ResponsesApiModels, "vllm_model"),
    (ServerType::ResponsesApiModels, "openai_model"),
    (ServerType::ResponsesApiAgents, "simple_agent"),
];

pub(super) const EMBEDDED: &[EmbeddedFile] = &[
    EmbeddedFile {
        path: "resources_servers/weather/configs/weather.yaml",
        bytes: b"weather:
  resources_servers:
    weather:
      entrypoint: app.py
      domain: agent
weather_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server:
        type: resources_servers
        name: weather
      model_server:
        type: responses_api_models
        name: policy_model
",
    },
    EmbeddedFile {
        path: "responses_api_models/vllm_model/configs/vllm_model.yaml",
        bytes: b"policy_model:
  responses_api_models:
    vllm_model:
      entrypoint: app.py
      base_url: ${policy_base_url}
      api_key: ${policy_api_key}
      model: ${policy_model_name}
",
    },
];

/// A directory with files.
pub(super) fn dir(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    dir
}

pub(super) fn request(cwd: &Path, overrides: &[&str]) -> LoadRequest {
    LoadRequest {
        overrides: overrides.iter().map(|token| (*token).to_owned()).collect(),
        cwd: cwd.to_owned(),
        embedded: EMBEDDED,
        builtins: BUILTINS,
        assign_ports: true,
        ..LoadRequest::default()
    }
}

pub(super) fn load_counted(request: &LoadRequest) -> Result<GlobalConfig, ConfigError> {
    load_with_ports(request, &mut CountedPorts::new(&[]))
}

/// Message and hint, with the temporary directory taken out.
pub(super) fn message(request: &LoadRequest) -> String {
    let error = match load_counted(request) {
        Ok(config) => panic!("expected an error, got {}", config.value()),
        Err(error) => error,
    };
    let mut text = format!("error: {error}");
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text = format!("{text}\ncaused by: {cause}");
        source = cause.source();
    }
    if let Some(hint) = error.hint() {
        text = format!("{text}\nhint: {hint}");
    }
    text.replace(&request.cwd.display().to_string(), "DIR")
}

pub(super) fn pick(value: &Value, keys: &[&str]) -> Value {
    keys.iter().map(|key| ((*key).to_owned(), value[*key].clone())).collect()
}

#[test]
fn two_selectors_and_three_overrides_make_a_fleet() {
    let dir = dir(&[]);
    let mut request = request(
        dir.path(),
        &["+policy_base_url=http://127.0.0.1:9/v1", "+policy_api_key=k", "+policy_model_name=m"],
    );
    request.resources_server = Some("weather".to_owned());
    request.model_type = Some("vllm_model".to_owned());
    let config = load_with_ports(&request, &mut CountedPorts::new(&[10002])).unwrap();

    let shown: Vec<_> = config
        .instances()
        .iter()
        .map(|i| {
            format!(
                "{} {}/{} {}:{} {}",
                i.name,
                i.server_type,
                i.implementation,
                i.host,
                i.port,
                i.program.runtime()
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            "weather resources_servers/weather 127.0.0.1:10001 builtin",
            "weather_agent responses_api_agents/simple_agent 127.0.0.1:10003 builtin",
            "policy_model responses_api_models/vllm_model 127.0.0.1:10004 builtin",
        ]
    );
    assert_eq!(config.head_server(), ("127.0.0.1".to_owned(), 11000));
    assert_eq!(config.value()["disallowed_ports"], json!([10001, 10003, 10004, 11000]));

    let text = serde_json::to_string(config.value()).unwrap();
    for text in [text, to_yaml(config.value())] {
        let model = GlobalConfig::from_child_env(&text, "policy_model", &BTreeMap::new()).unwrap();
        assert_eq!(model.port, 10004);
        assert_eq!(
            Value::Object(model.block),
            json!({
                "entrypoint": "app.py", "base_url": "http://127.0.0.1:9/v1", "api_key": "k", "model": "m",
                "host": "127.0.0.1", "port": 10004, "name": "policy_model",
            })
        );
        let agent = GlobalConfig::from_child_env(&text, "weather_agent", &BTreeMap::new()).unwrap();
        assert_eq!(agent.endpoint_of("model_server").unwrap().authority(), "127.0.0.1:10004");
    }
}
