//! What a span says, in one text: equal texts are equal spans, whatever the order of their attributes.

use std::fmt::Write as _;

use lens_otlp::view::{AnyValue, Attributes};
use lens_otlp::wire::{Content, Fields};

use crate::raw::RawSpan;

fn value(out: &mut String, any: &AnyValue<'_>) {
    match any {
        AnyValue::Double(value) => write!(out, "double {:#x}", value.to_bits()).unwrap(),
        AnyValue::Array(array) => {
            out.push('[');
            for item in array.values() {
                value(out, &item.unwrap());
                out.push(',');
            }
            out.push(']');
        }
        AnyValue::KeyValues(pairs) => {
            out.push('{');
            for pair in pairs.entries() {
                let (key, item) = pair.unwrap();
                write!(out, "{key:?}:").unwrap();
                value(out, &item);
                out.push(',');
            }
            out.push('}');
        }
        plain => write!(out, "{plain:?}").unwrap(),
    }
}

fn attributes(out: &mut String, attributes: Attributes<'_>) {
    let mut pairs: Vec<(&str, AnyValue<'_>)> = attributes.map(Result::unwrap).collect();
    pairs.sort_by_key(|(key, _)| *key);
    for (key, any) in pairs {
        write!(out, " {key:?}=").unwrap();
        value(out, &any);
    }
}

/// Fields of messages that views do not show.
fn unknown(out: &mut String, message: &[u8], known: std::ops::RangeInclusive<u32>) {
    for field in Fields::new(message) {
        let (number, content) = field.unwrap();
        if !known.contains(&number) {
            write!(out, " unknown {number}={content:?}").unwrap();
        }
    }
}

pub fn said(span: &RawSpan) -> String {
    let view = span.view().unwrap();
    let mut out = format!(
        "{} {} {} {} {:?}\n",
        span.trace_id, span.span_id, span.start_nanos, span.ingest_seq, span.origin
    );
    write!(
        out,
        "{:?} {:?} {:?} {:?} {:?} kind={} {} {} {:?} {:?} {:?} {:?} {:?} {}\n  ",
        view.trace_id,
        view.span_id,
        view.parent_id,
        view.trace_state,
        view.name,
        view.kind,
        view.start_nanos,
        view.end_nanos,
        view.dropped_attributes,
        view.dropped_events,
        view.dropped_links,
        view.status,
        view.status_message,
        view.flags
    )
    .unwrap();
    attributes(&mut out, view.attributes());
    for field in Fields::new(&span.message) {
        match field.unwrap() {
            (11, Content::Bytes(message)) => unknown(&mut out, message, 1..=4),
            (13, Content::Bytes(message)) => unknown(&mut out, message, 1..=6),
            (15, Content::Bytes(message)) => {
                for field in Fields::new(message) {
                    if let (3, code) = field.unwrap() {
                        write!(out, " code={code:?}").unwrap();
                    }
                }
            }
            _ => {}
        }
    }
    unknown(&mut out, &span.message, 1..=16);
    for event in view.events() {
        let event = event.unwrap();
        let (name, at) = (event.name, event.unix_nanos);
        write!(out, "\n  event {name:?} {at} {}", event.dropped_attributes).unwrap();
        attributes(&mut out, event.attributes());
    }
    for link in view.links() {
        let link = link.unwrap();
        let (trace_id, span_id, state) = (link.trace_id, link.span_id, link.trace_state);
        write!(out, "\n  link {trace_id:?} {span_id:?} {state:?} {}", link.flags).unwrap();
        write!(out, " {}", link.dropped_attributes).unwrap();
        attributes(&mut out, link.attributes());
    }
    out
}
