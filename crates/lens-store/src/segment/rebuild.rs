//! Rows of a file of spans as spans again.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{
    Array, BinaryViewArray, BooleanArray, Float64Array, Int32Array, Int64Array, ListArray,
    MapArray, RecordBatch, StringViewArray, StructArray,
};
use bytes::Bytes;
use lens_otlp::encode::{
    EVENT_ATTRIBUTES, LINK_ATTRIBUTES, SPAN_ATTRIBUTES, SPAN_EVENTS, SPAN_LINKS, SpanParts,
    put_key_value,
};
use lens_otlp::wire::{
    FIXED32, Fields, put_bytes, put_double, put_fixed64, put_message, put_uint, tag,
};
use serde_json::Value;

use super::SegmentError;
use super::file::{column, typed};
use super::scan::status_of;
use super::schema::{Map, PROMOTED};
use super::table::Leaf;
use crate::ids::{SpanId, TraceId};
use crate::raw::{Origin, RawResource, RawSpan};

/// Columns that say nothing which others do not.
pub(super) const DERIVED: [&str; 5] =
    ["service_name", "scope_name", "scope_version", "resource", "time_suspect"];

/// Origins that were met, so that spans share them.
#[derive(Default)]
pub(super) struct Origins {
    known: HashMap<Vec<u8>, Arc<Origin>>,
    last: Option<(Vec<u8>, Arc<Origin>)>,
}

impl Origins {
    pub(super) fn get(&mut self, message: &[u8]) -> Result<Arc<Origin>, SegmentError> {
        if let Some((last, origin)) = &self.last
            && last == message
        {
            return Ok(Arc::clone(origin));
        }
        let origin = match self.known.get(message) {
            Some(origin) => Arc::clone(origin),
            None => {
                let origin = Arc::new(read_origin(message)?);
                self.known.insert(message.to_vec(), Arc::clone(&origin));
                origin
            }
        };
        self.last = Some((message.to_vec(), Arc::clone(&origin)));
        Ok(origin)
    }
}

fn read_origin(message: &[u8]) -> Result<Origin, SegmentError> {
    let (mut resource, mut scope) = (&[][..], &[][..]);
    let (mut resource_url, mut scope_url) = ("", "");
    for field in Fields::new(message) {
        match field? {
            (1, content) => resource = content.bytes()?,
            (2, content) => {
                for field in Fields::new(content.bytes()?) {
                    match field? {
                        (1, content) => scope = content.bytes()?,
                        (3, content) => scope_url = content.text()?,
                        _ => {}
                    }
                }
            }
            (3, content) => resource_url = content.text()?,
            _ => {}
        }
    }
    Ok(Origin {
        resource: Arc::new(RawResource {
            message: Bytes::copy_from_slice(resource),
            schema_url: resource_url.into(),
        }),
        scope: Bytes::copy_from_slice(scope),
        schema_url: scope_url.into(),
    })
}

struct Pairs<'a> {
    map: &'a MapArray,
    keys: &'a StringViewArray,
    values: &'a dyn Array,
}

impl<'a> Pairs<'a> {
    fn new(batch: &'a RecordBatch, name: &'static str) -> Result<Self, SegmentError> {
        let map: &MapArray = column(batch, name)?;
        Ok(Self { map, keys: typed(map.keys(), name)?, values: map.values() })
    }

    fn range(&self, row: usize) -> std::ops::Range<usize> {
        let offsets = self.map.value_offsets();
        offsets[row] as usize..offsets[row + 1] as usize
    }
}

/// A list of structs.
struct Structs<'a> {
    list: &'a ListArray,
    fields: &'a StructArray,
}

impl<'a> Structs<'a> {
    fn new(batch: &'a RecordBatch, name: &'static str) -> Result<Self, SegmentError> {
        let list: &ListArray = column(batch, name)?;
        Ok(Self { list, fields: typed(list.values(), name)? })
    }

    fn field<T: 'static>(&self, name: &'static str) -> Result<&'a T, SegmentError> {
        typed(self.fields.column_by_name(name).ok_or(SegmentError::Column(name))?, name)
    }

    fn range(&self, row: usize) -> std::ops::Range<usize> {
        let offsets = self.list.value_offsets();
        offsets[row] as usize..offsets[row + 1] as usize
    }
}

enum Promoted<'a> {
    Text(&'a StringViewArray),
    Int(&'a Int64Array),
}

struct Events<'a> {
    structs: Structs<'a>,
    names: &'a StringViewArray,
    offsets: &'a Int64Array,
    attributes: &'a StringViewArray,
    dropped: &'a Int32Array,
}

struct Links<'a> {
    structs: Structs<'a>,
    trace_ids: &'a StringViewArray,
    span_ids: &'a StringViewArray,
    trace_states: &'a StringViewArray,
    attributes: &'a StringViewArray,
    flags: &'a Int32Array,
    dropped: &'a Int32Array,
}

/// The columns of some rows.
struct Rows<'a> {
    trace_ids: &'a StringViewArray,
    span_ids: &'a StringViewArray,
    parent_ids: &'a StringViewArray,
    starts: &'a Int64Array,
    durations: &'a Int64Array,
    names: &'a StringViewArray,
    kinds: &'a StringViewArray,
    statuses: &'a StringViewArray,
    status_messages: &'a StringViewArray,
    trace_states: &'a StringViewArray,
    maps: [Pairs<'a>; Map::COUNT],
    events: Events<'a>,
    links: Links<'a>,
    dropped: [&'a Int32Array; 3],
    flags: &'a Int32Array,
    ingest_seqs: &'a Int64Array,
    origins: &'a BinaryViewArray,
    otlp: &'a BinaryViewArray,
    promoted: Vec<Promoted<'a>>,
}

impl<'a> Rows<'a> {
    fn new(batch: &'a RecordBatch) -> Result<Self, SegmentError> {
        let [text, int, double, boolean, json, long] = Map::NAMES;
        let pairs = |name| Pairs::new(batch, name);
        let events = Structs::new(batch, "events")?;
        let links = Structs::new(batch, "links")?;
        let mut promoted = Vec::new();
        for (key, leaf) in PROMOTED {
            promoted.push(match leaf {
                Leaf::Text => Promoted::Text(column(batch, key)?),
                _ => Promoted::Int(column(batch, key)?),
            });
        }
        Ok(Self {
            trace_ids: column(batch, "trace_id")?,
            span_ids: column(batch, "span_id")?,
            parent_ids: column(batch, "parent_span_id")?,
            starts: column(batch, "start_unix_nano")?,
            durations: column(batch, "duration_nano")?,
            names: column(batch, "name")?,
            kinds: column(batch, "kind")?,
            statuses: column(batch, "status_code")?,
            status_messages: column(batch, "status_message")?,
            trace_states: column(batch, "trace_state")?,
            maps: [
                pairs(text)?,
                pairs(int)?,
                pairs(double)?,
                pairs(boolean)?,
                pairs(json)?,
                pairs(long)?,
            ],
            events: Events {
                names: events.field("name")?,
                offsets: events.field("offset_nano")?,
                attributes: events.field("attributes")?,
                dropped: events.field("dropped_attributes")?,
                structs: events,
            },
            links: Links {
                trace_ids: links.field("trace_id")?,
                span_ids: links.field("span_id")?,
                trace_states: links.field("trace_state")?,
                attributes: links.field("attributes")?,
                flags: links.field("flags")?,
                dropped: links.field("dropped_attributes")?,
                structs: links,
            },
            dropped: [
                column(batch, "dropped_attributes")?,
                column(batch, "dropped_events")?,
                column(batch, "dropped_links")?,
            ],
            flags: column(batch, "flags")?,
            ingest_seqs: column(batch, "ingest_seq")?,
            origins: column(batch, "origin_otlp")?,
            otlp: column(batch, "otlp")?,
            promoted,
        })
    }
}

/// What is used again from row to row.
#[derive(Default)]
struct Scratch {
    attributes: Vec<u8>,
    events: Vec<u8>,
    links: Vec<u8>,
}

/// All rows of a batch. Their messages share one piece of memory.
pub(super) fn spans(
    batch: &RecordBatch,
    origins: &mut Origins,
) -> Result<Vec<RawSpan>, SegmentError> {
    let rows = Rows::new(batch)?;
    let mut messages = Vec::new();
    let mut ends = Vec::with_capacity(batch.num_rows());
    let mut scratch = Scratch::default();
    for row in 0..batch.num_rows() {
        if rows.otlp.is_valid(row) {
            messages.extend_from_slice(rows.otlp.value(row));
        } else {
            rows.put_message(row, &mut scratch, &mut messages)?;
        }
        ends.push(messages.len());
    }
    let messages = Bytes::from(messages);
    let mut spans = Vec::with_capacity(batch.num_rows());
    let mut from = 0;
    for (row, end) in ends.into_iter().enumerate() {
        spans.push(RawSpan {
            trace_id: TraceId::from_bytes(&unhex::<16>(rows.trace_ids.value(row))?)
                .ok_or(SegmentError::Column("trace_id"))?,
            span_id: SpanId::from_bytes(&unhex::<8>(rows.span_ids.value(row))?)
                .ok_or(SegmentError::Column("span_id"))?,
            start_nanos: rows.starts.value(row) as u64,
            message: messages.slice(from..end),
            origin: origins.get(rows.origins.value(row))?,
            ingest_seq: rows.ingest_seqs.value(row) as u64,
        });
        from = end;
    }
    Ok(spans)
}

impl Rows<'_> {
    fn put_message(
        &self,
        row: usize,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<(), SegmentError> {
        scratch.attributes.clear();
        scratch.events.clear();
        scratch.links.clear();
        self.put_promoted(row, &mut scratch.attributes);
        self.put_attributes(row, &mut scratch.attributes)?;
        let start = self.starts.value(row);
        self.put_events(row, start, &mut scratch.events)?;
        self.put_links(row, &mut scratch.links)?;
        let text = |array: &'_ StringViewArray| match array.is_valid(row) {
            true => array.value(row).to_owned(),
            false => String::new(),
        };
        let parent_id = match self.parent_ids.is_valid(row) {
            true => Some(unhex::<8>(self.parent_ids.value(row))?),
            false => None,
        };
        SpanParts {
            trace_id: unhex(self.trace_ids.value(row))?,
            span_id: unhex(self.span_ids.value(row))?,
            parent_id,
            trace_state: &text(self.trace_states),
            name: self.names.value(row),
            kind: kind_number(self.kinds.value(row)),
            start_nanos: start as u64,
            end_nanos: start.wrapping_add(self.durations.value(row)) as u64,
            attributes: &scratch.attributes,
            dropped_attributes: self.dropped[0].value(row) as u32,
            events: &scratch.events,
            dropped_events: self.dropped[1].value(row) as u32,
            links: &scratch.links,
            dropped_links: self.dropped[2].value(row) as u32,
            status: status_of(self.statuses.value(row)),
            status_message: &text(self.status_messages),
            flags: self.flags.value(row) as u32,
        }
        .put(out);
        Ok(())
    }

    fn put_promoted(&self, row: usize, out: &mut Vec<u8>) {
        for ((key, _), column) in PROMOTED.iter().zip(&self.promoted) {
            match column {
                Promoted::Text(array) if array.is_valid(row) => {
                    put_key_value(out, SPAN_ATTRIBUTES, key, array.value(row));
                }
                Promoted::Int(array) if array.is_valid(row) => {
                    put_key_value(out, SPAN_ATTRIBUTES, key, &array.value(row));
                }
                _ => {}
            }
        }
    }

    fn put_attributes(&self, row: usize, out: &mut Vec<u8>) -> Result<(), SegmentError> {
        for pairs in &self.maps {
            let range = pairs.range(row);
            if range.is_empty() {
                continue;
            }
            let is_json = std::ptr::eq(pairs, &self.maps[Map::Json as usize]);
            let values = pairs.values.as_any();
            for nth in range {
                let key = pairs.keys.value(nth);
                if let Some(values) = values.downcast_ref::<StringViewArray>() {
                    match is_json {
                        true => put_json(out, SPAN_ATTRIBUTES, key, &parse(values.value(nth))?),
                        false => put_key_value(out, SPAN_ATTRIBUTES, key, values.value(nth)),
                    }
                } else if let Some(values) = values.downcast_ref::<Int64Array>() {
                    put_key_value(out, SPAN_ATTRIBUTES, key, &values.value(nth));
                } else if let Some(values) = values.downcast_ref::<Float64Array>() {
                    put_key_value(out, SPAN_ATTRIBUTES, key, &values.value(nth));
                } else if let Some(values) = values.downcast_ref::<BooleanArray>() {
                    put_key_value(out, SPAN_ATTRIBUTES, key, &values.value(nth));
                }
            }
        }
        Ok(())
    }

    fn put_events(&self, row: usize, start: i64, out: &mut Vec<u8>) -> Result<(), SegmentError> {
        let events = &self.events;
        for nth in events.structs.range(row) {
            let attributes = parse(events.attributes.value(nth))?;
            put_message(out, SPAN_EVENTS, |out| {
                put_fixed64(out, 1, start.wrapping_add(events.offsets.value(nth)) as u64);
                put_bytes(out, 2, events.names.value(nth).as_bytes());
                put_json_entries(out, EVENT_ATTRIBUTES, &attributes);
                put_count(out, 4, events.dropped.value(nth));
            });
        }
        Ok(())
    }

    fn put_links(&self, row: usize, out: &mut Vec<u8>) -> Result<(), SegmentError> {
        let links = &self.links;
        for nth in links.structs.range(row) {
            let attributes = parse(links.attributes.value(nth))?;
            let trace_id = unhex::<16>(links.trace_ids.value(nth))?;
            let span_id = unhex::<8>(links.span_ids.value(nth))?;
            put_message(out, SPAN_LINKS, |out| {
                put_bytes(out, 1, &trace_id);
                put_bytes(out, 2, &span_id);
                let trace_state = links.trace_states.value(nth);
                if !trace_state.is_empty() {
                    put_bytes(out, 3, trace_state.as_bytes());
                }
                put_json_entries(out, LINK_ATTRIBUTES, &attributes);
                put_count(out, 5, links.dropped.value(nth));
                out.push(tag(6, FIXED32));
                out.extend_from_slice(&links.flags.value(nth).to_le_bytes());
            });
        }
        Ok(())
    }
}

fn put_count(out: &mut Vec<u8>, field: u8, count: i32) {
    if count != 0 {
        put_uint(out, field, u64::from(count as u32));
    }
}

fn parse(json: &str) -> Result<Value, SegmentError> {
    serde_json::from_str(json).map_err(|error| SegmentError::Damaged(Box::new(error)))
}

fn put_json_entries(out: &mut Vec<u8>, field: u8, object: &Value) {
    if let Value::Object(entries) = object {
        for (key, value) in entries {
            put_json(out, field, key, value);
        }
    }
}

/// Appends a `KeyValue` of a JSON value.
fn put_json(out: &mut Vec<u8>, field: u8, key: &str, value: &Value) {
    put_message(out, field, |out| {
        put_bytes(out, 1, key.as_bytes());
        put_message(out, 2, |out| put_any(out, value));
    });
}

fn put_any(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => {}
        Value::Bool(value) => put_uint(out, 2, u64::from(*value)),
        Value::Number(number) => match number.as_i64() {
            Some(value) => put_uint(out, 3, value as u64),
            None => put_double(out, 4, number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => put_bytes(out, 1, text.as_bytes()),
        Value::Array(values) => put_message(out, 5, |out| {
            for value in values {
                put_message(out, 1, |out| put_any(out, value));
            }
        }),
        Value::Object(_) => put_message(out, 6, |out| put_json_entries(out, 1, value)),
    }
}

pub(crate) fn kind_number(name: &str) -> u8 {
    match name {
        "INTERNAL" => 1,
        "SERVER" => 2,
        "CLIENT" => 3,
        "PRODUCER" => 4,
        "CONSUMER" => 5,
        _ => 0,
    }
}

/// The bytes of an id.
pub(super) fn unhex<const N: usize>(text: &str) -> Result<[u8; N], SegmentError> {
    let mut id = [0; N];
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return Err(SegmentError::Column("id"));
    }
    for (byte, pair) in id.iter_mut().zip(pairs) {
        let [high, low] = pair.map(|digit| match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => u8::MAX,
        });
        if high > 15 || low > 15 {
            return Err(SegmentError::Column("id"));
        }
        *byte = high << 4 | low;
    }
    Ok(id)
}
