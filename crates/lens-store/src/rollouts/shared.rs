//! What some rollouts share that the rest do not have.
//!
//! Every attribute of every span, event and process of a rollout is a trait of it, once, however many spans have it. Ids,
//! ports, lengths and times differ from rollout to rollout by nature and are left out, and so are keys with many values.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gym_telemetry::semconv;
use lens_otlp::view::AnyValue;
use serde_json::Value;

use super::row::RolloutRow;
use super::statistics::{Factorials, corrected};
use crate::trace::{Resource, Rollout, Traces};

/// Keys with more different values than this are left out.
const MAX_VALUES: usize = 100;
/// Something is told when it is less likely than this by chance.
const LEVEL: f64 = 0.01;
/// Longer texts are no categories.
const MAX_TEXT_BYTES: usize = 120;

/// Keys, or their ends, of what differs by nature or says the same as the rollouts were chosen by.
const LEFT_OUT: [&str; 19] = [
    ".id",
    "_id",
    ".pid",
    ".port",
    "_nanos",
    "_ms",
    ".size",
    ".length",
    ".mark",
    ".uuid",
    ".url",
    ".full",
    ".path",
    ".target",
    ".percent",
    "_tokens",
    ".time",
    ".steps",
    ".tool_calls",
];

/// A key with a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Trait {
    /// Key of an attribute, or what else it is: `span`, `server`, `outcome`, `retries`.
    pub key: Arc<str>,
    /// As text.
    pub value: Arc<str>,
}

/// The traits of one rollout, each once.
pub type Traits = BTreeSet<Trait>;

/// A trait that some have more often than the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    /// Which.
    pub what: Trait,
    /// Others that exactly as many have: they say the same.
    pub same: Vec<Trait>,
    /// So many of those that are asked about have it.
    pub some: usize,
    /// Of so many.
    pub of_some: usize,
    /// So many of the rest have it.
    pub rest: usize,
    /// Of so many.
    pub of_rest: usize,
    /// How many times more frequent it is; the rest is taken to have at least half of one.
    pub lift: f64,
    /// How likely that is by chance, corrected for how much was looked at.
    pub chance: f64,
}

/// The traits of a rollout of an assembled trace.
pub fn traits_of(traces: &Traces, trace: usize, rollout: &Rollout, row: &RolloutRow) -> Traits {
    let nodes = &traces.traces[trace].tree.nodes;
    let mut traits = Traits::new();
    let mut put = |key: &str, value: &str| {
        let is_long = value.is_empty() || value.len() > MAX_TEXT_BYTES;
        if !is_long && !LEFT_OUT.iter().any(|end| key.ends_with(end)) {
            traits.insert(Trait { key: key.into(), value: value.into() });
        }
    };
    let mut last: Option<&Arc<Resource>> = None;
    for node in &nodes[rollout.node..nodes[rollout.node].end] {
        let span = &traces.spans[node.span];
        let resource = &span.resource;
        if !last.is_some_and(|last| Arc::ptr_eq(last, resource)) {
            put("server", &resource.instance);
            for (key, value) in &resource.attributes {
                match value {
                    Value::String(text) => put(key, text),
                    Value::Number(_) | Value::Bool(_) => put(key, &value.to_string()),
                    _ => {}
                }
            }
            last = Some(resource);
        }
        put("span", &format!("{} in {}", span.name, resource.instance));
        let Ok(view) = span.raw.view() else { continue };
        for (key, value) in view.attributes().map_while(Result::ok) {
            put_value(&mut put, key, &value);
        }
        for event in span.event_views() {
            for (key, value) in event.attributes().map_while(Result::ok) {
                put_value(&mut put, key, &value);
            }
        }
    }
    put("outcome", &row.outcome);
    put("retries", if row.retries > 0 { "some" } else { "none" });
    put("failed spans", if row.errors > 0 { "some" } else { "none" });
    traits
}

fn put_value(put: &mut impl FnMut(&str, &str), key: &str, value: &AnyValue<'_>) {
    match value {
        AnyValue::String(text) => put(key, text),
        AnyValue::Bool(is) => put(key, if *is { "true" } else { "false" }),
        AnyValue::Int(number) => put(key, &number.to_string()),
        _ => {}
    }
}

/// What `some` have more often than the `rest`, what is least likely by chance first.
pub fn shared(some: &[Traits], rest: &[Traits]) -> Vec<Shared> {
    let (of_some, of_rest) = (some.len(), rest.len());
    let mut counts: BTreeMap<&Trait, (usize, usize)> = BTreeMap::new();
    for one in some.iter().flatten() {
        counts.entry(one).or_default().0 += 1;
    }
    for one in rest.iter().flatten() {
        counts.entry(one).or_default().1 += 1;
    }
    let mut values: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
    for one in counts.keys() {
        *values.entry(&one.key).or_default() += 1;
    }
    counts.retain(|one, (some, rest)| {
        let is_everywhere = *some == of_some && *rest == of_rest;
        values[&one.key] <= MAX_VALUES && *some > 1 && !is_everywhere
    });

    let factorials = Factorials::up_to(of_some + of_rest);
    let mut found: Vec<Shared> = counts
        .into_iter()
        .map(|(one, (some, rest))| {
            let chance =
                factorials.chance_of_as_many(some, of_some, some + rest, of_some + of_rest);
            let part = |count: f64, all: usize| count / all.max(1) as f64;
            let lift = part(some as f64, of_some) / part((rest as f64).max(0.5), of_rest);
            let what = one.clone();
            Shared { what, same: Vec::new(), some, of_some, rest, of_rest, lift, chance }
        })
        .collect();
    let mut chances: Vec<f64> = found.iter().map(|one| one.chance).collect();
    corrected(&mut chances);
    for (one, chance) in found.iter_mut().zip(chances) {
        one.chance = chance;
    }
    found.retain(|one| one.chance < LEVEL && one.lift > 1.0);
    found.sort_by(|one, other| {
        let rank = |shared: &Shared| {
            (shared.some, std::cmp::Reverse(shared.rest), importance(&shared.what))
        };
        rank(other).cmp(&rank(one)).then_with(|| one.what.cmp(&other.what))
    });
    let mut merged: Vec<Shared> = Vec::new();
    for one in found {
        match merged.last_mut() {
            Some(last) if (last.some, last.rest) == (one.some, one.rest) => {
                last.same.push(one.what)
            }
            _ => merged.push(one),
        }
    }
    merged.sort_by(|one, other| one.chance.total_cmp(&other.chance));
    merged
}

/// Of traits that say the same the one that people speak of is told first.
fn importance(what: &Trait) -> u8 {
    match &*what.key {
        "span" => 4,
        semconv::ERROR_TYPE | semconv::HTTP_ATTEMPT_REASON => 3,
        "server" => 2,
        lens::semconv::HOST_NAME => 1,
        _ => 0,
    }
}
