//! Rows, configs, ports and command lines that cannot be used.

use super::*;

#[test]
fn a_bad_row_a_bad_name_or_a_bad_file_is_named_before_anything_is_collected() {
    let fleet = scripted(0);
    let folder = fleet.folder.path();
    let good = std::fs::read_to_string(weather_rows(folder)).expect("rows");
    let first = good.lines().next().expect("a row");
    let file = |name: &str, second: &str| {
        std::fs::write(folder.join(name), format!("{first}\n{second}\n")).expect("writes");
    };
    file("garbled.jsonl", "not json");
    file("bare.jsonl", r#"{"question": 1}"#);
    file("unknown.jsonl", &first.replacen("\"input\"", "\"temprature\": 1, \"input\"", 1));
    let collect = |input: &str, out: &str, agent: &str| {
        let mut command = fleet.eval_run(&["--input", input, "--output", out, "--agent", agent]);
        let ended = output(&mut command);
        (ended.status.code(), text(&ended.stderr))
    };
    let refused: [(&str, &str, &str, &[&str]); 6] = [
        (
            "garbled.jsonl",
            "o.jsonl",
            AGENT,
            &["bad row in \"garbled.jsonl\", line 2: not a JSON object"],
        ),
        ("bare.jsonl", "o.jsonl", AGENT, &["line 2: `responses_create_params` is missing"]),
        (
            "nowhere.jsonl",
            "o.jsonl",
            AGENT,
            &["input file \"nowhere.jsonl\" does not exist", "hint: looked under"],
        ),
        (".", "o.jsonl", AGENT, &["cannot read \".\"\n  caused by: is a directory"]),
        (
            "rows.jsonl",
            "rows.jsonl",
            AGENT,
            &["\"rows.jsonl\" is both input and output", "hint: give another --output"],
        ),
        (
            "rows.jsonl",
            "o.jsonl",
            "example_single_tool_call_simpel_agent",
            &[
                "no agent is called",
                "hint: did you mean \"example_single_tool_call_simple_agent\"?",
            ],
        ),
    ];
    for (input, out, agent, parts) in refused {
        let (code, said) = collect(input, out, agent);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.starts_with("error: "), "{said}");
        assert_says(&said, parts);
        assert!(!folder.join("o.jsonl").exists(), "{input}");
    }
    assert_eq!(std::fs::read_to_string(folder.join("rows.jsonl")).expect("rows"), good);

    let (code, said) = collect("unknown.jsonl", "made/for/it/o.jsonl", AGENT);
    assert_eq!(code, Some(1), "{said}");
    assert_says(&said, &["collected: 1 done, 1 failed", "the agent answered 422: ", "temprature"]);
    assert_eq!(rows(&folder.join("made/for/it/o_failures.jsonl")).len(), 1);
}

#[test]
fn every_bad_config_is_one_message_with_its_place_and_exit_code_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("writes");
    };
    file("broken.yaml", "a:\n  b: [1,\nc: 2\n");
    file(
        "typed.yaml",
        "tools:\n  resources_servers:\n    example_single_tool_call:\n      entrypoint: app.py\n      domain: agent\n\
         runner:\n  responses_api_agents:\n    simple_agent:\n      entrypoint: app.py\n      max_steps: lots\n      \
         resources_server: {type: resources_servers, name: tools}\n      \
         model_server: {type: responses_api_models, name: policy_model}\n",
    );
    let vllm = ["--resources-server", RESOURCES, "--model-type", "vllm_model"];
    let model = "policy_model.responses_api_models";
    let agent = "example_single_tool_call_simple_agent.responses_api_agents.simple_agent";
    let reference = format!("++{agent}.model_server.name=policy_modl");
    let latency = format!("++{model}.scripted_model.latency={{kind: fixd}}");
    let cases: Vec<(Vec<&str>, Vec<&str>)> = vec![
        (vec!["--config", "broken.yaml"], vec!["broken.yaml:3:1: malformed YAML"]),
        (
            vec!["--config", "absent.yaml"],
            vec!["config file absent.yaml not found", "hint: searched in "],
        ),
        (
            vec!["--config", "typed.yaml", "--model-type", "scripted_model"],
            vec![
                "typed.yaml:10:18: runner.responses_api_agents.simple_agent.max_steps: \
                 invalid type: string \"lots\"",
            ],
        ),
        (
            vec!["--resources-server", "example_single_tool_cal"],
            vec![
                "--resources-server example_single_tool_cal: no such config",
                "hint: did you mean example_single_tool_call?",
            ],
        ),
        (
            vec!["--resources-server", RESOURCES],
            vec![
                "no responses_api_models instance is named \"policy_model\", the config has none",
                "hint: add one with `--model-type NAME`",
            ],
        ),
        (
            [&vllm[..], &["--model-url", "http://h/v1", "--model-api-key", "k"]].concat(),
            vec![
                "`${policy_model_name}` refers to policy_model_name, which does not exist",
                "hint: set it: `--model <value>`",
            ],
        ),
        (
            [&vllm[..], &["--model-url", "nowhere", "--model-api-key", "k", "--model", "m"]]
                .concat(),
            vec![
                "policy_model.responses_api_models.vllm_model.base_url: \"nowhere\" is not a usable URL",
            ],
        ),
        (
            [&SCRIPTED[..], &[&reference]].concat(),
            vec![
                "no responses_api_models instance is named \"policy_modl\"",
                "hint: did you mean policy_model?",
            ],
        ),
        (
            [&SCRIPTED[..], &[&latency]].concat(),
            vec![
                "policy_model.responses_api_models.scripted_model.latency: unknown variant `fixd`",
            ],
        ),
        (
            [&SCRIPTED[..], &["++a={b"]].concat(),
            vec!["override `++a={b`: a mapping without its closing `}`", "hint: quote the value"],
        ),
        (
            [&SCRIPTED[..], &["++head_server.port=x"]].concat(),
            vec![
                "override `++head_server.port=x`: head_server.port: expected a port between 1 and 65535",
            ],
        ),
        (
            [&SCRIPTED[..], &["++model_retry_timeout_seconds=soon"]].concat(),
            vec!["model_retry_timeout_seconds: expected a number of seconds, got \"soon\""],
        ),
        (
            vec![],
            vec![
                "the config has no server instance",
                "hint: name one with `--resources-server NAME`",
            ],
        ),
    ];
    for (arguments, parts) in cases {
        let mut all = vec!["env", "start"];
        all.extend(arguments);
        let ended = run(&all, folder.path());
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{all:?}:\n{said}");
        assert!(said.starts_with("error: "), "{all:?}:\n{said}");
        assert_eq!(said.matches("error: ").count(), 1, "{all:?}:\n{said}");
        assert_says(&said, &parts);
    }
}

#[test]
fn a_port_in_use_is_told_with_its_holder_and_what_to_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let head = format!("++head_server.port={port}");
    let key = "policy_model.responses_api_models.scripted_model.port";
    let own = format!("++{key}={port}");
    let free = format!("++head_server.port={}", free_port());
    let listen = format!("127.0.0.1:{port}");
    let cases: [(Vec<&str>, &str, String); 3] = [
        (
            [&["env", "start"][..], &SCRIPTED, &[&head]].concat(),
            "the head server cannot listen",
            "++head_server.port=PORT".to_owned(),
        ),
        (
            [&["env", "start"][..], &SCRIPTED, &[&own, &free]].concat(),
            "policy_model cannot listen",
            format!("++{key}=PORT"),
        ),
        (
            vec!["serve-openai", "--listen", &listen],
            "cannot listen",
            "--listen HOST:PORT".to_owned(),
        ),
    ];
    for (arguments, what, hint) in cases {
        let ended = run(&arguments, folder.path());
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{said}");
        let pid = std::process::id();
        assert_says(
            &said,
            &[
                &format!("error: {what} on 127.0.0.1:{port}, which pid {pid} ("),
                ") holds\n",
                "hint: ",
                &hint,
            ],
        );
    }
}

#[test]
fn wrong_command_lines_are_explained_and_exit_with_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let nowhere = format!("++head_server.port={}", free_port());
    let cases: Vec<(Vec<&str>, Vec<&str>)> = vec![
        (vec![], vec!["Usage: gym [OPTIONS] <COMMAND>", "env ", "demo "]),
        (vec!["env"], vec!["Usage: gym env [OPTIONS] <COMMAND>", "start"]),
        (vec!["env", "strat"], vec!["unrecognized subcommand 'strat'", "'start'"]),
        (
            vec!["env", "start", "--model-typ", "x"],
            vec!["unexpected argument '--model-typ'", "'--model-type'"],
        ),
        (vec!["env", "start", "--model"], vec!["a value is required for '--model <NAME>'"]),
        (vec!["env", "start", "word"], vec!["overrides look like +key=value"]),
        (vec!["trace", "show"], vec!["<PATH>..."]),
        (vec!["trace", "show", "absent.jsonl"], vec!["absent.jsonl"]),
        (vec!["demo", "--rollouts", "x"], vec!["invalid value 'x' for '--rollouts <N>'"]),
        (
            vec!["dataset", "collate"],
            vec![
                "`gym dataset` exists in the Python reference, not here",
                "hint: the nearest command",
            ],
        ),
        (
            vec!["eval", "run", "--no-serve", "--input", "a", "--output", "b", &nowhere],
            vec![
                "error: no head server answers at http://127.0.0.1:",
                "caused by: Connection refused",
                "hint: start a fleet with `gym env start`",
            ],
        ),
    ];
    for (arguments, parts) in cases {
        let ended = run(&arguments, folder.path());
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}:\n{said}");
        assert!(ended.stdout.is_empty(), "{arguments:?}: {}", text(&ended.stdout));
        assert_says(&said, &parts);
    }
}

#[test]
fn traces_that_are_not_there_exit_with_1_and_a_reader_that_leaves_with_0() {
    let folder = tempfile::tempdir().expect("a folder");
    let traces = fixture("reference/rollout_trace.jsonl").display().to_string();
    let rows = weather_rows(folder.path()).display().to_string();
    for (arguments, part) in [
        (
            ["trace", "show", &traces, "--rollout", "99-0"],
            "error: no rollout \"99-0\" in these files",
        ),
        (["trace", "show", &traces, "--trace", "abc"], "error: no trace \"abc\""),
        (["trace", "list", &rows, "--json", "-v"], "error: no spans in "),
    ] {
        let ended = run(&arguments, folder.path());
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}: {}", text(&ended.stderr));
        assert_says(&text(&ended.stderr), &[part]);
    }
    for verb in ["list", "show"] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = output(gym().args(["trace", verb, &traces]).stdout(writer));
        assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
        assert!(!text(&ended.stderr).contains("error"), "{}", text(&ended.stderr));
    }
    let full = std::fs::File::create("/dev/full").expect("the device");
    let ended = output(gym().args(["trace", "list", &traces]).stdout(full));
    assert_eq!(ended.status.code(), Some(2));
    assert_says(
        &text(&ended.stderr),
        &["error: cannot write to stdout\n  caused by: No space left on device"],
    );
}
