//! One run from its rows to its summary.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::cancel::Cancel;
use super::dispatch::Dispatch;
use super::driver::{Driver, Limits, Sink};
use super::error::CollectError;
use super::files::RunFiles;
use super::metrics::{AgentMetrics, MetricsBodies, aggregate, document};
use super::output::{LineFile, partial_path, replace};
use super::plan::Plan;
use super::prepare::{RowOptions, prepare};
use super::progress;
use super::resume;
use super::stats::Stats;
use super::summary::{CollectSummary, Counts};
use super::telemetry::RunTelemetry;
use crate::printer::Printer;

/// Rollouts in flight when nothing else is said: as many as the client opens connections to one server.
pub const DEFAULT_CONCURRENCY: usize = 1024;

/// How long rollouts in flight may go on after a gentle stop.
pub const STOP_GRACE: Duration = Duration::from_secs(2);

/// Where input rows come from.
#[derive(Debug, Clone)]
pub enum Input {
    /// A file.
    File(PathBuf),
    /// Content that travels in the binary, with the path it is known by.
    Embedded(&'static str, &'static [u8]),
}

/// What to collect, and how.
#[derive(Debug, Clone)]
pub struct CollectOptions {
    /// Not needed to resume a run.
    pub input: Option<Input>,
    pub output: PathBuf,
    pub rows: RowOptions,
    /// Rollouts in flight at most.
    pub concurrency: Option<usize>,
    /// How long a rollout may take once it is admitted.
    pub rollout_timeout: Option<Duration>,
    /// How long rollouts in flight may go on after a gentle stop.
    pub stop_grace: Duration,
    /// Whether to go on with an earlier run.
    pub resume: bool,
    /// How often a rollout may fail before a resumed run gives it up.
    pub max_attempts: u32,
    /// Whether to ask the agents for their metrics at the end.
    pub aggregate: bool,
}

impl CollectOptions {
    /// Options with which nothing special is done.
    pub fn new(input: Option<Input>, output: PathBuf) -> CollectOptions {
        CollectOptions {
            input,
            output,
            rows: RowOptions::default(),
            concurrency: None,
            rollout_timeout: None,
            stop_grace: STOP_GRACE,
            resume: false,
            max_attempts: 3,
            aggregate: true,
        }
    }
}

/// What `--resume` must know of a run, beside its rows.
#[derive(Debug, Serialize, Deserialize)]
struct RunRecord {
    collection_id: String,
    /// The length of the failures file when the run began: what lies before belongs to others.
    #[serde(default)]
    failures_from: u64,
}

/// A run whose rows are ready. Dropped before it is made, it leaves earlier runs as they were.
#[derive(Debug)]
pub struct PreparedRun {
    options: CollectOptions,
    files: RunFiles,
    plan: Plan,
    metrics: Option<MetricsBodies>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// The rows are in a file that has not got its name yet.
    New(PartialRows),
    /// The files of an earlier run, and how many of its rollouts need not be made.
    Resumed { record: RunRecord, output: LineFile, failures: LineFile, skipped: usize },
}

/// Removes the file unless it was renamed.
#[derive(Debug)]
struct PartialRows(PathBuf);

impl Drop for PartialRows {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl PreparedRun {
    /// Reads and checks the rows, or what an earlier run left. `agents` are the names that rows may refer to.
    ///
    /// # Errors
    ///
    /// What keeps the run from being made: bad rows, unknown agents, files that cannot be read or written.
    pub fn prepare(
        options: CollectOptions,
        agents: &[String],
        printer: &Printer,
    ) -> Result<PreparedRun, CollectError> {
        if options.concurrency == Some(0) {
            let reason = "must be 1 or more, got 0".to_owned();
            return Err(CollectError::Setting { key: "concurrency", reason });
        }
        let files = RunFiles::of(&options.output);
        if options.resume {
            let missing: Vec<String> = [&files.materialized, &files.output]
                .into_iter()
                .filter(|path| !path.exists())
                .map(|path| path.display().to_string())
                .collect();
            if missing.is_empty() {
                return Self::resumed(options, files, agents, printer);
            }
            let missing = missing.join(" and ");
            printer.say(&format!("nothing to resume, {missing} does not exist: this is a new run"));
        }
        if let Some(parent) = files.output.parent().filter(|parent| !parent.as_os_str().is_empty())
        {
            std::fs::create_dir_all(parent).map_err(CollectError::write(parent))?;
        }
        keep_input(&options, &files)?;
        let partial = PartialRows(partial_path(&files.materialized));
        let prepared = materialize(&options, &partial.0)?;
        known_agents(&prepared.plan, agents)?;
        for notice in &prepared.notices {
            printer.warn(notice);
        }
        let metrics = options.aggregate.then(MetricsBodies::default);
        Ok(PreparedRun { options, files, plan: prepared.plan, metrics, kind: Kind::New(partial) })
    }

    /// How many rollouts are to be in flight at a time.
    pub fn concurrency(&self) -> usize {
        self.options.concurrency.unwrap_or(DEFAULT_CONCURRENCY)
    }

    fn resumed(
        options: CollectOptions,
        files: RunFiles,
        agents: &[String],
        printer: &Printer,
    ) -> Result<PreparedRun, CollectError> {
        let record =
            std::fs::read(&files.run).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let record = match record {
            Some(record) => record,
            None => {
                printer.say(&format!(
                    "{} does not tell the id of the run: it gets a new one",
                    files.run.display()
                ));
                let record = RunRecord { collection_id: new_collection_id(), failures_from: 0 };
                write_record(&files, &record)?;
                record
            }
        };
        let (output, cut) = LineFile::append(&files.output)?;
        let (failures, cut_failures) = LineFile::append(&files.failures)?;
        for (cut, path) in [(cut, &files.output), (cut_failures, &files.failures)] {
            if cut > 0 {
                printer.warn(&format!(
                    "cut off the unfinished last line of {} ({cut} bytes)",
                    path.display()
                ));
            }
        }
        let mut metrics = options.aggregate.then(MetricsBodies::default);
        let (plan, found) =
            resume::load(&files, record.failures_from, options.max_attempts, |agent, key, row| {
                if let Some(metrics) = &mut metrics {
                    metrics.add(agent, key, row, &[]);
                }
            })?;
        known_agents(&plan, agents)?;
        for line in found.lines(options.max_attempts) {
            printer.say(&line);
        }
        let skipped = found.planned - found.remaining;
        let kind = Kind::Resumed { record, output, failures, skipped };
        Ok(PreparedRun { options, files, plan, metrics, kind })
    }

    /// Makes the rollouts. `telemetry` says whether there are spans, `parent` is the parent of the job's.
    ///
    /// # Errors
    ///
    /// What breaks the run. What was written until then stays, in whole lines.
    pub async fn collect(
        self,
        dispatch: impl Dispatch,
        telemetry: bool,
        parent: &lens::Context,
        printer: &Printer,
        cancel: Cancel,
    ) -> Result<CollectSummary, CollectError> {
        let PreparedRun { options, files, plan, metrics, kind } = self;
        let (record, output, failures, skipped) = match kind {
            Kind::Resumed { record, output, failures, skipped } => {
                (record, output, failures, skipped)
            }
            Kind::New(partial) => {
                std::fs::rename(&partial.0, &files.materialized)
                    .map_err(CollectError::write(&files.materialized))?;
                let output = LineFile::create(&files.output)?;
                let failures_from = std::fs::metadata(&files.failures).map_or(0, |meta| meta.len());
                let (failures, _) = LineFile::append(&files.failures)?;
                let record = RunRecord { collection_id: new_collection_id(), failures_from };
                write_record(&files, &record)?;
                (record, output, failures, 0)
            }
        };
        let planned = plan.rollouts.len();
        let concurrency = options.concurrency.unwrap_or(DEFAULT_CONCURRENCY);

        let mut telemetry = RunTelemetry::start(telemetry, &record.collection_id, parent);
        telemetry.planned(&plan, skipped, concurrency);
        let sink = Sink { output, failures, stats: Stats::default(), metrics };
        let limits = Limits {
            concurrency,
            rollout_timeout: options.rollout_timeout,
            stop_grace: options.stop_grace,
        };
        let driver =
            Driver::new(dispatch, plan, files.materialized.clone(), sink, telemetry, limits)?;

        let started = Instant::now();
        let shown =
            tokio::spawn(progress::show(printer.clone(), driver.counters(), planned as u64));
        let driven = driver.run(cancel).await;
        let elapsed = started.elapsed();
        shown.abort();
        let _ = shown.await;

        let mut sink = driven.sink;
        let mut telemetry = driven.telemetry;
        let (done, failed) = (sink.output.lines(), sink.failures.lines());
        let interrupted = driven.unmade > 0;
        if let Some(error) = driven.failure {
            telemetry.finished(done, failed, true);
            printer.warn(&format!(
                "{done} results and {failed} failures of this run are in their files, {} rollouts are not made",
                driven.unmade
            ));
            return Err(error);
        }
        let bodies = sink.metrics.take().filter(|_| !interrupted);
        let agent_metrics = match bodies {
            Some(bodies) => agent_metrics(&driven.dispatch, bodies, &telemetry, printer).await,
            None => None,
        };
        telemetry.finished(done, failed, interrupted);
        if let Some(metrics) = &agent_metrics {
            replace(&files.metrics, &document(metrics))?;
        }
        let counts = Counts {
            done,
            failed,
            skipped: skipped as u64,
            unmade: driven.unmade,
            interrupted,
            elapsed,
        };
        Ok(CollectSummary::new(
            record.collection_id,
            counts,
            &mut sink.stats,
            agent_metrics.as_deref(),
            &files,
        ))
    }
}

async fn agent_metrics(
    dispatch: &impl Dispatch,
    bodies: MetricsBodies,
    telemetry: &RunTelemetry,
    printer: &Printer,
) -> Option<Vec<AgentMetrics>> {
    if bodies.overflowed() {
        printer.warn("there are too many results to aggregate their metrics");
    }
    let (metrics, errors) = aggregate(dispatch, bodies, telemetry.job_context().as_ref()).await;
    for error in errors {
        printer.warn(&error.to_string());
    }
    for metrics in &metrics {
        let text = serde_json::to_string_pretty(&metrics.key_metrics)
            .expect("JSON values always serialise");
        printer.say(&format!("key metrics of {}: {text}", metrics.agent));
    }
    (!metrics.is_empty()).then_some(metrics)
}

fn materialize(
    options: &CollectOptions,
    partial: &Path,
) -> Result<super::prepare::Prepared, CollectError> {
    let input = options.input.as_ref().ok_or(CollectError::NoInput)?;
    let file = File::create(partial).map_err(CollectError::write(partial))?;
    let mut out = BufWriter::with_capacity(256 * 1024, file);
    match input {
        Input::File(path) => {
            let file = File::open(path).map_err(CollectError::read(path))?;
            let mut input = BufReader::with_capacity(256 * 1024, file);
            prepare(&mut input as &mut dyn BufRead, path, &options.rows, &mut out, partial)
        }
        Input::Embedded(path, bytes) => {
            let mut input: &[u8] = bytes;
            prepare(&mut input, Path::new(path), &options.rows, &mut out, partial)
        }
    }
}

/// Refuses to write over the rows that are being read.
fn keep_input(options: &CollectOptions, files: &RunFiles) -> Result<(), CollectError> {
    let Some(Input::File(input)) = &options.input else { return Ok(()) };
    let Ok(whole) = input.canonicalize() else { return Ok(()) };
    // Every other file of the run is written after the input has been read, and keeps what the input held.
    if files.output.canonicalize().is_ok_and(|output| output == whole) {
        return Err(CollectError::InputOverwritten { path: input.clone() });
    }
    Ok(())
}

fn known_agents(plan: &Plan, agents: &[String]) -> Result<(), CollectError> {
    match plan.agents().into_iter().find(|name| !agents.iter().any(|known| known == name)) {
        None => Ok(()),
        Some(name) => {
            Err(CollectError::UnknownAgent { name: name.to_owned(), known: agents.to_vec() })
        }
    }
}

fn write_record(files: &RunFiles, record: &RunRecord) -> Result<(), CollectError> {
    let mut text = serde_json::to_vec(record).expect("a record always serialises");
    text.push(b'\n');
    replace(&files.run, &text)
}

/// 12 hex digits that no other run has.
fn new_collection_id() -> String {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // Seeded by the system once per process, and different on every call.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(lens::now_unix_nanos());
    hasher.write_u32(std::process::id());
    format!("{:012x}", hasher.finish() & 0xffff_ffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_id_is_12_hex_digits_and_new_each_time() {
        let (one, two) = (new_collection_id(), new_collection_id());
        assert_eq!(one.len(), 12);
        assert!(one.chars().all(|c| c.is_ascii_hexdigit()));
        assert_ne!(one, two);
    }
}
