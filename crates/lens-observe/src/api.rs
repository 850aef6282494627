//! Answers questions about a store: what commands ask that were given the URL of a running `gym observe`.
//!
//! Everything is below `/api/v1`. A path that is not there is answered with those that are.

mod parameters;
mod query;

use std::sync::Arc;

use http::StatusCode;
use lens_otlp::json;
use lens_store::ids::TraceId;
use lens_store::raw::{RawSpan, to_request};
use lens_store::rollouts::Filter;
use lens_store::store::StoreError;
use serde_json::json;

use crate::keeper::Keeper;
use crate::pages::{Page, Pages, Question};
use parameters::Parameters;

const PREFIX: &str = "/api/v1/";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/x-protobuf";
/// Traces of one prefix that are named when it is not enough.
const CANDIDATES: usize = 20;

/// Ids that are given.
const SOME: usize = 100;
/// Traces that are given when none is named.
const NEWEST: usize = 10_000;
/// Says how many older traces were left out.
pub const LEFT_OUT: &str = "x-gym-left-out";
/// What rollouts are chosen by.
const ROLLOUT_PARAMETERS: [&str; 8] = [
    "run",
    "task",
    "rollout",
    "trace",
    "agent",
    "outcome",
    "min_duration_nanos",
    "max_duration_nanos",
];

type Answer = fn(&Api, &Parameters, &str) -> Result<Page, Trouble>;

/// Answers questions about what a keeper keeps.
#[derive(Debug)]
pub struct Api {
    keeper: Arc<Keeper>,
}

/// Why a question has no answer.
enum Trouble {
    /// It is wrong.
    Question(String),
    /// There is nothing like that.
    Missing(String),
    /// The store cannot be read.
    Store(StoreError),
}

impl From<String> for Trouble {
    fn from(question: String) -> Self {
        Self::Question(question)
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Api {
    /// Answers for a keeper.
    pub fn new(keeper: Arc<Keeper>) -> Self {
        Self { keeper }
    }

    fn answer(&self, place: &str, question: &Question) -> Result<Page, Trouble> {
        let parameters = Parameters::parse(&question.query);
        if let Some(id) = place.strip_prefix("traces/") {
            parameters.allow(&[]).map_err(Trouble::Question)?;
            return self.trace(id, &question.accept);
        }
        if place == "search" {
            return self.query(&parameters);
        }
        let (allowed, answer): (&[&str], Answer) = match place {
            "status" => (&[], Self::status),
            "in-flight" => (&[], Self::in_flight),
            "rollouts" => (&ROLLOUT_PARAMETERS, Self::rollouts),
            "traces" => (&["id", "newest"], Self::traces),
            "trace-ids" => (&["prefix"], Self::trace_ids),
            _ => {
                return Err(Trouble::Missing(format!(
                    "nothing is at {PREFIX}{place}; there is status, in-flight, rollouts, traces, \
                     traces/ID, trace-ids, search"
                )));
            }
        };
        parameters.allow(allowed).map_err(Trouble::Question)?;
        answer(self, &parameters, &question.accept)
    }

    fn status(&self, _: &Parameters, _: &str) -> Result<Page, Trouble> {
        let store = self.keeper.store();
        let memory = store.memory();
        let document = json!({
            "dir": store.folder(),
            "memory_spans": memory.spans,
            "memory_bytes": memory.bytes,
            "wal_bytes": store.wal_bytes(),
            "damage": store.damage().iter().map(ToString::to_string).collect::<Vec<_>>(),
        });
        Ok(Page::ok(JSON, document.to_string()))
    }

    fn in_flight(&self, _: &Parameters, _: &str) -> Result<Page, Trouble> {
        let (rollouts, counts) = self.keeper.in_flight();
        Ok(Page::ok(JSON, json!({ "rollouts": rollouts, "counts": counts }).to_string()))
    }

    /// The rollouts that a filter means, in order of time.
    fn rollouts(&self, parameters: &Parameters, _: &str) -> Result<Page, Trouble> {
        let text = |name: &str| parameters.get(name).map(str::to_owned);
        let filter = Filter {
            run: text("run"),
            task: parameters.number("task")?,
            rollout: text("rollout"),
            trace: text("trace"),
            agent: text("agent"),
            outcome: text("outcome"),
            min_duration_nanos: parameters.number("min_duration_nanos")?,
            max_duration_nanos: parameters.number("max_duration_nanos")?,
        };
        let rows = self.keeper.store().snapshot().rollout_rows(&filter)?;
        Ok(Page::ok(JSON, json!({ "rollouts": rows }).to_string()))
    }

    /// The spans of traces: those that are named, or the newest.
    fn traces(&self, parameters: &Parameters, accept: &str) -> Result<Page, Trouble> {
        let snapshot = self.keeper.store().snapshot();
        let mut ids = Vec::new();
        for id in parameters.all("id") {
            ids.push(TraceId::parse(id).ok_or_else(|| {
                Trouble::Question(format!("{id:?} is no trace id: 32 hex digits"))
            })?);
        }
        let mut left_out = 0;
        if ids.is_empty() {
            let newest: usize = parameters.number("newest")?.unwrap_or(NEWEST);
            let rows = snapshot.trace_rows()?;
            left_out = rows.len().saturating_sub(newest);
            ids.extend(rows[left_out..].iter().map(|row| row.trace_id));
        }
        let mut page = spans_page(&snapshot.traces(&ids)?, accept);
        if left_out > 0 {
            page.headers.push((LEFT_OUT, left_out.to_string()));
        }
        Ok(page)
    }

    /// Ids of traces that begin with some digits; without digits those of the newest.
    fn trace_ids(&self, parameters: &Parameters, _: &str) -> Result<Page, Trouble> {
        let snapshot = self.keeper.store().snapshot();
        let found = match parameters.get("prefix") {
            Some(prefix) => snapshot.find_by_prefix(prefix, SOME)?,
            None => {
                let rows = snapshot.trace_rows()?;
                rows.iter().rev().take(SOME).map(|row| row.trace_id).collect()
            }
        };
        let ids: Vec<String> = found.iter().map(ToString::to_string).collect();
        Ok(Page::ok(JSON, json!({ "ids": ids }).to_string()))
    }

    /// The trace with this id, or the only one that begins so.
    fn trace(&self, id: &str, accept: &str) -> Result<Page, Trouble> {
        let snapshot = self.keeper.store().snapshot();
        let found = snapshot.find_by_prefix(id, CANDIDATES + 1)?;
        let id = match found.as_slice() {
            [] => return Err(Trouble::Missing(format!("no trace begins with {id:?}"))),
            [id] => *id,
            several => {
                let more = if several.len() > CANDIDATES { ", …" } else { "" };
                let names: Vec<String> =
                    several.iter().take(CANDIDATES).map(ToString::to_string).collect();
                return Err(Trouble::Question(format!(
                    "several traces begin with {id:?}: {}{more}",
                    names.join(", ")
                )));
            }
        };
        Ok(spans_page(&snapshot.trace(id)?, accept))
    }
}

/// Spans as OTLP: protobuf for who asks for it, else JSON.
fn spans_page(spans: &[RawSpan], accept: &str) -> Page {
    let request = to_request(spans);
    if accept.contains(PROTOBUF) {
        return Page::ok(PROTOBUF, request);
    }
    match json::encode_trace_request(&request) {
        Ok(text) => Page::ok(JSON, text),
        Err(error) => Page::refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

impl Pages for Api {
    fn page(&self, question: &Question) -> Option<Page> {
        let place = question.path.strip_prefix(PREFIX)?.trim_end_matches('/');
        Some(self.answer(place, question).unwrap_or_else(|trouble| match trouble {
            Trouble::Question(message) => Page::refusal(StatusCode::BAD_REQUEST, &message),
            Trouble::Missing(message) => Page::refusal(StatusCode::NOT_FOUND, &message),
            Trouble::Store(error) => {
                Page::refusal(StatusCode::INTERNAL_SERVER_ERROR, &chain(&error))
            }
        }))
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
