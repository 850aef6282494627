//! Queries: traces that are found, or numbers.

use lens_store::query::{Query, SearchOptions, Stored, Window};
use lens_store::store::{Clock as _, SystemClock};

use super::parameters::Parameters;
use super::{Api, JSON, Trouble};
use crate::pages::Page;

/// Traces of one answer at most.
const MAX_LIMIT: usize = 1_000;
/// Spans of a set that are listed at most.
const MAX_SPANS: usize = 1_000;
const NAMES: [&str; 6] = ["q", "start_nanos", "end_nanos", "limit", "spans", "step_nanos"];

impl Api {
    /// What a query finds or counts.
    pub(super) fn query(&self, parameters: &Parameters) -> Result<Page, Trouble> {
        parameters.allow(&NAMES).map_err(Trouble::Question)?;
        let text = parameters.get("q").unwrap_or("{}");
        let query = Query::parse(text).map_err(|error| Trouble::Question(error.render(text)))?;
        let number = |name: &str, default: u64| match parameters.get(name) {
            None => Ok(default),
            Some(text) => text
                .parse::<u64>()
                .map_err(|_| Trouble::Question(format!("{name} is a number, not {text:?}"))),
        };
        let bounded = |name: &str, default: usize, most: usize| {
            let number = number(name, default as u64)?;
            Ok::<_, Trouble>(usize::try_from(number).unwrap_or(most).min(most))
        };
        let starts = number("start_nanos", 0)?..number("end_nanos", u64::MAX)?;
        let defaults = SearchOptions::default();
        let limit = bounded("limit", defaults.limit, MAX_LIMIT)?;
        let spans_of_set = bounded("spans", defaults.spans_of_set, MAX_SPANS)?;
        let step_nanos = number("step_nanos", 0)?;

        let snapshot = self.keeper.store().snapshot();
        let stored = Stored::new(&snapshot, SystemClock.now_nanos());
        let window = Window { range: starts.clone(), step_nanos };
        let document = match query.measure(&stored, &window)? {
            Some(measured) => serde_json::to_string(&measured),
            None => {
                let options = SearchOptions { starts, limit, spans_of_set };
                serde_json::to_string(&query.search(&stored, &options)?)
            }
        };
        document
            .map(|document| Page::ok(JSON, document))
            .map_err(|error| Trouble::Question(error.to_string()))
    }
}
