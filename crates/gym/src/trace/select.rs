//! Which trace or rollout is meant.

use lens_store::trace::{Section, Traces, is_attempt_of};
use std::path::PathBuf;

use super::read::{ReadReport, counted};
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

/// What to draw, and what to say about the choice.
#[derive(Debug)]
pub struct Chosen {
    /// In the order to draw.
    pub sections: Vec<Section>,
    /// A choice that was not asked for is explained.
    pub remark: Option<String>,
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
    #[error("no spans in {paths}: {report}; spans are lines of the console exporter, or OTLP JSON")]
    NoSpans {
        /// As given.
        paths: String,
        /// What was found instead.
        report: String,
    },
    /// The files hold traces, but no rollouts.
    #[error("no rollout in these files; `gym trace list` shows what traces there are")]
    NoRollouts,
}

fn closest_text(closest: &[String]) -> String {
    if closest.is_empty() { String::new() } else { format!("; closest: {}", closest.join(", ")) }
}

/// Finds what was asked for.
pub fn choose(traces: &Traces, choice: Choice<'_>) -> Result<Chosen, NotFound> {
    let plain = |sections| Ok(Chosen { sections, remark: None });
    match choice {
        Choice::Rollout(wanted) => {
            let sections: Vec<Section> = traces
                .rollouts()
                .filter(|(_, rollout)| {
                    rollout.id.as_deref().is_some_and(|id| is_attempt_of(id, wanted))
                })
                .map(|(at, rollout)| traces.section(at, rollout))
                .collect();
            if sections.is_empty() {
                let ids = traces.rollouts().filter_map(|(_, rollout)| rollout.id.as_deref());
                let closest = closest(wanted, ids.map(str::to_owned));
                return Err(NotFound::Rollout { wanted: wanted.to_owned(), closest });
            }
            plain(sections)
        }
        Choice::Trace(wanted) => {
            let digits = wanted.strip_prefix("0x").unwrap_or(wanted).to_ascii_lowercase();
            let ids: Vec<String> =
                traces.traces.iter().map(|trace| trace.trace_id.to_string()).collect();
            let found: Vec<usize> =
                (0..ids.len()).filter(|&at| ids[at].starts_with(&digits)).collect();
            match found.as_slice() {
                [] => {
                    let closest = closest(&digits, ids.into_iter());
                    Err(NotFound::Trace { wanted: wanted.to_owned(), closest })
                }
                [one] => plain(vec![traces.whole(*one)]),
                many => Err(NotFound::Ambiguous {
                    wanted: wanted.to_owned(),
                    count: many.len(),
                    some: many.iter().take(3).map(|&at| ids[at].clone()).collect(),
                }),
            }
        }
        Choice::Slowest(count) => {
            let slowest = traces.slowest_first();
            if slowest.is_empty() {
                return Err(NotFound::NoRollouts);
            }
            let slowest = slowest.into_iter().take(count);
            plain(slowest.map(|(at, rollout)| traces.section(at, rollout)).collect())
        }
        Choice::Obvious if traces.traces.len() == 1 => plain(vec![traces.whole(0)]),
        Choice::Obvious => Ok(obvious(traces)),
    }
}

fn obvious(traces: &Traces) -> Chosen {
    let others = "choose with --rollout, --trace or --slowest N";
    let slowest = traces.slowest_first();
    if let Some((at, rollout)) = slowest.first() {
        let remark = format!(
            "this is the slowest of {} ({}); {others}",
            counted(slowest.len(), "rollout", "rollouts"),
            duration_text(rollout.duration_nanos)
        );
        return Chosen { sections: vec![traces.section(*at, rollout)], remark: Some(remark) };
    }
    let longest = (0..traces.traces.len()).max_by_key(|&at| traces.traces[at].duration_nanos());
    Chosen {
        sections: longest.map(|at| traces.whole(at)).into_iter().collect(),
        remark: Some(format!(
            "this is the longest of {} traces, none of them a rollout; {others}",
            traces.traces.len()
        )),
    }
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
    NotFound::NoSpans { paths: names.join(", "), report: report.sentence() }
}
