//! What is sampled while a process works, and that nothing is when nobody asked.
//!
//! Telemetry is once per process, so each case runs in a process of its own, as in `lifecycle`.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use gym_telemetry::{env_vars, groups, init_telemetry, semconv, shutdown_telemetry};
use lens_testing::{CollectedNumber, OtlpSink};

const LIMIT: Duration = Duration::from_secs(60);
/// Variable of these tests: the folder through which a case and its test talk.
const FOLDER: &str = "SAMPLING_TEST_FOLDER";
const MEBIBYTE: f64 = 1024.0 * 1024.0;

struct Case {
    child: Child,
    sink: OtlpSink,
    folder: tempfile::TempDir,
}

impl Case {
    /// Starts one of the `#[ignore]`d cases below, which sends to a sink of its own.
    fn start(case: &str, variables: &[(&str, &str)], nvidia_smi: Option<&str>) -> Self {
        let sink = OtlpSink::start().expect("a sink");
        let folder = tempfile::tempdir().expect("a folder");
        if let Some(script) = nvidia_smi {
            let file = folder.path().join("nvidia-smi");
            fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("a script");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("a program");
        }
        let child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", &format!("sampling::{case}"), "--ignored", "--nocapture"])
            .env_clear()
            .envs([
                (env_vars::ENABLED, "1"),
                (env_vars::OTEL_METRIC_EXPORT_INTERVAL, "20"),
                (env_vars::OTEL_EXPORTER_OTLP_PROTOCOL, "http/protobuf"),
                (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, &sink.http_endpoint()),
            ])
            .env(env_vars::SPOOL_DIR, folder.path().join("memory"))
            .env(FOLDER, folder.path())
            .env("PATH", folder.path())
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        Self { child, sink, folder }
    }

    /// Waits until the sink holds what `find` finds.
    fn wait_for<T>(&self, what: &str, find: impl Fn(&[CollectedNumber]) -> Option<T>) -> T {
        let deadline = Instant::now() + LIMIT;
        loop {
            let numbers = self.sink.numbers();
            if let Some(found) = find(&numbers) {
                return found;
            }
            assert!(Instant::now() < deadline, "waited in vain for {what}: {numbers:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Lets the case end, and waits until it has.
    fn end(&mut self) {
        fs::write(self.folder.path().join("end"), "").expect("a file");
        let status = self.child.wait().expect("its end");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn span(name: &'static str) {
    lens::Span::start(&groups::ROLLOUT, name).end();
}

fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("threads").flatten();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(name).map(|name| name.trim().to_owned()).collect()
}

fn named<'a>(numbers: &'a [CollectedNumber], name: &str) -> Vec<&'a CollectedNumber> {
    numbers.iter().filter(|number| number.name == name).collect()
}

#[test]
fn cpu_is_read_at_the_end_of_a_span_once_an_interval() {
    let variables =
        [(env_vars::CPU_SAMPLING_ENABLED, "1"), (env_vars::CPU_MIN_RESAMPLE_INTERVAL_S, "0.05")];
    let mut case = Case::start("case_busy", &variables, None);
    case.end();
    let spans = case.sink.spans();
    let percents: Vec<f64> = spans
        .iter()
        .filter_map(|span| span.attributes.get(semconv::CPU_PERCENT))
        .map(|percent| percent.as_f64().expect("a number"))
        .collect();
    assert!(percents.len() >= 2, "{percents:?}");
    assert!(percents.iter().all(|percent| *percent > 0.0), "a busy process: {percents:?}");
    let first = spans.iter().map(|span| span.start_nanos).min().expect("spans");
    let last = spans.iter().map(|span| span.end_nanos).max().expect("spans");
    let intervals = (last - first) as f64 / 50e6;
    assert!(percents.len() as f64 <= intervals + 1.0, "{percents:?} in {intervals}");
    assert!(percents.len() < spans.len(), "most spans pay nothing");
    let numbers = case.sink.numbers();
    let gauge = named(&numbers, "gym.process.cpu.percent");
    let last = gauge.last().expect("the gauge");
    assert_eq!(last.unit, "%");
    assert!(last.attributes.is_empty(), "{last:?}");
    assert!(percents.contains(&last.value), "{} of {percents:?}", last.value);
    let exemplars: Vec<&String> = gauge.iter().flat_map(|point| &point.exemplar_spans).collect();
    assert!(!exemplars.is_empty(), "{gauge:?}");
    let is_sampled = |id: &&String| {
        let span = spans.iter().find(|span| span.span_id == **id).expect("a span of its own");
        span.attributes.contains_key(semconv::CPU_PERCENT)
    };
    assert!(exemplars.iter().all(is_sampled), "{exemplars:?}");
}

#[test]
#[ignore = "run by a test above, in a process of its own"]
fn case_busy() {
    init_telemetry(Some("a"), Some("resources_servers"), &[]).expect("on");
    // Work, until two intervals have passed for certain.
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(250) {
        let work = Instant::now();
        let mut sum = 0_u64;
        while work.elapsed() < Duration::from_millis(1) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        span("work");
    }
    shutdown_telemetry(20_000);
}

#[test]
fn host_memory_is_read_at_the_end_of_a_span() {
    let variables = [
        (env_vars::MEMORY_SAMPLING_ENABLED, "1"),
        (env_vars::MEMORY_MIN_RESAMPLE_INTERVAL_S, "3600"),
    ];
    let mut case = Case::start("case_one_span", &variables, None);
    case.end();
    let numbers = case.sink.numbers();
    let last = |name: &str| named(&numbers, name).last().map(|number| number.value);
    let total = last("gym.host.memory_total_mib").expect("a total");
    let used = last("gym.host.memory_used_mib").expect("a use");
    let host = gym_telemetry::host_memory::HostMemory::read(Path::new("/proc")).expect("Linux");
    assert!((total - host.total_bytes as f64 / MEBIBYTE).abs() < 1.0, "{total}");
    assert!(used > 0.0 && used < total, "{used} of {total}");
    let units: Vec<_> =
        named(&numbers, "gym.host.memory_used_mib").iter().map(|n| &n.unit).collect();
    assert_eq!(units[0], "MiBy");
}

#[test]
#[ignore = "run by a test above, in a process of its own"]
fn case_one_span() {
    init_telemetry(Some("a"), Some("resources_servers"), &[]).expect("on");
    span("one");
    shutdown_telemetry(20_000);
}

const TWO_GPUS: &str = "case \"$1\" in
    -L) echo 'GPU 0: A (UUID: GPU-aa11)'; echo 'GPU 1: B (UUID: GPU-bb22)' ;;
    *) echo '0, GPU-aa11, 35, 1024, 81559'; echo '1, GPU-bb22, [N/A], 5, 81559' ;;
esac";

#[test]
fn visible_gpus_are_sampled_in_the_background() {
    let variables =
        [(env_vars::GPU_SAMPLING_ENABLED, "1"), (env_vars::GPU_SAMPLE_INTERVAL_S, "0.02")];
    let mut case = Case::start("case_waits", &variables, Some(TWO_GPUS));
    let find = |numbers: &[CollectedNumber]| {
        let point = |name: &str, uuid: &str| {
            let of = |number: &&CollectedNumber| number.attributes["nemo.gym.gpu.uuid"] == uuid;
            named(numbers, name).into_iter().find(of).cloned()
        };
        let utilization = point("gym.process.gpu.utilization_percent", "GPU-aa11")?;
        assert_eq!((utilization.value, utilization.unit.as_str()), (35.0, "%"));
        assert_eq!(utilization.attributes["nemo.gym.gpu.index"], 0);
        let used = point("gym.process.gpu.memory_used_mib", "GPU-bb22")?;
        assert_eq!((used.value, used.unit.as_str()), (5.0, "MiBy"));
        assert_eq!(point("gym.process.gpu.memory_total_mib", "GPU-bb22")?.value, 81559.0);
        // What it cannot tell has no point.
        assert!(point("gym.process.gpu.utilization_percent", "GPU-bb22").is_none());
        Some(())
    };
    case.wait_for("both GPUs", find);
    case.end();
    let resource = case.sink.numbers()[0].resource.clone();
    assert_eq!(resource["host.gpu.count"], 2, "counted by the same program: {resource:?}");
}

#[test]
fn gpus_that_cuda_does_not_give_are_not_sampled() {
    let variables = [
        (env_vars::GPU_SAMPLING_ENABLED, "1"),
        (env_vars::GPU_SAMPLE_INTERVAL_S, "0.02"),
        ("CUDA_VISIBLE_DEVICES", "GPU-bb22"),
    ];
    let mut case = Case::start("case_waits", &variables, Some(TWO_GPUS));
    let memory = "gym.process.gpu.memory_used_mib";
    case.wait_for(memory, |numbers| named(numbers, memory).pop().cloned());
    case.end();
    let numbers = case.sink.numbers();
    let gpus = numbers.iter().filter_map(|number| number.attributes.get("nemo.gym.gpu.uuid"));
    assert!(gpus.into_iter().all(|uuid| uuid == "GPU-bb22"));
}

#[test]
#[ignore = "run by a test above, in a process of its own"]
fn case_waits() {
    init_telemetry(Some("a"), Some("resources_servers"), &[]).expect("on");
    // A thread names itself, which is not the first thing that happens.
    until(|| threads().contains(&"gym-gpu".to_owned()));
    let end = Path::new(&std::env::var_os(FOLDER).expect("a folder")).join("end");
    until(|| end.exists());
    shutdown_telemetry(20_000);
}

#[test]
fn a_host_without_gpus_is_silent() {
    let variables = [(env_vars::GPU_SAMPLING_ENABLED, "1")];
    Case::start("case_no_threads", &variables, None).end();
    let none = [variables[0], ("CUDA_VISIBLE_DEVICES", "")];
    Case::start("case_no_threads", &none, Some(TWO_GPUS)).end();
}

/// Guarantees: nothing runs, and nothing is added to a span or reported, that was not asked for.
#[test]
fn what_is_not_switched_on_has_no_thread_and_no_numbers() {
    let mut case = Case::start("case_no_threads", &[], Some(TWO_GPUS));
    case.end();
    let numbers = case.sink.numbers();
    assert!(!numbers.is_empty(), "metrics of the pipeline itself");
    let sampled = |number: &&CollectedNumber| {
        ["gym.process.", "gym.host."].iter().any(|prefix| number.name.starts_with(prefix))
    };
    assert_eq!(numbers.iter().filter(sampled).count(), 0, "{numbers:?}");
    let spans = case.sink.spans();
    assert!(!spans.is_empty() && spans.iter().all(|span| span.attributes.is_empty()), "{spans:?}");
}

#[test]
#[ignore = "run by a test above, in a process of its own"]
fn case_no_threads() {
    let before = threads();
    init_telemetry(Some("a"), Some("resources_servers"), &[]).expect("on");
    span("one");
    let ours = threads();
    let more: Vec<_> = ours.iter().filter(|name| !before.contains(name)).collect();
    assert!(!more.is_empty(), "the exporters' own");
    assert!(more.iter().all(|name| name.starts_with("lens-")), "{more:?}");
    shutdown_telemetry(20_000);
}

/// Guarantees: what the environment says about the job is on the resource, and what a user says wins.
#[test]
fn the_resource_names_the_job_and_what_the_user_set_wins() {
    let variables = [
        ("SLURM_JOB_ID", "43"),
        ("SLURM_JOB_NAME", "grpo"),
        ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
        ("K8S_POD_NAME", "gym-0"),
        ("K8S_NODE_NAME", "node-a"),
        ("CUDA_VISIBLE_DEVICES", "0,1,2"),
        (env_vars::OTEL_RESOURCE_ATTRIBUTES, "k8s.node.name=mine,host.name=here"),
        (env_vars::WANDB_ENTITY, "lab"),
        (env_vars::WANDB_PROJECT, "weather"),
        (env_vars::DEPLOYMENT_ENV, "production"),
        (env_vars::ENVIRONMENT, "second choice"),
    ];
    let mut case = Case::start("case_one_span", &variables, None);
    case.end();
    let resource = case.sink.spans()[0].resource.clone();
    for (key, value) in [
        ("slurm.job.id", "43"),
        ("slurm.job.name", "grpo"),
        ("k8s.pod.name", "gym-0"),
        ("k8s.node.name", "mine"),
        ("host.name", "here"),
        ("wandb.entity", "lab"),
        ("wandb.project", "weather"),
        ("deployment.environment", "production"),
        ("telemetry.sdk.name", "lens"),
        ("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
        ("nemo.run.id", "43"),
    ] {
        assert_eq!(resource[key], value, "{key}");
    }
    assert_eq!(resource["host.gpu.count"], 3);
    let pid = case.child.id();
    assert_eq!(resource["process.pid"], pid);
}
