//! What is in segments, and on the way there.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::*;
use crate::manifest::Table;
use crate::store::date::{DAY_NANOS, Day};

/// A clock that is set.
#[derive(Debug)]
pub(super) struct SetClock(pub(super) AtomicU64);

impl Clock for SetClock {
    fn now_nanos(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The day of [`Given::new`].
const TODAY: &str = "2025-11-29";

pub(super) fn files(folder: &Path) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("below it");
                files.insert(name.to_str().expect("readable").to_owned());
            }
        }
    }
    files
}

fn clock_of_today() -> Arc<SetClock> {
    let today = Day::parse(TODAY).expect("a day");
    Arc::new(SetClock(AtomicU64::new(today.0 * DAY_NANOS + DAY_NANOS / 2)))
}

fn open_at(folder: &Path, clock: &Arc<SetClock>) -> Store {
    let clock: Arc<dyn Clock> = Arc::<SetClock>::clone(clock);
    Store::open(folder, Options { clock, ..options() }).expect("a store")
}

#[test]
fn what_was_flushed_is_found_in_segments_and_leaves_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = clock_of_today();
    let store = open_at(folder.path(), &clock);
    assert!(!store.flush().expect("nothing to write"));
    append(&store, &[Given::new(2, 1), Given::new(1, 2)]);
    append(&store, &[Given::new(1, 1)]);
    let before = store.snapshot();
    assert!(store.flush().expect("written"));
    for snapshot in [&before, &store.snapshot()] {
        let spans = snapshot.trace(trace_id(1)).expect("readable");
        let ids: Vec<_> =
            spans.iter().map(|span| (span.span_id.to_bytes()[0], span.ingest_seq)).collect();
        assert_eq!(ids, [(1, 2), (2, 1)]);
        assert_eq!(spans[0].view().expect("a span").name, "work");
        assert_eq!(snapshot.find_by_prefix("0", 9).expect("readable"), [trace_id(1), trace_id(2)]);
    }
    assert_eq!((before.memory_span_count(), store.snapshot().memory_span_count()), (3, 0));
    assert_eq!((store.wal_bytes(), store.memory().spans), (0, 0));
    append(&store, &[Given::new(1, 3)]);
    assert_eq!(trace(&store, 1), [1, 2, 3]);
    drop(store);
    let expected =
        ["LOCK", "manifest.json", "spans/date=2025-11-29/000001-l0.parquet", "wal/0000000002.wal"];
    let found = files(folder.path());
    assert!(expected.iter().all(|name| found.contains(*name)), "{found:?}");

    let reader = Store::open_read_only(folder.path()).expect("readable");
    assert_eq!(trace(&reader, 1), [1, 2, 3]);
    let store = open_at(folder.path(), &clock);
    assert_eq!(trace(&store, 1), [1, 2, 3]);
    append(&store, &[Given::new(1, 4)]);
    let newest = store.snapshot().trace(trace_id(1)).expect("readable").pop().expect("a span");
    assert_eq!(newest.ingest_seq, 4);
    store.close().expect("written");
    assert_eq!(files(&folder.path().join("wal")), BTreeSet::new());
    assert_eq!(trace(&open_at(folder.path(), &clock), 1), [1, 2, 3, 4]);
}

#[test]
fn rows_lie_under_the_date_of_their_start_and_unbelievable_ones_under_that_of_their_arrival() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = clock_of_today();
    let now = clock.now_nanos();
    let store = open_at(folder.path(), &clock);
    let at = |span, start_nanos| Given { start_nanos, ..Given::new(1, span) };
    append(
        &store,
        &[
            at(1, now),
            at(2, now - DAY_NANOS),
            at(3, now + 3 * DAY_NANOS),
            at(4, 0),
            at(5, u64::MAX),
        ],
    );
    store.flush().expect("written");
    let manifest = store.snapshot().manifest().clone();
    let rows = |date: &str| {
        let segments = manifest.segments.iter().filter(|segment| segment.date == date);
        segments.map(|segment| segment.file(Table::Spans).expect("spans").rows).sum::<u64>()
    };
    assert_eq!((rows("2025-11-28"), rows(TODAY)), (1, 4));
    assert_eq!(trace(&store, 1), [4, 2, 1, 3, 5]);
}

#[test]
fn a_span_that_came_twice_is_written_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open_at(folder.path(), &clock_of_today());
    let span = Given::new(1, 1);
    append(&store, &[span, Given { is_truncated: true, ..span }, Given { name: "other", ..span }]);
    append(&store, &[span]);
    store.flush().expect("written");
    assert_eq!(store.snapshot().manifest().spans(), 2);
    append(&store, &[span]);
    assert_eq!(trace(&store, 1), [1, 1], "by name");
    store.flush().expect("written");
    assert_eq!(trace(&store, 1), [1, 1], "in two segments");
    assert_eq!(store.snapshot().manifest().spans(), 3);
    assert_eq!(store.compact().expect("written"), 2);
    assert_eq!(trace(&store, 1), [1, 1], "in one segment");
    let manifest = store.snapshot().manifest().clone();
    assert_eq!((manifest.spans(), manifest.removed.spans_repeated), (2, 1));
}

#[test]
fn a_flush_is_due_by_number_bytes_and_age() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = clock_of_today();
    let limits = FlushOptions {
        max_spans: 200,
        max_bytes: 20_000,
        max_age: Duration::from_secs(15),
        idle_age: Duration::from_secs(60),
    };
    let as_clock: Arc<dyn Clock> = Arc::<SetClock>::clone(&clock);
    let options = Options { clock: as_clock, flush: limits, ..options() };
    let store = Store::open(folder.path(), options).expect("a store");
    let flushed_with = |spans: u8, seconds: u64| {
        append(&store, &(1..=spans).map(|span| Given::new(1, span)).collect::<Vec<_>>());
        clock.0.fetch_add(seconds * 1_000_000_000, Ordering::Relaxed);
        store.maintain().expect("written");
        let is_flushed = store.memory().last_seq == 0;
        store.flush().expect("written");
        is_flushed
    };
    assert!(!flushed_with(1, 59), "hardly anything waits a minute");
    assert!(flushed_with(1, 60));
    assert!(!flushed_with(2, 14));
    assert!(flushed_with(2, 15));
    assert!(flushed_with(200, 0), "by number, or bytes");
    assert!(flushed_with(150, 0), "by bytes");
}

#[test]
fn files_that_no_commit_made_count_are_removed_by_the_writer_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open_at(folder.path(), &clock_of_today());
    append(&store, &[Given::new(1, 1)]);
    store.flush().expect("written");
    drop(store);
    let known = files(folder.path());
    let date = folder.path().join("spans/date=2025-11-29");
    fs::write(date.join("000007-l0.parquet"), "not committed").expect("writable");
    fs::write(date.join("000008-l0.part"), "not even whole").expect("writable");
    Store::open_read_only(folder.path()).expect("readable");
    assert_eq!(files(folder.path()).len(), known.len() + 2);
    open(folder.path());
    assert_eq!(files(folder.path()), known);
}

#[test]
fn a_damaged_segment_is_named_and_set_aside_and_the_rest_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    for span in 1..=3 {
        append(&store, &[Given::new(1, span)]);
        store.flush().expect("written");
    }
    let second = store.snapshot().segments()[1].path(Table::Spans).expect("spans");
    drop(store);
    let whole = fs::read(&second).expect("readable");
    fs::write(&second, &whole[..whole.len() - 1]).expect("writable");
    let reader = Store::open_read_only(folder.path()).expect("readable");
    assert_eq!(trace(&reader, 1), [1, 3]);
    assert_eq!(reader.damage()[0].path, second);
    assert!(second.exists(), "a reader changes nothing");
    let store = open(folder.path());
    assert_eq!(trace(&store, 1), [1, 3]);
    assert_eq!(store.damage()[0].path, second);
    assert!(!second.exists());
    assert_eq!(files(&folder.path().join(DAMAGED)).len(), 3, "spans, traces and index");
    append(&store, &[Given::new(1, 4)]);
    store.flush().expect("written");
    drop(store);
    let store = open(folder.path());
    assert_eq!(trace(&store, 1), [1, 3, 4]);
    assert_eq!(store.damage(), []);
    assert_eq!(store.snapshot().manifest().removed.segments_damaged, 1);
}

#[test]
fn a_store_flushes_by_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let flush = FlushOptions { max_spans: 2, ..FlushOptions::default() };
    let store =
        Store::open(folder.path(), Options { flush, ..Options::default() }).expect("a store");
    append(&store, &[Given::new(1, 1), Given::new(1, 2)]);
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while store.snapshot().segments().is_empty() {
        assert!(std::time::Instant::now() < deadline, "waited in vain");
        std::thread::yield_now();
    }
    assert_eq!(trace(&store, 1), [1, 2]);
}

#[test]
fn small_files_are_merged_and_the_old_ones_stay_as_long_as_somebody_reads_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock: Arc<dyn Clock> = clock_of_today();
    let compaction = Compaction { max_small_files: 3, ..Compaction::default() };
    let options = Options { clock, compaction, ..options() };
    let store = Store::open(folder.path(), options.clone()).expect("a store");
    for span in 1..=4_u8 {
        let other_day = Given { start_nanos: 1_764_200_000_000_000_000, ..Given::new(9, span) };
        let spans = [Given::new(5 - span, span), Given::new(7, 10 - span), other_day];
        append(&store, &spans[..if span < 3 { 3 } else { 2 }]);
        store.flush().expect("written");
        if span < 4 {
            store.maintain().expect("written");
        }
    }
    let before = store.snapshot();
    assert_eq!(before.segments().len(), 6);
    store.maintain().expect("written");
    let after = store.snapshot();
    let levels: Vec<_> = after.segments().iter().map(|segment| segment.entry().level).collect();
    assert_eq!(levels, [0, 0, 1], "a date with two small files keeps them");
    for snapshot in [&before, &after] {
        assert_eq!(snapshot.trace(trace_id(7)).expect("readable").len(), 4);
        assert_eq!(snapshot.trace(trace_id(1)).expect("readable").len(), 1);
        assert_eq!(snapshot.trace(trace_id(9)).expect("readable").len(), 2);
    }
    let count = || files(&folder.path().join("spans")).len();
    assert_eq!(count(), 7);
    drop(before);
    assert_eq!(count(), 3);
    drop(after);
    drop(store);
    let store = Store::open(folder.path(), options).expect("a store");
    assert_eq!(trace(&store, 7), [6, 7, 8, 9]);
    let merged = Arc::clone(store.snapshot().segments().last().expect("merged"));
    let entry = merged.entry();
    assert_eq!((entry.min_seq, entry.max_seq), (1, 4));
    assert_eq!((&entry.min_trace_id[..2], &entry.max_trace_id[..2]), ("01", "07"));
}

#[test]
fn retention_removes_whole_segments_oldest_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = clock_of_today();
    let as_clock: Arc<dyn Clock> = Arc::<SetClock>::clone(&clock);
    let day = Duration::from_secs(86_400);
    let retention = Retention { max_age: Some(3 * day), max_bytes: None };
    let options = Options { clock: as_clock, retention, ..options() };
    let store = Store::open(folder.path(), options.clone()).expect("a store");
    let put = |store: &Store, span| {
        append(store, &[Given::new(1, span)]);
        store.flush().expect("written");
        clock.0.fetch_add(DAY_NANOS, Ordering::Relaxed);
        store.maintain().expect("written");
    };
    (1..=3).for_each(|span| put(&store, span));
    assert_eq!(trace(&store, 1), [1, 2, 3]);
    let seen = store.snapshot();
    put(&store, 4);
    assert_eq!(trace(&store, 1), [2, 3, 4]);
    assert_eq!(seen.trace(trace_id(1)).expect("readable").len(), 3);
    drop((seen, store));

    let bytes = fs::read_dir(folder.path().join("spans")).expect("dates").map(|date| {
        let date = date.expect("a date").path();
        fs::read_dir(date)
            .expect("files")
            .map(|f| f.unwrap().metadata().unwrap().len())
            .sum::<u64>()
    });
    let retention = Retention { max_age: None, max_bytes: Some(bytes.sum::<u64>() - 1) };
    let store = Store::open(folder.path(), Options { retention, ..options }).expect("a store");
    store.maintain().expect("written");
    assert_eq!(trace(&store, 1), [3, 4]);
    let removed = store.snapshot().manifest().removed;
    assert_eq!((removed.segments_expired, removed.spans_expired), (2, 2));
}

/// A rollout of one task: its attempt and some spans below it.
fn rollout(trace: u8, millis: u64, outcome: &str, start_nanos: u64) -> Bytes {
    use gym_telemetry::semconv;
    let mut items = Vec::new();
    for span in 1..=3_u8 {
        let mut attributes = Vec::new();
        let put =
            |out: &mut Vec<u8>, key, value: &str| put_key_value(out, SPAN_ATTRIBUTES, key, value);
        put(&mut attributes, semconv::ROLLOUT_ID, &format!("0-{trace}"));
        put(&mut attributes, semconv::COLLECTION_ID, "0123456789ab");
        if span == 1 {
            put(&mut attributes, semconv::ROLLOUT_OUTCOME, outcome);
        }
        let parts = SpanParts {
            trace_id: [trace; 16],
            span_id: [span; 8],
            parent_id: (span > 1).then_some([1; 8]),
            name: if span == 1 { semconv::span::ROLLOUT_ATTEMPT } else { "work" },
            start_nanos,
            end_nanos: start_nanos + if span == 1 { millis * 1_000_000 } else { 5 },
            attributes: &attributes,
            ..SpanParts::default()
        };
        let mut message = Vec::new();
        parts.put(&mut message);
        put_scope_item(&mut items, &message);
    }
    let mut out = Vec::new();
    let scope = Scope { name: semconv::SCOPE, version: "" };
    put_request(&mut out, &[], std::iter::once((scope, items.as_slice())));
    out.into()
}

#[test]
fn spans_of_rollouts_that_were_let_go_are_left_out_and_their_rows_stay() {
    use crate::rollouts::{Filter, Kept};
    let folder = tempfile::tempdir().expect("a folder");
    let clock = clock_of_today();
    let now = clock.now_nanos();
    let as_clock: Arc<dyn Clock> = Arc::<SetClock>::clone(&clock);
    let policy = Some(Policy { share: 0.0, ..Policy::default() });
    let options = Options { clock: as_clock, policy, ..options() };
    let store = Store::open(folder.path(), options.clone()).expect("a store");
    let put = |trace, millis, outcome| {
        let request = rollout(trace, millis, outcome, now);
        store.append(Signal::Traces, Encoding::PROTOBUF, request.clone(), request).expect("taken");
        store.flush().expect("written");
    };
    put(1, 10, "success");
    put(2, 90, "success");
    put(3, 20, "success");
    put(4, 5, "failure");
    let kept = |store: &Store| -> Vec<(u8, Kept, u32)> {
        let rows = store.snapshot().rollout_rows(&Filter::default()).expect("readable");
        rows.iter().map(|row| (row.trace_id.to_bytes()[0], row.kept, row.spans)).collect()
    };
    let undecided = Kept::Undecided;
    let all = [(1, undecided, 3), (2, undecided, 3), (3, undecided, 3), (4, undecided, 3)];
    assert_eq!(kept(&store), all);
    store.maintain().expect("nothing is due");
    assert_eq!(kept(&store), all);
    clock.0.fetch_add(700 * 1_000_000_000, Ordering::Relaxed);
    store.maintain().expect("marked");
    let marked =
        [(1, Kept::LetGo, 3), (2, Kept::Slow, 3), (3, Kept::LetGo, 3), (4, Kept::Notable, 3)];
    assert_eq!(kept(&store), marked);
    assert_eq!(trace(&store, 1), [1, 2, 3], "until files are merged");
    store.compact().expect("merged");
    for store in [&store, &Store::open_read_only(folder.path()).expect("readable")] {
        assert_eq!(kept(store), marked);
        assert!(trace(store, 1).is_empty() && trace(store, 3).is_empty());
        assert_eq!((trace(store, 2), trace(store, 4)), (vec![1, 2, 3], vec![1, 2, 3]));
        let removed = store.snapshot().manifest().removed;
        assert_eq!((removed.rollouts_let_go, removed.spans_let_go), (2, 6));
    }
    // What comes later does not make a row of its own, in memory or in a segment.
    append(&store, &[Given { start_nanos: now, ..Given::new(1, 9) }]);
    assert_eq!(kept(&store), marked);
    store.flush().expect("written");
    assert_eq!(kept(&store), marked);
    store.compact().expect("merged");
    assert!(trace(&store, 1).is_empty());
    assert_eq!(store.snapshot().manifest().removed.spans_let_go, 7);
}

/// Guarantees: what a trace has in the segment before is not read back from there while it goes on, and its rollout
/// counts it all the same; what retention took counts no more.
#[test]
fn spans_of_a_trace_that_goes_on_are_carried_from_flush_to_flush_until_they_are_removed() {
    use crate::rollouts::Filter;
    let folder = tempfile::tempdir().expect("a folder");
    let clock = clock_of_today();
    let now = clock.now_nanos();
    let as_clock: Arc<dyn Clock> = Arc::<SetClock>::clone(&clock);
    let retention = Retention { max_age: Some(Duration::from_secs(60)), max_bytes: None };
    let options = Options { clock: as_clock, retention, ..options() };
    let store = Store::open(folder.path(), options).expect("a store");
    let put_rollout = |trace| {
        let request = rollout(trace, 10, "success", now);
        store.append(Signal::Traces, Encoding::PROTOBUF, request.clone(), request).expect("taken");
    };
    let put = |trace, span| {
        append(&store, &[Given { start_nanos: now, ..Given::new(trace, span) }]);
    };
    let spans = |trace| {
        let rows = store.snapshot().rollout_rows(&Filter::default()).expect("readable");
        rows.iter().find(|row| row.trace_id == trace_id(trace)).map(|row| row.spans)
    };
    put_rollout(1);
    put(2, 7);
    let flush = || {
        store.flush().expect("written");
        for segment in store.snapshot().segments() {
            let path = segment.path(Table::Spans).expect("spans");
            let bytes = fs::read(&path).expect("readable");
            fs::write(&path, vec![0; bytes.len()]).expect("writable");
        }
    };
    flush();
    // The last span of the first comes after its root, the root of the second two flushes after its begin.
    put(1, 9);
    put(2, 8);
    flush();
    put_rollout(2);
    flush();
    assert_eq!((spans(1), spans(2)), (Some(3), Some(3)));
    let detached = store.snapshot();
    let versions = |row: &crate::rollouts::RolloutRow| (row.trace_id, row.ingest_seq);
    let rows = detached.rollout_rows(&Filter::default()).expect("readable");
    assert_eq!(
        rows.iter().map(versions).collect::<Vec<_>>(),
        [(trace_id(1), 3), (trace_id(2), 5)],
        "computed again"
    );
    assert_eq!(store.damage(), [], "nothing was read back");

    clock.0.fetch_add(61 * 1_000_000_000, Ordering::Relaxed);
    put(3, 1);
    store.flush().expect("written");
    store.maintain().expect("removed");
    assert_eq!(spans(2), None);
    put_rollout(2);
    store.flush().expect("written");
    assert_eq!(spans(2), Some(3));
    let gone = store.snapshot().trace(trace_id(2)).expect("readable").len();
    assert_eq!(gone, 3, "without those that were removed");
}
