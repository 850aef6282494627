//! Rollouts that took much longer than the others of their task.

use lens_store::rollouts::RolloutRow;
use lens_store::rollouts::shared::Shared;
use lens_store::rollouts::stragglers::{Rule, Straggler, Stragglers, stragglers};
use lens_store::trace::place_of;
use serde_json::{Value, json};

use super::read::counted;
use super::report::{name_of, rollout_value};
use super::shared::{shared_of, shared_table, shared_value};
use super::source::{Source, SourceError};
use super::text::{Align, Canvas, duration_text, table};

/// Lines of the table.
const SHOWN: usize = 50;

/// What was found in a source.
pub struct Found {
    rows: Vec<RolloutRow>,
    rule: Rule,
    all: Stragglers,
    /// Where each spent the band that explains it.
    places: Vec<Option<String>>,
    shared: Vec<Shared>,
}

impl Found {
    /// Among these rollouts.
    pub fn among(source: &Source, rows: Vec<RolloutRow>, rule: Rule) -> Result<Self, SourceError> {
        let all = stragglers(&rows, &rule);
        let traces = source.traces(all.found.iter().map(|one| rows[one.row].trace_id))?;
        let place = |one: &Straggler| {
            let row = &rows[one.row];
            let (trace, rollout) = traces.find_rollout(row.trace_id, row.root_span_id)?;
            place_of(&traces, trace, rollout, one.band)
        };
        let places = all.found.iter().map(place).collect();
        let mut is_one = vec![false; rows.len()];
        all.found.iter().for_each(|one| is_one[one.row] = true);
        let part = |wanted: bool| -> Vec<RolloutRow> {
            let rows = rows.iter().zip(&is_one).filter(|(_, is_one)| **is_one == wanted);
            rows.map(|(row, _)| row.clone()).collect()
        };
        let (some, rest) = (part(true), part(false));
        let shared = if some.len() > 1 { shared_of(source, &some, &rest)? } else { Vec::new() };
        Ok(Self { rows, rule, all, places, shared })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.found.is_empty()
    }

    /// As text.
    pub fn text(&self, canvas: &Canvas) -> String {
        let groups = self.all.groups;
        let heading = format!(
            "{} among {} of {}",
            counted(self.all.found.len(), "straggler", "stragglers"),
            counted(self.rows.len(), "rollout", "rollouts"),
            counted(groups, "task", "tasks"),
        );
        let mut text = canvas.bold(&heading) + "\n";
        text.push_str(&canvas.dim(&format!(
            "a straggler takes over {} times the median of the others of its task, further from it than {} of their deviations\n",
            self.rule.factor, self.rule.deviations
        )));
        if !self.is_empty() {
            text.push('\n');
            text.push_str(&self.table(canvas));
        }
        for (count, why) in [
            (self.all.found.len().saturating_sub(SHOWN), "more are in --json"),
            (self.all.small_groups, "tasks with fewer than three rollouts were not looked at"),
            (self.all.without_group, "rollouts say no task, or have times that cannot be believed"),
        ] {
            if count > 0 {
                text.push_str(&canvas.dim(&format!("{count} {why}\n")));
            }
        }
        if self.all.found.len() > 1 {
            text.push('\n');
            text.push_str(&shared_table(&self.shared, "STRAGGLERS", canvas));
        }
        text
    }

    fn table(&self, canvas: &Canvas) -> String {
        let header = [
            ("ROLLOUT", Align::Left),
            ("TOOK", Align::Right),
            ("OTHERS", Align::Right),
            ("TIMES", Align::Right),
            ("MOSTLY", Align::Left),
            ("THERE", Align::Right),
            ("OTHERS", Align::Right),
            ("EXPLAINS", Align::Right),
            ("WHERE", Align::Left),
            ("TRACE", Align::Left),
        ];
        let cells: Vec<Vec<String>> = self
            .all
            .found
            .iter()
            .zip(&self.places)
            .take(SHOWN)
            .map(|(one, place)| {
                let row = &self.rows[one.row];
                vec![
                    name_of(row),
                    duration_text(row.duration_nanos()),
                    duration_text(one.typical_nanos),
                    format!("{:.1}", one.factor),
                    one.band.name().to_owned(),
                    duration_text(one.band_nanos),
                    duration_text(one.band_typical_nanos),
                    format!("{:.0}%", one.explains * 100.0),
                    place.clone().unwrap_or_else(|| "-".to_owned()),
                    row.trace_id.to_string(),
                ]
            })
            .collect();
        table(canvas, &header, &cells, 8)
    }

    /// What `gym trace stragglers --json` prints.
    pub fn document(&self, read: &Value) -> Value {
        let found: Vec<Value> = self
            .all
            .found
            .iter()
            .zip(&self.places)
            .map(|(one, place)| {
                let mut value = rollout_value(&self.rows[one.row]);
                value["group"] = json!(one.group);
                value["typical_nanos"] = json!(one.typical_nanos);
                value["factor"] = json!(one.factor);
                value["excess_nanos"] = json!(one.excess_nanos);
                value["mostly"] = json!({
                    "band": one.band.name(),
                    "nanos": one.band_nanos,
                    "typical_nanos": one.band_typical_nanos,
                    "explains": one.explains,
                    "where": place,
                });
                value
            })
            .collect();
        json!({
            "stragglers": found,
            "rollouts": self.rows.len(),
            "groups": self.all.groups,
            "small_groups": self.all.small_groups,
            "without_group": self.all.without_group,
            "shared": shared_value(&self.shared),
            "read": read,
        })
    }
}
