//! Finds the spans of one trace that a query asks for.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::ast::{Aggregate, Field, Op, Pair, Query, Spanset, Stage};
use super::row::{Row, SpanRow, TraceFacts, holds, resource_text, value};
use super::value::Owned;
use crate::ids::SpanId;
use crate::raw::RawSpan;
use gym_telemetry::semconv;

/// A trace with spans that a query asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Its id.
    pub trace_id: String,
    /// Service of its root, where the root is known.
    pub root_service: Option<String>,
    /// Name of its root, where the root is known.
    pub root_name: Option<String>,
    /// Its first start, Unix nanoseconds.
    pub start_nanos: u64,
    /// From its first start to its last end.
    pub duration_nanos: u64,
    /// All its spans.
    pub spans: usize,
    /// What was found: one set, or as many as the query splits it into.
    pub sets: Vec<FoundSet>,
}

/// Spans of a trace that were found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundSet {
    /// What the set was split by.
    pub by: Vec<(String, Owned)>,
    /// How many spans it has.
    pub matched: usize,
    /// The first of them by start.
    pub spans: Vec<FoundSpan>,
}

/// A span that was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundSpan {
    /// Its id.
    pub span_id: String,
    /// Its name.
    pub name: String,
    /// Its start, Unix nanoseconds.
    pub start_nanos: u64,
    /// From its start to its end.
    pub duration_nanos: u64,
    /// What the query selects.
    pub fields: Vec<(String, Owned)>,
}

/// Spans of one trace, which a query goes through.
pub(crate) struct TraceRows<'a> {
    rows: Vec<SpanRow<'a>>,
}

/// Spans of the trace by place, and what they were split by.
#[derive(Clone, Default)]
struct Set {
    by: Vec<(String, Owned)>,
    places: Vec<usize>,
}

/// The facts of a trace of these spans.
pub(crate) fn facts(spans: &[RawSpan]) -> TraceFacts {
    let mut facts = TraceFacts::default();
    let (mut start, mut end) = (u64::MAX, 0);
    let mut root_start = u64::MAX;
    for span in spans {
        let Ok(view) = span.view() else { continue };
        start = start.min(view.start_nanos);
        end = end.max(view.end_nanos);
        if view.parent_id.is_empty() && (view.start_nanos < root_start || facts.root_name.is_none())
        {
            root_start = view.start_nanos;
            facts.root_name = Some(view.name.to_owned());
            facts.root_service =
                resource_text(&span.origin, semconv::SERVICE_NAME).map(str::to_owned);
        }
    }
    facts.start_nanos = if start == u64::MAX { 0 } else { start };
    facts.duration_nanos = end.saturating_sub(facts.start_nanos);
    facts
}

impl Query {
    /// What it finds in the spans of one trace, each of which is there once; at most `shown` spans of each set are
    /// listed.
    pub fn find(&self, spans: &[RawSpan], shown: usize) -> Option<Found> {
        let first = spans.first()?;
        let facts = facts(spans);
        let trace = TraceRows::new(spans, &facts);
        let sets = trace.sets(self);
        if sets.is_empty() {
            return None;
        }
        let selected: Vec<&Field> = self
            .stages
            .iter()
            .filter_map(|stage| match stage {
                Stage::Select(fields) => Some(fields),
                _ => None,
            })
            .flatten()
            .collect();
        Some(Found {
            trace_id: first.trace_id.to_string(),
            root_service: facts.root_service.clone(),
            root_name: facts.root_name.clone(),
            start_nanos: facts.start_nanos,
            duration_nanos: facts.duration_nanos,
            spans: spans.len(),
            sets: sets.into_iter().map(|set| trace.show(set, &selected, shown)).collect(),
        })
    }

    /// The spans of one trace that are left when all steps are done.
    pub(crate) fn each<'a>(
        &self,
        spans: &'a [RawSpan],
        facts: &'a TraceFacts,
        mut take: impl FnMut(&dyn Row),
    ) {
        let trace = TraceRows::new(spans, facts);
        for set in trace.sets(self) {
            set.places.iter().for_each(|place| take(&trace.rows[*place]));
        }
    }
}

impl<'a> TraceRows<'a> {
    fn new(spans: &'a [RawSpan], facts: &'a TraceFacts) -> Self {
        let rows = spans.iter().filter_map(|span| SpanRow::new(span).ok());
        let mut rows: Vec<_> = rows.map(|row| SpanRow { trace: Some(facts), ..row }).collect();
        rows.sort_by_key(|row| (row.view.start_nanos, row.raw.span_id));
        Self { rows }
    }

    fn sets(&self, query: &Query) -> Vec<Set> {
        let places = self.spanset(&query.spans);
        let mut sets = vec![Set { by: Vec::new(), places }];
        for stage in &query.stages {
            match stage {
                Stage::Filter(Some(condition)) => {
                    for set in &mut sets {
                        set.places.retain(|place| holds(condition, &self.rows[*place]));
                    }
                }
                Stage::By(field) => {
                    sets = sets.into_iter().flat_map(|set| self.split(set, field)).collect();
                }
                Stage::Aggregate(aggregate, op, number) => {
                    sets.retain(|set| self.aggregate(set, aggregate, *op, *number));
                }
                Stage::Filter(None) | Stage::Select(_) => {}
            }
            sets.retain(|set| !set.places.is_empty());
        }
        sets.retain(|set| !set.places.is_empty());
        sets
    }

    /// Places in order.
    fn spanset(&self, set: &Spanset) -> Vec<usize> {
        let (pair, first, second) = match set {
            Spanset::Filter(None) => return (0..self.rows.len()).collect(),
            Spanset::Filter(Some(condition)) => {
                let all = 0..self.rows.len();
                return all.filter(|place| holds(condition, &self.rows[*place])).collect();
            }
            Spanset::Pair(pair, sets) => (pair, self.spanset(&sets.0), self.spanset(&sets.1)),
        };
        let union = |first: &[usize], second: &[usize]| {
            let mut all = [first, second].concat();
            all.sort_unstable();
            all.dedup();
            all
        };
        match pair {
            Pair::Both if first.is_empty() || second.is_empty() => Vec::new(),
            Pair::Both | Pair::Either => union(&first, &second),
            Pair::Child | Pair::Descendant => {
                let below = self.below(&first, *pair == Pair::Descendant);
                second.into_iter().filter(|place| below[*place]).collect()
            }
            Pair::Parent | Pair::Ancestor => {
                let above = self.above(&first, *pair == Pair::Ancestor);
                second.into_iter().filter(|place| above[*place]).collect()
            }
            Pair::Sibling => {
                let mut of_parent: HashMap<SpanId, Vec<usize>> = HashMap::new();
                for place in first {
                    if let Some(parent) = self.rows[place].parent_id() {
                        of_parent.entry(parent).or_default().push(place);
                    }
                }
                let has_sibling = |place: &usize| {
                    let parent = self.rows[*place].parent_id();
                    let siblings = parent.and_then(|parent| of_parent.get(&parent));
                    siblings.is_some_and(|all| all.iter().any(|other| other != place))
                };
                second.into_iter().filter(has_sibling).collect()
            }
        }
    }

    /// The place of each span's parent; of spans of one id the first is taken.
    fn parents(&self) -> Vec<Option<usize>> {
        let mut places = HashMap::with_capacity(self.rows.len());
        for (place, row) in self.rows.iter().enumerate() {
            places.entry(row.raw.span_id).or_insert(place);
        }
        let parent = |row: &SpanRow<'_>| places.get(&row.parent_id()?).copied();
        self.rows.iter().map(parent).collect()
    }

    /// Which spans have one of these as their parent, or anywhere above.
    fn below(&self, of: &[usize], is_deep: bool) -> Vec<bool> {
        let parents = self.parents();
        let mut is_in = vec![false; self.rows.len()];
        of.iter().for_each(|place| is_in[*place] = true);
        if !is_deep {
            return parents.iter().map(|parent| parent.is_some_and(|at| is_in[at])).collect();
        }
        let mut known: Vec<Option<bool>> = vec![None; self.rows.len()];
        for place in 0..self.rows.len() {
            // Up to what is known, then the same for all on the way. A span on the way that is seen again is a cycle.
            let (mut way, mut at) = (vec![place], place);
            let answer = loop {
                if let Some(known) = known[at] {
                    break known;
                }
                match parents[at] {
                    Some(parent) if is_in[parent] => break true,
                    Some(parent) if way.len() <= self.rows.len() => {
                        at = parent;
                        way.push(parent);
                    }
                    _ => break false,
                }
            };
            for at in way {
                known[at].get_or_insert(answer);
            }
        }
        known.into_iter().map(|known| known.unwrap_or(false)).collect()
    }

    /// Which spans are the parent of one of these, or anywhere above.
    fn above(&self, of: &[usize], is_deep: bool) -> Vec<bool> {
        let parents = self.parents();
        let mut is_above = vec![false; self.rows.len()];
        for place in of {
            let mut next = parents[*place];
            while let Some(at) = next.filter(|at| !is_above[*at]) {
                is_above[at] = true;
                next = if is_deep { parents[at] } else { None };
            }
        }
        is_above
    }

    fn split(&self, set: Set, field: &Field) -> Vec<Set> {
        let mut parts: BTreeMap<Owned, Vec<usize>> = BTreeMap::new();
        for place in set.places {
            let value = value(field, &self.rows[place]).unwrap_or(Owned::Nil);
            parts.entry(value).or_default().push(place);
        }
        let part = |(value, places)| {
            let mut by = set.by.clone();
            by.push((field.name(), value));
            Set { by, places }
        };
        parts.into_iter().map(part).collect()
    }

    fn aggregate(&self, set: &Set, aggregate: &Aggregate, op: Op, wanted: f64) -> bool {
        let field = match aggregate {
            Aggregate::Count => return op_holds(op, set.places.len() as f64, wanted),
            Aggregate::Average(field)
            | Aggregate::Sum(field)
            | Aggregate::Min(field)
            | Aggregate::Max(field) => field,
        };
        let mut numbers = Vec::new();
        for place in &set.places {
            self.rows[*place].any(field, &mut |value| {
                numbers.extend(value.number());
                true
            });
        }
        if numbers.is_empty() {
            return false;
        }
        let number = match aggregate {
            Aggregate::Sum(_) => numbers.iter().sum(),
            Aggregate::Min(_) => numbers.iter().copied().fold(f64::INFINITY, f64::min),
            Aggregate::Max(_) => numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            _ => numbers.iter().sum::<f64>() / numbers.len() as f64,
        };
        op_holds(op, number, wanted)
    }

    fn show(&self, set: Set, selected: &[&Field], shown: usize) -> FoundSet {
        let spans = set.places.iter().take(shown).map(|place| {
            let row = &self.rows[*place];
            let pair = |field: &&Field| Some((field.name(), value(field, row)?));
            FoundSpan {
                span_id: row.raw.span_id.to_string(),
                name: row.view.name.to_owned(),
                start_nanos: row.view.start_nanos,
                duration_nanos: row.duration_nanos(),
                fields: selected.iter().filter_map(pair).collect(),
            }
        });
        FoundSet { matched: set.places.len(), spans: spans.collect(), by: set.by }
    }
}

fn op_holds(op: Op, number: f64, wanted: f64) -> bool {
    number.partial_cmp(&wanted).is_some_and(|order| op.holds(order))
}
