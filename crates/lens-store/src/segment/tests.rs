//! Tests of files of spans.

mod said;
mod signals;

use std::collections::BTreeMap;

use lens_otlp::encode::{
    BytesValue, EVENT_ATTRIBUTES, SPAN_ATTRIBUTES, SPAN_LINKS, Scope, SpanParts, StatusCode,
    put_event, put_key_value, put_link_with, put_request, put_scope_item,
};
use lens_otlp::wire::{put_bytes, put_fixed64, put_message, put_uint};
use lens_testing::load::{self, Options, Order, Rollouts};
use proptest::prelude::*;

use super::{
    SegmentError, SpanBuffers, SpanFacts, SpanOptions, SpanReader, SpanWriter, read_rollouts,
    read_traces, write_rollouts, write_spans, write_traces,
};
use crate::ids::TraceId;
use crate::raw::{RawSpan, decode};
use crate::rollouts::{Kept, RolloutRow};
use said::said;

fn sorted(mut spans: Vec<RawSpan>) -> Vec<RawSpan> {
    spans.sort_by_key(|span| (span.trace_id, span.start_nanos));
    spans
}

fn loaded(batches: impl Iterator<Item = load::Batch>) -> Vec<RawSpan> {
    let requests = batches.zip(1..);
    let spans = requests
        .flat_map(|(batch, seq)| decode(&batch.request, seq).expect("a valid request").spans);
    sorted(spans.collect())
}

fn written(spans: &[RawSpan]) -> (tempfile::NamedTempFile, SpanFacts, SpanReader) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let facts = write_spans(&mut file, spans, &SpanOptions::default()).unwrap();
    let reader = SpanReader::open(file.path()).unwrap();
    assert_eq!((facts.rows, facts.bytes), (reader.rows(), reader.bytes()));
    (file, facts, reader)
}

fn assert_same(found: &[RawSpan], wanted: &[RawSpan]) {
    assert_eq!(found.len(), wanted.len());
    for (found, wanted) in found.iter().zip(wanted) {
        assert_eq!(said(found), said(wanted));
    }
}

fn all(reader: &SpanReader) -> Vec<RawSpan> {
    reader.spans().unwrap().map(Result::unwrap).collect()
}

/// Spans whose messages are given, in one request.
fn spans_of(messages: &[Vec<u8>]) -> Vec<RawSpan> {
    let mut items = Vec::new();
    for message in messages {
        put_scope_item(&mut items, message);
    }
    let mut resource = Vec::new();
    put_key_value(&mut resource, 1, "service.name", "strange");
    put_key_value(&mut resource, 1, "raw", &BytesValue(&[0, 255]));
    put_key_value(&mut resource, 1, "share", &f64::NAN);
    put_uint(&mut resource, 2, 3);
    let mut request = Vec::new();
    let scope = Scope { name: "scope", version: "2" };
    put_request(&mut request, &resource, std::iter::once((scope, items.as_slice())));
    let decoded = decode(&request.into(), 9).unwrap();
    assert_eq!((decoded.refused, decoded.reason), (0, None));
    sorted(decoded.spans)
}

fn span_with(trace: u8, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut message = Vec::new();
    let parts = SpanParts {
        trace_id: [trace; 16],
        span_id: [trace; 8],
        name: "n",
        kind: 2,
        start_nanos: 5,
        end_nanos: 6,
        ..SpanParts::default()
    };
    parts.put(&mut message);
    fill(&mut message);
    message
}

#[test]
fn what_is_written_is_read_back_in_both_shapes_of_load() {
    let spans = loaded(load::jaeger(Options::default(), 1_500));
    let (_file, facts, reader) = written(&spans);
    assert_same(&all(&reader), &spans);
    assert_eq!(facts.traces.len(), 1_500);
    let options = Options { order: Order::Shuffled, ..Options::default() };
    let wanted = Rollouts { tasks: 3, repeats: 2, text_permille: 100, ..Rollouts::default() };
    let spans = loaded(load::rollouts(options, wanted));
    let (_file, facts, reader) = written(&spans);
    assert_same(&all(&reader), &spans);
    assert_eq!(facts.traces.len(), 6);
}

#[test]
fn the_row_of_a_trace_counts_its_spans_errors_and_services() {
    let spans = loaded(load::jaeger(Options::default(), 200));
    let (_file, facts, _reader) = written(&spans);
    let mut traces: BTreeMap<TraceId, Vec<&RawSpan>> = BTreeMap::new();
    for span in &spans {
        traces.entry(span.trace_id).or_default().push(span);
    }
    let mut first_row = 0;
    for (row, (trace_id, spans)) in facts.traces.iter().zip(&traces) {
        let views: Vec<_> = spans.iter().map(|span| span.view().unwrap()).collect();
        let root = views.iter().find(|view| view.parent_id.is_empty()).unwrap();
        let errors = views.iter().filter(|view| view.status == StatusCode::Error).count();
        assert_eq!((row.trace_id, row.first_row), (*trace_id, first_row));
        assert_eq!((row.spans as usize, row.errors as usize), (spans.len(), errors));
        assert_eq!(row.start_nanos, views.iter().map(|view| view.start_nanos).min().unwrap());
        assert_eq!(row.end_nanos, views.iter().map(|view| view.end_nanos).max().unwrap());
        assert_eq!(&*row.root_name, root.name);
        assert_eq!(row.services.len(), 10);
        assert!(row.root_name.contains(&*row.root_service));
        first_row += spans.len() as u64;
    }
    let ids = (*traces.keys().next().unwrap(), *traces.keys().last().unwrap());
    assert_eq!(facts.trace_ids(), Some(ids));
}

#[test]
fn strange_spans_come_back_as_they_were() {
    let attribute = |key: &str, value: &[u8]| {
        let mut out = Vec::new();
        put_message(&mut out, SPAN_ATTRIBUTES, |out| {
            put_bytes(out, 1, key.as_bytes());
            put_bytes(out, 2, value);
        });
        out
    };
    let long = "long ".repeat(3_000);
    let messages = vec![
        span_with(1, |out| {
            put_key_value(out, SPAN_ATTRIBUTES, "twice", "first");
            put_key_value(out, SPAN_ATTRIBUTES, "twice", &7_i64);
            put_key_value(out, SPAN_ATTRIBUTES, "", "no key");
        }),
        span_with(2, |out| out.extend(attribute("empty", b""))),
        span_with(3, |out| {
            put_key_value(out, SPAN_ATTRIBUTES, "bytes", &BytesValue(&[0, 1, 255]));
            put_key_value(out, SPAN_ATTRIBUTES, "nan", &f64::NAN);
            put_key_value(
                out,
                SPAN_ATTRIBUTES,
                "other nan",
                &f64::from_bits(0xfff8_dead_beef_0001),
            );
            put_key_value(out, SPAN_ATTRIBUTES, "zero", &-0.0);
            put_key_value(out, SPAN_ATTRIBUTES, "infinite", &f64::NEG_INFINITY);
            put_key_value(out, SPAN_ATTRIBUTES, "least", &i64::MIN);
            put_key_value(out, SPAN_ATTRIBUTES, "yes", &true);
            put_key_value(out, SPAN_ATTRIBUTES, "long", long.as_str());
        }),
        // A list of a list, of NaN, of keys and values of which one repeats.
        span_with(4, |out| {
            let nested = b"\x2a\x0c\x0a\x0a\x2a\x08\x0a\x02\x18\x01\x0a\x02\x18\x02";
            out.extend(attribute("nested", nested));
        }),
        span_with(5, |out| {
            let mut nan = vec![0x2a, 11, 0x0a, 9, 0x21];
            nan.extend(f64::NAN.to_le_bytes());
            out.extend(attribute("list of nan", &nan));
        }),
        span_with(6, |out| {
            let pair = b"\x0a\x07\x0a\x01k\x12\x02\x18\x01";
            let mut pairs = vec![0x32, 18];
            pairs.extend([&pair[..], &pair[..]].concat());
            out.extend(attribute("repeated inside", &pairs));
        }),
        span_with(7, |out| {
            put_bytes(out, 3, b"vendor=state");
            put_uint(out, 10, 4_294_967_295);
            put_uint(out, 12, 2);
            put_uint(out, 14, 1);
            put_event(out, "named", u64::MAX, 3, |out| {
                put_key_value(out, 3, "k", &1.0);
                put_key_value(out, 3, "big", &1e300);
                put_key_value(out, 3, "text \"quoted\"\u{1}", "\u{7f}é\n");
            });
            put_event(out, "", 0, 0, |_| {});
            put_link_with(out, &[9; 16], &[8; 8], 0x301, 5, |out| {
                put_key_value(out, 4, "why", "because");
            });
            put_message(out, 15, |out| put_bytes(out, 2, "only a message".as_bytes()));
        }),
        span_with(8, |out| {
            put_event(out, "e", 5, 0, |out| {
                put_key_value(out, 3, "k", &1_i64);
                put_key_value(out, 3, "k", &2_i64);
            });
        }),
        span_with(9, |out| put_uint(out, 6, 77)),
        span_with(10, |out| put_message(out, 15, |out| put_uint(out, 3, 9))),
        // Fields that nobody knows: of the span, of an event, of a link.
        span_with(11, |out| {
            lens_otlp::wire::put_tag(out, 900, 0);
            out.push(1);
            put_message(out, 11, |out| put_uint(out, 9, 1));
            put_message(out, 13, |out| {
                put_bytes(out, 1, &[1; 16]);
                put_bytes(out, 2, &[1; 8]);
                put_uint(out, 9, 1);
            });
        }),
        span_with(12, |out| {
            put_message(out, SPAN_LINKS, |out| {
                put_bytes(out, 1, b"short");
                put_bytes(out, 2, b"");
            });
        }),
        span_with(13, |out| {
            put_fixed64(out, 7, u64::MAX);
            put_fixed64(out, 8, 0);
        }),
        span_with(14, |out| {
            put_fixed64(out, 7, 0);
            put_fixed64(out, 8, u64::MAX);
        }),
    ];
    let spans = spans_of(&messages);
    let (_file, _facts, reader) = written(&spans);
    assert_same(&all(&reader), &spans);
}

#[test]
fn a_trace_is_found_among_many_and_reads_few_pages() {
    let spans = loaded(load::jaeger(Options::default(), 3_000));
    let (_file, facts, reader) = written(&spans);
    for row in facts.traces.iter().step_by(397) {
        let first = row.first_row as usize;
        assert_same(&reader.trace(row.trace_id).unwrap(), &spans[first..first + 10]);
    }
    let missing = TraceId::from_bytes(&[0x77; 16]).unwrap();
    assert!(reader.trace(missing).unwrap().is_empty());
    let id = facts.traces[700].trace_id;
    assert_eq!(reader.trace_ids(&id.to_string()[..9], 10).unwrap(), [id]);
    assert_eq!(reader.trace_ids("", 3).unwrap().len(), 3);
    assert_eq!(reader.trace_ids(&"f".repeat(32), 3).unwrap(), []);
}

#[test]
fn rows_of_traces_and_rollouts_are_read_back() {
    let spans = loaded(load::rollouts(
        Options::default(),
        Rollouts { tasks: 2, repeats: 2, spans: 300..=400, ..Rollouts::default() },
    ));
    let (_file, facts, _reader) = written(&spans);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let bytes = write_traces(&mut file, &facts.traces).unwrap();
    assert_eq!(bytes, file.path().metadata().unwrap().len());
    assert_eq!(read_traces(file.path()).unwrap(), facts.traces);
    let rows: Vec<RolloutRow> = (1..60_u64).map(rollout).collect();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write_rollouts(&mut file, &rows).unwrap();
    assert_eq!(read_rollouts(file.path()).unwrap(), rows);
    assert!(read_traces(file.path()).is_err());
}

/// A row in which every field differs from row to row.
fn rollout(nth: u64) -> RolloutRow {
    let text = |what: &str| format!("{what} {nth}").into();
    let mut bands = crate::Bands::default();
    for (at, band) in crate::Band::ALL.into_iter().enumerate() {
        bands[band] = nth * 1_000 + at as u64;
    }
    let kept = [Kept::Undecided, Kept::Notable, Kept::Slow, Kept::Sampled, Kept::LetGo];
    RolloutRow {
        run: text("run"),
        task_index: (!nth.is_multiple_of(3)).then_some(nth as i64),
        rollout_index: (!nth.is_multiple_of(5)).then_some(-(nth as i64)),
        attempt_index: nth as i64 % 2,
        rollout_id: text("id"),
        agent: text("agent"),
        outcome: if nth.is_multiple_of(2) { "".into() } else { "success".into() },
        error_type: text("error"),
        trace_id: TraceId::from_bytes(&u128::from(nth).to_be_bytes()).unwrap(),
        root_span_id: crate::ids::SpanId::from_bytes(&nth.to_be_bytes()).unwrap(),
        start_nanos: u64::MAX - nth,
        wall_nanos: nth * 7,
        admission_nanos: nth * 3,
        spans: u32::MAX - nth as u32,
        errors: nth as u32,
        retries: nth as u32 * 2,
        is_truncated: nth.is_multiple_of(2),
        timings_scaled: nth.is_multiple_of(3),
        clock_corrected: nth.is_multiple_of(5),
        time_suspect: nth.is_multiple_of(7),
        bands,
        ingest_seq: nth,
        kept: kept[nth as usize % 5],
    }
}

#[test]
fn spans_in_another_order_are_refused_and_an_empty_file_is_a_file() {
    let mut spans = loaded(load::jaeger(Options::default(), 3));
    spans.reverse();
    let refused = write_spans(Vec::new(), &spans, &SpanOptions::default());
    assert!(matches!(refused, Err(SegmentError::Order)));
    let (_file, facts, reader) = written(&[]);
    assert_eq!((facts.rows, facts.traces.len()), (0, 0));
    assert!(all(&reader).is_empty());
    assert!(reader.trace(TraceId::from_bytes(&[1; 16]).unwrap()).unwrap().is_empty());
}

/// Guarantees: a file is the same, byte for byte, whatever was made in the memory that made it.
#[test]
fn a_file_says_nothing_of_the_one_before_it() {
    let wanted = Rollouts { tasks: 2, repeats: 2, spans: 300..=900, ..Rollouts::default() };
    let shapes = [
        loaded(load::jaeger(Options::default(), 2_000)),
        loaded(load::rollouts(Options::default(), wanted)),
        loaded(load::jaeger(Options { seed: 2, ..Options::default() }, 100)),
        Vec::new(),
    ];
    let options = SpanOptions::default();
    let mut buffers = SpanBuffers::default();
    for spans in shapes.iter().chain(&shapes) {
        let (mut fresh, mut reused) = (Vec::new(), Vec::new());
        let facts = write_spans(&mut fresh, spans, &options).unwrap();
        let mut writer = SpanWriter::with(buffers, &mut reused, &options).unwrap();
        writer.push(spans).unwrap();
        let again;
        (again, buffers) = writer.finish_keeping().unwrap();
        assert!(fresh == reused && facts == again, "{} spans", spans.len());
    }
}

/// Guarantees: keys that nobody would make up come back as any others, however many there are.
#[test]
fn keys_without_end_are_keys() {
    let put_keys = |out: &mut Vec<u8>, field, nth: u8| {
        for key in 0..300 {
            put_key_value(out, field, &format!("{nth}-{key}"), &i64::from(nth));
        }
        put_key_value(out, field, "of all", &true);
    };
    let spans: Vec<Vec<u8>> = (1..60)
        .map(|nth| {
            span_with(nth, |out| {
                put_keys(out, SPAN_ATTRIBUTES, nth);
                put_event(out, "event", 7, 0, |out| put_keys(out, EVENT_ATTRIBUTES, nth));
            })
        })
        .collect();
    let spans = spans_of(&spans);
    let (_file, _facts, reader) = written(&spans);
    assert_same(&all(&reader), &spans);
}

/// Guarantees: what a file needed that was larger than any should be is not kept.
#[test]
fn memory_that_is_kept_for_the_next_file_is_bounded() {
    let name = "x".repeat(40_000);
    let large: Vec<Vec<u8>> = (1..=200)
        .map(|nth| span_with(nth, |out| put_bytes(out, 5, format!("{nth}{name}").as_bytes())))
        .collect();
    for (spans, is_kept) in [(spans_of(&large[..20]), true), (spans_of(&large), false)] {
        let mut writer = SpanWriter::new(Vec::new(), &SpanOptions::default()).unwrap();
        writer.push(&spans).unwrap();
        let (_facts, buffers) = writer.finish_keeping().unwrap();
        assert_eq!(buffers.holds_memory(), is_kept);
    }
}

#[test]
fn a_damaged_file_is_an_error_and_no_panic() {
    let spans = loaded(load::jaeger(Options::default(), 300));
    let mut file = Vec::new();
    let facts = write_spans(&mut file, &spans, &SpanOptions::default()).unwrap();
    let place = tempfile::NamedTempFile::new().unwrap();
    let mut errors = 0;
    for nth in 0..120 {
        let mut damaged = file.clone();
        let at = nth * 79_190 % damaged.len();
        damaged[at] ^= 0x55;
        std::fs::write(place.path(), &damaged).unwrap();
        let read = SpanReader::open(place.path()).and_then(|reader| {
            reader.trace(facts.traces[nth % 300].trace_id)?;
            reader.spans()?.collect::<Result<Vec<_>, _>>()
        });
        errors += usize::from(read.is_err());
    }
    assert!(errors > 40, "{errors} of 120 were noticed");
    std::fs::write(place.path(), &file[..file.len() / 2]).unwrap();
    assert!(SpanReader::open(place.path()).is_err());
}

/// Guarantees: the index of pages, which no checksum covers, may say anything.
#[test]
fn a_damaged_index_of_pages_is_an_error_and_no_panic() {
    let spans = loaded(load::jaeger(Options::default(), 1_000));
    let mut file = Vec::new();
    let facts = write_spans(&mut file, &spans, &SpanOptions::default()).unwrap();
    let footer = file[file.len() - 8..].first_chunk().map(|len| u32::from_le_bytes(*len)).unwrap();
    let index_end = file.len() - 8 - footer as usize;
    // In three pages, the first and the last among them.
    let ids = [0, 500, 999].map(|nth| facts.traces[nth].trace_id);
    let place = tempfile::NamedTempFile::new().unwrap();
    let mut noticed = 0;
    for at in (index_end - 900..index_end).step_by(3) {
        let mut damaged = file.clone();
        damaged[at] ^= 0x2d;
        std::fs::write(place.path(), &damaged).unwrap();
        let read = SpanReader::open(place.path()).and_then(|reader| {
            reader.trace_ids("0", 5)?;
            reader.traces(&ids)
        });
        noticed += usize::from(read.map_or(true, |spans| spans.len() != 30));
    }
    assert!(noticed > 20, "{noticed} of 300 made a difference");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_attributes_come_back(
        rows in prop::collection::vec(
            prop::collection::vec((0_u8..12, any::<i64>(), "[a-c\"\\\\é]{0,3}"), 0..6),
            1..40,
        )
    ) {
        let messages: Vec<Vec<u8>> = rows.iter().map(|attributes| span_with(3, |out| {
            for (kind, number, text) in attributes {
                match kind {
                    0..=3 => put_key_value(out, SPAN_ATTRIBUTES, text, text.as_str()),
                    4..=6 => put_key_value(out, SPAN_ATTRIBUTES, text, number),
                    7 => put_key_value(out, SPAN_ATTRIBUTES, text, &f64::from_bits(*number as u64)),
                    8 => put_key_value(out, SPAN_ATTRIBUTES, "http.route", number),
                    9 => put_key_value(out, SPAN_ATTRIBUTES, "http.route", text.as_str()),
                    10 => put_key_value(out, SPAN_ATTRIBUTES, text, &(*number > 0)),
                    _ => put_event(out, text, *number as u64, 0, |out| {
                        put_key_value(out, 3, text, number);
                        put_key_value(out, 3, "b", &f64::from_bits(*number as u64));
                    }),
                }
            }
        })).collect();
        let spans = spans_of(&messages);
        let (_file, _facts, reader) = written(&spans);
        assert_same(&all(&reader), &spans);
    }
}
