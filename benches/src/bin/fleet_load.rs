//! Load of a whole fleet on this machine, telemetry off and on, interleaved.
//!
//! Each round starts a fleet for each variant, lets `gym eval run` collect rollouts from it, and
//! reads the CPU time and memory of every process from `/proc`. Rounds of all variants alternate,
//! so that a noisy machine disturbs all of them alike. Prints medians and, for each variant, the
//! CPU a rollout costs more than with telemetry off.
//!
//! ```text
//! cargo build --release && cargo build --release -p lens-testing --bin otlp-sink
//! (cd benches && cargo run --release --bin fleet_load -- --rounds 5)
//! ```

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

struct Options {
    gym: PathBuf,
    sink: PathBuf,
    rollouts: usize,
    concurrency: usize,
    rounds: usize,
    variants: Vec<String>,
    agent_workers: usize,
}

fn options() -> Outcome<Options> {
    let release = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release");
    let mut options = Options {
        gym: release.join("gym"),
        sink: release.join("otlp-sink"),
        rollouts: 20_000,
        concurrency: 256,
        rounds: 3,
        variants: ["off", "default", "per_rollout", "all"].map(String::from).to_vec(),
        agent_workers: 0,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--gym" => options.gym = value.into(),
            "--sink" => options.sink = value.into(),
            "--rollouts" => options.rollouts = value.parse()?,
            "--concurrency" => options.concurrency = value.parse()?,
            "--rounds" => options.rounds = value.parse()?,
            "--variants" => options.variants = value.split(',').map(String::from).collect(),
            "--agent-workers" => options.agent_workers = value.parse()?,
            _ => return Err(format!("unknown flag {flag}").into()),
        }
    }
    Ok(options)
}

/// What one run of one variant measured.
#[derive(Clone, Debug, Default)]
struct Sample {
    rollouts_per_second: f64,
    millis: [f64; 3],
    /// CPU seconds per 1,000 rollouts, by process.
    cpu: BTreeMap<String, f64>,
    /// Resident bytes, by process.
    resident: BTreeMap<String, f64>,
    spans: Option<f64>,
}

fn main() -> Outcome<()> {
    let options = options()?;
    let mut samples: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
    for round in 0..options.rounds {
        for variant in &options.variants {
            let sample = run(&options, variant)?;
            eprintln!(
                "round {} {variant:12} {:8.0} rollouts/s {:7.1} µs of CPU each, {:.3} spans each",
                round + 1,
                sample.rollouts_per_second,
                sample.cpu.values().sum::<f64>() * 1e3,
                sample.spans.unwrap_or(0.0)
            );
            samples.entry(variant.clone()).or_default().push(sample);
        }
    }
    report(&options, &samples);
    Ok(())
}

fn report(options: &Options, samples: &BTreeMap<String, Vec<Sample>>) {
    println!(
        "{} rollouts at concurrency {}, {} rounds, medians",
        options.rollouts, options.concurrency, options.rounds
    );
    println!(
        "{:12} {:>10} {:>8} {:>8} {:>8} {:>12} {:>14} {:>12}",
        "variant",
        "rollouts/s",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "CPU s/1,000",
        "more µs each",
        "spans each"
    );
    let median = |values: Vec<f64>| {
        let mut values = values;
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let total = |sample: &Sample| sample.cpu.values().sum::<f64>();
    let off = samples.get("off").map(|all| median(all.iter().map(total).collect()));
    for variant in &options.variants {
        let Some(all) = samples.get(variant) else { continue };
        let of = |f: &dyn Fn(&Sample) -> f64| median(all.iter().map(f).collect());
        let cpu = of(&total);
        println!(
            "{variant:12} {:10.0} {:8.2} {:8.2} {:8.2} {:12.3} {:14.1} {:12.1}",
            of(&|s| s.rollouts_per_second),
            of(&|s| s.millis[0]),
            of(&|s| s.millis[1]),
            of(&|s| s.millis[2]),
            cpu,
            off.map_or(f64::NAN, |off| (cpu - off) * 1e3),
            of(&|s| s.spans.unwrap_or(0.0)),
        );
    }
    for variant in &options.variants {
        let Some(all) = samples.get(variant) else { continue };
        println!("\n{variant}: by process");
        for name in all[0].cpu.keys() {
            let cpu = median(all.iter().filter_map(|s| s.cpu.get(name).copied()).collect());
            let resident =
                median(all.iter().filter_map(|s| s.resident.get(name).copied()).collect());
            println!("  {name:44} {cpu:8.3} CPU s/1,000 {:8.1} MiB", resident / 1048576.0);
        }
    }
}

fn run(options: &Options, variant: &str) -> Outcome<Sample> {
    let folder = std::env::temp_dir().join(format!("fleet-load-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let head = free_port()?;
    let sink = if variant == "off" { None } else { Some(Sink::start(&options.sink)?) };
    let mut environment: Vec<(String, String)> = Vec::new();
    if let Some(sink) = &sink {
        environment.push(("NEMO_GYM_OTEL_ENABLED".into(), "1".into()));
        environment.push(("NEMO_GYM_OTEL_SPAN_GROUPS".into(), variant.into()));
        environment.push(("OTEL_EXPORTER_OTLP_ENDPOINT".into(), sink.endpoint.clone()));
    }
    let mut fleet = Fleet::start(options, head, &environment, &folder)?;
    let pids = fleet.pids(head)?;
    let input = folder.join("rows.jsonl");
    write_rows(&input)?;
    let collect = |repeats: usize, output: &str| -> Outcome<Value> {
        let output = Command::new(&options.gym)
            .args(["eval", "run", "--no-serve", "--json", "--disable-aggregation"])
            .arg("--input")
            .arg(&input)
            .arg("--output")
            .arg(folder.join(output))
            .args(["--agent", "example_single_tool_call_simple_agent"])
            .args(["--concurrency", &options.concurrency.to_string()])
            .args(["--num-repeats", &repeats.to_string()])
            .arg(format!("++head_server={{host: 127.0.0.1, port: {head}}}"))
            .envs(environment.iter().cloned())
            .stderr(Stdio::piped())
            .output()?;
        if !output.status.success() {
            return Err(format!("eval run: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    collect(WARM_REPEATS, "warm.jsonl")?;
    let before: BTreeMap<_, _> =
        pids.iter().map(|(name, pid)| (name.clone(), cpu_of(*pid))).collect();
    let own_children = children_cpu();
    let repeats = options.rollouts / ROWS;
    let summary = collect(repeats, "out.jsonl")?;
    let driver = children_cpu() - own_children;
    let rollouts = (repeats * ROWS) as f64;
    // The exporters' last batches belong to the run.
    std::thread::sleep(Duration::from_millis(if sink.is_some() { 5500 } else { 0 }));
    let mut sample = Sample {
        rollouts_per_second: number(&summary, "rollouts_per_second"),
        millis: ["p50", "p95", "p99"]
            .map(|key| summary.get("duration_millis").map_or(f64::NAN, |d| number(d, key))),
        ..Sample::default()
    };
    for (name, pid) in &pids {
        let cpu = cpu_of(*pid) - before.get(name).copied().unwrap_or(0.0);
        sample.cpu.insert(name.clone(), cpu / rollouts * 1e3);
        sample.resident.insert(name.clone(), resident_of(*pid));
    }
    sample.cpu.insert("driver".to_owned(), driver / rollouts * 1e3);
    fleet.stop()?;
    if let Some(sink) = sink {
        sample.spans = Some(sink.finish()? / (rollouts + (WARM_REPEATS * ROWS) as f64));
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(sample)
}

const ROWS: usize = 5;
const WARM_REPEATS: usize = 200;

fn number(value: &Value, key: &str) -> f64 {
    value.get(key).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

fn write_rows(path: &Path) -> Outcome<()> {
    let mut file = std::fs::File::create(path)?;
    for city in ["Oslo", "Lima", "Cairo", "Quito", "Turin"] {
        let row = serde_json::json!({"responses_create_params": {
            "input": [
                {"role": "developer", "content": "You answer travel questions."},
                {"role": "user", "content": format!("Do I need a coat in {city}?")},
            ],
            "tools": [{
                "type": "function", "name": "get_weather", "description": "Weather of a city",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                               "required": ["city"], "additionalProperties": false},
                "strict": true,
            }],
        }});
        writeln!(file, "{row}")?;
    }
    Ok(())
}

fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A running `gym env start`.
struct Fleet {
    child: Child,
}

impl Fleet {
    fn start(
        options: &Options,
        head: u16,
        environment: &[(String, String)],
        folder: &Path,
    ) -> Outcome<Self> {
        let mut command = Command::new(&options.gym);
        command
            .args(["env", "start", "--resources-server", "example_single_tool_call"])
            .args(["--model-type", "scripted_model"])
            .arg(format!("++head_server={{host: 127.0.0.1, port: {head}}}"))
            .arg("--log-dir")
            .arg(folder.join("logs"))
            .envs(environment.iter().cloned())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if options.agent_workers > 0 {
            command.arg(format!(
                "++example_single_tool_call_simple_agent.responses_api_agents.simple_agent.num_workers={}",
                options.agent_workers
            ));
        }
        let mut child = command.spawn()?;
        let stderr = child.stderr.take().ok_or("no stderr")?;
        let mut lines = BufReader::new(stderr);
        let mut text = String::new();
        let mut seen = String::new();
        while lines.read_line(&mut text)? > 0 {
            if text.contains("servers ready! Polling") {
                std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
                return Ok(Self { child });
            }
            seen.push_str(&text);
            text.clear();
        }
        Err(format!("the fleet did not start: {seen}").into())
    }

    /// Pids of the supervisor and of every server.
    fn pids(&self, head: u16) -> Outcome<Vec<(String, u32)>> {
        let mut stream = TcpStream::connect(("127.0.0.1", head))?;
        stream
            .write_all(b"GET /server_instances HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let body = text.split("\r\n\r\n").nth(1).ok_or("no body")?;
        let instances: Value = serde_json::from_str(body)?;
        let mut pids = vec![("supervisor".to_owned(), self.child.id())];
        for instance in instances.as_array().ok_or("no list")? {
            let name = instance["process_name"].as_str().ok_or("no name")?.to_owned();
            pids.push((name, instance["pid"].as_u64().ok_or("no pid")? as u32));
        }
        Ok(pids)
    }

    fn stop(&mut self) -> Outcome<()> {
        Command::new("kill").arg(self.child.id().to_string()).status()?;
        let deadline = Instant::now() + Duration::from_secs(15);
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                self.child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// A running `otlp-sink` that acknowledges and counts.
struct Sink {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    endpoint: String,
}

impl Sink {
    fn start(binary: &Path) -> Outcome<Self> {
        let mut child = Command::new(binary)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        let stdin = child.stdin.take();
        let mut stdout = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let endpoints: Value = serde_json::from_str(&line)?;
        let endpoint = endpoints["grpc"].as_str().ok_or("no endpoint")?.to_owned();
        Ok(Self { child, stdin, stdout, endpoint })
    }

    /// Spans that were received.
    fn finish(mut self) -> Outcome<f64> {
        drop(self.stdin.take());
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        self.child.wait()?;
        Ok(number(&serde_json::from_str(&line)?, "spans"))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// User and system seconds of a process.
fn cpu_of(pid: u32) -> f64 {
    stat(&format!("/proc/{pid}/stat"), [11, 12])
}

/// User and system seconds of the children of this process that have ended.
fn children_cpu() -> f64 {
    stat("/proc/self/stat", [13, 14])
}

fn stat(path: &str, fields: [usize; 2]) -> f64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let rest: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| rest.get(index).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
    // USER_HZ is 100 on every Linux that runs here.
    (ticks(fields[0]) + ticks(fields[1])) / 100.0
}

fn resident_of(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|p| p.parse::<f64>().ok());
    pages.unwrap_or(0.0) * 4096.0
}
