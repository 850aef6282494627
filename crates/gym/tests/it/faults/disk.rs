//! Disks, logs and outputs that take no more.

use super::*;

#[test]
fn a_full_disk_is_told_and_the_rows_before_it_are_whole() {
    let fleet = scripted(0);
    let folder = fleet.folder.path();
    let input = weather_rows(folder);
    std::fs::create_dir(folder.join("full")).expect("a folder");
    for (file, link) in [("a", "a.jsonl"), ("b", "b_failures.jsonl")] {
        symlink("/dev/full", folder.join("full").join(link)).expect("a link");
        let out = folder.join(format!("full/{file}.jsonl"));
        let mut command = fleet.eval_run(&["--agent", AGENT]);
        let row = r#"{"responses_create_params": {"input": "x", "temprature": 1}}"#;
        std::fs::write(folder.join("bad.jsonl"), format!("{row}\n")).expect("writes");
        let rows = if file == "a" { input.clone() } else { folder.join("bad.jsonl") };
        let ended = output(command.arg("--input").arg(rows).arg("--output").arg(out));
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{said}");
        let full = folder.join("full").join(link).display().to_string();
        assert_says(
            &said,
            &[&full, "caused by: No space left on device", "hint: make room; --resume continues"],
        );
    }

    // A shell sets the limit: 100 blocks, of 512 bytes or 1 KiB by shell, hold the inputs and not the output.
    let out = folder.join("limited.jsonl");
    let mut eval = fleet.eval_run(&["--agent", AGENT, "--num-repeats", "12"]);
    eval.arg("--input").arg(&input).arg("--output").arg(&out);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 100; exec \"$@\"", "sh"]).arg(eval.get_program());
    limited.args(eval.get_args()).current_dir(folder);
    let ended = output(&mut limited);
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert_says(
        &said,
        &["limited.jsonl\"\n  caused by: File too large", "hint: make room; --resume continues"],
    );
    let before = keys(&out);
    assert!(!before.is_empty() && before.len() < 60, "{before:?}");
    let ended = output(eval.arg("--resume"));
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    assert_complete(&out);
}

#[test]
fn a_full_log_or_stdout_costs_the_lines_and_not_the_fleet() {
    let folder = tempfile::tempdir().expect("a folder");
    let logs = folder.path().join("logs");
    std::fs::create_dir(&logs).expect("a folder");
    symlink("/dev/full", logs.join(format!("{RESOURCES}.log"))).expect("a link");
    let head = free_port();
    // The other logs end at 512 bytes, the stdout at none.
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -f 1; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_gym"), "env", "start"])
        .args(SCRIPTED)
        .arg(format!("++head_server.port={head}"))
        .arg("--log-dir")
        .arg(&logs)
        .current_dir(folder.path())
        .env("NEMO_LENS_ENABLED", "1")
        .env("NEMO_GYM_OTEL_EXPORTER", "console")
        .env("NEMO_GYM_OTEL_SPAN_GROUPS", "all")
        .stdin(Stdio::null())
        .stdout(std::fs::File::create("/dev/full").expect("the device"))
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    wait_until("the servers", || std::net::TcpStream::connect(("127.0.0.1", head)).is_ok());
    let all = pids(head);
    let input = weather_rows(folder.path());
    let ended = output(
        gym()
            .args(["eval", "run", "--no-serve", "--agent", AGENT, "--output", "out.jsonl"])
            .arg(format!("++head_server.port={head}"))
            .arg("--input")
            .arg(input)
            .current_dir(folder.path()),
    );
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    assert!(child.try_wait().expect("waits").is_none(), "the fleet has ended");
    signal(child.id(), "TERM");
    let mut said = String::new();
    child.stderr.take().expect("stderr").read_to_string(&mut said).expect("reads");
    assert_eq!(child.wait().expect("ends").code(), Some(0), "{said}");
    assert_gone(&all);
    assert_says(
        &said,
        &[
            &format!("warning: {RESOURCES} is no longer logged to "),
            "No space left on device",
            "is no longer passed on: cannot write to stdout: No space left on device",
            "the server keeps running",
        ],
    );
}

#[test]
fn a_log_directory_that_cannot_be_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("file"), "").expect("writes");
    let mut arguments = vec!["env", "start"];
    arguments.extend(SCRIPTED);
    arguments.extend(["--log-dir", "file"]);
    let ended = run(&arguments, folder.path());
    assert_eq!(ended.status.code(), Some(2));
    assert_says(
        &text(&ended.stderr),
        &[
            "error: failed to open the log \"file\"",
            "hint: choose another directory with --log-dir",
        ],
    );
}
