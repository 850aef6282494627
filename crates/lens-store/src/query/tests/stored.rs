use proptest::prelude::*;

use super::against_model::spans;
use super::fixture::{BELIEVED, Described, MILLI, SECOND, START};
use super::meaning::{CONDITIONS, SETS, rollout};
use crate::ids::TraceId;
use crate::query::{
    Columns, Filter, Gathered, Loaded, Part, Query, Row, SearchOptions, Source, Stored, Window,
};
use crate::raw::RawSpan;
use crate::segment::measure::measure;
use crate::segment::{SegmentError, SpanOptions, SpanReader, write_spans};
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
        let counted = count.measure(&stored, &Window::default()).unwrap().unwrap().metrics;
        assert_eq!(counted.series[0].points[0].value, id as f64);
    }
    // What is sent again counts once.
    append(&store, &Described { id: 7, trace: 1, text: Some("x"), ..Described::default() });
    let snapshot = store.snapshot();
    let stored = Stored::new(&snapshot, START + SECOND);
    let count = Query::parse("{} | count_over_time()").unwrap();
    let counted = count.measure(&stored, &Window::default()).unwrap().unwrap().metrics;
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
            let one = query.measure(&loaded, &Window::default()).unwrap().unwrap().metrics;
            let other = query.measure(&stored, &Window::default()).unwrap().unwrap().metrics;
            prop_assert_eq!(one, other);
        }
    }
}

/// Spans in column files.
struct Files(Vec<(tempfile::NamedTempFile, SpanReader)>);

impl Files {
    fn new(parts: Vec<Vec<RawSpan>>) -> Self {
        let write = |mut spans: Vec<RawSpan>| {
            spans.sort_by_key(|span| (span.trace_id, span.start_nanos));
            let mut file = tempfile::NamedTempFile::new().unwrap();
            write_spans(&mut file, &spans, &SpanOptions::default()).unwrap();
            let reader = SpanReader::open(file.path()).unwrap();
            (file, reader)
        };
        Self(parts.into_iter().map(write).collect())
    }
}

impl Source for Files {
    type Error = SegmentError;

    fn parts(&self) -> Vec<Part> {
        let part = |(_, reader): &(_, SpanReader)| Part {
            starts: START..=START + 1000 * SECOND,
            spans: reader.rows(),
            believed: BELIEVED,
        };
        self.0.iter().map(part).collect()
    }

    fn scan(
        &self,
        part: usize,
        piece: Option<usize>,
        filter: &Filter,
        take: &mut dyn FnMut(&dyn Row),
    ) -> Result<u64, SegmentError> {
        self.0[part].1.scan(piece, filter.fields(), filter.starts(), take)
    }

    fn count(
        &self,
        parts: &[(usize, Part)],
        columns: &Columns<'_>,
    ) -> Result<Gathered, SegmentError> {
        let file = |(at, part): &(usize, Part)| (*at, &self.0[*at].1, part.believed.clone());
        let files: Vec<_> = parts.iter().map(file).collect();
        measure(&files, columns, 2)
    }

    fn trace(&self, id: TraceId) -> Result<Vec<RawSpan>, SegmentError> {
        let parts = self.0.iter().map(|(_, reader)| reader.trace(id));
        Ok(parts.collect::<Result<Vec<_>, _>>()?.concat())
    }
}

const NUMBERS: [&str; 14] = [
    "{} | quantile_over_time(duration, .1, .5, .9) by (resource.service.name, .list, .double)",
    "{ .text = \"x\" || !(kind = server) } | { status != error } | avg_over_time(duration) by (.text)",
    "{ .list = \"b\" } | rate() by (instrumentation:name, instrumentation:version)",
    "{ resource.service.name != nil && span.flag } | max_over_time(duration) by (.flag, .number)",
    "{ .where = \"s\" || name =~ \"a.*\" } | min_over_time(duration) by (resource.where, span.where)",
    "{} | sum_over_time(duration)",
    "{ duration > 1ms } | count_over_time() by (name)",
    "{} | quantile_over_time(duration, .1, .5, .9) by (name)",
    "{ .number != nil } | quantile_over_time(.number, .1, .5, .9) by (name)",
    "{ kind = internal } | rate() by (resource.service.name, .flag, status, kind)",
    "{ name = \"a\" } && { name = \"b\" } | avg_over_time(duration)",
    "{} | { .number > 0 } | sum_over_time(span.double) by (.text, span:parentID)",
    "{} | count_over_time() by (event:name, .list, event.why, instrumentation:name)",
    "{} | max_over_time(duration) by (statusMessage, instrumentation:version, .where, span:id)",
];

fn assert_same(files: &Files, loaded: &Loaded, queries: &[&str]) {
    for query in queries {
        let parsed = Query::parse(query).unwrap();
        let options = SearchOptions { spans_of_set: 100, ..SearchOptions::default() };
        let one = parsed.search(loaded, &options).unwrap();
        let other = parsed.search(files, &options).unwrap();
        assert_eq!(one.traces, other.traces, "{query}");
    }
    for query in NUMBERS {
        let parsed = Query::parse(query).unwrap();
        let one = parsed.measure(loaded, &Window::default()).unwrap().unwrap().metrics;
        let other = parsed.measure(files, &Window::default()).unwrap().unwrap().metrics;
        assert_eq!(one, other, "{query}");
    }
}

/// Guarantees: what is asked of files is answered as if their spans were in memory.
#[test]
fn files_answer_as_memory_does_whatever_is_asked() {
    let mut spans = Vec::new();
    for at in 0..5_u64 {
        spans.extend(rollout(u128::from(at) + 1, START + at * SECOND));
        spans.push(Described {
            trace: u128::from(at) + 1,
            id: 50,
            parent: 3,
            // A kind that columns cannot say: the span is kept as it came.
            kind: if at.is_multiple_of(2) { 9 } else { 4 },
            duration: at * MILLI,
            double: Some(at as f64 / 8.0),
            text: Some("strange"),
            ..Described::default()
        });
    }
    let raw: Vec<RawSpan> = spans.iter().map(Described::raw).collect();
    let (early, late): (Vec<_>, Vec<_>) =
        raw.iter().cloned().partition(|span| span.start_nanos < START + 2 * SECOND);
    let files = Files::new(vec![early, late]);
    let loaded = Loaded::new(raw, START + SECOND);
    let queries: Vec<&str> = CONDITIONS.iter().chain(SETS).map(|(query, _)| *query).collect();
    assert_same(&files, &loaded, &queries);
    assert_same(
        &files,
        &loaded,
        &["{ kind = producer || .text = \"strange\" }", "{ .double > 2 }"],
    );
}

/// Guarantees: columns are enough where they are meant to be, for any range of time.
#[test]
fn numbers_of_few_values_are_counted_by_columns_alone() {
    let mut spans: Vec<Described> =
        (0..5_u64).flat_map(|at| rollout(u128::from(at) + 1, START + at * SECOND)).collect();
    for (id, name) in [(90, "backwards"), (91, "root")] {
        let duration = u64::MAX - SECOND;
        spans.push(Described { id, name, duration, ..Described::default() });
    }
    let raw: Vec<RawSpan> = spans.iter().map(Described::raw).collect();
    let loaded = Loaded::new(raw.clone(), START + SECOND);
    let files = Files::new(vec![raw.clone()]);
    let windows = [0..u64::MAX, START + SECOND..START + 3 * SECOND + 20 * MILLI, 0..1];
    for query in NUMBERS {
        let query = Query::parse(query).unwrap();
        for range in &windows {
            let window = Window { range: range.clone(), step_nanos: 0 };
            let one = query.measure(&loaded, &window).unwrap().unwrap().metrics;
            let other = query.measure(&files, &window).unwrap().unwrap().metrics;
            assert_eq!(one, other, "{query:?} {range:?}");
        }
    }
    let mut by_columns = 0;
    for query in NUMBERS {
        let query = Query::parse(query).unwrap();
        let starts = START + SECOND..u64::MAX;
        let metric = query.metric.as_ref().filter(|_| query.is_of_single_spans());
        let columns = metric.and_then(|metric| Columns::of(&query, metric, &starts));
        let Some(columns) = columns else { continue };
        let gathered = measure(&[(0, &files.0[0].1, BELIEVED)], &columns, 2).unwrap();
        assert_eq!((gathered.left.len(), gathered.looked), (0, raw.len() as u64));
        by_columns += 1;
    }
    assert_eq!(by_columns, 8);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn files_answer_as_memory_does_for_any_spans(spans in spans(), split in 1_usize..4) {
        let raw: Vec<RawSpan> = spans.iter().map(Described::raw).collect();
        let mut parts = vec![Vec::new(); split];
        for (at, span) in raw.iter().enumerate() {
            parts[at % split].push(span.clone());
        }
        let loaded = Loaded::new(raw, START + SECOND);
        assert_same(&Files::new(parts), &loaded, &[
            "{}",
            "{ name = \"a\" && .number > 1 } | select(.number, .text)",
            "{ .flag } >> { status = error } || { resource.service.name = \"s\" } | by(name)",
        ]);
    }
}
