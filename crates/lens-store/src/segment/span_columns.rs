//! Walks a span once, into the columns of a row group.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::io::Write;
use std::sync::Arc;

use gym_telemetry::semconv;
use lens_otlp::DecodeError;
use lens_otlp::encode::{EVENT_ATTRIBUTES, LINK_ATTRIBUTES, SPAN_ATTRIBUTES, StatusCode};
use lens_otlp::json::{put_plain_attributes, put_plain_value};
use lens_otlp::view::{AnyValue, Attributes, Plain, key_value, plain_parts};
use lens_otlp::wire::{Fields, put_bytes, put_message};

use super::SegmentError;
use super::column::{Column, Counts};
use super::intern::{Chain, Guess, MAX_KEYS};
use super::json::{Objects, is_sayable};
use super::schema::{LONG_TEXT_BYTES, Map, PROMOTED, entries, leaf};
use super::table::{Leaf, Table};
use crate::raw::{Origin, RawSpan};

/// What a row group knows of an attribute's key.
#[derive(Clone, Copy)]
struct Key {
    /// Its place in [`PROMOTED`].
    promoted: Option<u8>,
    /// The last row that had it, plus one.
    row: u32,
    /// Where among that row's attributes.
    at: u32,
    /// Its number in the dictionary of each map, plus one.
    codes: [u32; Map::COUNT],
    /// Its next text.
    text: Guess,
}

impl Key {
    fn new(name: &[u8]) -> Self {
        let promoted = PROMOTED.iter().position(|(known, _)| known.as_bytes() == name);
        Self {
            promoted: promoted.map(|nth| nth as u8),
            row: 0,
            at: 0,
            codes: [0; Map::COUNT],
            text: Guess::default(),
        }
    }
}

/// The columns that say where a span comes from, as numbers in their dictionaries.
struct OriginCodes {
    service: u32,
    scope: u32,
    version: Option<u32>,
    resource: u32,
    /// Its place in [`Walker::services`].
    service_nth: usize,
}

/// What a trace's row wants of a span.
pub(super) struct Walked {
    pub(super) end_nanos: u64,
    pub(super) is_error: bool,
    pub(super) is_root: bool,
    pub(super) service_nth: usize,
}

/// A value that was checked when it was received: text is not checked again.
#[derive(Clone, Copy)]
enum Raw<'a> {
    Text(&'a [u8]),
    Int(i64),
    Double(f64),
    Bool(bool),
    /// The whole attribute: a list, bytes, or no value.
    Other(&'a [u8]),
}

/// Key and value of an encoded attribute, and whether it has a value at all.
#[inline(always)]
fn read_attribute(message: &[u8]) -> Result<(&[u8], Raw<'_>, bool), DecodeError> {
    match plain_parts(message) {
        Some((key, Plain::Text(text))) => Ok((key, Raw::Text(text), true)),
        Some((key, Plain::Bool(value))) => Ok((key, Raw::Bool(value), true)),
        Some((key, Plain::Int(value))) => Ok((key, Raw::Int(value), true)),
        Some((key, Plain::Double(value))) => Ok((key, Raw::Double(value), true)),
        None => read_any_attribute(message),
    }
}

fn read_any_attribute(message: &[u8]) -> Result<(&[u8], Raw<'_>, bool), DecodeError> {
    let (mut key, mut value, mut has_value) = (&[][..], Raw::Other(message), false);
    for field in Fields::new(message) {
        match field? {
            (1, content) => key = content.bytes()?,
            (2, content) => {
                has_value = true;
                value = Raw::Other(message);
                for field in Fields::new(content.bytes()?) {
                    value = match field? {
                        (1, content) => Raw::Text(content.bytes()?),
                        (2, content) => Raw::Bool(content.varint()? != 0),
                        (3, content) => Raw::Int(content.varint()? as i64),
                        (4, content) => Raw::Double(f64::from_bits(content.fixed64()?)),
                        (5..=7, _) => Raw::Other(message),
                        _ => continue,
                    };
                }
            }
            _ => {}
        }
    }
    Ok((key, value, has_value))
}

/// Takes spans into columns; knows what the row group has seen.
#[derive(Default)]
pub(super) struct Walker {
    key_names: Chain,
    keys: Vec<Key>,
    known: Known,
    /// Places in `origins` by address, with what keeps the address from being used again.
    origin_places: HashMap<usize, (usize, Arc<Origin>), Addresses>,
    /// By their numbers in their column: a process has the same in every request.
    origins: Vec<OriginCodes>,
    last_origin: Option<(usize, usize)>,
    attributes: Vec<(u32, Raw<'static>)>,
    /// Places of events and links in the message.
    events: Vec<(usize, usize)>,
    links: Vec<(usize, usize)>,
    json: String,
    objects: Objects,
    /// Services of the file.
    pub(super) services: Vec<Arc<str>>,
    /// Name of the span that was walked last.
    pub(super) name: String,
}

/// Texts in their columns: kinds and statuses by the numbers of the enumerations, names by length and end.
struct Known {
    kinds: [Guess; 6],
    statuses: [Guess; 3],
    names: [Guess; 64],
    event: Guess,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            kinds: Default::default(),
            statuses: Default::default(),
            names: [Guess::default(); 64],
            event: Guess::default(),
        }
    }
}

impl Known {
    #[inline]
    fn name(&mut self, name: &[u8]) -> &mut Guess {
        let last = name.last().copied().unwrap_or(0);
        let place = (name.len() * 5 + usize::from(last)) % self.names.len();
        &mut self.names[place]
    }
}

/// The fields of a span, as far as they are no lists.
#[derive(Default)]
struct Head<'a> {
    parent_id: &'a [u8],
    trace_state: &'a [u8],
    name: &'a [u8],
    kind: u64,
    start_nanos: u64,
    end_nanos: u64,
    dropped: [u64; 3],
    status: u64,
    status_message: &'a [u8],
    flags: u32,
}

impl Walker {
    /// Forgets the row group: its dictionaries are gone.
    pub(super) fn end_row_group(&mut self) {
        self.key_names.clear();
        self.keys.clear();
        self.objects.clear();
        self.origin_places.clear();
        self.origins.clear();
        self.last_origin = None;
    }

    /// Forgets the file, and with it every request that its spans came in.
    pub(super) fn end_file(&mut self) {
        self.end_row_group();
        self.services.clear();
    }

    /// Adds a row; the caller ends it.
    pub(super) fn walk<W: Write + Send>(
        &mut self,
        span: &RawSpan,
        is_suspect: bool,
        table: &mut Table<W>,
    ) -> Result<Walked, SegmentError> {
        let row = table.rows;
        let (columns, counts) = (&mut table.columns[..], &mut table.counts[..]);
        let mut attributes: Vec<(u32, Raw<'_>)> = std::mem::take(&mut self.attributes);
        self.events.clear();
        self.links.clear();
        let mut head = Head::default();
        // Whether the columns say everything.
        let mut is_exact = true;
        if self.key_names.len() > MAX_KEYS {
            self.key_names.clear();
            self.keys.clear();
        }
        self.key_names.start();
        let message = &span.message[..];
        let mut fields = Fields::new(message);
        loop {
            while let Some(pair) = fields.next_short(SPAN_ATTRIBUTES) {
                is_exact &= self.take_attribute(pair, row, &mut attributes)?;
            }
            let Some(field) = fields.next() else { break };
            match field? {
                (9, content) => {
                    is_exact &= self.take_attribute(content.bytes()?, row, &mut attributes)?;
                }
                (1 | 2, _) => {}
                (3, content) => head.trace_state = content.bytes()?,
                (4, content) => head.parent_id = content.bytes()?,
                (5, content) => head.name = content.bytes()?,
                (6, content) => head.kind = content.varint()?,
                (7, content) => head.start_nanos = content.fixed64()?,
                (8, content) => head.end_nanos = content.fixed64()?,
                (10, content) => head.dropped[0] = content.varint()?,
                (11, content) => self.events.push(place(message, content.bytes()?)),
                (12, content) => head.dropped[1] = content.varint()?,
                (13, content) => self.links.push(place(message, content.bytes()?)),
                (14, content) => head.dropped[2] = content.varint()?,
                (15, content) => is_exact &= head.read_status(content.bytes()?)?,
                (16, content) => head.flags = content.fixed32()?,
                _ => is_exact = false,
            }
        }
        is_exact &= head.put(span, row, columns, counts, &mut self.known);
        let service_nth = self.put_origin(&span.origin, row, columns, counts)?;
        for (code, value) in &attributes {
            is_exact &= self.put_attribute(*code, *value, row, columns, counts)?;
        }
        is_exact &= self.put_events(message, head.start_nanos, row, columns, counts)?;
        is_exact &= self.put_links(message, row, columns, counts)?;
        columns[leaf::INGEST_SEQ].push_int(span.ingest_seq as i64);
        columns[leaf::TIME_SUSPECT].push_bool(is_suspect);
        if !is_exact {
            columns[leaf::OTLP].push_text(message);
            counts[entries::OTLP].add(row, 1);
        }
        attributes.clear();
        // Gives the memory back without the life of what was in it.
        self.attributes = attributes.into_iter().map(|_| (0, Raw::Bool(false))).collect();
        let is_root = head.parent_id.is_empty();
        if is_root {
            self.name.clear();
            self.name.push_str(&String::from_utf8_lossy(head.name));
        }
        Ok(Walked {
            end_nanos: head.end_nanos,
            is_error: head.status == StatusCode::Error as u64,
            is_root,
            service_nth,
        })
    }

    /// Notes an attribute of a row; `false` when columns do not say all of it.
    #[inline(always)]
    fn take_attribute<'a>(
        &mut self,
        pair: &'a [u8],
        row: usize,
        attributes: &mut Vec<(u32, Raw<'a>)>,
    ) -> Result<bool, DecodeError> {
        let (name, value, has_value) = read_attribute(pair)?;
        let code = self.key_names.next(name);
        if code as usize == self.keys.len() {
            self.keys.push(Key::new(name));
        }
        let key = &mut self.keys[code as usize];
        if key.row == row as u32 + 1 {
            // The last one wins.
            attributes[key.at as usize].1 = value;
            return Ok(false);
        }
        key.row = row as u32 + 1;
        key.at = attributes.len() as u32;
        attributes.push((code, value));
        Ok(has_value)
    }

    #[inline(always)]
    fn put_attribute(
        &mut self,
        code: u32,
        value: Raw<'_>,
        row: usize,
        columns: &mut [Column],
        counts: &mut [Counts],
    ) -> Result<bool, DecodeError> {
        let key = &mut self.keys[code as usize];
        if let Some(nth) = key.promoted {
            let nth = usize::from(nth);
            let column = &mut columns[leaf::PROMOTED + nth];
            let is_taken = match (PROMOTED[nth].1, value) {
                (Leaf::Text, Raw::Text(text)) if text.len() <= LONG_TEXT_BYTES => {
                    column.push_text_like(&mut key.text, text);
                    true
                }
                (Leaf::Int, Raw::Int(value)) => {
                    column.push_int(value);
                    true
                }
                _ => false,
            };
            if is_taken {
                counts[entries::PROMOTED + nth].add(row, 1);
                return Ok(true);
            }
        }
        let map = match value {
            Raw::Text(text) if text.len() <= LONG_TEXT_BYTES => Map::Text,
            Raw::Text(_) => Map::LongText,
            Raw::Int(_) => Map::Int,
            Raw::Double(_) => Map::Double,
            Raw::Bool(_) => Map::Bool,
            Raw::Other(_) => Map::Json,
        } as usize;
        counts[entries::MAPS + map].add(row, 1);
        let key_column = &mut columns[leaf::MAPS + 2 * map];
        if key.codes[map] == 0 {
            key.codes[map] = key_column.code_of(self.key_names.name(code)) + 1;
        }
        key_column.push_code(key.codes[map] - 1);
        let column = &mut columns[leaf::MAPS + 2 * map + 1];
        let mut is_exact = true;
        match value {
            Raw::Text(text) => column.push_text_like(&mut key.text, text),
            Raw::Int(value) => column.push_int(value),
            Raw::Double(value) => column.push_double(value),
            Raw::Bool(value) => column.push_bool(value),
            Raw::Other(message) => {
                let value = key_value(message)?.1.unwrap_or(AnyValue::Empty);
                is_exact = is_sayable(&value)?;
                self.json.clear();
                put_plain_value(&mut self.json, &value)?;
                column.push_text(self.json.as_bytes());
            }
        }
        Ok(is_exact)
    }

    fn put_events(
        &mut self,
        message: &[u8],
        start_nanos: u64,
        row: usize,
        columns: &mut [Column],
        counts: &mut [Counts],
    ) -> Result<bool, DecodeError> {
        if self.events.is_empty() {
            return Ok(true);
        }
        counts[entries::EVENTS].add(row, self.events.len() as u32);
        let mut is_exact = true;
        for (from, to) in &self.events {
            let event = &message[*from..*to];
            let (mut name, mut unix_nanos, mut dropped) = (&[][..], 0, 0);
            let mut fields = Fields::new(event);
            while let Some(field) = fields.next() {
                match field? {
                    (1, content) => unix_nanos = content.fixed64()?,
                    (2, content) => name = content.bytes()?,
                    (3, _) => fields.skip_short(EVENT_ATTRIBUTES),
                    (4, content) => dropped = content.varint()?,
                    _ => is_exact = false,
                }
            }
            is_exact &= u32::try_from(dropped).is_ok();
            is_exact &= self.objects.put(event, EVENT_ATTRIBUTES)?;
            columns[leaf::EVENT_NAME].push_text_like(&mut self.known.event, name);
            let offset = unix_nanos.wrapping_sub(start_nanos) as i64;
            columns[leaf::EVENT_OFFSET].push_int(offset);
            columns[leaf::EVENT_ATTRIBUTES].push_text(self.objects.bytes());
            columns[leaf::EVENT_DROPPED].push_int(dropped as i64);
        }
        Ok(is_exact)
    }

    fn put_links(
        &mut self,
        message: &[u8],
        row: usize,
        columns: &mut [Column],
        counts: &mut [Counts],
    ) -> Result<bool, DecodeError> {
        if self.links.is_empty() {
            return Ok(true);
        }
        counts[entries::LINKS].add(row, self.links.len() as u32);
        let mut is_exact = true;
        for (from, to) in &self.links {
            let link = &message[*from..*to];
            let (mut trace_id, mut span_id, mut trace_state) = (&[][..], &[][..], &[][..]);
            let (mut dropped, mut flags) = (0, 0);
            for field in Fields::new(link) {
                match field? {
                    (1, content) => trace_id = content.bytes()?,
                    (2, content) => span_id = content.bytes()?,
                    (3, content) => trace_state = content.bytes()?,
                    (4, _) => {}
                    (5, content) => dropped = content.varint()?,
                    (6, content) => flags = content.fixed32()?,
                    _ => is_exact = false,
                }
            }
            is_exact &= trace_id.len() == 16 && span_id.len() == 8;
            is_exact &= u32::try_from(dropped).is_ok();
            let mut id = [0; 32];
            columns[leaf::LINK_TRACE_ID].push_text(hex(trace_id, &mut id));
            columns[leaf::LINK_SPAN_ID].push_text(hex(span_id, &mut id));
            columns[leaf::LINK_TRACE_STATE].push_text(trace_state);
            is_exact &= self.objects.put(link, LINK_ATTRIBUTES)?;
            columns[leaf::LINK_ATTRIBUTES].push_text(self.objects.bytes());
            columns[leaf::LINK_FLAGS].push_int(i64::from(flags));
            columns[leaf::LINK_DROPPED].push_int(dropped as i64);
        }
        Ok(is_exact)
    }

    fn put_origin(
        &mut self,
        origin: &Arc<Origin>,
        row: usize,
        columns: &mut [Column],
        counts: &mut [Counts],
    ) -> Result<usize, DecodeError> {
        let address = Arc::as_ptr(origin) as usize;
        let place = match self.last_origin {
            Some((last, place)) if last == address => place,
            _ => match self.origin_places.get(&address) {
                Some((place, _)) => *place,
                None => {
                    let place = columns[leaf::ORIGIN].code_of(&origin_message(origin)) as usize;
                    if place == self.origins.len() {
                        let codes = self.read_origin(origin, columns)?;
                        self.origins.push(codes);
                    }
                    self.origin_places.insert(address, (place, Arc::clone(origin)));
                    place
                }
            },
        };
        self.last_origin = Some((address, place));
        let codes = &self.origins[place];
        columns[leaf::SERVICE_NAME].push_code(codes.service);
        columns[leaf::SCOPE_NAME].push_code(codes.scope);
        if let Some(version) = codes.version {
            columns[leaf::SCOPE_VERSION].push_code(version);
            counts[entries::SCOPE_VERSION].add(row, 1);
        }
        columns[leaf::RESOURCE].push_code(codes.resource);
        columns[leaf::ORIGIN].push_code(place as u32);
        Ok(codes.service_nth)
    }

    fn read_origin(
        &mut self,
        origin: &Arc<Origin>,
        columns: &mut [Column],
    ) -> Result<OriginCodes, DecodeError> {
        let (mut name, mut version, mut service) = (&[][..], &[][..], "");
        for field in Fields::new(&origin.scope) {
            match field? {
                (1, content) => name = content.bytes()?,
                (2, content) => version = content.bytes()?,
                _ => {}
            }
        }
        let resource = Attributes::new(&origin.resource.message, 1);
        for pair in resource {
            if let (semconv::SERVICE_NAME, AnyValue::String(text)) = pair? {
                service = text;
            }
        }
        self.json.clear();
        put_plain_attributes(&mut self.json, resource)?;
        let known = self.services.iter().position(|known| **known == *service);
        let service_nth = known.unwrap_or_else(|| {
            self.services.push(service.into());
            self.services.len() - 1
        });
        Ok(OriginCodes {
            service: columns[leaf::SERVICE_NAME].code_of(service.as_bytes()),
            scope: columns[leaf::SCOPE_NAME].code_of(name),
            version: (!version.is_empty()).then(|| columns[leaf::SCOPE_VERSION].code_of(version)),
            resource: columns[leaf::RESOURCE].code_of(self.json.as_bytes()),
            service_nth,
        })
    }
}

/// Addresses are no one's to choose; a product spreads them.
#[derive(Clone, Default)]
struct Addresses(u64);

impl BuildHasher for Addresses {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        Self(0)
    }
}

impl Hasher for Addresses {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = (self.0 ^ address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

/// A `ResourceSpans` without spans.
pub(super) fn origin_message(origin: &Origin) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, 1, &origin.resource.message);
    put_message(&mut out, 2, |out| {
        put_bytes(out, 1, &origin.scope);
        if !origin.schema_url.is_empty() {
            put_bytes(out, 3, origin.schema_url.as_bytes());
        }
    });
    if !origin.resource.schema_url.is_empty() {
        put_bytes(&mut out, 3, origin.resource.schema_url.as_bytes());
    }
    out
}

impl<'a> Head<'a> {
    fn read_status(&mut self, message: &'a [u8]) -> Result<bool, DecodeError> {
        let mut is_known = true;
        for field in Fields::new(message) {
            match field? {
                (2, content) => self.status_message = content.bytes()?,
                (3, content) => self.status = content.varint()?,
                _ => is_known = false,
            }
        }
        Ok(is_known)
    }

    /// Puts all but lists; `false` when a number is out of its range.
    fn put(
        &self,
        span: &RawSpan,
        row: usize,
        columns: &mut [Column],
        counts: &mut [Counts],
        known: &mut Known,
    ) -> bool {
        columns[leaf::TRACE_ID].push_id(&span.trace_id.to_bytes());
        columns[leaf::SPAN_ID].push_id(&span.span_id.to_bytes());
        if let Some(parent_id) = self.parent_id.as_array::<8>() {
            columns[leaf::PARENT_SPAN_ID].push_id(parent_id);
            counts[entries::PARENT_SPAN_ID].add(row, 1);
        }
        columns[leaf::START].push_int(self.start_nanos as i64);
        let duration = self.end_nanos.wrapping_sub(self.start_nanos) as i64;
        columns[leaf::DURATION].push_int(duration);
        columns[leaf::NAME].push_text_like(known.name(self.name), self.name);
        let kind = &mut known.kinds[(self.kind as usize).min(5)];
        columns[leaf::KIND].push_text_like(kind, kind_name(self.kind).as_bytes());
        let status = StatusCode::from_number(self.status);
        let known = &mut known.statuses[(self.status as usize).min(2)];
        columns[leaf::STATUS_CODE].push_text_like(known, status.as_str().as_bytes());
        if !self.status_message.is_empty() {
            columns[leaf::STATUS_MESSAGE].push_text(self.status_message);
            counts[entries::STATUS_MESSAGE].add(row, 1);
        }
        if !self.trace_state.is_empty() {
            columns[leaf::TRACE_STATE].push_text(self.trace_state);
            counts[entries::TRACE_STATE].add(row, 1);
        }
        let [attributes, events, links] = self.dropped;
        columns[leaf::DROPPED_ATTRIBUTES].push_int(attributes as i64);
        columns[leaf::DROPPED_EVENTS].push_int(events as i64);
        columns[leaf::DROPPED_LINKS].push_int(links as i64);
        columns[leaf::FLAGS].push_int(i64::from(self.flags));
        let is_known = self.kind <= 5 && self.status <= 2 && self.start_nanos == span.start_nanos;
        is_known
            && matches!(self.parent_id.len(), 0 | 8)
            && self.dropped.iter().all(|count| u32::try_from(*count).is_ok())
    }
}

const fn kind_name(kind: u64) -> &'static str {
    match kind {
        1 => "INTERNAL",
        2 => "SERVER",
        3 => "CLIENT",
        4 => "PRODUCER",
        5 => "CONSUMER",
        _ => "UNSPECIFIED",
    }
}

/// Where a part of a message lies in it.
fn place(message: &[u8], part: &[u8]) -> (usize, usize) {
    let from = (part.as_ptr() as usize).saturating_sub(message.as_ptr() as usize);
    (from, from + part.len())
}

/// Lower-case hex digits of at most 16 bytes.
fn hex<'a>(bytes: &[u8], out: &'a mut [u8; 32]) -> &'a [u8] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let bytes = &bytes[..bytes.len().min(16)];
    for (byte, pair) in bytes.iter().zip(out.as_chunks_mut::<2>().0) {
        *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    }
    &out[..bytes.len() * 2]
}
