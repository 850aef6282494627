//! Where the time of many rollouts went, by band.

use std::collections::BTreeMap;

use lens_store::Band;
use lens_store::rollouts::shared::Shared;
use lens_store::rollouts::statistics::Spread;
use lens_store::rollouts::{Aggregate, RolloutRow};
use lens_store::trace::{bands_of, unanswered};
use serde_json::{Value, json};

use super::read::counted;
use super::shared::{shared_table, shared_value};
use super::source::{Source, SourceError};
use super::text::{Align, Canvas, duration_text, table};

/// Requests without an answering side that are named.
const NAMED: usize = 5;
/// So many rollouts are looked at for what they called in vain.
const LOOKED_AT: usize = 1000;

/// How a rollout is called: by its id, else by its trace.
pub fn name_of(row: &RolloutRow) -> String {
    if row.rollout_id.is_empty() { row.trace_id.to_string() } else { row.rollout_id.to_string() }
}

/// Rollouts of some source.
pub struct Report {
    rows: Vec<RolloutRow>,
    all: Aggregate,
    /// How often the answering side of a request was missing on the path.
    unanswered: BTreeMap<String, usize>,
    /// What the rollouts share that others of the source do not have.
    shared: Option<Vec<Shared>>,
}

impl Report {
    /// Of these rollouts.
    pub fn of(source: &Source, rows: Vec<RolloutRow>) -> Result<Self, SourceError> {
        let unanswered = unanswered_of(source, &rows)?;
        Ok(Self { all: Aggregate::of(&rows), rows, unanswered, shared: None })
    }

    /// With what they share that others do not have.
    pub fn with_shared(self, shared: Vec<Shared>) -> Self {
        Self { shared: Some(shared), ..self }
    }

    /// Whether there is no rollout.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text.
    pub fn table(&self, canvas: &Canvas) -> String {
        let Aggregate { duration_nanos, wall_nanos, .. } = &self.all;
        let heading = format!(
            "where the time of {} went: {} of wall clock, a rollout takes {} (p50), {} (p95) without its wait for a slot",
            counted(self.rows.len(), "rollout", "rollouts"),
            duration_text(wall_nanos.total),
            duration_text(duration_nanos.p50),
            duration_text(duration_nanos.p95),
        );
        let mut text = format!("{}\n\n{}", canvas.bold(&heading), self.bands_table(canvas));
        for note in self.notes() {
            text.push_str(&canvas.dim(&note));
            text.push('\n');
        }
        if let Some(shared) = &self.shared {
            text.push('\n');
            text.push_str(&shared_table(shared, "THESE", canvas));
        }
        text
    }

    /// The bands alone.
    pub fn bands_table(&self, canvas: &Canvas) -> String {
        let header = [
            ("BAND", Align::Left),
            ("SHARE", Align::Right),
            ("TOTAL", Align::Right),
            ("P50", Align::Right),
            ("P95", Align::Right),
            ("MAX", Align::Right),
            ("MOST IN", Align::Left),
        ];
        let wall = &self.all.wall_nanos;
        let line = |name: &str, nanos: &Spread, most: usize| {
            vec![
                name.to_owned(),
                share_text(nanos.total, wall.total),
                duration_text(nanos.total),
                duration_text(nanos.p50),
                duration_text(nanos.p95),
                duration_text(nanos.max),
                self.rows.get(most).map(name_of).unwrap_or_default(),
            ]
        };
        let bands = self.all.bands.iter();
        let mut cells: Vec<Vec<String>> =
            bands.map(|share| line(share.band.name(), &share.nanos, share.most_in)).collect();
        cells.push(line("wall clock", wall, self.all.longest));
        table(canvas, &header, &cells, 0)
    }

    /// What keeps the table from saying more.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.unanswered.is_empty() {
            let mut named: Vec<(&String, &usize)> = self.unanswered.iter().collect();
            named.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            let more = named.len().saturating_sub(NAMED);
            let mut texts: Vec<String> =
                named.iter().take(NAMED).map(|(what, count)| format!("{what} ({count})")).collect();
            if more > 0 {
                texts.push(format!("{more} more"));
            }
            notes.push(format!(
                "other holds requests whose answering side is not among the spans: {}",
                texts.join(", ")
            ));
        }
        let rollouts = |count| counted(count, "rollout", "rollouts");
        if self.all.timings_scaled > 0 {
            let rollouts = rollouts(self.all.timings_scaled);
            notes.push(format!(
                "in {rollouts} an engine told longer times than its calls took; they were scaled"
            ));
        }
        if self.all.time_suspect > 0 {
            let rollouts = rollouts(self.all.time_suspect);
            notes.push(format!(
                "{rollouts} with times that cannot be believed: counted, and in no sum and no percentile"
            ));
        }
        if self.all.let_go > 0 {
            let rollouts = rollouts(self.all.let_go);
            notes.push(format!("of {rollouts} the spans were let go; their times are all here"));
        }
        notes
    }

    /// What `gym trace report --json` prints.
    pub fn document(&self, read: &Value) -> Value {
        let rollouts: Vec<Value> = self.rows.iter().map(rollout_value).collect();
        let mut document = json!({
            "rollouts": rollouts,
            "wall_nanos": self.all.wall_nanos.total,
            "bands": self.bands_value(),
            "unanswered": self.unanswered,
            "timings_scaled": self.all.timings_scaled,
            "time_suspect": self.all.time_suspect,
            "let_go": self.all.let_go,
            "read": read,
        });
        if let Some(shared) = &self.shared {
            document["shared"] = shared_value(shared);
        }
        document
    }

    /// The bands as JSON.
    pub fn bands_value(&self) -> Vec<Value> {
        let bands = self.all.bands.iter();
        bands
            .map(|share| {
                json!({
                    "band": share.band.name(),
                    "share": share.share,
                    "total_nanos": share.nanos.total,
                    "p50_nanos": share.nanos.p50,
                    "p95_nanos": share.nanos.p95,
                    "p99_nanos": share.nanos.p99,
                    "max_nanos": share.nanos.max,
                    "most_in": self.rows.get(share.most_in).map(name_of),
                })
            })
            .collect()
    }
}

/// A rollout and its bands.
pub fn rollout_value(row: &RolloutRow) -> Value {
    let bands: serde_json::Map<String, Value> = row
        .bands
        .iter()
        .filter(|(_, nanos)| *nanos > 0)
        .map(|(band, nanos)| (band.name().to_owned(), nanos.into()))
        .collect();
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "rollout_id": text(&row.rollout_id),
        "trace_id": row.trace_id.to_string(),
        "run": text(&row.run),
        "agent": text(&row.agent),
        "outcome": text(&row.outcome),
        "wall_nanos": row.wall_nanos,
        "duration_nanos": row.duration_nanos(),
        "bands": bands,
    })
}

/// What was called in vain on the paths of the rollouts with most time of no other band.
fn unanswered_of(
    source: &Source,
    rows: &[RolloutRow],
) -> Result<BTreeMap<String, usize>, SourceError> {
    let mut with_other: Vec<&RolloutRow> =
        rows.iter().filter(|row| row.bands[Band::Other] > 0).collect();
    with_other.sort_by_key(|row| (std::cmp::Reverse(row.bands[Band::Other]), row.trace_id));
    with_other.truncate(LOOKED_AT);
    let mut counts = BTreeMap::new();
    if with_other.is_empty() {
        return Ok(counts);
    }
    let traces = source.traces(with_other.iter().map(|row| row.trace_id))?;
    for row in with_other {
        let Some((trace, rollout)) = traces.find_rollout(row.trace_id, row.root_span_id) else {
            continue;
        };
        for piece in bands_of(&traces, trace, rollout).unanswered {
            *counts.entry(unanswered(&traces, trace, rollout, piece)).or_default() += 1;
        }
    }
    Ok(counts)
}

pub(super) fn share_text(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let tenths = (u128::from(part) * 1000 + u128::from(whole) / 2) / u128::from(whole);
    format!("{}.{}%", tenths / 10, tenths % 10)
}
