//! Servers, drivers and supervisors that are killed or told to end.

use super::*;

#[test]
fn a_server_that_is_killed_ends_fleet_and_run_with_its_name() {
    let watch = |victim: &str| {
        let mut fleet = scripted(100);
        let out = fleet.folder.path().join("out.jsonl");
        let all = pids(fleet.head);
        let eval = eval(&fleet, &out);
        wait_until("the first row", || !rows_so_far(&out).is_empty());
        signal(fleet.pid(victim), "KILL");
        assert_eq!(fleet.wait(), Some(1), "{}", fleet.said());
        let log = fleet.logs().join(format!("{victim}.log"));
        let said = fleet.said();
        assert_says(
            &said,
            &[
                &format!("error: {victim} ended\n  caused by: signal: 9 (SIGKILL)"),
                "hint: who did not kill it should look for the out-of-memory killer in `dmesg`",
                &log.display().to_string(),
            ],
        );
        assert!(!said.contains("finished"), "{said}");
        assert_gone(&all);
        let (code, said) = eval.ended();
        assert_eq!(code, Some(1), "{said}");
        let url = format!("http://127.0.0.1:{}", fleet.head);
        assert_says(
            &said,
            &[&format!("error: the fleet at {url} is gone"), "hint: see what ended it"],
        );
        let (done, failed) = (keys(&out), keys(&out.with_file_name("out_failures.jsonl")));
        assert!(!done.is_empty());
        assert!(failed.iter().all(|key| !done.contains(key)), "{done:?} {failed:?}");
    };
    std::thread::scope(|scope| {
        for victim in [RESOURCES, AGENT, MODEL] {
            scope.spawn(move || watch(victim));
        }
    });
}

/// Lines that are whole by now.
fn rows_so_far(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(str::to_owned).collect()
}

#[test]
fn a_run_with_its_own_servers_names_the_killed_one_and_is_resumed_after_ctrl_c() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = weather_rows(folder.path());
    let out = folder.path().join("new/folder/out.jsonl");
    let command = |head: u16, millis: u32| {
        let mut command = gym();
        command
            .args(["eval", "run"])
            .args(SCRIPTED)
            .args(["--agent", AGENT, "--concurrency", "4", "--num-repeats", "12", "--resume"])
            .arg(format!("++policy_model.responses_api_models.scripted_model.latency={{kind: fixed, ms: {millis}}}"))
            .arg(format!("++head_server.port={head}"))
            .arg("--input")
            .arg(&input)
            .arg("--output")
            .arg(&out)
            .current_dir(folder.path());
        command
    };
    let mut before = 0;
    for fault in ["KILL", "INT"] {
        let head = free_port();
        let running = Running::start(&mut command(head, 100), folder.path().join("stderr"));
        wait_until("more rows", || rows_so_far(&out).len() > before);
        let all = pids(head);
        match fault {
            "KILL" => signal(all[2], "KILL"),
            interrupt => signal(running.child.id(), interrupt),
        }
        let (code, said) = running.ended();
        if fault == "KILL" {
            assert_eq!(code, Some(1), "{said}");
            assert_says(&said, &["error: policy_model ended\n  caused by: signal: 9 (SIGKILL)"]);
        } else {
            assert_eq!(code, Some(130), "{said}");
        }
        assert_says(&said, &["interrupted: ", "continue with the same command and --resume"]);
        assert_gone(&all);
        before = keys(&out).len();
    }
    let (code, said) =
        Running::start(&mut command(free_port(), 0), folder.path().join("stderr")).ended();
    assert_eq!(code, Some(0), "{said}");
    assert_complete(&out);
}

#[test]
fn a_second_ctrl_c_does_not_cost_the_traces_of_the_driver() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = weather_rows(folder.path());
    let (stdout, stderr) = (folder.path().join("stdout"), folder.path().join("stderr"));
    let mut command = gym();
    command
        .args(["eval", "run"])
        .args(SCRIPTED)
        .args(["--agent", AGENT, "--output", "out.jsonl"])
        .arg("++policy_model.responses_api_models.scripted_model.latency={kind: fixed, ms: 60000}")
        .arg(format!("++head_server.port={}", free_port()))
        .arg("--input")
        .arg(&input)
        .envs([("NEMO_LENS_ENABLED", "1"), ("NEMO_GYM_OTEL_EXPORTER", "console")])
        .current_dir(folder.path())
        .stdout(std::fs::File::create(&stdout).expect("a file"))
        .stderr(std::fs::File::create(&stderr).expect("a file"));
    let mut driver = command.spawn().expect("the program starts");
    let said = || std::fs::read_to_string(&stderr).expect("stderr");
    wait_until("servers", || said().contains("servers ready! Polling"));
    signal(driver.id(), "INT");
    wait_until("a gentle stop", || said().contains("another Ctrl-C stops at once"));
    signal(driver.id(), "INT");
    assert_eq!(driver.wait().expect("it ends").code(), Some(130), "{}", said());
    let spans = spans::parse(&std::fs::read_to_string(&stdout).expect("stdout"));
    assert!(spans.iter().any(|span| span.name == "gym.job"), "{}", said());
}

#[test]
fn an_interrupted_or_killed_driver_leaves_whole_rows_and_resumes_to_every_row_once() {
    let fleet = scripted(50);
    let folder = fleet.folder.path();
    for (fault, code) in [("INT", Some(130)), ("TERM", Some(130)), ("KILL", None)] {
        let out = folder.join(format!("{fault}.jsonl"));
        let running = eval(&fleet, &out);
        wait_until("some rows", || rows_so_far(&out).len() >= 4);
        signal(running.child.id(), fault);
        let (ended, said) = running.ended();
        assert_eq!(ended, code, "{said}");
        let mut resume = fleet.eval_run(&["--agent", AGENT, "--num-repeats", "12", "--resume"]);
        let done =
            output(resume.arg("--input").arg(folder.join("rows.jsonl")).arg("--output").arg(&out));
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        assert_complete(&out);
    }
}

#[test]
fn a_fleet_is_interrupted_while_it_starts_and_ends_well_when_it_is_told_to() {
    let url = format!("http://127.0.0.1:{}/v1", free_port());
    let arguments = ["--resources-server", RESOURCES, "--model-type", "vllm_model", "--model", "m"];
    let mut arguments = arguments.to_vec();
    arguments.extend(["--model-api-key", "k", "--model-url", &url]);
    let mut fleet = Fleet::spawn(&Start { arguments: &arguments, environment: &[] });
    fleet.wait_for("Waiting for model endpoints to answer: ");
    let all = pids(fleet.head);
    signal(fleet.child.id(), "INT");
    assert_eq!(fleet.wait(), Some(130), "{}", fleet.said());
    let key = "policy_model.responses_api_models.vllm_model.base_url";
    assert_says(
        &fleet.said(),
        &[
            &format!("answer: {url} (key {key})"),
            "Connection refused",
            "error: interrupted while the servers were starting",
        ],
    );
    assert_gone(&all);

    let mut fleet = scripted(0);
    let all = pids(fleet.head);
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
    assert_gone(&all);
}

#[test]
fn a_killed_supervisor_leaves_no_server_built_in_or_foreign() {
    let python = Command::new("python3").arg("--version").output();
    let root = fixture("python/search_root").display().to_string();
    let mut arguments = vec!["--search-dir", &root, "--model-type", "scripted_model"];
    if python.is_ok_and(|found| found.status.success()) {
        arguments.extend(["--resources-server", "py_calculator"]);
    } else {
        eprintln!("SKIPPED: the foreign half; there is no python3");
        arguments.extend(["--resources-server", RESOURCES]);
    }
    let mut fleet = Fleet::start(&Start { arguments: &arguments, environment: &[] });
    let all = pids(fleet.head);
    assert_eq!(all.len(), 3);
    signal(fleet.child.id(), "KILL");
    assert_eq!(fleet.wait(), None);
    assert_gone(&all);
}

/// Guarantees: the driver says what it waits for, waits no longer than it was told, and gives every row its line.
#[test]
fn an_agent_that_is_gone_while_its_fleet_lives_fails_the_rollouts_in_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let agent = serde_json::json!({"runner": {"responses_api_agents": {"simple_agent": {
        "entrypoint": "app.py", "host": "127.0.0.1", "port": free_port(),
    }}}});
    let page = serde_json::Value::from(agent.to_string()).to_string();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let head = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let length = page.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{page}"
            );
        }
    });
    let ended = output(
        gym()
            .args(["eval", "run", "--no-serve", "--agent", "runner", "--output", "out.jsonl"])
            .args(["++server_retry_timeout_seconds=2", &format!("++head_server.port={head}")])
            .arg("--input")
            .arg(weather_rows(folder.path()))
            .current_dir(folder.path()),
    );
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert_says(
        &said,
        &[
            "warning: POST http://127.0.0.1:",
            "/run: could not connect to runner at 127.0.0.1:",
            "goes on for up to 2 s",
            "collected: 0 done, 5 failed",
            "5 transport_error",
        ],
    );
    assert_eq!(rows(&folder.path().join("out_failures.jsonl")).len(), 5);
}

/// Processes started by a process.
fn children(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc");
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        after_name.split_whitespace().nth(1) == Some(&parent.to_string())
    };
    pids.filter(is_child).collect()
}

#[test]
fn an_interrupted_demo_says_where_its_rows_are_and_leaves_nothing_running() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = gym();
    command.args(["demo", "--rollouts", "5000", "--out", "demo"]).current_dir(folder.path());
    let running = Running::start(&mut command, folder.path().join("stderr"));
    wait_until("rows", || !rows_so_far(&folder.path().join("demo/rollouts.jsonl")).is_empty());
    let run = children(running.child.id());
    let servers: Vec<u32> = run.iter().flat_map(|pid| children(*pid)).collect();
    // Three servers, and what receives their telemetry.
    assert_eq!((run.len(), servers.len()), (1, 4));
    signal(running.child.id(), "INT");
    let (code, said) = running.ended();
    assert_eq!(code, Some(130), "{said}");
    let place = folder.path().join("demo").display().to_string();
    assert_says(&said, &["interrupted; what was collected is in ", &place]);
    assert_gone(&run);
    assert_gone(&servers);
}
