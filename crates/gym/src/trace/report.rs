//! Where the time of many rollouts went, by band.

use lens_store::trace::{Traces, bands_of, unanswered};
use std::collections::BTreeMap;

use lens_store::{Band, Bands};
use serde_json::{Value, json};

use super::read::{ReadReport, counted};
use super::summary::nearest_rank;
use super::text::{Align, Canvas, duration_text, table};

/// Requests without an answering side that are named.
const NAMED: usize = 5;

/// One rollout.
pub struct RolloutBands {
    trace_id: String,
    id: Option<String>,
    bands: Bands,
}

impl RolloutBands {
    /// Wall clock without the wait for a slot: what a rollout's duration is everywhere.
    fn duration_nanos(&self) -> u64 {
        self.bands.total_nanos() - self.bands[Band::Admission]
    }

    fn name(&self) -> &str {
        self.id.as_deref().unwrap_or(&self.trace_id)
    }
}

/// All rollouts of some files.
pub struct Report {
    rollouts: Vec<RolloutBands>,
    /// Rollouts in which an engine's timings did not fit.
    scaled: usize,
    /// How often the answering side of a request was missing on the path.
    unanswered: BTreeMap<String, usize>,
}

impl Report {
    /// Computes the bands of every rollout.
    pub fn of(traces: &Traces) -> Self {
        let mut report = Self { rollouts: Vec::new(), scaled: 0, unanswered: BTreeMap::new() };
        for (trace, rollout) in traces.rollouts() {
            let partition = bands_of(traces, trace, rollout);
            report.scaled += usize::from(partition.timings_scaled);
            for piece in &partition.unanswered {
                *report
                    .unanswered
                    .entry(unanswered(traces, trace, rollout, *piece))
                    .or_default() += 1;
            }
            report.rollouts.push(RolloutBands {
                trace_id: traces.traces[trace].trace_id.to_string(),
                id: rollout.id.as_deref().map(str::to_owned),
                bands: partition.bands(),
            });
        }
        report
    }

    /// Whether there is no rollout.
    pub fn is_empty(&self) -> bool {
        self.rollouts.is_empty()
    }

    /// The bands in which any rollout spent time, with what each rollout spent.
    fn rows(&self) -> Vec<(Band, Vec<u64>)> {
        let of =
            |band| self.rollouts.iter().map(|rollout| rollout.bands[band]).collect::<Vec<u64>>();
        let rows = Band::ALL.into_iter().map(|band| (band, of(band)));
        rows.filter(|(_, nanos)| nanos.iter().any(|nanos| *nanos > 0)).collect()
    }

    /// The rollout that spent most in a band.
    fn most(&self, band: Band) -> Option<&RolloutBands> {
        self.rollouts.iter().max_by_key(|rollout| rollout.bands[band])
    }

    /// The table as text.
    pub fn table(&self, canvas: &Canvas) -> String {
        let header = [
            ("BAND", Align::Left),
            ("SHARE", Align::Right),
            ("TOTAL", Align::Right),
            ("P50", Align::Right),
            ("P95", Align::Right),
            ("MAX", Align::Right),
            ("MOST IN", Align::Left),
        ];
        let all: u64 = self.rollouts.iter().map(|rollout| rollout.bands.total_nanos()).sum();
        let line = |name: &str, nanos: &[u64], most: &str| {
            let sorted = sorted(nanos);
            let total: u64 = nanos.iter().sum();
            vec![
                name.to_owned(),
                share_text(total, all),
                duration_text(total),
                duration_text(nearest_rank(&sorted, 50)),
                duration_text(nearest_rank(&sorted, 95)),
                duration_text(sorted.last().copied().unwrap_or(0)),
                most.to_owned(),
            ]
        };
        let mut cells: Vec<Vec<String>> = self
            .rows()
            .iter()
            .map(|(band, nanos)| {
                let most = self.most(*band).map_or("", RolloutBands::name);
                line(band.name(), nanos, most)
            })
            .collect();
        let walls: Vec<u64> =
            self.rollouts.iter().map(|rollout| rollout.bands.total_nanos()).collect();
        let slowest = self.rollouts.iter().max_by_key(|rollout| rollout.bands.total_nanos());
        cells.push(line("wall clock", &walls, slowest.map_or("", RolloutBands::name)));
        let durations = sorted(&self.durations());
        let heading = format!(
            "where the time of {} went: {} of wall clock, a rollout takes {} (p50), {} (p95) without its wait for a slot",
            counted(self.rollouts.len(), "rollout", "rollouts"),
            duration_text(all),
            duration_text(nearest_rank(&durations, 50)),
            duration_text(nearest_rank(&durations, 95)),
        );
        let mut text =
            format!("{}\n\n{}", canvas.bold(&heading), table(canvas, &header, &cells, 0));
        for note in self.notes() {
            text.push_str(&canvas.dim(&note));
            text.push('\n');
        }
        text
    }

    fn durations(&self) -> Vec<u64> {
        self.rollouts.iter().map(RolloutBands::duration_nanos).collect()
    }

    /// What keeps the table from saying more.
    fn notes(&self) -> Vec<String> {
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
        if self.scaled > 0 {
            let rollouts = counted(self.scaled, "rollout", "rollouts");
            notes.push(format!(
                "in {rollouts} an engine told longer times than its calls took; they were scaled"
            ));
        }
        notes
    }

    /// What `gym trace report --json` prints.
    pub fn document(&self, read: &ReadReport) -> Value {
        let all: u64 = self.rollouts.iter().map(|rollout| rollout.bands.total_nanos()).sum();
        let bands: Vec<Value> = self
            .rows()
            .iter()
            .map(|(band, nanos)| {
                let sorted = sorted(nanos);
                let total: u64 = nanos.iter().sum();
                json!({
                    "band": band.name(),
                    "share": if all == 0 { 0.0 } else { total as f64 / all as f64 },
                    "total_nanos": total,
                    "p50_nanos": nearest_rank(&sorted, 50),
                    "p95_nanos": nearest_rank(&sorted, 95),
                    "max_nanos": sorted.last(),
                    "most_in": self.most(*band).map(RolloutBands::name),
                })
            })
            .collect();
        let rollouts: Vec<Value> = self
            .rollouts
            .iter()
            .map(|rollout| {
                let bands: serde_json::Map<String, Value> = rollout
                    .bands
                    .iter()
                    .filter(|(_, nanos)| *nanos > 0)
                    .map(|(band, nanos)| (band.name().to_owned(), nanos.into()))
                    .collect();
                json!({
                    "rollout_id": rollout.id,
                    "trace_id": rollout.trace_id,
                    "wall_nanos": rollout.bands.total_nanos(),
                    "duration_nanos": rollout.duration_nanos(),
                    "bands": bands,
                })
            })
            .collect();
        json!({
            "rollouts": rollouts,
            "wall_nanos": all,
            "bands": bands,
            "unanswered": self.unanswered,
            "timings_scaled": self.scaled,
            "read": super::json::report_value(read),
        })
    }
}

fn sorted(nanos: &[u64]) -> Vec<u64> {
    let mut sorted = nanos.to_vec();
    sorted.sort_unstable();
    sorted
}

pub(super) fn share_text(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let tenths = (u128::from(part) * 1000 + u128::from(whole) / 2) / u128::from(whole);
    format!("{}.{}%", tenths / 10, tenths % 10)
}
