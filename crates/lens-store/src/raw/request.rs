//! What was received as an export request again: what is sent to another backend, written to files, served.

use std::collections::HashMap;

use bytes::Bytes;
use lens_otlp::wire::{put_bytes, put_message};

use super::{Origin, RawLog, RawMetric, RawResource, RawSpan};

/// Something that was received: a span, a log record or a metric.
pub trait Item {
    /// Where it comes from.
    fn origin(&self) -> &Origin;
    /// The encoded message.
    fn message(&self) -> &Bytes;
}

macro_rules! item {
    ($($kind:ty),*) => {$(
        impl Item for $kind {
            fn origin(&self) -> &Origin {
                &self.origin
            }
            fn message(&self) -> &Bytes {
                &self.message
            }
        }
    )*};
}
item!(RawSpan, RawLog, RawMetric);

/// Items of one scope of one process.
type Group<'a, T> = (&'a Origin, Vec<&'a T>);

/// One export request with all of these items, grouped as they came: each process once, each scope of it once, both in
/// the order in which they are first met.
pub fn to_request<'a, T: Item + 'a>(items: impl IntoIterator<Item = &'a T>) -> Vec<u8> {
    let mut resources: Vec<(&RawResource, Vec<Group<'_, T>>)> = Vec::new();
    let mut places: HashMap<&Origin, (usize, usize)> = HashMap::new();
    let mut resource_places: HashMap<&RawResource, usize> = HashMap::new();
    for item in items {
        let origin = item.origin();
        let (resource, scope) = *places.entry(origin).or_insert_with(|| {
            let resource = *resource_places.entry(&origin.resource).or_insert_with(|| {
                resources.push((&origin.resource, Vec::new()));
                resources.len() - 1
            });
            resources[resource].1.push((origin, Vec::new()));
            (resource, resources[resource].1.len() - 1)
        });
        resources[resource].1[scope].1.push(item);
    }
    let mut out = Vec::new();
    for (resource, scopes) in &resources {
        put_message(&mut out, 1, |out| {
            put_bytes(out, 1, &resource.message);
            for (origin, items) in scopes {
                put_message(out, 2, |out| {
                    put_bytes(out, 1, &origin.scope);
                    for item in items {
                        put_bytes(out, 2, item.message());
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
        assert!(to_request::<RawSpan>(&[]).is_empty());
    }
}
