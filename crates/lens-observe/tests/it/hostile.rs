//! Requests that were cut, flipped and spliced at random. `fuzz/` looks further; this finds again what it found, fast.

use std::time::Instant;

use bytes::Bytes;
use lens_observe::prometheus::{Format, Metrics, MetricsLimits};
use lens_observe::receiver::Snapshot;
use lens_observe::receiver::frame::unframe;
use lens_observe::{Compression, Signal};
use lens_otlp::encode::{SPAN_ATTRIBUTES, put_key_value};
use lens_otlp::json;
use lens_otlp::metrics::{
    Exemplar, ExponentialBuckets, ExponentialPoint, HistogramPoint, Identity, Interval, Number,
    NumberPoint, Temporality, put_exponential_histogram, put_gauge, put_histogram, put_sum,
};
use lens_otlp::wire::put_message;
use lens_store::raw;
use lens_store::wal::inflate;

use crate::support::{framed, gzip, request_of, span};

const ROUNDS: u32 = 4000;

/// Numbers that are the same in every run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }

    fn mutate(&mut self, valid: &[u8]) -> Vec<u8> {
        const TELLING: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, 0x0a, b'"', b'9'];
        let mut out = valid.to_vec();
        for _ in 0..=self.below(4) {
            let (at, other) = (self.below(out.len()), self.below(out.len()));
            match self.below(6) {
                0 if !out.is_empty() => out[at] ^= 1 << self.below(8),
                1 if !out.is_empty() => out[at] = TELLING[self.below(TELLING.len())],
                2 => out.truncate(at),
                3 => drop(out.splice(at..at, [TELLING[self.below(TELLING.len())]])),
                4 if at < other => drop(out.drain(at..other.min(at + 16))),
                _ => {
                    let piece = out[at..].iter().take(32).copied().collect::<Vec<u8>>();
                    drop(out.splice(other..other, piece));
                }
            }
        }
        out
    }
}

fn traces() -> Vec<u8> {
    let mut attributes = Vec::new();
    put_key_value(&mut attributes, SPAN_ATTRIBUTES, "text", "x");
    put_key_value(&mut attributes, SPAN_ATTRIBUTES, "number", &-3_i64);
    put_message(&mut attributes, 9, |pair| {
        pair.extend_from_slice(b"\x0a\x01k");
        // Arrays in an array.
        put_message(pair, 2, |value| {
            put_message(value, 5, |array| {
                put_message(array, 1, |value| put_message(value, 5, |_| {}));
            });
        });
    });
    request_of(&[span(1, &attributes), span(2, &[])])
}

fn metrics() -> Vec<u8> {
    let identity = Identity { name: "took", unit: "ms", description: "d" };
    let interval = Interval { start_nanos: 1, end_nanos: 2 };
    let delta = Temporality::Delta;
    let exemplars =
        [Exemplar { value: Number::Double(3.0), time_nanos: 7, span: Some(([1; 16], [2; 8])) }];
    let exemplars = &exemplars;
    let mut items = Vec::new();
    let number = NumberPoint { attributes: &[], value: Number::Int(3), exemplars };
    put_sum(&mut items, &identity, interval, delta, true, std::iter::once(number.clone()));
    put_gauge(&mut items, &identity, interval, std::iter::once(number));
    let histogram = HistogramPoint {
        attributes: &[],
        count: 3,
        sum: 4.5,
        buckets: &[1, 2],
        min_max: Some((0.5, 2.0)),
        exemplars,
    };
    put_histogram(&mut items, &identity, interval, delta, &[1.0], std::iter::once(histogram));
    let buckets = ExponentialBuckets { offset: -3, counts: vec![1, 0, 300] };
    let exponential = ExponentialPoint {
        attributes: &[],
        count: 304,
        sum: 4.5,
        scale: 3,
        zero_count: 1,
        positive: &buckets,
        negative: &buckets,
        min_max: None,
        exemplars,
    };
    let identity = Identity { name: "exponential", ..identity };
    put_exponential_histogram(&mut items, &identity, interval, delta, std::iter::once(exponential));
    let mut out = Vec::new();
    let scope = lens_otlp::encode::Scope { name: "s", version: "1" };
    lens_otlp::encode::put_request(&mut out, &[], std::iter::once((scope, items.as_slice())));
    out
}

#[test]
fn spans_that_are_let_through_can_be_read_to_their_end() {
    let (valid, mut random) = (traces(), Random(7));
    let (mut kept, mut refused) = (0_u64, 0_u64);
    for _ in 0..ROUNDS {
        let request = Bytes::from(random.mutate(&valid));
        let Ok(decoded) = raw::decode(&request, 1) else { continue };
        for span in &decoded.spans {
            let view = span.view().expect("it was checked");
            assert!(view.attributes().all(|pair| pair.is_ok()));
            assert!(view.events().all(|event| event.is_ok()));
        }
        kept += decoded.spans.len() as u64;
        refused += decoded.refused;
        if decoded.refused == 0 {
            let text = json::encode_trace_request(&request).expect("it was checked");
            json::decode_trace_request(text.as_bytes()).expect("what was written is read");
        }
    }
    assert!(kept > 100 && refused > 100, "{kept} kept, {refused} refused");
}

#[test]
fn the_page_of_metrics_stands_every_request_and_stays_readable() {
    let (valid, mut random) = (metrics(), Random(11));
    let limits = MetricsLimits { samples: 300, span_series: 20, ..MetricsLimits::default() };
    let page = Metrics::new(limits, Vec::new());
    let now = Instant::now();
    for round in 0..ROUNDS {
        let request = Bytes::from(random.mutate(&valid));
        page.take(Signal::Metrics, &request, 0, now);
        page.take(Signal::Traces, &request, 0, now);
        if round % 100 != 0 {
            continue;
        }
        for format in [Format::Text, Format::OpenMetrics] {
            let text = page.page(format, &Snapshot::default(), now);
            for line in text.lines().filter(|line| !line.starts_with('#')) {
                let sample = line.split(" # ").next().unwrap_or(line);
                let value = sample.rsplit(' ').next().unwrap_or_default();
                assert!(value.parse::<f64>().is_ok(), "{line:?}");
            }
        }
    }
}

#[test]
fn json_that_is_read_is_a_request_that_can_be_walked() {
    let text = json::encode_trace_request(&traces()).unwrap();
    let (metrics, mut random) = (json::encode_metrics_request(&metrics()).unwrap(), Random(13));
    let mut read = 0;
    for _ in 0..ROUNDS {
        if let Ok(request) = json::decode_trace_request(&random.mutate(text.as_bytes())) {
            raw::decode(&request.into(), 1).expect("what was written can be walked");
            read += 1;
        }
        if let Ok(request) = json::decode_metrics_request(&random.mutate(metrics.as_bytes())) {
            raw::decode_metrics(&request.into(), 1).expect("what was written can be walked");
            read += 1;
        }
    }
    assert!(read > 100, "{read} were read");
}

#[test]
fn bodies_inflate_to_no_more_than_the_limit_or_are_refused() {
    const LIMIT_BYTES: usize = 2000;
    let plain = vec![7; LIMIT_BYTES];
    let zstd = zstd::encode_all(plain.as_slice(), 1).unwrap();
    let mut random = Random(17);
    let mut inflated = 0;
    for (compression, valid) in [(Compression::Gzip, gzip(&plain)), (Compression::Zstd, zstd)] {
        for _ in 0..ROUNDS {
            let body = Bytes::from(random.mutate(&valid));
            if let Ok(content) = inflate(&body, compression, LIMIT_BYTES) {
                assert!(content.len() <= LIMIT_BYTES);
                inflated += 1;
            }
            let frame = Bytes::from(random.mutate(&framed(1, &valid)));
            let _ = unframe(&frame);
        }
    }
    assert!(inflated > 10, "{inflated} were inflated");
}
