//! Numbers that a few columns are enough for: each combination of values is judged once, then its rows are counted.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use lens_otlp::encode::StatusCode;
use lens_otlp::view::Attributes;

use super::ast::{AttributeScope, Condition, Field, Function, Metric, Query, Spanset, Stage};
use super::metrics::{Cell, MAX_GROUPS, MAX_KEPT};
use super::row::{Row, attribute, scope_text, value};
use super::value::{Owned, Value};
use crate::ids::{SpanId, TraceId};
use crate::raw::Origin;
use crate::segment::{any_json, coded, kind_number, status_of};

/// A query that columns can answer.
#[derive(Debug)]
pub struct Columns<'q> {
    query: &'q Query,
    metric: &'q Metric,
    starts: &'q Range<u64>,
    coded: Vec<coded::Field>,
    takes_all: bool,
}

/// In the place of a group: the span is not asked for.
pub(crate) const LEFT_OUT: u32 = u32::MAX;
/// In the place of a group: there are too many of them.
pub(crate) const REFUSED: u32 = u32::MAX - 1;

impl<'q> Columns<'q> {
    /// Nothing where spans have to be looked at: for fields of which nearly each span has a value of its own, and for
    /// numbers that are no durations.
    pub(crate) fn of(query: &'q Query, metric: &'q Metric, starts: &'q Range<u64>) -> Option<Self> {
        if !matches!(metric.function.field(), None | Some(Field::Duration)) {
            return None;
        }
        let mut fields = metric.by.clone();
        query.conditions().for_each(|condition| condition.fields(&mut fields));
        let mut coded = Vec::new();
        for field in &fields {
            for field in coded_as(field)? {
                if !coded.contains(&field) {
                    coded.push(field);
                }
            }
        }
        let takes_all = query.conditions().next().is_none();
        Some(Self { query, metric, starts, coded, takes_all })
    }

    /// Whether nothing is asked of the spans that are counted.
    pub(crate) fn takes_all(&self) -> bool {
        self.takes_all
    }

    /// What to read.
    pub(crate) fn coded(&self) -> &[coded::Field] {
        &self.coded
    }

    /// Starts of the spans that are asked for.
    pub(crate) fn starts(&self) -> &Range<u64> {
        self.starts
    }

    pub(crate) fn function(&self) -> &Function {
        &self.metric.function
    }

    /// The group of the spans with these values of [`coded`](Self::coded); nothing when they are not asked for.
    pub(crate) fn group(&self, values: &[Option<&coded::Value>]) -> Option<Vec<Owned>> {
        let row = Combination { coded: &self.coded, values };
        self.query.is_asked_for(&row).then(|| {
            let by = self.metric.by.iter();
            by.map(|field| value(field, &row).unwrap_or(Owned::Nil)).collect()
        })
    }
}

impl Query {
    /// The conditions of a query that judges each span alone.
    fn conditions(&self) -> impl Iterator<Item = &Condition> {
        let of_each_span = match &self.spans {
            Spanset::Filter(condition) => condition.as_ref(),
            Spanset::Pair(..) => None,
        };
        let of_stages = self.stages.iter().filter_map(|stage| match stage {
            Stage::Filter(condition) => condition.as_ref(),
            _ => None,
        });
        of_each_span.into_iter().chain(of_stages)
    }
}

/// Where a field is, when it is in columns of few values.
fn coded_as(field: &Field) -> Option<Vec<coded::Field>> {
    Some(match field {
        Field::Name => vec![coded::Field::Name],
        Field::Kind => vec![coded::Field::Kind],
        Field::Status => vec![coded::Field::Status],
        Field::ScopeName | Field::ScopeVersion => vec![coded::Field::Origin],
        Field::Attribute(scope, key) => match scope {
            AttributeScope::Span => vec![coded::Field::Attribute(key.clone())],
            AttributeScope::Any => {
                vec![coded::Field::Attribute(key.clone()), coded::Field::Origin]
            }
            AttributeScope::Resource | AttributeScope::Instrumentation => {
                vec![coded::Field::Origin]
            }
            AttributeScope::Event => return None,
        },
        _ => return None,
    })
}

/// A combination of values, as conditions see it.
struct Combination<'a> {
    coded: &'a [coded::Field],
    values: &'a [Option<&'a coded::Value>],
}

impl<'a> Combination<'a> {
    fn value(&self, is_wanted: impl Fn(&coded::Field) -> bool) -> Option<&'a coded::Value> {
        let at = self.coded.iter().position(is_wanted)?;
        self.values[at]
    }

    fn origin(&self) -> Option<&'a Arc<Origin>> {
        match self.value(|field| *field == coded::Field::Origin) {
            Some(coded::Value::Origin(origin)) => Some(origin),
            _ => None,
        }
    }

    fn text(&self, field: &coded::Field) -> Option<&'a str> {
        match self.value(|known| known == field) {
            Some(coded::Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Whether the span has an attribute, and whether one of its values was taken.
    fn own(&self, key: &str, take: &mut dyn FnMut(Value<'_>) -> bool) -> (bool, bool) {
        let is_wanted =
            |field: &coded::Field| matches!(field, coded::Field::Attribute(own) if **own == *key);
        let Some(value) = self.value(is_wanted) else { return (false, false) };
        let is_taken = match value {
            coded::Value::Text(text) => take(Value::Text(text)),
            coded::Value::Int(value) => take(Value::Int(*value)),
            coded::Value::Double(value) => take(Value::Float(*value)),
            coded::Value::Bool(value) => take(Value::Bool(*value)),
            coded::Value::Json(json) => {
                serde_json::from_str(json).is_ok_and(|json| any_json(&json, take))
            }
            coded::Value::Origin(_) => false,
        };
        (true, is_taken)
    }

    fn of_origin(
        &self,
        attributes: impl Fn(&Origin) -> Attributes<'_>,
        key: &str,
        take: &mut dyn FnMut(Value<'_>) -> bool,
    ) -> bool {
        self.origin().is_some_and(|origin| attribute(attributes(origin), key, take).1)
    }
}

fn of_resource(origin: &Origin) -> Attributes<'_> {
    Attributes::new(&origin.resource.message, 1)
}

impl Row for Combination<'_> {
    // A combination is of many spans: nobody asks it for what only one has.
    fn trace_id(&self) -> TraceId {
        TraceId::NOBODY
    }

    fn start_nanos(&self) -> u64 {
        0
    }

    fn has_bad_times(&self) -> bool {
        false
    }

    fn span_id(&self) -> SpanId {
        SpanId::NOBODY
    }

    fn parent_id(&self) -> Option<SpanId> {
        None
    }

    fn any(&self, field: &Field, take: &mut dyn FnMut(Value<'_>) -> bool) -> bool {
        let scope_text = |number| {
            self.origin().map(|origin| scope_text(origin, number)).filter(|text| !text.is_empty())
        };
        match field {
            Field::Name => {
                self.text(&coded::Field::Name).is_some_and(|name| take(Value::Text(name)))
            }
            Field::Kind => {
                let kind = self.text(&coded::Field::Kind);
                kind.is_some_and(|kind| take(Value::Kind(kind_number(kind))))
            }
            Field::Status => {
                let status: Option<StatusCode> = self.text(&coded::Field::Status).map(status_of);
                status.is_some_and(|status| take(Value::Status(status)))
            }
            Field::ScopeName => scope_text(1).is_some_and(|text| take(Value::Text(text))),
            Field::ScopeVersion => scope_text(2).is_some_and(|text| take(Value::Text(text))),
            Field::Attribute(AttributeScope::Span, key) => self.own(key, take).1,
            Field::Attribute(AttributeScope::Any, key) => {
                let (is_there, is_taken) = self.own(key, take);
                if is_there { is_taken } else { self.of_origin(of_resource, key, take) }
            }
            Field::Attribute(AttributeScope::Resource, key) => {
                self.of_origin(of_resource, key, take)
            }
            Field::Attribute(AttributeScope::Instrumentation, key) => {
                self.of_origin(|origin| Attributes::new(&origin.scope, 3), key, take)
            }
            _ => false,
        }
    }
}

/// What was counted by columns.
#[derive(Debug, Default)]
pub struct Gathered {
    places: HashMap<Vec<Owned>, u32>,
    cells: Vec<Cell>,
    /// First and last start.
    pub(crate) seen: Option<(u64, u64)>,
    pub(crate) suspect: u64,
    pub(crate) refused: u64,
    /// Spans that were looked at.
    pub(crate) looked: u64,
    /// What has to be looked at span by span: parts, or pieces of them.
    pub(crate) left: Vec<(usize, Option<usize>)>,
}

impl Gathered {
    /// Nothing was counted of these parts.
    pub(crate) fn left(parts: impl Iterator<Item = usize>) -> Self {
        Self { left: parts.map(|part| (part, None)).collect(), ..Self::default() }
    }

    /// The place of a group; nothing when there are too many.
    pub(crate) fn place(&mut self, group: Vec<Owned>) -> Option<u32> {
        if let Some(place) = self.places.get(&group) {
            return Some(*place);
        }
        if self.cells.len() >= MAX_GROUPS {
            return None;
        }
        let place = self.cells.len() as u32;
        self.places.insert(group, place);
        self.cells.push(Cell::default());
        Some(place)
    }

    /// Takes in the durations of spans, each of the group at a place. Where a span cannot be counted it is of no interest
    /// whether its times are suspect.
    pub(crate) fn take(&mut self, places: &[u32], nanos: &[i64], function: &Function) {
        // Group after group: what one group touches stays in the cache.
        let mut ends = vec![0_usize; self.cells.len()];
        for place in places {
            match ends.get_mut(*place as usize) {
                Some(count) => *count += 1,
                None => self.refused += u64::from(*place == REFUSED),
            }
        }
        let mut begin = 0;
        for end in &mut ends {
            // For now where the group begins; it ends there when all have been put.
            let count = std::mem::replace(end, begin);
            begin += count;
        }
        let mut by_group = vec![0_i64; begin];
        for (place, nanos) in places.iter().zip(nanos) {
            if let Some(end) = ends.get_mut(*place as usize) {
                by_group[*end] = *nanos;
                *end += 1;
            }
        }
        let mut begin = 0;
        for (cell, end) in self.cells.iter_mut().zip(ends) {
            self.suspect += cell.take_durations(&by_group[begin..end], function);
            begin = end;
        }
    }

    /// Widens the time that was seen.
    pub(crate) fn see(&mut self, seen: Option<(u64, u64)>) {
        if let Some((first, last)) = seen {
            let (known_first, known_last) = self.seen.unwrap_or((first, last));
            self.seen = Some((known_first.min(first), known_last.max(last)));
        }
    }

    /// Keeps the numbers of all groups in bounds, of which so many threads have each some.
    pub(crate) fn bound_numbers(&mut self, threads: usize) {
        let kept: usize = self.cells.iter().map(Cell::kept).sum();
        if kept > MAX_KEPT / threads.max(1) {
            self.cells.iter_mut().for_each(Cell::condense);
        }
    }

    /// Takes in what another thread counted.
    pub(crate) fn merge(&mut self, other: Self) {
        self.see(other.seen);
        self.suspect += other.suspect;
        self.refused += other.refused;
        self.looked += other.looked;
        self.left.extend(other.left);
        let mut cells = other.cells;
        for (group, at) in other.places {
            let cell = std::mem::take(&mut cells[at as usize]);
            if cell.spans() == 0 {
                // All its spans had suspect times.
                continue;
            }
            match self.place(group) {
                Some(place) => self.cells[place as usize].merge(cell),
                None => self.refused += cell.spans(),
            }
        }
    }

    /// The groups that have spans, and their numbers.
    pub(crate) fn groups(self) -> impl Iterator<Item = (Vec<Owned>, Cell)> {
        let mut cells = self.cells;
        self.places
            .into_iter()
            .map(move |(group, at)| (group, std::mem::take(&mut cells[at as usize])))
            .filter(|(_, cell)| cell.spans() > 0)
    }
}
