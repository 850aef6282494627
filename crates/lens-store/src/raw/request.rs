//! Spans as an export request again: what is sent to another backend, written to files, served.

use std::collections::HashMap;

use lens_otlp::wire::{put_bytes, put_message};

use super::{Origin, RawResource, RawSpan};

/// Spans of one scope of one process.
type Group<'a> = (&'a Origin, Vec<&'a RawSpan>);

/// One export request with all of these spans, grouped as they came: each process once, each scope of it once, both in
/// the order in which they are first met.
pub fn to_request<'a>(spans: impl IntoIterator<Item = &'a RawSpan>) -> Vec<u8> {
    let mut resources: Vec<(&RawResource, Vec<Group<'_>>)> = Vec::new();
    let mut places: HashMap<&Origin, (usize, usize)> = HashMap::new();
    let mut resource_places: HashMap<&RawResource, usize> = HashMap::new();
    for span in spans {
        let origin = &*span.origin;
        let (resource, scope) = *places.entry(origin).or_insert_with(|| {
            let resource = *resource_places.entry(&origin.resource).or_insert_with(|| {
                resources.push((&origin.resource, Vec::new()));
                resources.len() - 1
            });
            resources[resource].1.push((origin, Vec::new()));
            (resource, resources[resource].1.len() - 1)
        });
        resources[resource].1[scope].1.push(span);
    }
    let mut out = Vec::new();
    for (resource, scopes) in &resources {
        put_message(&mut out, 1, |out| {
            put_bytes(out, 1, &resource.message);
            for (origin, spans) in scopes {
                put_message(out, 2, |out| {
                    put_bytes(out, 1, &origin.scope);
                    for span in spans {
                        put_bytes(out, 2, &span.message);
                    }
                    put_text(out, &origin.schema_url);
                });
            }
            put_text(out, &resource.schema_url);
        });
    }
    out
}

/// Both messages have their schema URL as field 3.
fn put_text(out: &mut Vec<u8>, schema_url: &str) {
    if !schema_url.is_empty() {
        put_bytes(out, 3, schema_url.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use lens_testing::load::{self, Options, Rollouts};

    use super::*;
    use crate::raw::decode;

    #[test]
    fn what_was_taken_apart_is_put_together_again() {
        let batches = load::rollouts(Options::default(), Rollouts::default()).take(3);
        let spans: Vec<RawSpan> =
            batches.flat_map(|batch| decode(&batch.request, 1).unwrap().spans).collect();
        let again = decode(&Bytes::from(to_request(&spans)), 1).unwrap();
        assert_eq!((again.refused, again.spans.len()), (0, spans.len()));
        let key = |span: &RawSpan| (span.trace_id, span.span_id, span.message.clone());
        let sorted = |spans: &[RawSpan]| {
            let mut spans = spans.to_vec();
            spans.sort_by_key(key);
            spans
        };
        for (a, b) in sorted(&spans).iter().zip(sorted(&again.spans)) {
            assert_eq!((&a.message, &a.origin), (&b.message, &b.origin));
        }
        assert!(to_request(&[]).is_empty());
    }
}
