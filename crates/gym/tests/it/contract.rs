//! A fleet with every switch on sends every name of the telemetry contract to a receiver.
//!
//! The lists are written out here: a constant that is renamed must fail this test.

use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lens_testing::OtlpSink;
use serde_json::Value;

use crate::exchange::{answer, post, read_request};
use crate::python::{MODULES, Receiver, python};
use crate::support::{Fleet, Start, output, text};

const SPANS: &[&str] = &[
    "gym.job",
    "gym.startup",
    "load_config",
    "init_telemetry",
    "start_head_server",
    "spawn_servers",
    "wait_for_head_server",
    "wait_for_servers",
    "wait_for_model_endpoints",
    "gym.startup.server",
    "gym.server.startup",
    "gym.rollout.attempt",
    "gym.rollout",
    "gym.agent.responses",
    "gym.model.responses",
    "gym.model.chat_completions",
    "gym.model.messages",
    "gym.verify",
    "gym.sandbox.start",
    "gym.sandbox.exec",
    "HTTP POST",
    "POST /run",
    "POST /v1/responses",
    "POST /v1/chat/completions",
    "POST /v1/messages",
    "POST /seed_session",
    "POST /run_command",
    "POST /verify",
];

const METRICS: &[&str] = &[
    "gym.rollout.duration_ms",
    "gym.rollout.completed_total",
    "gym.rollout.in_flight",
    "gym.verify.duration_ms",
    "gym.verify.success_rate",
    "gym.servers.active",
    "gym.server.startup_duration_ms",
    "gym.server.startup_stage_duration_ms",
    "gym.model.call_duration_ms",
    "gym.model.time_to_first_byte_ms",
    "gym.concurrency.queue_wait_duration_ms",
    "gym.http.connection_pool.queue_duration_ms",
    "gym.http.connection_pool.connect_total",
    "gym.http.retry_total",
    "gym.http.timeout_total",
    "gym.sandbox.active",
    "gym.sandbox.startup_duration_ms",
    "gym.sandbox.exec_duration_ms",
    "gym.server.memory.usage",
    "gym.server.memory.sampled_peak",
    "gym.server.processes",
    "gym.host.memory_used",
    "gym.host.memory_available",
    "gym.host.memory_total",
    "gym.host.memory_used_mib",
    "gym.host.memory_total_mib",
    "gym.process.cpu.percent",
    "gym.process.gpu.utilization_percent",
    "gym.process.gpu.memory_used_mib",
    "gym.process.gpu.memory_total_mib",
    "http.server.request.duration",
    "http.server.active_requests",
    "http.server.request.body.size",
    "http.server.response.body.size",
    "http.client.request.duration",
    "gen_ai.server.request.duration",
    "gen_ai.client.token.usage",
    "lens.spans.ended",
    "lens.spans.exported",
    "lens.spans.queued",
    "lens.logs.ended",
    "lens.export.duration",
];

const RESOURCE: &[&str] = &[
    "service.name",
    "service.version",
    "service.instance.id",
    "nemo.gym.service_group",
    "nemo.gym.server.name",
    "nemo.gym.server.type",
    "nemo.gym.version",
    "nemo.run.id",
    "nemo.user.id",
    "dl.rank",
    "dl.world_size",
    "telemetry.sdk.language",
    "telemetry.sdk.name",
    "telemetry.sdk.version",
    "host.name",
    "process.pid",
    "host.gpu.count",
    "slurm.job.id",
    "k8s.pod.name",
    "wandb.project",
    "deployment.environment",
];

/// An engine that is busy at first, then silent once, and then asks for one command before it answers.
fn engine() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let asked = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let asked = Arc::clone(&asked);
            std::thread::spawn(move || serve(stream, &asked));
        }
    });
    port
}

fn serve(mut stream: TcpStream, asked: &AtomicUsize) {
    let Some(request) = read_request(&mut stream) else { return };
    let call = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
        "function":{"name":"run_command","arguments":"{\"command\":\"echo done\"}"}}]}"#;
    let last = r#"{"role":"assistant","content":"done"}"#;
    let message = if request.contains(r#""role":"tool""#) || !request.contains("run_command") {
        last
    } else {
        call
    };
    let body = format!(
        r#"{{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,
            "finish_reason":"stop","message":{message}}}],
            "usage":{{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}}}"#
    );
    let is_call = request.starts_with("POST");
    let (status, body) = match if is_call { asked.fetch_add(1, Ordering::SeqCst) } else { 9 } {
        0 => ("429 Too Many Requests\r\nretry-after: 0", "{}".to_owned()),
        1 => {
            // Longer than the fleet is told to wait for a byte.
            std::thread::sleep(Duration::from_secs(2));
            return;
        }
        _ => ("200 OK\r\nserver-timing: queue;dur=1, prefill;dur=1, decode;dur=1", body),
    };
    answer(&mut stream, status, &body);
}

/// What a receiver saw.
#[derive(Debug, Default)]
struct Received {
    spans: BTreeSet<String>,
    metrics: BTreeSet<String>,
    /// Keys of the resources of spans, and of spans.
    resource: BTreeSet<String>,
    attributes: BTreeSet<String>,
    logs: usize,
}

impl Received {
    fn by(sink: &OtlpSink) -> Self {
        let spans = sink.spans();
        Self {
            spans: spans.iter().map(|span| span.name.clone()).collect(),
            metrics: sink.metric_names().into_iter().collect(),
            resource: spans.iter().flat_map(|span| span.resource.keys().cloned()).collect(),
            attributes: spans.iter().flat_map(|span| span.attributes.keys().cloned()).collect(),
            logs: sink.logs().len(),
        }
    }

    /// What the receiver in Python says at its end.
    fn of(document: &Value) -> Self {
        let list = |what: &str| document[what].as_array().expect("a list").clone();
        let names = |what: &str| {
            let name = |one: &Value| one["name"].as_str().expect("a name").to_owned();
            list(what).iter().map(name).collect()
        };
        let keys = |of: &str| {
            let keys = |span: &Value| {
                span[of].as_object().expect("attributes").keys().cloned().collect::<Vec<_>>()
            };
            list("spans").iter().flat_map(keys).collect()
        };
        Self {
            spans: names("spans"),
            metrics: names("metrics"),
            resource: keys("resource"),
            attributes: keys("attributes"),
            logs: list("logs").len(),
        }
    }

    fn missing(&self) -> Vec<&'static str> {
        let absent = |wanted: &[&'static str], found: &BTreeSet<String>| -> Vec<&'static str> {
            wanted.iter().copied().filter(|name| !found.contains(*name)).collect()
        };
        [
            absent(SPANS, &self.spans),
            absent(METRICS, &self.metrics),
            absent(RESOURCE, &self.resource),
        ]
        .concat()
    }

    fn check(&self) {
        assert_eq!(self.missing(), Vec::<&str>::new());
        assert!(self.logs > 0, "no log record came");
        let experiment = |name: &&String| name.contains("reward") || name.contains("accuracy");
        assert_eq!(self.metrics.iter().find(experiment), None);
        assert_eq!(self.attributes.iter().find(experiment), None);
    }
}

#[test]
fn a_fleet_with_every_switch_on_sends_every_name_of_the_contract() {
    let sink = OtlpSink::start().expect("a sink");
    run_with_every_switch_on(&sink.grpc_endpoint());
    let deadline = Instant::now() + Duration::from_secs(20);
    while !Received::by(&sink).missing().is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    Received::by(&sink).check();
}

#[test]
fn a_receiver_of_other_make_gets_every_name_of_the_contract() {
    let Some(python) = python(MODULES) else { return };
    let receiver = Receiver::start(&python);
    run_with_every_switch_on(&format!("http://127.0.0.1:{}", receiver.ports["grpc"]));
    Received::of(&receiver.finish()).check();
}

/// Runs a fleet until everything is sent.
fn run_with_every_switch_on(endpoint: &str) {
    let tools = tempfile::tempdir().expect("a folder");
    let smi = tools.path().join("nvidia-smi");
    std::fs::write(
        &smi,
        "#!/bin/sh\ncase \"$*\" in *-L*) echo 'GPU 0: Some GPU (UUID: GPU-1)';; \
         *) echo '0, GPU-1, 40, 1024, 4096';; esac\n",
    )
    .expect("a program");
    std::fs::set_permissions(&smi, std::fs::Permissions::from_mode(0o755)).expect("may run");
    let path = format!("{}:{}", tools.path().display(), std::env::var("PATH").unwrap_or_default());
    let environment = [
        ("PATH", path.as_str()),
        ("NEMO_GYM_OTEL_ENABLED", "1"),
        ("NEMO_GYM_OTEL_SPAN_GROUPS", "all"),
        ("NEMO_GYM_OTEL_LOGS_ENABLED", "1"),
        ("NEMO_GYM_OTEL_LIVE_EVENTS", "on"),
        ("NEMO_GYM_OTEL_MEMORY_PROFILING_ENABLED", "1"),
        ("NEMO_GYM_OTEL_MEMORY_PROFILING_INTERVAL_SECONDS", "0.1"),
        ("NEMO_GYM_OTEL_CPU_SAMPLING_ENABLED", "1"),
        ("NEMO_GYM_OTEL_CPU_MIN_RESAMPLE_INTERVAL_S", "0.01"),
        ("NEMO_GYM_OTEL_MEMORY_SAMPLING_ENABLED", "1"),
        ("NEMO_GYM_OTEL_MEMORY_MIN_RESAMPLE_INTERVAL_S", "0.01"),
        ("NEMO_GYM_OTEL_GPU_SAMPLING_ENABLED", "1"),
        ("NEMO_GYM_OTEL_GPU_SAMPLE_INTERVAL_S", "0.2"),
        ("NEMO_GYM_OTEL_USER_ID", "someone"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("SLURM_JOB_ID", "4711"),
        ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
        ("K8S_POD_NAME", "pod-1"),
        ("WANDB_PROJECT", "project"),
        ("DEPLOYMENT_ENV", "test"),
    ];
    let url = format!("http://127.0.0.1:{}/v1", engine());
    let arguments = [
        "--resources-server",
        "example_sandbox",
        "--model-type",
        "vllm_model",
        "--model-url",
        &url,
        "--model",
        "m",
        "--model-api-key",
        "k",
        "++global_aiohttp_connector_limit_per_host=1",
        "++model_idle_timeout_seconds=1",
    ];
    let mut fleet = Fleet::start(&Start { arguments: &arguments, environment: &environment });
    let model = ("127.0.0.1", fleet.port("policy_model"));
    let input = fleet.folder.path().join("rows.jsonl");
    let row = serde_json::json!({
        "responses_create_params": {
            "input": [{"role": "user", "content": "Run it."}],
            "tools": [{
                "type": "function", "name": "run_command", "description": "Runs a command",
                "parameters": {
                    "type": "object", "properties": {"command": {"type": "string"}},
                    "required": ["command"], "additionalProperties": false,
                },
                "strict": true,
            }],
        },
        "expected_output": "done",
    });
    std::fs::write(&input, format!("{row}\n{row}\n{row}\n{row}\n")).expect("rows");
    let mut command = fleet.eval_run(&[
        "--agent",
        "example_sandbox_simple_agent",
        "--output",
        "out.jsonl",
        "--concurrency",
        "2",
        "--num-repeats",
        "2",
    ]);
    let collected = output(command.arg("--input").arg(&input).envs(environment));
    // The engine's silence may have cost a rollout.
    assert!(matches!(collected.status.code(), Some(0 | 1)), "{}", text(&collected.stderr));
    post(
        model,
        "/v1/chat/completions",
        &[],
        r#"{"messages":[{"role":"user","content":"x"}],"model":"m"}"#,
    );
    post(
        model,
        "/v1/messages",
        &[],
        r#"{"messages":[{"role":"user","content":"x"}],"model":"m","max_tokens":9}"#,
    );
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
}
