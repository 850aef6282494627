//! Two selections of rollouts against each other.

use lens_store::rollouts::compare::{Change, Measure, OutcomeChange};
use lens_store::rollouts::{Aggregate, Comparison, Filter, RolloutRow};
use serde_json::{Value, json};

use super::read::counted;
use super::shared::chance_text;
use super::text::{Align, Canvas, duration_text, table};

/// With fewer rollouts on a side only large differences can be told from chance.
const FEW: usize = 30;

/// A side as it was typed: `PATH@key=value,…`.
#[derive(Debug, PartialEq, Eq)]
pub struct Selection {
    /// Nothing: where the other side is.
    pub path: Option<String>,
    /// What its rollouts are like.
    pub filter: Filter,
}

/// A side that says nothing that is understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SelectionError {
    /// A key of another name.
    #[error("no such key {0:?}; the keys are run, task, agent, outcome")]
    Key(String),
    /// A task that is no number.
    #[error("task is no index: {0:?}")]
    Task(String),
}

impl Selection {
    /// Reads one side. A file with `@` in its name is meant where it exists.
    pub fn parse(typed: &str) -> Result<Self, SelectionError> {
        let whole = |path: &str| (!path.is_empty()).then(|| path.to_owned());
        let Some((path, keys)) = typed.rsplit_once('@') else {
            return Ok(Self { path: whole(typed), filter: Filter::default() });
        };
        if std::path::Path::new(typed).exists() {
            return Ok(Self { path: whole(typed), filter: Filter::default() });
        }
        let mut filter = Filter::default();
        for pair in keys.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let text = || Some(value.to_owned());
            match key {
                "run" => filter.run = text(),
                "agent" => filter.agent = text(),
                "outcome" => filter.outcome = text(),
                "task" => {
                    let task = value.parse().map_err(|_| SelectionError::Task(value.to_owned()))?;
                    filter.task = Some(task);
                }
                other => return Err(SelectionError::Key(other.to_owned())),
            }
        }
        Ok(Self { path: whole(path), filter })
    }
}

/// A comparison and what its sides are called.
pub struct Diff {
    names: [String; 2],
    comparison: Comparison,
}

impl Diff {
    /// Of two selections.
    pub fn of(names: [String; 2], a: &[RolloutRow], b: &[RolloutRow]) -> Self {
        Self { names, comparison: Comparison::of(a, b) }
    }

    /// As text.
    pub fn text(&self, canvas: &Canvas) -> String {
        let Comparison { a, b, .. } = &self.comparison;
        let mut text = self.sides(canvas);
        text.push('\n');
        let differences = self.comparison.differences();
        let outcomes = self.comparison.outcome_differences();
        text.push_str(&canvas.bold(&headline(&self.comparison)));
        text.push('\n');
        if !differences.is_empty() {
            text.push('\n');
            text.push_str(&changes_table(&differences, canvas));
        }
        for outcome in outcomes {
            text.push_str(&outcome_text(outcome, a, b));
            text.push('\n');
        }
        let alike: Vec<&str> = self
            .comparison
            .measures
            .iter()
            .filter(|change| !change.is_difference())
            .map(|change| change.measure.name())
            .collect();
        if !alike.is_empty() && !self.comparison.is_empty() {
            text.push_str(&canvas.dim(&format!("no difference: {}\n", alike.join(", "))));
        }
        if self.comparison.is_empty()
            && let Some(nearest) = nearest(&self.comparison)
        {
            text.push_str(&nearest);
        }
        if a.rollouts.min(b.rollouts) < FEW {
            text.push_str(
                &canvas.dim("few rollouts: only large differences can be told from chance\n"),
            );
        }
        text
    }

    fn sides(&self, canvas: &Canvas) -> String {
        let header = [
            ("", Align::Left),
            ("SELECTION", Align::Left),
            ("ROLLOUTS", Align::Right),
            ("P50", Align::Right),
            ("P95", Align::Right),
            ("OUTCOMES", Align::Left),
        ];
        let side = |letter: &str, name: &str, all: &Aggregate| {
            vec![
                letter.to_owned(),
                name.to_owned(),
                all.rollouts.to_string(),
                duration_text(all.duration_nanos.p50),
                duration_text(all.duration_nanos.p95),
                outcomes_text(all),
            ]
        };
        let Comparison { a, b, .. } = &self.comparison;
        let cells = [side("A", &self.names[0], a), side("B", &self.names[1], b)];
        table(canvas, &header, &cells, 1)
    }

    /// What `gym trace diff --json` prints.
    pub fn document(&self) -> Value {
        let side = |name: &str, all: &Aggregate| {
            json!({
                "selection": name,
                "rollouts": all.rollouts,
                "time_suspect": all.time_suspect,
                "p50_nanos": all.duration_nanos.p50,
                "p95_nanos": all.duration_nanos.p95,
            })
        };
        let Comparison { a, b, measures, outcomes } = &self.comparison;
        json!({
            "a": side(&self.names[0], a),
            "b": side(&self.names[1], b),
            "differs": !self.comparison.is_empty(),
            "measures": measures.iter().map(change_value).collect::<Vec<Value>>(),
            "outcomes": outcomes.iter().map(|outcome| json!({
                "outcome": &*outcome.outcome,
                "a": outcome.a,
                "b": outcome.b,
                "chance": outcome.chance,
            })).collect::<Vec<Value>>(),
        })
    }
}

/// `success 98, failure 2`.
pub fn outcomes_text(all: &Aggregate) -> String {
    let outcomes = all.outcomes.iter().map(|(outcome, count)| {
        format!("{} {count}", if outcome.is_empty() { "open" } else { outcome })
    });
    outcomes.collect::<Vec<String>>().join(", ")
}

fn headline(comparison: &Comparison) -> String {
    if comparison.is_empty() {
        return "no difference: in every band and outcome the two are as alike as chance makes them"
            .to_owned();
    }
    let Some(duration) =
        comparison.measures.iter().find(|change| change.measure == Measure::Duration)
    else {
        return "they differ in how they end".to_owned();
    };
    if !duration.is_difference() {
        return "rollouts of both take as long, and differ in what they do".to_owned();
    }
    let mean = duration.means.difference;
    let part = if duration.a.mean > 0.0 { mean / duration.a.mean * 100.0 } else { 0.0 };
    format!(
        "a rollout of B takes {} {} on average ({part:+.0}%)",
        duration_text(rounded(mean.abs())),
        if mean < 0.0 { "less" } else { "longer" },
    )
}

/// What comes nearest to a difference, so that it can be judged.
fn nearest(comparison: &Comparison) -> Option<String> {
    let bands = comparison.measures.iter().filter(|change| change.measure != Measure::Duration);
    let most = bands
        .max_by(|one, other| one.means.difference.abs().total_cmp(&other.means.difference.abs()))?;
    let (low, high) = most.means.bounds;
    (most.means.difference != 0.0).then(|| {
        format!(
            "nearest to one: {} {} on average, between {} and {}\n",
            most.measure.name(),
            signed(most.means.difference),
            signed(low),
            signed(high),
        )
    })
}

fn changes_table(changes: &[&Change], canvas: &Canvas) -> String {
    let header = [
        ("BAND", Align::Left),
        ("MEDIAN A", Align::Right),
        ("B", Align::Right),
        ("MEAN A", Align::Right),
        ("B", Align::Right),
        ("DIFFERENCE", Align::Right),
        ("BETWEEN", Align::Left),
        ("IN WORDS", Align::Left),
        ("BY CHANCE", Align::Left),
    ];
    let cells: Vec<Vec<String>> = changes
        .iter()
        .map(|change| {
            let (low, high) = change.means.bounds;
            vec![
                change.measure.name().to_owned(),
                duration_text(change.a.p50),
                duration_text(change.b.p50),
                duration_text(rounded(change.a.mean)),
                duration_text(rounded(change.b.mean)),
                signed(change.means.difference),
                format!("{} and {}", signed(low), signed(high)),
                words(change),
                chance_text(change.chance()),
            ]
        })
        .collect();
    table(canvas, &header, &cells, 7)
}

fn words(change: &Change) -> String {
    let mut words = Vec::new();
    if change.is_shift() {
        let of_hundred = (change.larger_in * 100.0).round();
        let (how, of_hundred) = if of_hundred >= 50.0 {
            ("longer", of_hundred)
        } else {
            ("shorter", 100.0 - of_hundred)
        };
        words.push(format!("{how} in B in {of_hundred:.0} of 100 pairs"));
    }
    if change.is_tail() || !change.is_shift() {
        let (a, b) = change.above;
        words.push(format!(
            "over {}: {:.1}% of A, {:.1}% of B",
            duration_text(change.high_nanos),
            a * 100.0,
            b * 100.0
        ));
    }
    words.join("; ")
}

fn outcome_text(outcome: &OutcomeChange, a: &Aggregate, b: &Aggregate) -> String {
    let part = |count: usize, all: &Aggregate| count as f64 * 100.0 / all.rollouts.max(1) as f64;
    let name = if outcome.outcome.is_empty() { "open" } else { &outcome.outcome };
    format!(
        "{name}: {:.1}% of A ({}), {:.1}% of B ({}); by chance {}",
        part(outcome.a, a),
        counted(outcome.a, "rollout", "rollouts"),
        part(outcome.b, b),
        counted(outcome.b, "rollout", "rollouts"),
        chance_text(outcome.chance),
    )
}

fn signed(nanos: f64) -> String {
    format!("{}{}", if nanos < 0.0 { '-' } else { '+' }, duration_text(rounded(nanos.abs())))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
fn rounded(nanos: f64) -> u64 {
    nanos.round() as u64
}

fn change_value(change: &Change) -> Value {
    let side = |spread: &lens_store::rollouts::statistics::Spread| {
        json!({
            "mean_nanos": spread.mean,
            "p25_nanos": spread.p25,
            "p50_nanos": spread.p50,
            "p75_nanos": spread.p75,
            "p95_nanos": spread.p95,
        })
    };
    json!({
        "measure": change.measure.name(),
        "differs": change.is_difference(),
        "a": side(&change.a),
        "b": side(&change.b),
        "mean_difference_nanos": change.means.difference,
        "mean_difference_low_nanos": change.means.bounds.0,
        "mean_difference_high_nanos": change.means.bounds.1,
        "mean_chance": change.means.chance,
        "larger_in_b": change.larger_in,
        "shift_chance": change.shift_chance,
        "high_nanos": change.high_nanos,
        "above_a": change.above.0,
        "above_b": change.above.1,
        "tail_chance": change.tail_chance,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_a_path_with_what_its_rollouts_are_like() {
        let side = Selection::parse("logs/a@run=3f2a,task=4,agent=x").unwrap();
        assert_eq!(side.path.as_deref(), Some("logs/a"));
        assert_eq!((side.filter.run.as_deref(), side.filter.task), (Some("3f2a"), Some(4)));
        assert_eq!(Selection::parse("@outcome=failure").unwrap().path, None);
        assert_eq!(Selection::parse("logs").unwrap().filter, Filter::default());
        assert_eq!(Selection::parse("l@tusk=1"), Err(SelectionError::Key("tusk".to_owned())));
        assert_eq!(Selection::parse("l@task=x"), Err(SelectionError::Task("x".to_owned())));
    }
}
