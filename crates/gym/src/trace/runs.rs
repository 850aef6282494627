//! Runs: tables and documents.

use lens_store::rollouts::runs::Run;
use lens_store::trace::timestamp;
use serde_json::{Value, json};

use super::diff::outcomes_text;
use super::read::counted;
use super::report::Report;
use super::text::{Align, Canvas, duration_text, table};

/// How a run is called.
pub fn run_name(run: &Run) -> &str {
    if run.id.is_empty() { "(none)" } else { &run.id }
}

/// The bands with most time, `decode 71%, tool 20%`.
fn mostly(run: &Run) -> String {
    let mut bands: Vec<_> = run.all.bands.iter().collect();
    bands.sort_by(|one, other| other.share.total_cmp(&one.share));
    let text = |share: &&lens_store::rollouts::aggregate::BandShare| {
        format!("{} {:.0}%", share.band.name(), share.share * 100.0)
    };
    bands.iter().take(2).map(text).collect::<Vec<String>>().join(", ")
}

/// The table as text.
pub fn runs_table(runs: &[Run], canvas: &Canvas) -> String {
    let header = [
        ("RUN", Align::Left),
        ("START (UTC)", Align::Left),
        ("TOOK", Align::Right),
        ("TASKS", Align::Right),
        ("ROLLOUTS", Align::Right),
        ("ATTEMPTS", Align::Right),
        ("OUTCOMES", Align::Left),
        ("P50", Align::Right),
        ("P95", Align::Right),
        ("MOSTLY", Align::Left),
    ];
    let cells: Vec<Vec<String>> = runs
        .iter()
        .map(|run| {
            vec![
                run_name(run).to_owned(),
                timestamp::to_readable(run.start_nanos),
                duration_text(run.end_nanos.saturating_sub(run.start_nanos)),
                run.tasks.to_string(),
                run.rollouts.to_string(),
                run.all.rollouts.to_string(),
                outcomes_text(&run.all),
                duration_text(run.all.duration_nanos.p50),
                duration_text(run.all.duration_nanos.p95),
                mostly(run),
            ]
        })
        .collect();
    table(canvas, &header, &cells, 0)
}

/// A run as JSON.
pub fn run_value(run: &Run) -> Value {
    let counts = |counts: &[(std::sync::Arc<str>, usize)]| -> Value {
        let counts = counts.iter().map(|(name, count)| ((**name).to_owned(), json!(count)));
        Value::Object(counts.collect())
    };
    json!({
        "run": &*run.id,
        "start_time": timestamp::to_rfc3339(run.start_nanos),
        "end_time": timestamp::to_rfc3339(run.end_nanos),
        "tasks": run.tasks,
        "rollouts": run.rollouts,
        "attempts": run.all.rollouts,
        "agents": run.agents.iter().map(|agent| &**agent).collect::<Vec<&str>>(),
        "outcomes": counts(&run.all.outcomes),
        "error_types": counts(&run.all.error_types),
        "spans": run.all.spans,
        "errors": run.all.errors,
        "retries": run.all.retries,
        "truncated": run.all.truncated,
        "time_suspect": run.all.time_suspect,
        "let_go": run.all.let_go,
        "p50_nanos": run.all.duration_nanos.p50,
        "p95_nanos": run.all.duration_nanos.p95,
        "p99_nanos": run.all.duration_nanos.p99,
        "max_nanos": run.all.duration_nanos.max,
    })
}

/// One run as text.
pub fn run_text(run: &Run, report: &Report, canvas: &Canvas) -> String {
    let all = &run.all;
    let mut text = canvas.bold(&format!(
        "run {} · {} UTC · {}",
        run_name(run),
        timestamp::to_readable(run.start_nanos),
        duration_text(run.end_nanos.saturating_sub(run.start_nanos)),
    ));
    text.push_str(&format!(
        "\n{} of {} in {}: {}\n",
        counted(run.rollouts, "rollout", "rollouts"),
        counted(run.tasks, "task", "tasks"),
        counted(all.rollouts, "attempt", "attempts"),
        outcomes_text(all),
    ));
    let took = all.duration_nanos;
    text.push_str(&format!(
        "a rollout takes {} (p50), {} (p95), {} (p99), {} at most, without its wait for a slot\n",
        duration_text(took.p50),
        duration_text(took.p95),
        duration_text(took.p99),
        duration_text(took.max),
    ));
    text.push_str(&format!(
        "{}, {}, {}",
        counted(usize::try_from(all.spans).unwrap_or(usize::MAX), "span", "spans"),
        counted(usize::try_from(all.errors).unwrap_or(usize::MAX), "error", "errors"),
        counted(usize::try_from(all.retries).unwrap_or(usize::MAX), "retry", "retries"),
    ));
    if all.truncated > 0 {
        text.push_str(&format!(", {} cut off", counted(all.truncated, "rollout", "rollouts")));
    }
    text.push('\n');
    if !all.error_types.is_empty() {
        let types = all.error_types.iter().map(|(class, count)| format!("{class} ({count})"));
        text.push_str(&format!("failures: {}\n", types.collect::<Vec<String>>().join(", ")));
    }
    if !run.agents.is_empty() {
        text.push_str(&format!("agents: {}\n", run.agents.join(", ")));
    }
    text.push('\n');
    text.push_str(&report.bands_table(canvas));
    for note in report.notes() {
        text.push_str(&canvas.dim(&note));
        text.push('\n');
    }
    text
}
