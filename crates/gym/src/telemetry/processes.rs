//! What became of every span and log record of every process, as the processes themselves count.

use std::path::Path;

use lens::{PipelineSnapshot, PipelineState};
use serde_json::{Value, json};

use crate::fleet::head::ServerInstance;
use crate::trace::{Align, Canvas, duration_text, table};

/// Processes that can be seen from here.
#[derive(Debug)]
pub struct Processes {
    /// Those that share their counts.
    pub pipelines: Vec<PipelineState>,
    /// Instances of the running fleet that do not.
    pub silent: Vec<ServerInstance>,
    /// Now.
    now_nanos: u64,
}

impl Processes {
    /// Looks below a spool folder, for these instances among others.
    pub fn look(spool_dir: &Path, instances: &[ServerInstance]) -> Self {
        let pipelines = lens::pipelines(spool_dir);
        let shares = |instance: &&ServerInstance| {
            !pipelines.iter().any(|pipeline| Some(pipeline.pid) == instance.pid)
        };
        let silent = instances.iter().filter(shares).cloned().collect();
        Self { pipelines, silent, now_nanos: lens::now_unix_nanos() }
    }
}

fn signal(pipeline: &PipelineState) -> &'static str {
    if pipeline.is_logs { "logs" } else { "spans" }
}

/// `0`, or `12 buffer_full=10 too_large=2`.
fn dropped(counts: &PipelineSnapshot) -> String {
    let reasons = counts.dropped.iter().map(|(reason, count)| format!(" {reason}={count}"));
    format!("{}{}", counts.dropped_total(), reasons.collect::<String>())
}

/// The processes as a table.
pub fn text(found: &Processes, spool_dir: &Path, canvas: &Canvas) -> String {
    let mut text = canvas.bold("processes");
    text.push('\n');
    if found.pipelines.is_empty() && found.silent.is_empty() {
        text.push_str(&format!("  none shares its counts below {}\n", spool_dir.display()));
        return text;
    }
    if !found.pipelines.is_empty() {
        let rows: Vec<Vec<String>> =
            found.pipelines.iter().map(|pipeline| row(pipeline, found.now_nanos)).collect();
        let header = [
            ("RUN", Align::Left),
            ("SERVICE", Align::Left),
            ("PID", Align::Right),
            ("SIGNAL", Align::Left),
            ("ENDED", Align::Right),
            ("EXPORTED", Align::Right),
            ("REJECTED", Align::Right),
            ("SPOOLED", Align::Right),
            ("QUEUED", Align::Right),
            ("FAILURES", Align::Right),
            ("BUFFER", Align::Right),
            ("SEEN AGO", Align::Right),
            ("DROPPED", Align::Left),
        ];
        text.push_str(&table(canvas, &header, &rows, 1));
    }
    for instance in &found.silent {
        text.push_str(&format!(
            "  {} (pid {}) shares no counts: its spans go to the console or nowhere, its buffer is in memory of \
             its own or in another folder, or it is not one of ours\n",
            instance.process_name.as_deref().unwrap_or("?"),
            instance.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string()),
        ));
    }
    text
}

fn row(pipeline: &PipelineState, now_nanos: u64) -> Vec<String> {
    let counts = pipeline.counts.as_ref();
    let number = |of: fn(&PipelineSnapshot) -> u64| {
        counts.map_or_else(|| "?".to_owned(), |counts| of(counts).to_string())
    };
    let seen = duration_text(now_nanos.saturating_sub(pipeline.seen_nanos));
    vec![
        pipeline.run_id.clone(),
        pipeline.service_name.clone(),
        pipeline.pid.to_string(),
        signal(pipeline).to_owned(),
        number(|counts| counts.ended),
        number(|counts| counts.exported),
        number(|counts| counts.rejected),
        number(|counts| counts.spooled),
        number(|counts| counts.queued),
        number(|counts| counts.export_failures),
        counts.map_or_else(|| "?".to_owned(), |counts| format!("{:.0}%", counts.buffer_fill * 1e2)),
        if pipeline.is_alive { seen } else { format!("dead {seen}") },
        counts.map_or_else(|| "?".to_owned(), dropped),
    ]
}

/// The same for a program.
pub fn document(found: &Processes) -> Value {
    let pipelines = found.pipelines.iter().map(|pipeline| {
        json!({
            "run_id": pipeline.run_id,
            "service_name": pipeline.service_name,
            "pid": pipeline.pid,
            "signal": signal(pipeline),
            "alive": pipeline.is_alive,
            "seen_ago_nanos": found.now_nanos.saturating_sub(pipeline.seen_nanos),
            "counts": pipeline.counts.as_ref().map(counts_document),
        })
    });
    let silent = found
        .silent
        .iter()
        .map(|instance| json!({ "instance": instance.process_name, "pid": instance.pid }));
    json!({
        "pipelines": pipelines.collect::<Vec<_>>(),
        "without_counts": silent.collect::<Vec<_>>(),
    })
}

fn counts_document(counts: &PipelineSnapshot) -> Value {
    let dropped =
        counts.dropped.iter().map(|(reason, count)| ((*reason).to_owned(), (*count).into()));
    json!({
        "ended": counts.ended,
        "exported": counts.exported,
        "rejected": counts.rejected,
        "dropped": dropped.collect::<serde_json::Map<_, _>>(),
        "spooled": counts.spooled,
        "queued": counts.queued,
        "recovered": counts.recovered,
        "unrecovered": counts.unrecovered,
        "unrecorded": counts.unrecorded,
        "export_failures": counts.export_failures,
        "buffer_bytes": counts.buffer_bytes,
        "buffer_fill": counts.buffer_fill,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NANOS: u64 = 1_000_000_000;

    fn found() -> Processes {
        let model = PipelineState {
            path: "/dev/shm/nemo-gym/0a1b2c3d4e5f/policy_model-spans-77-0011aabb.ring".into(),
            run_id: "0a1b2c3d4e5f".to_owned(),
            service_name: "nemo-gym/policy_model".to_owned(),
            pid: 77,
            is_alive: true,
            is_logs: false,
            seen_nanos: 160 * SECOND_NANOS,
            counts: Some(PipelineSnapshot {
                ended: 1_500,
                exported: 1_000,
                rejected: 3,
                dropped: vec![(lens::semconv::drop_reason::BUFFER_FULL, 7)],
                spooled: 400,
                queued: 90,
                buffer_fill: 0.125,
                export_failures: 2,
                ..PipelineSnapshot::default()
            }),
        };
        let other = PipelineState {
            pid: 78,
            is_alive: false,
            is_logs: true,
            counts: None,
            ..model.clone()
        };
        let silent = ServerInstance {
            process_name: Some("agent".to_owned()),
            pid: Some(79),
            ..ServerInstance::default()
        };
        Processes {
            pipelines: vec![model, other],
            silent: vec![silent],
            now_nanos: 160 * SECOND_NANOS + 40_000_000,
        }
    }

    #[test]
    fn every_count_is_shown_and_who_has_none_is_named() {
        let text = text(&found(), Path::new("/dev/shm"), &Canvas::PLAIN);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn json_has_every_count() {
        let document = document(&found());
        let counts = &document["pipelines"][0]["counts"];
        assert_eq!(counts["dropped"][lens::semconv::drop_reason::BUFFER_FULL], 7);
        assert_eq!(counts["queued"], 90);
        assert_eq!(document["pipelines"][1]["counts"], Value::Null);
        assert_eq!(document["without_counts"][0]["instance"], "agent");
    }

    #[test]
    fn nobody_there_is_said_with_the_folder() {
        let nobody = Processes { pipelines: Vec::new(), silent: Vec::new(), now_nanos: 0 };
        let text = text(&nobody, Path::new("/dev/shm"), &Canvas::PLAIN);
        assert!(text.contains("below /dev/shm"), "{text}");
    }
}
