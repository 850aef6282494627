//! What can be asked of traces and runs.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use lens_store::rollouts::Filter;

#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// List traces: root, rollout, start, duration, errors.
    List(TraceListArgs),
    /// Draw traces as timelines.
    Show(TraceShowArgs),
    /// Say where the time of all rollouts went, by band.
    Report(TraceReportArgs),
    /// Find spans by what they are, or count and measure them.
    Search(TraceSearchArgs),
    /// Say what differs between two selections of rollouts, by band.
    Diff(TraceDiffArgs),
    /// Find rollouts that took much longer than the others of their task, and say why.
    Stragglers(TraceStragglersArgs),
    /// Write traces for other software.
    Export(TraceExportArgs),
}

#[derive(Debug, Subcommand)]
pub enum RunCommand {
    /// List the runs: when, how many rollouts, how they ended, how long they took.
    List(RunListArgs),
    /// Sum up one run.
    Show(RunShowArgs),
    /// Show the rollouts that are under way, and what hangs.
    Watch(RunWatchArgs),
}

/// Where spans are read from.
#[derive(Clone, Debug, Args)]
pub struct Paths {
    /// Files or directories of telemetry lines or OTLP JSON, the folder of a store, or the URL of a `gym observe`; `-` is stdin.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// Which rollouts are meant.
#[derive(Clone, Debug, Default, Args)]
pub struct Which {
    /// Only rollouts of this run (the beginning of its id is enough).
    #[arg(long, value_name = "ID")]
    pub run: Option<String>,
    /// Only rollouts of this task.
    #[arg(long, value_name = "INDEX")]
    pub task: Option<i64>,
    /// Only rollouts of this agent.
    #[arg(long, value_name = "INSTANCE")]
    pub agent: Option<String>,
    /// Only rollouts that ended like this: success, failure, timeout or cancelled.
    #[arg(long, value_name = "OUTCOME")]
    pub outcome: Option<String>,
}

impl Which {
    /// The same as a filter.
    pub fn filter(&self) -> Filter {
        Filter {
            run: self.run.clone(),
            task: self.task,
            agent: self.agent.clone(),
            outcome: self.outcome.clone(),
            ..Filter::default()
        }
    }
}

#[derive(Clone, Debug, Args)]
pub struct TraceListArgs {
    #[command(flatten)]
    pub from: Paths,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct TraceShowArgs {
    #[command(flatten)]
    pub from: Paths,
    /// The trace of this rollout.
    #[arg(long, value_name = "ID", group = "which")]
    pub rollout: Option<String>,
    /// The trace with this id (a prefix is enough).
    #[arg(long, value_name = "ID", group = "which")]
    pub trace: Option<String>,
    /// The N rollouts that took longest.
    #[arg(long, value_name = "N", group = "which")]
    pub slowest: Option<usize>,
    /// Also sum up where the time of all rollouts in the files went.
    #[arg(long)]
    pub summary: bool,
    #[command(flatten)]
    pub only: Which,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct TraceReportArgs {
    #[command(flatten)]
    pub from: Paths,
    #[command(flatten)]
    pub only: Which,
    /// Only the N rollouts that took longest, and what they share that the rest do not have.
    #[arg(long, value_name = "N")]
    pub slowest: Option<usize>,
    /// Print JSON, with the bands of every rollout.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct TraceSearchArgs {
    /// What to find, in a part of TraceQL: '{ duration > 5s && status = error }',
    /// '{} | quantile_over_time(duration, .5, .99) by (name)'.
    #[arg(value_name = "QUERY")]
    pub query: String,
    /// A store; or the URL of a running `gym observe`; or files or directories of telemetry
    /// lines or OTLP JSON; `-` is stdin.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// List no more traces than this, the newest.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
    /// Only spans that started in the last so much time: 15m, 2h.
    #[arg(long, value_name = "TIME", value_parser = nanos)]
    pub last: Option<u64>,
    /// Count in steps of this length: 10s, 1m.
    #[arg(long, value_name = "TIME", value_parser = nanos)]
    pub step: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Nanoseconds of `15m`, `1.5s`.
fn nanos(text: &str) -> Result<u64, String> {
    let nanos = lens_store::query::duration(text).and_then(|nanos| u64::try_from(nanos).ok());
    nanos.filter(|nanos| *nanos > 0).ok_or_else(|| "a time is written 250ms, 15m or 2h".to_owned())
}

#[derive(Clone, Debug, Args)]
pub struct TraceDiffArgs {
    /// One selection: a file or directory, and after `@` what its rollouts are like, as in `logs@run=3f2a,agent=simple_agent`.
    #[arg(value_name = "A")]
    pub a: String,
    /// The other; PATH may be missing where it is the same: `@run=88b1`.
    #[arg(value_name = "B")]
    pub b: String,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct TraceStragglersArgs {
    #[command(flatten)]
    pub from: Paths,
    #[command(flatten)]
    pub only: Which,
    /// How many times the median of the others of its task a straggler takes.
    #[arg(long, value_name = "TIMES", default_value_t = 3.0)]
    pub factor: f64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// What an export is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// OTLP JSON, one request a line: what the OpenTelemetry Collector writes to files, and reads.
    OtlpJson,
    /// Trace events: ui.perfetto.dev and chrome://tracing open them.
    Perfetto,
    /// One row a span, with the columns of a store.
    Parquet,
}

#[derive(Clone, Debug, Args)]
pub struct TraceExportArgs {
    #[command(flatten)]
    pub from: Paths,
    /// Where to; `-` is stdout.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// As what.
    #[arg(long, value_enum, default_value_t = ExportFormat::OtlpJson)]
    pub format: ExportFormat,
    /// The rollout with this id, and its later attempts.
    #[arg(long, value_name = "ID", group = "which")]
    pub rollout: Option<String>,
    /// The trace with this id (a prefix is enough).
    #[arg(long, value_name = "ID", group = "which")]
    pub trace: Option<String>,
    /// The N rollouts that took longest.
    #[arg(long, value_name = "N", group = "which")]
    pub slowest: Option<usize>,
    #[command(flatten)]
    pub only: Which,
}

#[derive(Clone, Debug, Args)]
pub struct RunListArgs {
    #[command(flatten)]
    pub from: Paths,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct RunShowArgs {
    #[command(flatten)]
    pub from: Paths,
    /// Which; needed where there are several (the beginning of its id is enough).
    #[arg(long, value_name = "ID")]
    pub run: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct RunWatchArgs {
    /// Address of a running `gym observe`.
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:4318")]
    pub url: String,
    /// Only rollouts of this run (the beginning of its id is enough).
    #[arg(long, value_name = "ID")]
    pub run: Option<String>,
    /// Show them once; exits 1 when there are none.
    #[arg(long)]
    pub once: bool,
    /// Look again after so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub every: u64,
    /// Print JSON, one line each time.
    #[arg(long)]
    pub json: bool,
}
