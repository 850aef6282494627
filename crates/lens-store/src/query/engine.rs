//! Runs queries over parts of a store: finds the newest traces first, and looks at no more parts than that takes.

use std::collections::{BinaryHeap, HashMap, HashSet};
use std::ops::{Range, RangeInclusive};

use serde::{Deserialize, Serialize};

use super::ast::{Condition, Field, Pair, Query, Spanset, Stage};
use super::columns::{Columns, Gathered};
use super::metrics::{Meter, Metrics, Window};
use super::row::{Row, TraceFacts, holds};
use super::search::{Found, facts};
use crate::ids::TraceId;
use crate::raw::RawSpan;

/// Spans that lie together: a file, or what is in memory.
#[derive(Clone, Debug)]
pub struct Part {
    /// Starts of its spans.
    pub starts: RangeInclusive<u64>,
    /// Spans in it.
    pub spans: u64,
    /// Starts that are believed; spans outside are in no percentile and no rate.
    pub believed: Range<u64>,
}

/// Where spans are.
pub trait Source {
    /// Why they cannot be read.
    type Error;

    /// The parts, in any order.
    fn parts(&self) -> Vec<Part>;

    /// Hands over the spans of a part, or as many of them as a filter could be true for; returns how many it looked
    /// at. They are asked for [`Filter::fields`] only. A piece is one that [`count`](Self::count) left; without one all
    /// of the part is meant.
    ///
    /// # Errors
    ///
    /// When the part cannot be read.
    fn scan(
        &self,
        part: usize,
        piece: Option<usize>,
        filter: &Filter,
        take: &mut dyn FnMut(&dyn Row),
    ) -> Result<u64, Self::Error>;

    /// Counts spans of parts, each given with the starts that are believed of it, without handing them over, as far as
    /// columns allow; says which parts and pieces are left.
    ///
    /// # Errors
    ///
    /// When a part cannot be read.
    fn count(
        &self,
        parts: &[(usize, Part)],
        columns: &Columns<'_>,
    ) -> Result<Gathered, Self::Error> {
        let _ = columns;
        Ok(Gathered::left(parts.iter().map(|(at, _)| *at)))
    }

    /// The spans of a trace, each once.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    fn trace(&self, id: TraceId) -> Result<Vec<RawSpan>, Self::Error>;
}

/// What a span has to be for its trace to be of interest: one of these, and started in the range.
#[derive(Clone, Debug)]
pub struct Filter {
    any_of: Vec<Option<Condition>>,
    starts: Range<u64>,
    fields: Vec<Field>,
}

impl Filter {
    /// Whether a span passes.
    pub fn passes(&self, row: &dyn Row) -> bool {
        self.starts.contains(&row.start_nanos())
            && self
                .any_of
                .iter()
                .any(|condition| condition.as_ref().is_none_or(|condition| holds(condition, row)))
    }

    /// Starts of spans that pass.
    pub fn starts(&self) -> &Range<u64> {
        &self.starts
    }

    /// Fields that are asked for: those of the filter, and those that are shown or counted. None is of a trace.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }
}

/// How much was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looked {
    /// Parts.
    pub parts: usize,
    /// Parts that could not have anything, or nothing newer.
    pub parts_skipped: usize,
    /// Spans.
    pub spans: u64,
    /// Traces that were put together.
    pub traces: usize,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Search {
    /// The newest traces first.
    pub traces: Vec<Found>,
    /// There may be more, older ones.
    pub has_more: bool,
    /// How much was looked at.
    pub looked: Looked,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The numbers.
    pub metrics: Metrics,
    /// How much was looked at.
    pub looked: Looked,
}

/// How a search is bounded.
#[derive(Clone, Debug)]
pub struct SearchOptions {
    /// Starts of spans that are looked at, Unix nanoseconds.
    pub starts: Range<u64>,
    /// Traces at most.
    pub limit: usize,
    /// Spans of each set that are listed.
    pub spans_of_set: usize,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self { starts: 0..u64::MAX, limit: 20, spans_of_set: 3 }
    }
}

impl Query {
    /// Finds the newest traces.
    ///
    /// # Errors
    ///
    /// When the source cannot be read.
    pub fn search<S: Source>(
        &self,
        source: &S,
        options: &SearchOptions,
    ) -> Result<Search, S::Error> {
        let filter = self.filter(&options.starts);
        let mut looked = Looked::default();
        let mut parts = overlapping(source.parts(), &options.starts, &mut looked);
        let mut candidates: BinaryHeap<(u64, TraceId)> = BinaryHeap::new();
        let mut known: HashSet<TraceId> = HashSet::new();
        let mut found: Vec<Found> = Vec::new();
        // A trace begins no later than any of its spans, so nothing that is still to come can begin after this.
        loop {
            let next_part = parts.last().map(|(_, part)| *part.starts.end());
            let next_trace = candidates.peek().map(|(start, _)| *start);
            let Some(frontier) = next_part.max(next_trace) else { break };
            if found.len() >= options.limit {
                found.sort_by_key(|found| std::cmp::Reverse(found.start_nanos));
                let last = options.limit.checked_sub(1).and_then(|last| found.get(last));
                if last.is_none_or(|last| last.start_nanos >= frontier) {
                    break;
                }
            }
            if next_part >= next_trace
                && let Some((at, _)) = parts.pop()
            {
                looked.parts += 1;
                looked.spans += source.scan(at, None, &filter, &mut |row| {
                    if !known.contains(&row.trace_id()) && filter.passes(row) {
                        known.insert(row.trace_id());
                        candidates.push((row.start_nanos(), row.trace_id()));
                    }
                })?;
            } else if let Some((_, trace_id)) = candidates.pop() {
                looked.traces += 1;
                let spans = source.trace(trace_id)?;
                found.extend(self.find(&spans, options.spans_of_set));
            }
        }
        looked.parts_skipped += parts.len();
        let has_more = found.len() > options.limit || !candidates.is_empty() || !parts.is_empty();
        found.sort_by(|one, other| {
            let newer = other.start_nanos.cmp(&one.start_nanos);
            newer.then_with(|| one.trace_id.cmp(&other.trace_id))
        });
        found.truncate(options.limit);
        Ok(Search { traces: found, has_more, looked })
    }

    /// Counts, rates and quantiles; nothing when the query has none.
    ///
    /// # Errors
    ///
    /// When the source cannot be read.
    pub fn measure<S: Source>(
        &self,
        source: &S,
        window: &Window,
    ) -> Result<Option<Measured>, S::Error> {
        let Some(metric) = &self.metric else { return Ok(None) };
        let mut looked = Looked::default();
        let parts = overlapping(source.parts(), &window.range, &mut looked);
        let mut filter = self.filter(&window.range);
        let is_of_single_spans = self.is_of_single_spans();
        if is_of_single_spans {
            filter.fields.extend(metric.by.iter().chain(metric.function.field()).cloned());
            for stage in &self.stages {
                if let Stage::Filter(Some(condition)) = stage {
                    condition.fields(&mut filter.fields);
                }
            }
        }
        let mut meter = Meter::new(metric, window);
        let mut traces: HashSet<TraceId> = HashSet::new();
        let believed = believed_in(&parts);
        looked.parts += parts.len();
        let columns = Some(&window.range)
            .filter(|_| is_of_single_spans && window.step_nanos == 0)
            .and_then(|starts| Columns::of(self, metric, starts));
        let mut left: Vec<(usize, Option<usize>)> =
            parts.iter().map(|(at, _)| (*at, None)).collect();
        if let Some(columns) = columns {
            let mut gathered = source.count(&parts, &columns)?;
            left = std::mem::take(&mut gathered.left);
            looked.spans += gathered.looked;
            meter.take_all(gathered);
        }
        let believed_of: HashMap<usize, &Range<u64>> =
            parts.iter().map(|(at, part)| (*at, &part.believed)).collect();
        for (at, piece) in left {
            looked.spans += source.scan(at, piece, &filter, &mut |row| {
                if is_of_single_spans {
                    if self.is_asked_for(row) {
                        meter.take(row, believed_of[&at]);
                    }
                } else if !traces.contains(&row.trace_id()) && filter.passes(row) {
                    traces.insert(row.trace_id());
                }
            })?;
        }
        for trace in traces {
            looked.traces += 1;
            let spans = source.trace(trace)?;
            let facts: TraceFacts = facts(&spans);
            self.each(&spans, &facts, |row| meter.take(row, &believed));
        }
        Ok(Some(Measured { metrics: meter.finish(), looked }))
    }

    /// Whether a span passes the filters of a query that judges each span alone.
    pub(crate) fn is_asked_for(&self, row: &dyn Row) -> bool {
        let passes = |condition: &Option<Condition>| {
            condition.as_ref().is_none_or(|condition| holds(condition, row))
        };
        let first = match &self.spans {
            Spanset::Filter(condition) => passes(condition),
            Spanset::Pair(..) => false,
        };
        first
            && self.stages.iter().all(|stage| match stage {
                Stage::Filter(condition) => passes(condition),
                _ => true,
            })
    }

    /// What a trace of interest has at least one span of.
    fn filter(&self, starts: &Range<u64>) -> Filter {
        let mut any_of = Vec::new();
        needed(&self.spans, &mut any_of);
        let mut fields = Vec::new();
        any_of.iter().flatten().for_each(|condition| condition.fields(&mut fields));
        Filter { any_of, starts: starts.clone(), fields }
    }
}

/// Parts with spans of this time, by their newest span.
fn overlapping(parts: Vec<Part>, starts: &Range<u64>, looked: &mut Looked) -> Vec<(usize, Part)> {
    let all = parts.len();
    let mut parts: Vec<(usize, Part)> = parts
        .into_iter()
        .enumerate()
        .filter(|(_, part)| {
            part.spans > 0
                && *part.starts.start() < starts.end
                && *part.starts.end() >= starts.start
        })
        .collect();
    looked.parts_skipped += all - parts.len();
    parts.sort_by_key(|(_, part)| *part.starts.end());
    parts
}

/// Starts that are believed in any part.
fn believed_in(parts: &[(usize, Part)]) -> Range<u64> {
    let start = parts.iter().map(|(_, part)| part.believed.start).min().unwrap_or(0);
    let end = parts.iter().map(|(_, part)| part.believed.end).max().unwrap_or(0);
    start..end
}

/// Conditions of which each trace that is found fulfils at least one. Nesting was bounded when the query was read.
fn needed(set: &Spanset, any_of: &mut Vec<Option<Condition>>) {
    match set {
        Spanset::Filter(condition) => {
            any_of.push(condition.as_ref().map(|condition| relaxed(condition, true)));
        }
        Spanset::Pair(Pair::Either, sets) => {
            needed(&sets.0, any_of);
            needed(&sets.1, any_of);
        }
        // Either side would do; the last is what is shown.
        Spanset::Pair(_, sets) => needed(&sets.1, any_of),
    }
}

/// The condition without what only the whole trace can tell, which is taken to be `unknown`.
fn relaxed(condition: &Condition, unknown: bool) -> Condition {
    let all = |parts: &[Condition]| parts.iter().map(|part| relaxed(part, unknown)).collect();
    match condition {
        Condition::All(parts) => Condition::All(all(parts)),
        Condition::Any(parts) => Condition::Any(all(parts)),
        Condition::Not(part) => Condition::Not(Box::new(relaxed(part, !unknown))),
        condition if condition.needs_trace() => Condition::Always(unknown),
        condition => condition.clone(),
    }
}
