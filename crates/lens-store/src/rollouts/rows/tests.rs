use gym_telemetry::semconv;

use std::io::Write as _;

use super::*;
use crate::Band;
use crate::trace::tests::{SECOND, Sketch, assemble};

const AGENT: (&str, &str) = ("simple_agent", "responses_api_agents");
const DRIVER: (&str, &str) = ("orchestrator", "orchestrator");
const MODEL: (&str, &str) = ("policy_model", "responses_api_models");
const SERVER: u8 = 2;
const CLIENT: u8 = 3;

fn span(id: u64, parent: u64, name: &'static str, kind: u8, from: u64, to: u64) -> Sketch {
    Sketch { id, parent, name, kind, from, to, server: AGENT, ..Sketch::default() }
}

/// A rollout that waited 10 ms for its slot, with one model call that was sent again twice.
fn rollout() -> Vec<Sketch> {
    let ids = vec![(semconv::ROLLOUT_ID, "3-1-a1"), (semconv::COLLECTION_ID, "0123456789ab")];
    vec![
        Sketch {
            server: DRIVER,
            texts: [
                ids.clone(),
                vec![(semconv::ROLLOUT_OUTCOME, "failure"), (semconv::ERROR_TYPE, "503")],
            ]
            .concat(),
            numbers: vec![
                (semconv::TASK_INDEX, 3),
                (semconv::ROLLOUT_INDEX, 1),
                (semconv::ATTEMPT_INDEX, 1),
            ],
            error: true,
            seq: 4,
            ..span(1, 0, "gym.rollout.attempt", 1, 0, 100)
        },
        Sketch { server: DRIVER, seq: 4, ..span(2, 1, "HTTP POST", CLIENT, 10, 100) },
        Sketch { seq: 7, ..span(3, 2, "POST /run", SERVER, 11, 99) },
        span(4, 3, "gym.rollout", 1, 12, 98),
        Sketch {
            numbers: vec![(semconv::HTTP_REQUEST_RESEND_COUNT, 2)],
            error: true,
            ..span(5, 4, "HTTP POST", CLIENT, 20, 80)
        },
        Sketch {
            server: MODEL,
            truncated: true,
            ..span(6, 5, "POST /v1/responses", SERVER, 30, 79)
        },
    ]
}

#[test]
fn a_row_says_who_ran_what_how_it_ended_and_where_its_time_went() {
    let rows = rows_of(&assemble(&rollout()), None);
    let [row] = rows.as_slice() else { panic!("one row") };
    assert_eq!(
        (&*row.run, &*row.rollout_id, &*row.agent),
        ("0123456789ab", "3-1-a1", "simple_agent")
    );
    assert_eq!((row.task_index, row.rollout_index, row.attempt_index), (Some(3), Some(1), 1));
    assert_eq!((&*row.outcome, &*row.error_type), ("failure", "503"));
    assert_eq!(
        (row.start_nanos, row.wall_nanos, row.admission_nanos),
        (SECOND, 100_000_000, 10_000_000)
    );
    assert_eq!((row.spans, row.errors, row.retries, row.ingest_seq), (6, 2, 2, 7));
    assert_eq!((row.is_truncated, row.clock_corrected, row.time_suspect), (true, false, false));
    let bands: Vec<_> = row
        .bands
        .iter()
        .filter(|(_, nanos)| *nanos > 0)
        .map(|(band, nanos)| (band.name(), nanos / 1_000_000))
        .collect();
    assert_eq!(bands, [("admission", 10), ("network", 13), ("model", 49), ("agent", 28)]);
    assert_eq!(row.bands.total_nanos(), row.wall_nanos);
    assert_eq!(row.bands[Band::Admission], row.admission_nanos);
}

#[test]
fn everything_below_a_root_belongs_to_it_and_one_foreign_trace_has_many_rollouts() {
    let mut sketches =
        vec![Sketch { server: ("trainer", ""), ..span(1, 0, "train step", 1, 0, 1000) }];
    for at in 0..256 {
        let id = 10 + 10 * at;
        sketches.push(span(id, 1, "POST /run", SERVER, 10, 500 + at));
        sketches.push(span(id + 1, id, "gym.rollout", 1, 11, 499 + at));
        // Of somebody else, without any id.
        sketches.push(Sketch {
            server: ("engine", ""),
            ..span(id + 2, id + 1, "llm_request", 1, 20, 300)
        });
    }
    let rows = rows_of(&assemble(&sketches), None);
    assert_eq!(rows.len(), 256);
    assert!(
        rows.iter().all(|row| row.spans == 3 && &*row.run == "fleet" && &*row.outcome == "success")
    );
    let roots: std::collections::HashSet<_> = rows.iter().map(|row| row.root_span_id).collect();
    assert_eq!(roots.len(), 256);
}

#[test]
fn indices_are_taken_from_the_id_where_no_span_says_them() {
    let mut sketches = rollout();
    sketches[0].numbers.clear();
    let rows = rows_of(&assemble(&sketches), None);
    assert_eq!(
        (rows[0].task_index, rows[0].rollout_index, rows[0].attempt_index),
        (Some(3), Some(1), 1)
    );
}

#[test]
fn who_says_no_outcome_has_the_one_of_its_status_and_none_while_it_is_open() {
    let outcome = |sketch: Sketch| rows_of(&assemble(&[sketch]), None)[0].outcome.to_string();
    let run = span(1, 0, "POST /run", SERVER, 0, 100);
    assert_eq!(outcome(run.clone()), "success");
    assert_eq!(outcome(Sketch { error: true, ..run.clone() }), "failure");
    assert_eq!(outcome(Sketch { truncated: true, ..run }), "");
}

#[test]
fn times_are_suspect_by_what_is_said_and_by_when_it_arrived() {
    let day = 86_400_000_000_000;
    let at = 400 * day;
    assert!(!is_time_suspect(at, at + day, None));
    assert!(is_time_suspect(0, 5, None) && is_time_suspect(at, at - 1, None));
    assert!(is_time_suspect(at, at + 31 * day, None));
    assert!(is_time_suspect(at, at + 1, Some(at - 2 * day)), "from the future");
    assert!(is_time_suspect(at, at + 1, Some(at + 31 * day)), "too old");
    assert!(!is_time_suspect(at, at + 1, Some(at + 29 * day)));
}

/// Not a test: `cargo test --release -p lens-store --lib -- --ignored --nocapture what_a_row_costs`.
#[test]
#[ignore = "a measurement"]
fn what_a_row_costs() {
    use std::collections::BTreeMap;
    use std::time::Instant;

    use lens_testing::load::{self, Options, Rollouts};

    let mut traces: BTreeMap<_, Vec<RawSpan>> = BTreeMap::new();
    let mut count = 0;
    let spans = Rollouts { tasks: 25, ..Rollouts::default() };
    for batch in load::rollouts(Options::default(), spans) {
        for span in crate::raw::decode(&batch.request, 1).unwrap().spans {
            traces.entry(span.trace_id).or_default().push(span);
            count += 1;
        }
    }
    for spans in traces.values_mut() {
        spans.sort_by_key(|span| span.start_nanos);
    }
    let traces: Vec<_> = traces.into_values().collect();
    for _ in 0..5 {
        let mut reader = Reader::default();
        let start = Instant::now();
        let rows: usize =
            traces.iter().map(|spans| rows_of_spans(&mut reader, spans.to_vec(), None).len()).sum();
        let all = start.elapsed();
        let start = Instant::now();
        let mut reader = Reader::default();
        let read: usize =
            traces.iter().flatten().filter(|span| reader.read((*span).clone()).is_ok()).count();
        let reading = start.elapsed();
        let nanos = |time: std::time::Duration| time.as_nanos() / count as u128;
        writeln!(
            std::io::stderr(),
            "{rows} rows of {read} spans: {} ns a span, {} of them reading",
            nanos(all),
            nanos(reading),
        )
        .unwrap();
    }
}
