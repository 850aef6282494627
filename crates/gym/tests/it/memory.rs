//! Memory of a fleet, as the supervisor tells it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gym_telemetry::env_vars;
use lens_testing::{CollectedNumber, OtlpSink};

use crate::support::{Fleet, Start};

const LIMIT: Duration = Duration::from_secs(30);
const ARGUMENTS: [&str; 4] =
    ["--resources-server", "example_single_tool_call", "--model-type", "scripted_model"];

fn telemetry(endpoint: &str) -> Vec<(&'static str, &str)> {
    vec![
        (env_vars::ENABLED, "1"),
        (env_vars::OTEL_EXPORTER_OTLP_ENDPOINT, endpoint),
        (env_vars::OTEL_EXPORTER_OTLP_PROTOCOL, "http/protobuf"),
        (env_vars::OTEL_METRIC_EXPORT_INTERVAL, "100"),
    ]
}

fn threads(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads").flatten();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(name).map(|name| name.trim().to_owned()).collect()
}

fn of<'a>(numbers: &'a [CollectedNumber], name: &str) -> Vec<&'a CollectedNumber> {
    numbers.iter().filter(|number| number.name == name).collect()
}

/// The last value of each series, by instance and kind of memory.
fn latest(numbers: &[CollectedNumber], name: &str) -> BTreeMap<(String, String), f64> {
    let text = |number: &CollectedNumber, key: &str| {
        number.attributes.get(key).and_then(|text| text.as_str()).unwrap_or_default().to_owned()
    };
    of(numbers, name)
        .into_iter()
        .map(|number| {
            ((text(number, "nemo.gym.server.name"), text(number, "memory.type")), number.value)
        })
        .collect()
}

/// Guarantees: every server of a ready fleet is measured, under its own name and pid, by the supervisor alone.
#[test]
fn the_supervisor_tells_the_memory_of_every_server_and_of_the_host() {
    let sink = OtlpSink::start().expect("a sink");
    let endpoint = sink.http_endpoint();
    let mut environment = telemetry(&endpoint);
    environment.push((env_vars::MEMORY_PROFILING_ENABLED, "1"));
    environment.push((env_vars::MEMORY_PROFILING_INTERVAL_SECONDS, "0.05"));
    let mut fleet = Fleet::start(&Start { arguments: &ARGUMENTS, environment: &environment });
    let instances = fleet.instances();
    let deadline = Instant::now() + LIMIT;
    while of(&sink.numbers(), "gym.server.memory.usage").is_empty() {
        assert!(Instant::now() < deadline, "{:?}", sink.metric_names());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(threads(fleet.child.id()).contains(&"gym-memory".to_owned()));
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());

    let numbers = sink.numbers();
    let usage = latest(&numbers, "gym.server.memory.usage");
    let peak = latest(&numbers, "gym.server.memory.sampled_peak");
    let processes = latest(&numbers, "gym.server.processes");
    assert_eq!(instances.len(), 3);
    for instance in &instances {
        let name = instance["process_name"].as_str().expect("a name").to_owned();
        let rss = (name.clone(), "rss".to_owned());
        assert!(usage[&rss] > 1e6, "{name}: {usage:?}");
        assert!(peak[&rss] >= usage[&rss], "{name}: {peak:?} {usage:?}");
        if let Some(pss) = usage.get(&(name.clone(), "pss".to_owned())) {
            assert!(*pss > 0.0 && *pss <= usage[&rss], "{name}: {usage:?}");
        }
        assert_eq!(processes[&(name.clone(), String::new())], 1.0, "{name}");
        let is_its = |number: &&CollectedNumber| {
            number.attributes["nemo.gym.server.name"] == name.as_str()
                && number.attributes["process.pid"] == instance["pid"]
                && number.attributes["nemo.gym.server.type"] == instance["server_type"]
        };
        let series = of(&numbers, "gym.server.memory.usage");
        assert!(series.iter().any(is_its), "{instance}: {series:?}");
    }
    let host = |name: &str| {
        let last = of(&numbers, name).pop().unwrap_or_else(|| panic!("no {name}")).clone();
        assert_eq!((last.unit.as_str(), last.attributes.len()), ("By", 0));
        assert_eq!(last.resource["service.name"], "nemo-gym/orchestrator");
        last.value
    };
    let total = host("gym.host.memory_total");
    assert_eq!(host("gym.host.memory_used") + host("gym.host.memory_available"), total);
    let sampled = numbers.iter().filter(|number| number.name.starts_with("gym.server.memory."));
    for number in sampled {
        assert_eq!(number.resource["service.name"], "nemo-gym/orchestrator");
    }
}

/// Guarantees: nothing is sampled, by no thread, in no process of a fleet that was not asked to.
#[test]
fn a_fleet_that_was_not_asked_to_samples_nothing() {
    let sink = OtlpSink::start().expect("a sink");
    let endpoint = sink.http_endpoint();
    let environment = telemetry(&endpoint);
    let mut fleet = Fleet::start(&Start { arguments: &ARGUMENTS, environment: &environment });
    let servers = fleet.instances();
    let pids = servers.iter().filter_map(|instance| instance["pid"].as_u64());
    let pids = pids.filter_map(|pid| u32::try_from(pid).ok());
    for pid in pids.chain([fleet.child.id()]) {
        let threads = threads(pid);
        assert!(threads.iter().any(|name| name.starts_with("lens-")), "{threads:?}");
        assert!(!threads.iter().any(|name| name.starts_with("gym-")), "{threads:?}");
    }
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
    let names = sink.metric_names();
    assert!(names.contains(&"gym.servers.active".to_owned()), "{names:?}");
    let sampled = |name: &&String| {
        ["gym.server.memory.", "gym.server.processes", "gym.host.", "gym.process."]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    };
    assert_eq!(names.iter().filter(sampled).count(), 0, "{names:?}");
}
