//! Models that are down, busy, broken or silent.

use super::*;

#[test]
fn a_model_that_never_answers_is_named_with_its_key_when_the_time_is_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("http://127.0.0.1:{}/v1", free_port());
    let head = format!("++head_server.port={}", free_port());
    let started = Instant::now();
    let mut arguments = vec!["env", "start", "--resources-server", RESOURCES, "--model-type"];
    arguments.extend(["vllm_model", "--model", "m", "--model-api-key", "k", "--model-url", &url]);
    arguments.extend([&head, "++model_endpoint_readiness_timeout_seconds=1"]);
    let ended = run(&arguments, folder.path());
    assert_eq!(ended.status.code(), Some(2));
    assert!(started.elapsed() >= Duration::from_secs(1), "it did not wait");
    assert_says(
        &text(&ended.stderr),
        &[
            &format!(
                "error: no answer from the model endpoint {url} \
                 (key policy_model.responses_api_models.vllm_model.base_url) within 1 s\n  \
                 caused by: cannot connect to 127.0.0.1:"
            ),
            "hint: start the endpoint or correct its URL (--model-url)",
        ],
    );
}

/// A scripted model behind the OpenAI API, killed with the test.
struct Upstream(Child);

impl Upstream {
    fn start(port: u16, errors: &str) -> Self {
        let mut command = gym();
        command.args(["serve-openai", "--listen", &format!("127.0.0.1:{port}")]);
        let child = command
            .arg(format!("+errors={errors}"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.expect("it starts");
        let mut line = [0; 8];
        child.stdout.as_mut().expect("stdout").read_exact(&mut line).expect("the URL");
        Self(child)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Answers every request with a page.
fn serve_pages(listener: &TcpListener, requests: usize) {
    for _ in 0..requests {
        let Ok((mut stream, _)) = listener.accept() else { return };
        let _ = stream.read(&mut [0; 65536]);
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-length: 19\r\nconnection: close\r\n\r\n<html>sorry</html>\n",
        );
    }
}

/// Guarantees: what a model does wrong costs its rollouts, never the run, and the message is the model's own.
#[test]
fn a_model_that_fails_in_any_way_fails_its_rollouts_with_its_own_message() {
    let port = free_port();
    let mut fleet = calling(port);
    let folder = fleet.folder.path().to_owned();
    let input = weather_rows(&folder);
    let collect = |name: &str, code: i32, message: &str| {
        let out = folder.join(format!("{name}.jsonl"));
        let mut command = fleet.eval_run(&["--agent", AGENT, "--limit", "2"]);
        let ended = output(command.arg("--input").arg(&input).arg("--output").arg(&out));
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{name}:\n{said}");
        assert_says(&said, &[message]);
        let failures = rows(&folder.join(format!("{name}_failures.jsonl")));
        let expected = if code == 0 { (2, 0) } else { (0, 2) };
        assert_eq!((rows(&out).len(), failures.len()), expected, "{name}:\n{said}");
        for failure in failures {
            assert!(failure["responses_create_params"].is_object(), "{failure}");
            assert_eq!(failure["_ng_failure_class"], "http_error", "{failure}");
            let told = failure["_ng_failure_message"].as_str().expect("a message");
            assert_says(told, &["the agent answered 500: a call by ", message]);
        }
    };
    {
        let _busy = Upstream::start(port, "{rate: 0.3, kind: status, status: 429, retry_after: 0}");
        collect("busy", 0, "collected: 2 done, 0 failed");
    }
    {
        let _full = Upstream::start(port, "{rate: 1, kind: status, status: 429, retry_after: 1}");
        collect("full", 1, "injected failure with status 429");
    }
    {
        let _broken = Upstream::start(port, "{rate: 1, kind: status, status: 500}");
        collect("broken", 1, "injected failure with status 500");
    }
    {
        let _hanging = Upstream::start(port, "{rate: 1, kind: hang}");
        collect("hanging", 1, &format!("127.0.0.1:{port} sent nothing for 1s"));
    }
    {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port");
        let pages = std::thread::spawn(move || serve_pages(&listener, 2));
        collect("garbage", 1, "the engine's reply is not a chat completion");
        pages.join().expect("pages");
    }
    collect("down", 1, &format!("could not connect to 127.0.0.1:{port}: Connection refused"));
    let all = pids(fleet.head);
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
    assert_gone(&all);
    let url = format!("(policy_model) warning: POST http://127.0.0.1:{port}/v1/chat/completions: ");
    assert_says(&fleet.said(), &[&url, "goes on for up to 2 s"]);
}
