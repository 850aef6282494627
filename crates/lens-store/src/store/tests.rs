//! A store by what is found in it again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use lens_otlp::encode::{
    RESOURCE_ATTRIBUTES, SPAN_ATTRIBUTES, Scope, SpanParts, put_key_value, put_request,
    put_scope_item,
};

use super::*;
use crate::ids::TraceId;
use crate::raw::RawSpan;
use crate::wal::{Compression, Encoding, Format, Signal};

mod segments;

/// A span in a few numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given {
    pub(super) trace: u8,
    pub(super) span: u8,
    pub(super) name: &'static str,
    pub(super) start_nanos: u64,
    pub(super) is_truncated: bool,
}

impl Given {
    pub(super) fn new(trace: u8, span: u8) -> Self {
        let start_nanos = 1_764_400_000_000_000_000 + u64::from(span);
        Self { trace, span, name: "work", start_nanos, is_truncated: false }
    }

    fn message(&self) -> Vec<u8> {
        let mut attributes = Vec::new();
        if self.is_truncated {
            put_key_value(&mut attributes, SPAN_ATTRIBUTES, lens::semconv::TRUNCATED, &true);
        }
        let parts = SpanParts {
            trace_id: [self.trace; 16],
            span_id: [self.span; 8],
            name: self.name,
            start_nanos: self.start_nanos,
            end_nanos: self.start_nanos.saturating_add(5),
            attributes: &attributes,
            ..SpanParts::default()
        };
        let mut message = Vec::new();
        parts.put(&mut message);
        message
    }
}

pub(super) fn request(spans: &[Given]) -> Bytes {
    let mut items = Vec::new();
    for span in spans {
        put_scope_item(&mut items, &span.message());
    }
    let mut resource = Vec::new();
    put_key_value(&mut resource, RESOURCE_ATTRIBUTES, "service.name", "tested");
    let mut out = Vec::new();
    let scope = Scope { name: "s", version: "" };
    put_request(&mut out, &resource, std::iter::once((scope, items.as_slice())));
    out.into()
}

pub(super) fn append(store: &Store, spans: &[Given]) {
    let request = request(spans);
    let appended = store.append(Signal::Traces, Encoding::PROTOBUF, request.clone(), request);
    assert_eq!(appended, Ok(Appended::default()));
}

/// Without threads, so that nothing happens by itself.
pub(super) fn options() -> Options {
    Options { background: false, ..Options::default() }
}

fn open(folder: &Path) -> Store {
    Store::open(folder, options()).expect("a store")
}

/// First bytes of the ids of the spans of a trace.
fn trace(store: &Store, id: u8) -> Vec<u8> {
    let spans = store.snapshot().trace(trace_id(id)).expect("readable");
    spans.iter().map(|span| span.span_id.to_bytes()[0]).collect()
}

fn trace_id(id: u8) -> TraceId {
    TraceId::from_bytes(&[id; 16]).expect("not zero")
}

fn only_log(folder: &Path) -> PathBuf {
    let files: Vec<_> = fs::read_dir(folder.join("wal")).expect("a log").collect();
    assert_eq!(files.len(), 1);
    files[0].as_ref().expect("a file").path()
}

#[test]
fn what_was_acknowledged_is_found_after_a_kill() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    append(&store, &[Given::new(1, 1), Given::new(2, 1)]);
    append(&store, &[Given::new(1, 2)]);
    assert_eq!(trace(&store, 1), [1, 2]);
    // Not closed: as after a kill.
    drop(store);
    for _ in 0..2 {
        let store = open(folder.path());
        assert_eq!(trace(&store, 1), [1, 2]);
        assert_eq!(trace(&store, 2), [1]);
        assert!(trace(&store, 3).is_empty());
        assert_eq!(store.damage(), []);
    }
    let store = open(folder.path());
    append(&store, &[Given::new(1, 3)]);
    let span = &store.snapshot().trace(trace_id(1)).expect("readable")[2];
    assert_eq!(span.ingest_seq, 3, "numbers go on");
    assert_eq!(span.view().expect("a span").name, "work");
}

#[test]
fn a_store_has_one_writer_and_a_second_one_learns_who_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let error = Store::open(folder.path(), options()).expect_err("it is in use").to_string();
    assert!(error.contains(&format!("in use by process {}", std::process::id())), "{error}");
    assert!(Store::is_written(folder.path()));
    drop(store);
    assert!(!Store::is_written(folder.path()));
    open(folder.path());
}

#[test]
fn a_reader_beside_the_writer_sees_what_was_acknowledged_when_it_looked() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(matches!(Store::open_read_only(folder.path()), Err(StoreError::NotAStore(_))));
    let writer = open(folder.path());
    append(&writer, &[Given::new(1, 1)]);
    let reader = Store::open_read_only(folder.path()).expect("readable");
    append(&writer, &[Given::new(1, 2)]);
    assert_eq!(trace(&reader, 1), [1]);
    reader.refresh().expect("readable");
    assert_eq!(trace(&reader, 1), [1, 2]);
    let request = request(&[Given::new(1, 3)]);
    let refused = reader.append(Signal::Traces, Encoding::PROTOBUF, request.clone(), request);
    assert!(matches!(refused, Err(Refusal::Unavailable { .. })), "{refused:?}");
}

#[test]
fn a_snapshot_stays_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    append(&store, &[Given::new(1, 1)]);
    let snapshot = store.snapshot();
    append(&store, &[Given::new(1, 2), Given::new(7, 1)]);
    assert_eq!(snapshot.trace(trace_id(1)).expect("readable").len(), 1);
    assert_eq!(snapshot.memory_spans().count(), 1);
    assert_eq!(snapshot.memory_traces(), [(trace_id(1), 1)]);
    assert_eq!(store.snapshot().memory_spans().count(), 3);
}

#[test]
fn traces_are_found_by_the_front_of_their_ids() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    append(&store, &[Given::new(0x1a, 1), Given::new(0x1b, 1), Given::new(0x2a, 1)]);
    let find = |digits, limit| {
        let found = store.snapshot().find_by_prefix(digits, limit).expect("readable");
        found.iter().map(|id| id.to_bytes()[0]).collect::<Vec<_>>()
    };
    assert_eq!(find("1", 9), [0x1a, 0x1b]);
    assert_eq!(find("1", 1), [0x1a]);
    assert_eq!(find("1B1", 9), [0x1b]);
    assert!(find("", 9).is_empty());
    assert!(find("x", 9).is_empty());
}

#[test]
fn items_that_are_malformed_are_refused_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let request = request(&[Given::new(1, 1), Given::new(0, 2), Given::new(1, 0)]);
    let send =
        |request: Bytes| store.append(Signal::Traces, Encoding::PROTOBUF, request.clone(), request);
    let appended = send(request.clone()).expect("taken");
    assert_eq!(appended.rejected, 2);
    assert_eq!(appended.reason.as_deref(), Some("trace id is not 16 bytes, or all zero"));
    let cut = request.slice(..request.len() - 1);
    assert!(matches!(send(cut), Err(Refusal::BadRequest(_))));
    assert_eq!(store.snapshot().memory_spans().count(), 1);
    drop(store);
    assert_eq!(trace(&open(folder.path()), 1), [1]);
}

#[test]
fn a_compressed_body_is_logged_as_it_was_received() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let request = request(&[Given::new(1, 1)]);
    let json = lens_otlp::json::encode_trace_request(&request).expect("valid");
    let body: Bytes = zstd::bulk::compress(json.as_bytes(), 1).expect("compressed").into();
    let encoding = Encoding { format: Format::Json, compression: Compression::Zstd };
    store.append(Signal::Traces, encoding, body.clone(), request).expect("taken");
    drop(store);
    let log = fs::read(only_log(folder.path())).expect("a log");
    assert!(log.windows(body.len()).any(|window| window == body));
    assert_eq!(trace(&open(folder.path()), 1), [1]);
}

#[test]
fn a_frame_that_was_cut_by_a_death_is_nobodys_damage() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    append(&store, &[Given::new(1, 1)]);
    append(&store, &[Given::new(1, 2)]);
    drop(store);
    let path = only_log(folder.path());
    let whole = fs::read(&path).expect("a log");
    let frame = (whole.len() - 8) / 2;
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).expect("writable");
        let reader = Store::open_read_only(folder.path()).expect("readable");
        let frames = length.saturating_sub(8) / frame;
        assert_eq!(trace(&reader, 1).len(), frames, "{length} of {}", whole.len());
        assert_eq!(reader.damage(), []);
    }
    // A writer removes the half and goes on.
    let store = open(folder.path());
    append(&store, &[Given::new(1, 3)]);
    drop(store);
    let store = open(folder.path());
    assert_eq!(trace(&store, 1), [1, 3]);
    assert_eq!(store.damage(), []);
}

#[test]
fn a_damaged_frame_is_named_and_set_aside_and_the_rest_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    for span in 1..=3 {
        append(&store, &[Given::new(1, span)]);
    }
    drop(store);
    let path = only_log(folder.path());
    let whole = fs::read(&path).expect("a log");
    let frame = (whole.len() - 8) / 3;
    for at in 8 + frame..8 + 2 * frame {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        fs::write(&path, damaged).expect("writable");
        let store = Store::open_read_only(folder.path()).expect("readable");
        assert_eq!(trace(&store, 1), [1, 3], "byte {at}");
        let found = store.damage();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].path, path);
        assert_eq!(found[0].reason, format!("{frame} bytes at {} are no frames", 8 + frame));
    }
    let store = open(folder.path());
    let name = format!("{}@{}", path.file_name().unwrap().to_str().unwrap(), 8 + frame);
    let aside = fs::read(folder.path().join(DAMAGED).join(name)).expect("set aside");
    assert_eq!(aside.len(), frame);
    append(&store, &[Given::new(1, 4)]);
    assert_eq!(trace(&store, 1), [1, 3, 4]);
}

#[test]
fn a_file_that_is_missing_from_the_log_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    for span in 1..=3 {
        let store = open(folder.path());
        append(&store, &[Given::new(1, span)]);
    }
    let mut files: Vec<_> = fs::read_dir(folder.path().join("wal")).expect("a log").collect();
    files.sort_by_key(|file| file.as_ref().unwrap().path());
    fs::remove_file(files[1].as_ref().unwrap().path()).expect("removable");
    let store = open(folder.path());
    assert_eq!(trace(&store, 1), [1, 3]);
    assert_eq!(store.damage()[0].reason, "requests 2 to 2 are missing before it");
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_of_it_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let spans = [Given::new(1, 1), Given::new(1, 2)];
    let bytes = request(&spans).len() as u64;
    for (name, limited) in [
        ("log", Options { max_wal_bytes: 2 * bytes, ..options() }),
        ("memory", Options { max_memory_bytes: 2 * bytes, ..options() }),
    ] {
        let store = Store::open(&folder.path().join(name), limited).expect("a store");
        append(&store, &spans);
        let request = request(&[Given::new(2, 1), Given::new(2, 2)]);
        let refused = store.append(Signal::Traces, Encoding::PROTOBUF, request.clone(), request);
        assert!(matches!(refused, Err(Refusal::Overloaded { .. })), "{refused:?}");
        assert!(trace(&store, 2).is_empty());
    }
}

#[test]
fn segments_without_a_manifest_are_not_thrown_away() {
    let folder = tempfile::tempdir().expect("a folder");
    open(folder.path());
    fs::remove_file(folder.path().join("manifest.json")).expect("removable");
    let date = folder.path().join("spans/date=2026-11-29");
    fs::create_dir_all(&date).expect("a folder");
    fs::write(date.join("000001-l0.parquet"), "rows").expect("writable");
    let error = Store::open(folder.path(), options()).expect_err("nothing says what counts");
    assert!(matches!(error, StoreError::NoManifest(_)), "{error:?}");
}

#[test]
fn those_who_wait_for_the_disk_share_its_work() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options { durability: Durability::Power, ..Options::default() };
    let store = Store::open(folder.path(), options).expect("a store");
    std::thread::scope(|scope| {
        for trace in 1..=8 {
            let store = &store;
            scope.spawn(move || (1..=8).for_each(|span| append(store, &[Given::new(trace, span)])));
        }
    });
    assert_eq!(store.snapshot().memory_spans().count(), 64);
    store.close().expect("written out");
}

fn deduplicated(given: &[Given]) -> BTreeMap<(u8, &'static str, u64), u64> {
    let mut spans: Vec<RawSpan> = Vec::new();
    for (seq, given) in given.iter().enumerate() {
        let decoded = crate::raw::decode(&request(&[*given]), seq as u64).expect("a request");
        spans.extend(decoded.spans);
    }
    let before = spans.len();
    let went = deduplicate(&mut spans);
    assert_eq!(spans.len() + went, before);
    spans
        .iter()
        .map(|span| {
            let name = if span.view().unwrap().name == "work" { "work" } else { "other" };
            ((span.span_id.to_bytes()[0], name, span.start_nanos % 1000), span.ingest_seq)
        })
        .collect()
}

#[test]
fn of_a_repeated_span_the_complete_one_stays_then_the_later_one() {
    let span = Given::new(1, 1);
    let truncated = Given { is_truncated: true, ..span };
    let other_name = Given { name: "other", ..span };
    let other_start = Given { start_nanos: span.start_nanos + 1, ..span };
    let key = (1, "work", 1);
    assert_eq!(deduplicated(&[span, span, span]), [(key, 2)].into());
    assert_eq!(deduplicated(&[span, truncated]), [(key, 0)].into());
    assert_eq!(deduplicated(&[truncated, span, truncated]), [(key, 1)].into());
    assert_eq!(deduplicated(&[truncated, truncated]), [(key, 1)].into());
    assert_eq!(
        deduplicated(&[other_name, span, other_start, other_name]),
        [(key, 1), ((1, "other", 1), 3), ((1, "work", 2), 2)].into()
    );
}

#[test]
fn logs_and_metrics_are_logged_and_kept_too() {
    use lens_otlp::wire::{put_bytes, put_fixed64};
    let nested = |items: &[u8]| {
        let (mut scope, mut resource, mut request) = (Vec::new(), Vec::new(), Vec::new());
        put_bytes(&mut scope, 2, items);
        put_bytes(&mut resource, 2, &scope);
        put_bytes(&mut request, 1, &resource);
        Bytes::from(request)
    };
    let mut record = Vec::new();
    put_fixed64(&mut record, 11, 77);
    put_bytes(&mut record, 9, &[4; 16]);
    let mut metric = Vec::new();
    put_bytes(&mut metric, 1, b"gym.metric");
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    for (signal, item) in [(Signal::Logs, record), (Signal::Metrics, metric)] {
        let request = nested(&item);
        store.append(signal, Encoding::PROTOBUF, request.clone(), request).expect("taken");
    }
    drop(store);
    let snapshot = open(folder.path()).snapshot();
    let logs = snapshot.memory_logs();
    assert_eq!(
        (logs[0].time_nanos, logs[0].trace_id, logs[0].ingest_seq),
        (77, Some(trace_id(4)), 1)
    );
    assert_eq!(snapshot.memory_metrics().len(), 1);
    let (log, metric) = (logs[0].message.clone(), snapshot.memory_metrics()[0].message.clone());
    open(folder.path()).close().expect("written");
    let snapshot = open(folder.path()).snapshot();
    assert!(snapshot.memory_logs().is_empty() && snapshot.memory_metrics().is_empty());
    let (logs, metrics) = (snapshot.logs().expect("logs"), snapshot.metrics().expect("metrics"));
    assert_eq!((logs.len(), metrics.len()), (1, 1));
    assert_eq!((&logs[0].message, logs[0].time_nanos, logs[0].ingest_seq), (&log, 77, 1));
    assert_eq!((&metrics[0].message, metrics[0].ingest_seq), (&metric, 2));
}
