use serde_json::json;

use super::*;

const MODEL: &str = "model:\n  responses_api_models:\n    vllm_model:\n      entrypoint: app.py\n";

fn with(text: &str, overrides: &[&str]) -> (tempfile::TempDir, LoadRequest) {
    let dir = dir(&[("a.yaml", text)]);
    let mut request = request(dir.path(), overrides);
    request.config_paths = vec!["a.yaml".to_owned()];
    (dir, request)
}

fn told(text: &str, overrides: &[&str]) -> String {
    let (_dir, request) = with(text, overrides);
    message(&request)
}

#[test]
fn a_block_that_is_almost_an_instance_is_an_error_with_its_place() {
    let all = [
        told(
            "r:\n  resources_servers:\n    weather:\n      entrypoint: app.py\n      domain: maths\n",
            &[],
        ),
        told("r:\n  resources_servers:\n    weather: {entrypoint: app.py}\n", &[]),
        told(&format!("{MODEL}      port: 70000\n      num_workers: 0\n"), &[]),
        told(
            "r:\n  responses_api_models:\n    vllm_model: {entrypoint: app.py}\n    openai_model: {entrypoint: app.py}\n",
            &[],
        ),
        told(&format!("{MODEL}  resources_servers: {{}}\n"), &[]),
        told(
            &format!(
                "{MODEL}      datasets:\n      - {{name: d, type: train, jsonl_fpath: x.jsonl, num_repeats: 0}}\n"
            ),
            &[],
        ),
    ];
    insta::assert_snapshot!(all.join("\n\n"), @r#"
    error: DIR/a.yaml:5:15: r.resources_servers.weather.domain: expected one of math, coding, agent, knowledge, instruction_following, long_context, safety, games, translation, e2e, rlhf, other, got "maths"
    hint: did you mean math? `++error_on_almost_servers=false` ignores such blocks

    error: DIR/a.yaml:3:5: r.resources_servers.weather.domain: is required, expected one of math, coding, agent, knowledge, instruction_following, long_context, safety, games, translation, e2e, rlhf, other
    hint: `++error_on_almost_servers=false` ignores such blocks

    error: DIR/a.yaml:5:13: model.responses_api_models.vllm_model.port: expected a port between 0 and 65535, got 70000; DIR/a.yaml:6:20: model.responses_api_models.vllm_model.num_workers: expected an integer from 1, got 0
    hint: `++error_on_almost_servers=false` ignores such blocks

    error: DIR/a.yaml:2:3: r.responses_api_models: expected one implementation, got vllm_model and openai_model
    hint: `++error_on_almost_servers=false` ignores such blocks

    error: DIR/a.yaml:1:1: model: expected one server type, got resources_servers and responses_api_models
    hint: `++error_on_almost_servers=false` ignores such blocks

    error: DIR/a.yaml:6:9: model.responses_api_models.vllm_model.datasets[0].license: is required, expected a known license, e.g. Apache 2.0, MIT or TBD; DIR/a.yaml:6:67: model.responses_api_models.vllm_model.datasets[0].num_repeats: expected an integer from 1, got 0
    hint: `++error_on_almost_servers=false` ignores such blocks
    "#);
}

#[test]
fn almost_instances_can_be_ignored() {
    let text = format!(
        "{MODEL}r:\n  resources_servers:\n    weather: {{entrypoint: app.py, domain: maths}}\n"
    );
    let (_dir, request) = with(&text, &["++error_on_almost_servers=false"]);
    let config = load_counted(&request).unwrap();
    assert_eq!(config.instances().len(), 1);
    assert_eq!(config.warnings().len(), 1);
}

#[test]
fn a_reference_must_name_an_instance_of_its_type() {
    let agent = |name: &str| {
        format!(
            "{MODEL}agent:\n  responses_api_agents:\n    simple_agent:\n      entrypoint: app.py\n      \
             model_server:\n        type: responses_api_models\n        name: {name}\n"
        )
    };
    let all =
        [told(&agent("modle"), &[]), told(&agent("policy_model"), &[]), told(&agent("agent"), &[])];
    insta::assert_snapshot!(all.join("\n\n"), @r#"
    error: DIR/a.yaml:11:15: agent.responses_api_agents.simple_agent.model_server.name: no responses_api_models instance is named "modle", expected model
    hint: did you mean model?

    error: DIR/a.yaml:11:15: agent.responses_api_agents.simple_agent.model_server.name: no responses_api_models instance is named "policy_model", expected model

    error: DIR/a.yaml:11:15: agent.responses_api_agents.simple_agent.model_server.name: no responses_api_models instance is named "agent", expected model
    "#);
    let (_dir, request) = with(&agent("model"), &[]);
    assert_eq!(load_counted(&request).unwrap().instances().len(), 2);
}

#[test]
fn an_unresolved_interpolation_in_an_instance_is_an_error_before_anything_starts() {
    let dir = dir(&[]);
    let mut request =
        request(dir.path(), &["+policy_base_url=u", "+policy_model_nam=m", "+policy_api_key=k"]);
    request.resources_server = Some("weather".to_owned());
    request.model_type = Some("vllm_model".to_owned());
    insta::assert_snapshot!(message(&request), @r#"
    error: responses_api_models/vllm_model/configs/vllm_model.yaml:7:14: policy_model.responses_api_models.vllm_model.model: `${policy_model_name}` refers to policy_model_name, which does not exist
    hint: set it: `--model <value>` or `++policy_model_name=<value>`; or did you mean policy_model_nam?
    "#);
}

#[test]
fn explicit_addresses_stay_and_are_avoided() {
    let text = format!(
        "{MODEL}      port: 10001\n      host: 0.0.0.0\nother:\n  responses_api_models:\n    openai_model:\n      entrypoint: app.py\n      port: ${{p}}\np: 10002\nthird:\n  extra: 1\n  responses_api_models:\n    openai_model: {{entrypoint: app.py}}\n"
    );
    let (_dir, request) = with(
        &text,
        &["+default_host=127.0.0.9", "+head_server.port=10003", "+disallowed_ports=[10004]"],
    );
    let config = load_counted(&request).unwrap();
    let shown: Vec<_> =
        config.instances().iter().map(|i| format!("{}:{}", i.host, i.port)).collect();
    assert_eq!(shown, ["0.0.0.0:10001", "127.0.0.9:10002", "127.0.0.9:10005"]);
    assert_eq!(config.head_server(), ("127.0.0.9".to_owned(), 10003));
    assert_eq!(config.value()["disallowed_ports"], json!([10001, 10002, 10003, 10004, 10005]));
    assert_eq!(config.value()["other"]["responses_api_models"]["openai_model"]["port"], 10002);
    assert_eq!(
        config.value()["third"].as_object().unwrap().keys().next().unwrap(),
        "responses_api_models"
    );
}

#[test]
fn without_a_free_port_the_range_is_named() {
    let (_dir, request) = with(MODEL, &["+port_range_low=10001", "+port_range_high=10050"]);
    let taken: Vec<u16> = (10001..10100).collect();
    let error = load_with_ports(&request, &mut CountedPorts::new(&taken)).unwrap_err();
    assert_eq!(error.to_string(), "found no free port for model in 10001-10050 after 50 tries");
}

#[test]
fn two_servers_on_one_address_are_an_error() {
    let both = format!(
        "{MODEL}      port: 10001\n{}",
        MODEL.replacen("model:", "second:", 1) + "      port: 10001\n"
    );
    let head = format!("{MODEL}      port: 11000\n");
    let all = [told(&both, &[]), told(&head, &[])];
    insta::assert_snapshot!(all.join("\n"), @r#"
    error: DIR/a.yaml:10:13: second.responses_api_models.vllm_model.port: 127.0.0.1:10001 is already the address of model
    error: DIR/a.yaml:5:13: model.responses_api_models.vllm_model.port: 127.0.0.1:11000 is already the address of the head server
    "#);
}

#[test]
fn a_system_port_lies_in_its_range() {
    let mut ports = SystemPorts::default();
    let proposed: std::collections::BTreeSet<u16> =
        (0..200).map(|_| ports.propose(10001, 10004)).collect();
    assert_eq!(proposed.into_iter().collect::<Vec<_>>(), [10001, 10002, 10003, 10004]);
    let held = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    assert!(!ports.is_free(held.local_addr().unwrap().port()));
}

#[test]
fn settings_of_the_wrong_type_are_errors() {
    let all = [
        told(MODEL, &["+port_range_low=x"]),
        told(MODEL, &["+port_range_low=500", "+port_range_high=400"]),
        told(MODEL, &["+head_server={port: 0}"]),
        told(MODEL, &["+use_absolute_ip=maybe"]),
    ];
    insta::assert_snapshot!(all.join("\n\n"), @r#"
    error: override `+port_range_low=x`: port_range_low: expected a port between 1 and 65535, got "x"

    error: override `+port_range_high=400`: port_range_high: expected at least port_range_low (500), got 400

    error: override `+head_server={port: 0}`: head_server.port: expected a port between 1 and 65535, got 0

    error: override `+use_absolute_ip=maybe`: use_absolute_ip: expected true or false, got "maybe"
    "#);
}

#[test]
fn the_program_is_what_lies_on_disk_else_the_builtin() {
    use std::os::unix::fs::PermissionsExt as _;
    let python = dir(&[
        ("responses_api_models/vllm_model/app.py", ""),
        ("responses_api_models/openai_model/serve", ""),
    ]);
    let serve = python.path().join("responses_api_models/openai_model/serve");
    let program = |overrides: &[&str]| {
        let dir = dir(&[("a.yaml", MODEL)]);
        let mut request = request(dir.path(), overrides);
        request.config_paths = vec!["a.yaml".to_owned()];
        request.search_dirs = vec![python.path().to_owned()];
        load_counted(&request).map(|config| config.instances()[0].program.clone())
    };
    let block = "model.responses_api_models.vllm_model";
    let vllm = python.path().join("responses_api_models/vllm_model");
    assert_eq!(
        program(&[]).unwrap(),
        Program::Python { dir: vllm, entrypoint: "app.py".to_owned() }
    );
    assert_eq!(program(&[&format!("++{block}.runtime=builtin")]).unwrap(), Program::Builtin);
    assert_eq!(program(&[&format!("++{block}.entrypoint=other.py")]).unwrap(), Program::Builtin);

    let exec = format!("++{block}.entrypoint={}", serve.display());
    let refused = program(&[&exec]).unwrap_err().to_string();
    assert!(refused.ends_with("is not executable (`chmod +x` it)"), "{refused}");
    std::fs::set_permissions(&serve, std::fs::Permissions::from_mode(0o755)).unwrap();
    let dir = serve.parent().unwrap().to_owned();
    assert_eq!(program(&[&exec]).unwrap(), Program::Exec { dir, path: serve });
}

#[test]
fn an_instance_that_nothing_serves_lists_roots_and_builtins() {
    let block = |implementation: &str, more: &str| {
        format!(
            "m:\n  responses_api_models:\n    {implementation}:\n      entrypoint: app.py\n{more}"
        )
    };
    let all = [
        told(&block("vlm_model", ""), &[]),
        told(&block("vllm_model", "      runtime: python\n"), &[]),
        told(&block("vllm_model", "      runtime: docker\n"), &[]),
        told("r:\n  resources_servers:\n    chess: {runtime: builtin, domain: games}\n", &[]),
    ];
    insta::assert_snapshot!(all.join("\n\n"), @r#"
    error: DIR/a.yaml:3:5: m: nothing serves responses_api_models/vlm_model: no responses_api_models/vlm_model/app.py, and no built-in of that name
    hint: did you mean vllm_model? searched in DIR; built in are vllm_model, openai_model

    error: DIR/a.yaml:3:5: m: nothing serves responses_api_models/vllm_model: runtime python needs responses_api_models/vllm_model/app.py
    hint: searched in DIR; built in are vllm_model, openai_model

    error: DIR/a.yaml:5:16: m.responses_api_models.vllm_model.runtime: expected one of builtin, python, exec, got "docker"
    hint: `++error_on_almost_servers=false` ignores such blocks

    error: DIR/a.yaml:3:5: r: nothing serves resources_servers/chess: there is no such built-in
    hint: searched in DIR; built in are weather
    "#);
}

#[test]
fn skip_verification_reaches_agents_that_have_no_value_of_their_own() {
    let text = "a:\n  responses_api_agents:\n    simple_agent: {entrypoint: app.py}\nb:\n  responses_api_agents:\n    simple_agent: {entrypoint: app.py, skip_verification: false}\n";
    let (_dir, request) = with(text, &["+skip_verification=true", "+skip_verification_reward=0.5"]);
    let config = load_counted(&request).unwrap();
    let block = |name: &str| config.instance_config(name).unwrap().block;
    assert_eq!(block("a")["skip_verification"], true);
    assert_eq!(block("b")["skip_verification"], false);
    assert_eq!(block("b")["skip_verification_reward"], 0.5);
}

#[test]
fn an_incomplete_block_is_data_with_a_warning_and_defaults_are_filled_in() {
    let (dir, request) =
        with("model:\n  responses_api_models:\n    vllm_model: {base_url: u}\n", &[]);
    let config = load_counted(&request).unwrap();
    assert!(matches!(config.require_instances(), Err(ConfigError::NoInstances)));
    assert!(config.warnings()[0].ends_with("so model is not served"), "{:?}", config.warnings());
    let keys: Vec<_> = config.value().as_object().unwrap().keys().cloned().collect();
    assert_eq!(
        keys,
        [
            "model",
            "config_paths",
            "use_absolute_ip",
            "port_range_low",
            "port_range_high",
            "head_server",
            "disallowed_ports",
            "allow_openai_version_skew",
            "skip_venv_if_present",
            "dry_run",
            "model_endpoint_readiness_timeout_seconds",
            "results_dir",
            "cache_dir",
        ]
    );
    assert_eq!(config.get("results_dir").unwrap(), json!(dir.path().join("results")));
}

#[test]
fn the_config_of_a_running_fleet_is_read_as_it_is() {
    let text = "head_server: {host: 127.0.0.1, port: 12000}\nmodel:\n  responses_api_models:\n    anything:\n      entrypoint: app.py\n      host: 127.0.0.1\n      port: 12001\n      url: ${u}\nu: x\nbroken: {resources_servers: {}}\n";
    let config = GlobalConfig::from_yaml_text(text, BTreeMap::new()).unwrap();
    assert_eq!(config.head_server(), ("127.0.0.1".to_owned(), 12000));
    assert_eq!(config.endpoint("model").unwrap().authority(), "127.0.0.1:12001");
    assert_eq!(config.instance_config("model").unwrap().block["url"], "x");
    let error = config.instance_config("modle").unwrap_err();
    assert_eq!(error.to_string(), "the config has no instance \"modle\", expected model");
    assert_eq!(error.hint().unwrap(), "did you mean model?");
    assert!(GlobalConfig::from_yaml_text("[1]", BTreeMap::new()).is_err());
}
