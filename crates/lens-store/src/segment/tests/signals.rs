//! Tests of files of log records and points.

use bytes::Bytes;
use lens_otlp::encode::{
    LOG_ATTRIBUTES, LogParts, Scope, put_key_value, put_request, put_scope_item,
};
use lens_otlp::view::metrics::MetricView;
use lens_otlp::wire::{put_bytes, put_double, put_fixed64, put_message, put_uint};

use super::super::{SegmentError, read_logs, read_points, write_logs, write_points};
use crate::raw::{decode_logs, decode_metrics};

fn request(items: &[Vec<u8>]) -> Bytes {
    let mut fields = Vec::new();
    for item in items {
        put_scope_item(&mut fields, item);
    }
    let mut resource = Vec::new();
    put_key_value(&mut resource, 1, "service.name", "teller");
    let mut out = Vec::new();
    let scope = Scope { name: "scope", version: "" };
    put_request(&mut out, &resource, std::iter::once((scope, fields.as_slice())));
    out.into()
}

#[test]
fn log_records_come_back_as_they_were_in_order_of_time() {
    let records: Vec<Vec<u8>> = (0..3_000_u64)
        .map(|nth| {
            let mut attributes = Vec::new();
            put_key_value(&mut attributes, LOG_ATTRIBUTES, "nth", &(nth as i64));
            let mut message = Vec::new();
            let body = format!("said {nth}");
            LogParts {
                time_nanos: if nth % 10 == 9 { 0 } else { 7_000 - nth },
                observed_nanos: 8_000 - nth,
                severity_number: (nth % 24) as u8 + 1,
                severity_text: "INFO",
                body: &body,
                attributes: &attributes,
                span: (nth.is_multiple_of(2)).then_some(([7; 16], [8; 8])),
                event_name: if nth.is_multiple_of(3) { "happened" } else { "" },
                flags: 1,
            }
            .put(&mut message);
            message
        })
        .collect();
    let mut logs = decode_logs(&request(&records), 5).unwrap().items;
    assert!(matches!(write_logs(Vec::new(), &logs), Err(SegmentError::Order)));
    logs.sort_by_key(|log| log.time_nanos);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    assert_eq!(write_logs(&mut file, &logs).unwrap(), 3_000);
    let found = read_logs(file.path()).unwrap();
    assert_eq!(found.len(), 3_000);
    for (found, wanted) in found.iter().zip(&logs) {
        assert_eq!(found.message, wanted.message);
        assert_eq!(found.origin, wanted.origin);
        let of =
            |log: &crate::raw::RawLog| (log.time_nanos, log.trace_id, log.span_id, log.ingest_seq);
        assert_eq!(of(found), of(wanted));
    }
}

fn metric(name: &str, data: u8, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, 1, name.as_bytes());
    put_bytes(&mut out, 3, b"ms");
    put_message(&mut out, data, fill);
    out
}

#[test]
fn each_point_comes_back_as_a_metric_of_its_own_in_order_of_name_and_time() {
    let number = |out: &mut Vec<u8>, time: u64, value: f64| {
        put_message(out, 1, |out| {
            put_fixed64(out, 2, 1);
            put_fixed64(out, 3, time);
            put_double(out, 4, value);
            put_key_value(out, 7, "agent", "simple");
            put_message(out, 5, |out| {
                put_fixed64(out, 2, time);
                put_double(out, 3, value);
                put_bytes(out, 5, &[9; 16]);
            });
        });
    };
    let metrics = vec![
        metric("z.sum", 7, |out| {
            number(out, 30, 3.0);
            put_uint(out, 2, 2);
            number(out, 20, 2.0);
            put_uint(out, 3, 1);
        }),
        metric("a.gauge", 5, |out| number(out, 10, f64::NAN)),
        metric("m.histogram", 9, |out| {
            put_uint(out, 2, 1);
            put_message(out, 1, |out| {
                put_fixed64(out, 3, 40);
                put_fixed64(out, 4, 3);
                put_double(out, 5, 6.5);
                put_bytes(out, 6, &[1_u64.to_le_bytes(), 2_u64.to_le_bytes()].concat());
                put_bytes(out, 7, &2.5_f64.to_le_bytes());
            });
        }),
        metric("m.exponential", 10, |out| {
            put_message(out, 1, |out| {
                put_fixed64(out, 3, 50);
                put_fixed64(out, 4, 2);
                put_uint(out, 6, 7);
                put_message(out, 8, |out| {
                    put_uint(out, 1, 5);
                    put_bytes(out, 2, &[1, 1]);
                });
            });
        }),
        metric("unknown data", 11, |out| {
            put_message(out, 1, |out| put_fixed64(out, 3, 60));
        }),
    ];
    let decoded = decode_metrics(&request(&metrics), 4).unwrap().items;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    assert_eq!(write_points(&mut file, &decoded).unwrap(), 6);
    let found = read_points(file.path()).unwrap();
    let said: Vec<(String, u64)> = found
        .iter()
        .map(|metric| {
            let view = MetricView::read(&metric.message).unwrap();
            assert_eq!((view.unit, metric.ingest_seq), ("ms", 4));
            assert_eq!(metric.origin, decoded[0].origin);
            (view.name.to_owned(), metric.time_nanos)
        })
        .collect();
    let wanted = [
        ("a.gauge", 10),
        ("m.exponential", 50),
        ("m.histogram", 40),
        ("unknown data", 60),
        ("z.sum", 20),
        ("z.sum", 30),
    ];
    assert_eq!(said, wanted.map(|(name, time)| (name.to_owned(), time)));
    let histogram = MetricView::read(&found[2].message).unwrap();
    let point = histogram.histogram_points().next().unwrap().unwrap();
    assert_eq!((point.buckets().collect::<Vec<_>>(), point.sum), (vec![1, 2], Some(6.5)));
    let sum = MetricView::read(&found[4].message).unwrap();
    assert_eq!(sum.number_points().count(), 1);
    assert_eq!(sum.data, MetricView::read(&decoded[0].message).unwrap().data);
}
