//! Which trace or rollout is meant.

use lens_store::rollouts::filter::slowest_first;
use lens_store::rollouts::runs::Run;
use lens_store::rollouts::{Filter, RolloutRow};
use lens_store::trace::{Section, Traces};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::read::{ReadReport, counted};
use super::runs::run_name;
use super::source::{Source, SourceError};
use super::text::duration_text;

/// What was asked for.
#[derive(Debug, Clone, Copy)]
pub enum Choice<'a> {
    /// A rollout and its later attempts.
    Rollout(&'a str),
    /// A trace by the beginning of its id.
    Trace(&'a str),
    /// So many rollouts, the slowest first.
    Slowest(usize),
    /// The only trace, else the slowest rollout.
    Obvious,
}

impl<'a> Choice<'a> {
    /// What was typed, if anything was.
    pub fn of(
        rollout: Option<&'a str>,
        trace: Option<&'a str>,
        slowest: Option<usize>,
    ) -> Option<Self> {
        rollout
            .map(Self::Rollout)
            .or_else(|| trace.map(Self::Trace))
            .or_else(|| slowest.map(Self::Slowest))
    }
}

/// What to draw, and what to say about the choice.
#[derive(Debug)]
pub struct Chosen {
    /// Where the sections are.
    pub traces: Arc<Traces>,
    /// In the order to draw.
    pub sections: Vec<Section>,
    /// A choice that was not asked for is explained.
    pub remark: Option<String>,
}

impl Chosen {
    /// All of some traces.
    pub fn everything(traces: Arc<Traces>) -> Self {
        let sections = (0..traces.traces.len()).map(|at| traces.whole(at)).collect();
        Self { traces, sections, remark: None }
    }
}

/// Nothing is what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum NotFound {
    /// No rollout has this id.
    #[error("no rollout {wanted:?} in these files{}", closest_text(.closest))]
    Rollout {
        /// As asked for.
        wanted: String,
        /// Ids that are most like it.
        closest: Vec<String>,
    },
    /// No trace has an id that starts like this.
    #[error("no trace {wanted:?} in these files{}", closest_text(.closest))]
    Trace {
        /// As asked for.
        wanted: String,
        /// Ids that are most like it.
        closest: Vec<String>,
    },
    /// Several traces have an id that starts like this.
    #[error("{count} traces start with {wanted:?}: {}", .some.join(", "))]
    Ambiguous {
        /// As asked for.
        wanted: String,
        /// How many.
        count: usize,
        /// A few of them.
        some: Vec<String>,
    },
    /// Nothing in the files is a span.
    #[error("no spans in {paths}: {report}")]
    NoSpans {
        /// As given.
        paths: String,
        /// What was found instead.
        report: String,
    },
    /// A side of a comparison is empty.
    #[error("no rollout is selected by {0:?}")]
    NoneSelected(String),
    /// No run has an id that starts like this.
    #[error("no run {wanted:?}; there are {}", .runs.join(", "))]
    Run {
        /// As asked for.
        wanted: String,
        /// Some that are there.
        runs: Vec<String>,
    },
    /// There are several runs.
    #[error("{count} runs, choose one with --run: {}", .runs.join(", "))]
    ManyRuns {
        /// How many.
        count: usize,
        /// Some of them.
        runs: Vec<String>,
    },
    /// The files hold traces, but no rollouts.
    #[error("no rollout in these files; `gym trace list` shows what traces there are")]
    NoRollouts,
    /// There are rollouts, and a filter takes none of them.
    #[error("the filter takes none of {rollouts}; there are {values}")]
    NoneMeant {
        /// `12 rollouts`.
        rollouts: String,
        /// What they are told apart by.
        values: String,
    },
}

/// Why nothing was chosen.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// There is nothing like that.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// Nobody can say.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl NotFound {
    /// No rollout is meant by a filter, of these that there are.
    fn of_filter(rows: &[RolloutRow]) -> Self {
        let some = |what: &str, values: BTreeSet<&str>| {
            let count = values.len();
            let named =
                values.into_iter().map(|value| if value.is_empty() { "(none)" } else { value });
            let named: Vec<&str> = named.take(NAMED).collect();
            let more = if count > NAMED { ", …" } else { "" };
            format!("{what} {}{more}", named.join(", "))
        };
        let mut values = vec![some("runs", rows.iter().map(|row| &*row.run).collect())];
        let tasks: Vec<i64> = rows.iter().filter_map(|row| row.task_index).collect();
        if let (Some(first), Some(last)) = (tasks.iter().min(), tasks.iter().max()) {
            values.push(format!("tasks {first} to {last}"));
        }
        values.push(some("agents", rows.iter().map(|row| &*row.agent).collect()));
        values.push(some("outcomes", rows.iter().map(|row| &*row.outcome).collect()));
        let rollouts = counted(rows.len(), "rollout", "rollouts");
        Self::NoneMeant { rollouts, values: values.join("; ") }
    }

    /// Not one run, but these.
    pub fn of_runs(wanted: Option<&str>, runs: &[Run]) -> Self {
        let names = || runs.iter().take(5).map(|run| run_name(run).to_owned()).collect();
        match wanted {
            _ if runs.is_empty() => Self::NoRollouts,
            Some(wanted) if !runs.iter().any(|run| run.id.starts_with(wanted)) => {
                Self::Run { wanted: wanted.to_owned(), runs: names() }
            }
            _ => Self::ManyRuns { count: runs.len(), runs: names() },
        }
    }
}

fn closest_text(closest: &[String]) -> String {
    if closest.is_empty() { String::new() } else { format!("; closest: {}", closest.join(", ")) }
}

/// Values of a kind that are named.
const NAMED: usize = 5;

/// What to answer when a filter takes no rollout.
///
/// # Errors
///
/// When the source cannot be read.
pub fn no_rollouts(source: &Source, filter: &Filter) -> Result<NotFound, SourceError> {
    if filter.is_empty() {
        return Ok(NotFound::NoRollouts);
    }
    let all = source.rows(&Filter::default())?;
    Ok(if all.is_empty() { NotFound::NoRollouts } else { NotFound::of_filter(&all) })
}

/// Finds what was asked for among the rollouts that are meant.
///
/// # Errors
///
/// When there is nothing like that, or the source cannot be read.
pub fn choose(source: &Source, choice: Choice<'_>, filter: &Filter) -> Result<Chosen, Unanswered> {
    match choice {
        Choice::Rollout(wanted) => {
            let asked = Filter { rollout: Some(wanted.to_owned()), ..filter.clone() };
            let rows = source.rows(&asked)?;
            if rows.is_empty() {
                let rows = source.rows(filter)?;
                let ids = rows.iter().map(|row| row.rollout_id.to_string());
                let closest = closest(wanted, ids.filter(|id| !id.is_empty()));
                return Err(NotFound::Rollout { wanted: wanted.to_owned(), closest }.into());
            }
            Ok(sections(source, &rows)?)
        }
        Choice::Trace(wanted) => by_trace(source, wanted),
        Choice::Slowest(count) => {
            let mut rows = source.rows(filter)?;
            if rows.is_empty() {
                return Err(no_rollouts(source, filter)?.into());
            }
            slowest_first(&mut rows);
            rows.truncate(count);
            Ok(sections(source, &rows)?)
        }
        Choice::Obvious => obvious(source, filter),
    }
}

/// What to draw for rollouts.
fn sections(source: &Source, rows: &[RolloutRow]) -> Result<Chosen, SourceError> {
    let traces = source.traces(rows.iter().map(|row| row.trace_id))?;
    let found = rows.iter().filter_map(|row| {
        let (trace, rollout) = traces.find_rollout(row.trace_id, row.root_span_id)?;
        Some(traces.section(trace, rollout))
    });
    let sections = found.collect();
    Ok(Chosen { traces, sections, remark: None })
}

fn by_trace(source: &Source, wanted: &str) -> Result<Chosen, Unanswered> {
    let digits = wanted.strip_prefix("0x").unwrap_or(wanted).to_ascii_lowercase();
    let found = source.trace_ids(&digits)?;
    match found.as_slice() {
        [] => {
            let ids = source.trace_ids("")?;
            let closest = closest(&digits, ids.iter().map(ToString::to_string));
            Err(NotFound::Trace { wanted: wanted.to_owned(), closest }.into())
        }
        [one] => {
            let traces = source.traces(std::iter::once(*one))?;
            let at = traces.traces.iter().position(|trace| trace.trace_id == *one);
            let sections = at.map(|at| traces.whole(at)).into_iter().collect();
            Ok(Chosen { traces, sections, remark: None })
        }
        many => Err(NotFound::Ambiguous {
            wanted: wanted.to_owned(),
            count: many.len(),
            some: many.iter().take(3).map(ToString::to_string).collect(),
        }
        .into()),
    }
}

fn obvious(source: &Source, filter: &Filter) -> Result<Chosen, Unanswered> {
    let others = "choose with --rollout, --trace or --slowest N";
    if let ([only], true) = (source.trace_ids("")?.as_slice(), filter.is_empty()) {
        return by_trace(source, &only.to_string());
    }
    let mut rows = source.rows(filter)?;
    slowest_first(&mut rows);
    if let Some(slowest) = rows.first() {
        let remark = format!(
            "this is the slowest of {} ({}); {others}",
            counted(rows.len(), "rollout", "rollouts"),
            duration_text(slowest.duration_nanos())
        );
        return Ok(Chosen { remark: Some(remark), ..sections(source, &rows[..1])? });
    }
    if !filter.is_empty() {
        return Err(NotFound::NoRollouts.into());
    }
    let traces = source.all()?;
    let longest = (0..traces.traces.len()).max_by_key(|&at| traces.traces[at].duration_nanos());
    let remark = format!(
        "this is the longest of {} traces, none of them a rollout; {others}",
        traces.traces.len()
    );
    let sections = longest.map(|at| traces.whole(at)).into_iter().collect();
    Ok(Chosen { traces, sections, remark: Some(remark) })
}

/// The three ids that are most like the wanted one.
fn closest(wanted: &str, ids: impl Iterator<Item = String>) -> Vec<String> {
    let mut ranked: Vec<(usize, String)> = ids.map(|id| (distance(wanted, &id), id)).collect();
    ranked.sort();
    ranked.dedup();
    ranked.into_iter().take(3).map(|(_, id)| id).collect()
}

/// Edits between the wanted id and the beginning of another, so that a short prefix with one wrong
/// digit finds its trace.
fn distance(wanted: &str, id: &str) -> usize {
    let wanted: Vec<char> = wanted.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=wanted.len()).collect();
    let mut best = row[wanted.len()];
    for (at, letter) in id.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for column in 0..wanted.len() {
            let substituted = diagonal + usize::from(wanted[column] != letter);
            diagonal = row[column + 1];
            row[column + 1] = substituted.min(diagonal + 1).min(row[column] + 1);
        }
        best = best.min(row[wanted.len()]);
    }
    best
}

/// There is nothing to show: what was looked at.
pub fn nothing_found(paths: &[PathBuf], report: &ReadReport) -> NotFound {
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let read = report.sentence();
    NotFound::NoSpans {
        paths: names.join(", "),
        report: format!("{read}; spans are lines of the console exporter, or OTLP JSON"),
    }
}
