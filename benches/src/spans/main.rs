//! What a span costs, beside the tracing libraries that Rust has: one table from one run.
//!
//! ```text
//! cargo build --release -p lens-testing --bin otlp-sink
//! cd benches
//! cargo run --release --features peers --bin spans
//! cargo run --release --features peers --bin spans -- --paced       # or --flat-out, --slow-sink
//! ```
//!
//! Each case is a process of its own, because each library owns globals of its process. Rounds of all cases
//! alternate, so that a noisy machine disturbs all of them alike; figures are medians of the rounds with the least
//! and the most. A case whose spans did not all arrive is an error: refusing a span costs less than keeping it.

mod allocator;
mod awaits;
mod case;
mod clocks;
mod cost;
mod disabled;
mod load;
mod plan;
mod receivers;
mod sample;
mod subjects;
mod table;
mod workload;

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use sample::{Sample, median};
use table::Samples;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

const USAGE: &str = "\
usage: spans [--paced | --flat-out | --slow-sink] [--rounds N] [--only TEXT] [--sink PATH] [--json PATH]
       spans case KIND SUBJECT VARIANT

  --rounds N    repeats of every case, interleaved (9; 3 in the modes with a load)
  --only TEXT   cases whose section, row or arguments contain TEXT
  --sink PATH   the otlp-sink of lens-testing (../target/release/otlp-sink)
  --json PATH   every sample, as JSON";

struct Options {
    sections: Vec<plan::Section>,
    rounds: usize,
    only: String,
    sink: PathBuf,
    json: Option<PathBuf>,
}

const ROUNDS: usize = 9;
const LOAD_ROUNDS: usize = 3;

fn options(mut arguments: impl Iterator<Item = String>) -> Outcome<Options> {
    let mut options = Options {
        sections: plan::table(),
        rounds: 0,
        only: String::new(),
        sink: receivers::default_sink(),
        json: None,
    };
    let mut default_rounds = ROUNDS;
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        let load = match argument.as_str() {
            "--paced" => Some(plan::paced()),
            "--flat-out" => Some(plan::flat_out()),
            "--slow-sink" => Some(plan::slow_sink()),
            "--rounds" => {
                options.rounds = value()?.parse()?;
                None
            }
            "--only" => {
                options.only = value()?;
                None
            }
            "--sink" => {
                options.sink = value()?.into();
                None
            }
            "--json" => {
                options.json = Some(value()?.into());
                None
            }
            _ => return Err(format!("unknown argument {argument}\n{USAGE}").into()),
        };
        if let Some(sections) = load {
            (options.sections, default_rounds) = (sections, LOAD_ROUNDS);
        }
    }
    if options.rounds == 0 {
        options.rounds = default_rounds;
    }
    Ok(options)
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.first().map(String::as_str) {
        Some("case") => {
            let sink =
                std::env::var_os("SPANS_SINK").map_or_else(receivers::default_sink, PathBuf::from);
            case::run(&arguments.split_off(1), &sink)
        }
        Some("slow-receiver") => arguments
            .get(1)
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| "slow-receiver needs bytes per second".into())
            .and_then(receivers::serve_slowly),
        _ => options(arguments.into_iter()).and_then(|options| orchestrate(&options)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spans: {error}");
            ExitCode::FAILURE
        }
    }
}

fn orchestrate(options: &Options) -> Outcome<()> {
    let wanted = |section: &plan::Section, row: &plan::Row| {
        let text = format!("{} {} {}", section.title, row.label, row.case.join(" "));
        text.contains(&options.only)
    };
    let cases: Vec<&plan::Row> = options
        .sections
        .iter()
        .flat_map(|section| section.rows.iter().filter(|row| wanted(section, row)))
        .collect();
    let mut samples = Samples::new();
    let mut failures = Vec::new();
    let started = Instant::now();
    for round in 1..=options.rounds {
        for row in &cases {
            match run_case(row, &options.sink) {
                Ok(sample) => samples.entry(row.case.clone()).or_default().push(sample),
                Err(error) => {
                    let failure = format!("{}: {error}", row.case.join(" "));
                    eprintln!("{failure}");
                    failures.push(failure);
                }
            }
        }
        eprintln!("round {round} of {}, {:.0} s", options.rounds, started.elapsed().as_secs_f64());
    }
    println!("{} rounds, medians [least-most]\n", options.rounds);
    print!("{}", table::render(&options.sections, &samples));
    if let Some(path) = &options.json {
        let all: serde_json::Map<String, serde_json::Value> = samples
            .iter()
            .map(|(case, samples)| (case.join(" "), samples.iter().map(Sample::to_json).collect()))
            .collect();
        std::fs::write(path, serde_json::to_string_pretty(&all)?)?;
    }
    if failures.is_empty() {
        return Ok(());
    }
    Err(format!("{} of {} runs failed", failures.len(), cases.len() * options.rounds).into())
}

fn run_case(row: &plan::Row, sink: &PathBuf) -> Outcome<Sample> {
    let output = Command::new(std::env::current_exe()?)
        .arg("case")
        .args(&row.case)
        .env("SPANS_SINK", sink)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}", output.status, stderr.trim()).into());
    }
    Sample::from_line(&String::from_utf8(output.stdout)?)
}
