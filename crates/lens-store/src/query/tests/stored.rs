use proptest::prelude::*;

use super::against_model::spans;
use super::fixture::{Described, SECOND, START};
use crate::query::{Loaded, Query, SearchOptions, Stored, Window};
use crate::store::{Appended, Options, Store};
use crate::wal::{Encoding, Signal};

fn append(store: &Store, span: &Described) {
    let request = span.request();
    let appended = store.append(Signal::Traces, Encoding::PROTOBUF, request.clone(), request);
    assert_eq!(appended, Ok(Appended::default()));
}

fn store(folder: &std::path::Path) -> Store {
    Store::open(folder, Options { background: false, ..Options::default() }).unwrap()
}

/// Guarantees: a query sees every span that was acknowledged before it began, by whatever it asks, and nothing is left
/// out for being new.
#[test]
fn a_query_right_after_a_write_finds_all_that_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for id in 1..=200_u64 {
        let span = Described {
            id,
            trace: u128::from(id % 7) + 1,
            text: Some("x"),
            ..Described::default()
        };
        append(&store, &span);
        let snapshot = store.snapshot();
        let stored = Stored::new(&snapshot, START + SECOND);
        let query = format!("{{ span:id = \"{id:x}\" && .text = \"x\" }}");
        let found = Query::parse(&query).unwrap();
        let found = found.search(&stored, &SearchOptions::default()).unwrap();
        assert_eq!((found.traces.len(), found.has_more), (1, false), "{query}");
        assert_eq!(found.looked.spans, id, "all were looked at");
        let count = Query::parse("{ .text = \"x\" } | count_over_time()").unwrap();
        let (counted, _) = count.measure(&stored, &Window::default()).unwrap().unwrap();
        assert_eq!(counted.series[0].points[0].value, id as f64);
    }
    // What is sent again counts once.
    append(&store, &Described { id: 7, trace: 1, text: Some("x"), ..Described::default() });
    let snapshot = store.snapshot();
    let stored = Stored::new(&snapshot, START + SECOND);
    let count = Query::parse("{} | count_over_time()").unwrap();
    let (counted, _) = count.measure(&stored, &Window::default()).unwrap().unwrap();
    assert_eq!(counted.series[0].points[0].value, 200.0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_store_answers_as_its_spans_in_hand_do(spans in spans()) {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        for span in &spans {
            append(&store, span);
        }
        let loaded = Loaded::new(spans.iter().map(Described::raw).collect(), START + SECOND);
        let snapshot = store.snapshot();
        let stored = Stored::new(&snapshot, START + SECOND);
        for query in [
            "{}",
            "{ name = \"a\" && .number > 1 } | select(.number, .text)",
            "{ .flag } >> { status = error } || { resource.service.name = \"s\" } | by(name)",
        ] {
            let query = Query::parse(query).unwrap();
            let options = SearchOptions { spans_of_set: 100, ..SearchOptions::default() };
            let one = query.search(&loaded, &options).unwrap();
            let other = query.search(&stored, &options).unwrap();
            prop_assert_eq!(one.traces, other.traces);
        }
        for query in [
            "{ .number != nil } | quantile_over_time(.number, .1, .5, .9) by (name)",
            "{ kind = internal } | rate() by (resource.service.name, .flag)",
            "{ name = \"a\" } && { name = \"b\" } | avg_over_time(duration)",
        ] {
            let query = Query::parse(query).unwrap();
            let (one, _) = query.measure(&loaded, &Window::default()).unwrap().unwrap();
            let (other, _) = query.measure(&stored, &Window::default()).unwrap().unwrap();
            prop_assert_eq!(one, other);
        }
    }
}
