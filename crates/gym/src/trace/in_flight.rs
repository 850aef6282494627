//! The table of rollouts that are under way.

use lens_store::live::{Mark, Row};
use lens_store::trace::printable;

use super::text::{Align, Canvas, duration_text, table};

/// One line for each rollout, in the order in which they were told.
pub fn in_flight_table(rows: &[Row], canvas: &Canvas) -> String {
    let header = [
        ("ROLLOUT", Align::Left),
        ("RUN", Align::Left),
        ("AGE", Align::Right),
        ("GROUP", Align::Right),
        ("RETRIES", Align::Right),
        ("MARK", Align::Left),
        ("WHERE", Align::Left),
        ("LAST EVENT", Align::Left),
    ];
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let rollout = if row.rollout_id.is_empty() { &row.trace_id } else { &row.rollout_id };
            let all = row.group.running + row.group.ended;
            vec![
                printable(rollout),
                printable(&row.run),
                duration_text(row.age_nanos),
                if all == 0 { "-".to_owned() } else { format!("{}/{all} ended", row.group.ended) },
                if row.retries == 0 { "-".to_owned() } else { row.retries.to_string() },
                row.mark.name().to_owned(),
                printable(&row.explanation),
                printable(&row.last_event.to_string()),
            ]
        })
        .collect();
    table(canvas, &header, &rows, header.len() - 1)
}

/// How many there are of each mark: `40 under way: 37 running, 2 stalled, 1 dead`.
pub fn in_flight_sentence(rows: &[Row]) -> String {
    let marks = [Mark::Running, Mark::Retrying, Mark::Stalled, Mark::Dead, Mark::Unknown];
    let counts = marks.map(|mark| (rows.iter().filter(|row| row.mark == mark).count(), mark));
    let told: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, mark)| format!("{count} {}", mark.name()))
        .collect();
    match told.as_slice() {
        [] => "no rollout is under way".to_owned(),
        told => format!("{} under way: {}", rows.len(), told.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use lens_store::live::{GroupState, Happened, LastEvent};

    use super::*;

    #[test]
    fn a_rollout_that_hangs_stands_out_with_its_server() {
        let row = |rollout: &str, mark, explanation: &str| Row {
            run: "aaaabbbbcccc".to_owned(),
            task_index: Some(7),
            rollout_index: Some(0),
            attempt_index: 0,
            rollout_id: rollout.to_owned(),
            agent: "agent".to_owned(),
            trace_id: "0".repeat(32),
            stage: None,
            age_nanos: 96_000_000_000,
            heartbeat_ago_nanos: 1_000_000_000,
            moved_ago_nanos: 94_000_000_000,
            last_event: LastEvent {
                what: Happened::Began,
                name: "POST /verify".to_owned(),
                server: "weather".to_owned(),
                ago_nanos: 94_000_000_000,
            },
            retries: 0,
            mark,
            explanation: explanation.to_owned(),
            group: GroupState { running: 1, ended: 15 },
        };
        let rows = [
            row("7-0", Mark::Stalled, "stalled 94 s in verify, server weather"),
            row("8-1", Mark::Running, "in model, server policy_model"),
        ];
        insta::assert_snapshot!(in_flight_table(&rows, &Canvas::PLAIN), @r"
        ROLLOUT  RUN             AGE        GROUP  RETRIES  MARK     WHERE                                   LAST EVENT
        7-0      aaaabbbbcccc  1m36s  15/16 ended        -  stalled  stalled 94 s in verify, server weather  POST /verify began in weather, 94 s ago
        8-1      aaaabbbbcccc  1m36s  15/16 ended        -  running  in model, server policy_model           POST /verify began in weather, 94 s ago
        ");
        assert_eq!(in_flight_sentence(&rows), "2 under way: 1 running, 1 stalled");
        assert_eq!(in_flight_sentence(&[]), "no rollout is under way");
    }
}
