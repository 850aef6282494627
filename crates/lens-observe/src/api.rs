//! Answers questions about a store: what commands ask that were given the URL of a running `gym observe`.
//!
//! Everything is below `/api/v1`. A path that is not there is answered with those that are.

mod parameters;
mod query;

use std::sync::Arc;

use http::StatusCode;
use lens_otlp::json;
use lens_store::raw::to_request;
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
        match place.split_once('/') {
            None => match place {
                "status" => Ok(self.status()),
                "in-flight" => Ok(self.in_flight()),
                "search" => self.query(&parameters),
                _ => Err(Trouble::Missing(format!(
                    "nothing is at {PREFIX}{place}; there is status, in-flight, search, traces/ID"
                ))),
            },
            Some(("traces", id)) => {
                parameters.allow(&[]).map_err(Trouble::Question)?;
                self.trace(id, &question.accept)
            }
            Some(_) => Err(Trouble::Missing(format!("nothing is at {PREFIX}{place}"))),
        }
    }

    fn status(&self) -> Page {
        let store = self.keeper.store();
        let memory = store.memory();
        let document = json!({
            "dir": store.folder(),
            "memory_spans": memory.spans,
            "memory_bytes": memory.bytes,
            "wal_bytes": store.wal_bytes(),
            "damage": store.damage().iter().map(ToString::to_string).collect::<Vec<_>>(),
        });
        Page::ok(JSON, document.to_string())
    }

    fn in_flight(&self) -> Page {
        let (rollouts, counts) = self.keeper.in_flight();
        Page::ok(JSON, json!({ "rollouts": rollouts, "counts": counts }).to_string())
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
        let request = to_request(&snapshot.trace(id)?);
        if accept.contains(PROTOBUF) {
            return Ok(Page::ok(PROTOBUF, request));
        }
        match json::encode_trace_request(&request) {
            Ok(text) => Ok(Page::ok(JSON, text)),
            Err(error) => Ok(Page::refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string())),
        }
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
