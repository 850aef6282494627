//! W3C trace context (level 2) and baggage, in and out of text carriers.
//!
//! A malformed `traceparent` gives no parent and discards `tracestate`; a malformed `tracestate` is discarded
//! alone; a malformed member of baggage is skipped. Versions after 00 are read as far as 00 goes.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::attributes::AttributeBytes;
use super::context::{
    Baggage, BaggageEntry, Context, FLAG_RANDOM, FLAG_SAMPLED, Shared, SpanContext,
    promoted_attributes, promoted_key, promoted_keys, put_entry,
};
use super::ids::{SpanId, TraceId};
use super::metrics::Counter;
use super::{hex, plain_baggage};
use crate::config::Propagators;
use crate::env_vars;
use crate::semconv::{BAGGAGE_HEADER, TRACEPARENT_HEADER, TRACESTATE_HEADER, pipeline};

static TRACE_CONTEXT: AtomicBool = AtomicBool::new(true);
static BAGGAGE: AtomicBool = AtomicBool::new(true);

/// Longest baggage that is read, as the specification asks to support.
pub(super) const MAX_BAGGAGE_BYTES: usize = 8192;
const MAX_BAGGAGE_ENTRIES: usize = 180;
const MAX_TRACESTATE_MEMBERS: usize = 32;

static REFUSED: Counter = Counter::new(
    pipeline::PARENTS_REFUSED,
    "{request}",
    "Trace contexts that could not be used, so that a new trace began",
);

/// Sets what crosses process boundaries.
pub(super) fn set(propagators: Propagators) {
    TRACE_CONTEXT.store(propagators.trace_context, Ordering::Relaxed);
    BAGGAGE.store(propagators.baggage, Ordering::Relaxed);
}

impl Context {
    /// Reads the headers `traceparent`, `tracestate` and `baggage`.
    pub fn extract<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Self {
        Self::parse(
            get(TRACEPARENT_HEADER).map(str::as_bytes),
            || get(TRACESTATE_HEADER),
            || get(BAGGAGE_HEADER),
        )
    }

    /// Reads the values of `traceparent`, `tracestate` and `baggage` where they are at hand as bytes; what is not
    /// UTF-8 is not there.
    pub fn from_header_values(
        traceparent: Option<&[u8]>,
        tracestate: Option<&[u8]>,
        baggage: Option<&[u8]>,
    ) -> Self {
        let text = |value: Option<_>| value.and_then(|value| std::str::from_utf8(value).ok());
        Self::parse(traceparent, || text(tracestate), || text(baggage))
    }

    /// Reads the variables `TRACEPARENT`, `TRACESTATE` and `BAGGAGE`.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Self {
        let traceparent = get(env_vars::TRACEPARENT);
        let tracestate = get(env_vars::TRACESTATE);
        let baggage = get(env_vars::BAGGAGE);
        let traceparent = traceparent.as_deref().map(str::as_bytes);
        Self::parse(traceparent, || tracestate.as_deref(), || baggage.as_deref())
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote: headers as lines `name: value`, names in any case; others
    /// are passed over.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let value = |wanted: &str| {
            let line = bytes.split(|byte| *byte == b'\n').find_map(|line| {
                let (name, value) = line.split_at_checked(wanted.len())?;
                let is_wanted = name.eq_ignore_ascii_case(wanted.as_bytes());
                value.strip_prefix(b":").filter(|_| is_wanted)
            })?;
            Some(line.trim_ascii())
        };
        Self::from_header_values(
            value(TRACEPARENT_HEADER),
            value(TRACESTATE_HEADER),
            value(BAGGAGE_HEADER),
        )
    }

    /// What [`inject`](Self::inject) writes, as bytes for a carrier that has no headers: a queue, a file, a pipe.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.inject(|name, value| {
            for part in [name, ": ", value, "\n"] {
                out.extend_from_slice(part.as_bytes());
            }
        });
        out
    }

    /// Writes what [`inject`](Self::inject) writes as the variables `TRACEPARENT`, `TRACESTATE` and `BAGGAGE`, for a
    /// child that reads them with [`from_env`](Self::from_env).
    pub fn inject_env(&self, mut set: impl FnMut(&'static str, &str)) {
        self.inject(|name, value| {
            let variable = match name {
                TRACEPARENT_HEADER => env_vars::TRACEPARENT,
                TRACESTATE_HEADER => env_vars::TRACESTATE,
                _ => env_vars::BAGGAGE,
            };
            set(variable, value);
        });
    }

    fn parse<'a>(
        traceparent: Option<&[u8]>,
        tracestate: impl FnOnce() -> Option<&'a str>,
        baggage: impl FnOnce() -> Option<&'a str>,
    ) -> Self {
        let traceparent = traceparent.filter(|_| TRACE_CONTEXT.load(Ordering::Relaxed));
        let span = traceparent.and_then(|text| {
            let span = parse_traceparent(text);
            if span.is_none() {
                REFUSED.add(1, &[]);
            }
            span
        });
        let tracestate = span.and_then(|_| tracestate()).and_then(parse_tracestate);
        let span = span.unwrap_or_default();
        let baggage = if BAGGAGE.load(Ordering::Relaxed) { baggage() } else { None };
        let shared = match baggage {
            None => tracestate.map(|tracestate| Shared::new(Some(tracestate), Baggage::default())),
            Some(text) => {
                if tracestate.is_none()
                    && let Some(same) = Self::with_current(|current| current.sharing(text))
                {
                    return Self::from_parts(span, Some(same));
                }
                let (baggage, attributes) = Baggage::parse(text);
                (tracestate.is_some() || !baggage.is_empty())
                    .then(|| Shared::read(tracestate, baggage, attributes))
            }
        };
        Self::from_parts(span, shared.map(Arc::new))
    }

    /// The context of a request whose `traceparent` is there more than once: none, and counted as refused.
    pub fn refused() -> Self {
        REFUSED.add(1, &[]);
        Self::empty()
    }

    /// This context with a member of `tracestate` set; unchanged when there is no span, or when key or value is none
    /// that the header can hold.
    ///
    /// What was written last stands first, and a key is there once; of more than 32 members the last is let go.
    pub fn with_tracestate_entry(&self, key: &str, value: &str) -> Self {
        let is_valid = is_tracestate_key(key) && is_tracestate_value(value);
        if !is_valid || !self.span_context().is_valid() {
            return self.clone();
        }
        let shared = self.shared().map(|shared| Shared::clone(shared)).unwrap_or_default();
        let mut text = format!("{key}={value}");
        let others = shared.tracestate.as_deref().unwrap_or_default().split(',');
        let others = others.map(|member| member.trim_matches([' ', '\t']));
        let is_other =
            |member: &&str| member.split_once('=').is_some_and(|(known, _)| known != key);
        for member in others.filter(is_other).take(MAX_TRACESTATE_MEMBERS - 1) {
            text.push(',');
            text.push_str(member);
        }
        let shared = Shared { tracestate: Some(text.into()), ..shared };
        Self::from_parts(self.span_context(), Some(Arc::new(shared)))
    }

    /// What this context shares, if that is baggage that reads `text` and nothing else: a process that asks
    /// itself need not read what it has just written.
    fn sharing(&self, text: &str) -> Option<Arc<Shared>> {
        let shared = self.shared().filter(|shared| shared.tracestate.is_none())?;
        match &shared.baggage {
            Baggage::Plain(plain) if **plain == *text => Some(Arc::clone(shared)),
            _ => None,
        }
    }

    /// Writes `traceparent` (and `tracestate`) when there is a span, and `baggage` when there are entries.
    pub fn inject(&self, mut set: impl FnMut(&'static str, &str)) {
        if let Some(text) = self.traceparent() {
            // Digits and dashes.
            set(TRACEPARENT_HEADER, std::str::from_utf8(&text).unwrap_or_default());
        }
        if let Some(text) = self.tracestate() {
            set(TRACESTATE_HEADER, text);
        }
        if let Some(text) = self.baggage_text() {
            set(BAGGAGE_HEADER, text);
        }
    }

    /// What [`inject`](Self::inject) writes as `traceparent`.
    pub fn traceparent(&self) -> Option<[u8; TRACEPARENT_LEN]> {
        let span = self.span_context();
        (span.is_valid() && TRACE_CONTEXT.load(Ordering::Relaxed)).then(|| traceparent_text(span))
    }

    /// What [`inject`](Self::inject) writes as `tracestate`.
    pub fn tracestate(&self) -> Option<&str> {
        let tracestate = self.shared()?.tracestate.as_deref()?;
        let goes_out = self.span_context().is_valid() && TRACE_CONTEXT.load(Ordering::Relaxed);
        goes_out.then_some(tracestate)
    }

    /// What [`inject`](Self::inject) writes as `baggage`.
    pub fn baggage_text(&self) -> Option<&str> {
        let shared = self.shared()?;
        if shared.baggage.is_empty() || !BAGGAGE.load(Ordering::Relaxed) {
            return None;
        }
        match &shared.baggage {
            Baggage::Plain(text) => Some(text),
            Baggage::Entries(entries) => {
                let text = shared.baggage_text.get_or_init(|| write_baggage(entries).into());
                // Keys and properties are as somebody gave them; a line break would begin another header.
                let is_header_value = text.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
                is_header_value.then_some(text)
            }
        }
    }
}

const TRACEPARENT_LEN: usize = 55;

fn traceparent_text(span: SpanContext) -> [u8; TRACEPARENT_LEN] {
    let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
    let TraceId { high, low } = span.trace_id();
    for (at, number) in [(3, high), (19, low), (36, span.span_id().0)] {
        text[at..at + 8].copy_from_slice(&hex::digits((number >> 32) as u32));
        text[at + 8..at + 16].copy_from_slice(&hex::digits(number as u32));
    }
    text[53..].copy_from_slice(&hex::digits(u32::from(span.flags()))[6..]);
    text
}

/// The number that lower-case hexadecimal digits are.
fn hex_value(bytes: &[u8]) -> Option<u64> {
    bytes.iter().try_fold(0, |value, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(digit))
    })
}

fn long_hex_value(bytes: &[u8]) -> Option<u64> {
    let (high, low) = bytes.split_first_chunk()?;
    Some(u64::from(hex::value(*high)?) << 32 | u64::from(hex::value(*low.first_chunk()?)?))
}

fn parse_traceparent(text: &[u8]) -> Option<SpanContext> {
    let bytes = trim_blanks(text);
    let head: &[u8; TRACEPARENT_LEN] = bytes.first_chunk()?;
    let version = hex_value(&head[..2])?;
    let dashes = head[2] == b'-' && head[35] == b'-' && head[52] == b'-';
    let tail_fits = match version {
        0 => bytes.len() == TRACEPARENT_LEN,
        0xff => false,
        _ => matches!(bytes.get(TRACEPARENT_LEN), None | Some(b'-')),
    };
    if !dashes || !tail_fits {
        return None;
    }
    let trace_id =
        TraceId { high: long_hex_value(&head[3..19])?, low: long_hex_value(&head[19..35])? };
    let span_id = SpanId(long_hex_value(&head[36..52])?);
    let flags = hex_value(&head[53..55])? as u8 & (FLAG_SAMPLED | FLAG_RANDOM);
    let context = SpanContext::with_flags(trace_id, span_id, flags, true);
    context.is_valid().then_some(context)
}

fn trim_blanks(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Of members with one key the first stays: the leftmost is the one written last.
fn parse_tracestate(text: &str) -> Option<Box<str>> {
    let mut members: Vec<(&str, &str)> = Vec::new();
    let mut repeated = false;
    for member in text.split(',') {
        let member = member.trim_matches([' ', '\t']);
        if member.is_empty() {
            continue;
        }
        let (key, value) = member.split_once('=')?;
        if !is_tracestate_key(key) || !is_tracestate_value(value) {
            return None;
        }
        if members.iter().any(|(known, _)| *known == key) {
            repeated = true;
        } else {
            members.push((key, member));
        }
    }
    if members.is_empty() || members.len() > MAX_TRACESTATE_MEMBERS {
        return None;
    }
    if !repeated {
        return Some(text.trim_matches([' ', '\t', ',']).into());
    }
    let members: Vec<&str> = members.into_iter().map(|(_, member)| member).collect();
    Some(members.join(",").into())
}

/// Level 2: a lower-case letter or a digit, then up to 255 characters, `@` among them.
fn is_tracestate_key(key: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_more = |byte: u8| is_first(byte) || matches!(byte, b'_' | b'-' | b'*' | b'/' | b'@');
    key.len() <= 256 && key.bytes().next().is_some_and(is_first) && key.bytes().skip(1).all(is_more)
}

fn is_tracestate_value(value: &str) -> bool {
    !value.is_empty()
        && value.len() <= 256
        && !value.ends_with(' ')
        && value.bytes().all(|byte| matches!(byte, 0x20..=0x7e) && byte != b',' && byte != b'=')
}

/// What a byte may be part of: a key of baggage, a value of baggage.
pub(super) const IN_KEY: u8 = 1;
const IN_VALUE: u8 = 2;
/// Or of a value that is as it reads.
pub(super) const IN_PLAIN_VALUE: u8 = 4;

const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0x21;
    while byte <= 0x7e {
        let character = byte as u8;
        let is_separator = matches!(
            character,
            b'(' | b')'
                | b'<'
                | b'>'
                | b'@'
                | b','
                | b';'
                | b':'
                | b'\\'
                | b'"'
                | b'/'
                | b'['
                | b']'
                | b'?'
                | b'='
                | b'{'
                | b'}'
        );
        if !is_separator {
            classes[byte] |= IN_KEY;
        }
        if !matches!(character, b'"' | b',' | b';' | b'\\') {
            classes[byte] |= IN_VALUE;
            if character != b'%' {
                classes[byte] |= IN_PLAIN_VALUE;
            }
        }
        byte += 1;
    }
    classes
};

#[inline]
pub(super) fn class(byte: u8) -> u8 {
    CLASSES[usize::from(byte)]
}

fn all_in(text: &str, class: u8) -> bool {
    text.bytes().all(|byte| CLASSES[usize::from(byte)] & class != 0)
}

fn is_baggage_octet(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & IN_VALUE != 0
}

impl Baggage {
    /// Reads a `baggage` header.
    fn parse(text: &str) -> (Self, AttributeBytes) {
        if let Some(attributes) = plain_baggage::read(text, promoted_keys()) {
            return (Self::Plain(text.into()), attributes);
        }
        let baggage = Self::Entries(parse_baggage(text));
        let attributes = promoted_attributes(&baggage);
        (baggage, attributes)
    }

    /// Baggage of these entries; the last of a key wins.
    pub(super) fn of(entries: &[(&'static str, String)]) -> (Self, AttributeBytes) {
        let length = entries.iter().map(|(key, value)| key.len() + value.len() + 2).sum();
        let mut text = String::with_capacity(length);
        for (key, value) in entries {
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(key);
            text.push('=');
            text.push_str(value);
        }
        // A value with a comma would read as two entries.
        let are_plain = |(_, value): &(_, String)| {
            value.bytes().all(|byte| is_baggage_octet(byte) && byte != b'%')
        };
        if entries.iter().all(are_plain)
            && let Some(attributes) = plain_baggage::read(&text, promoted_keys())
        {
            return (Self::Plain(text.into()), attributes);
        }
        let mut list = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            put_entry(&mut list, key, value);
        }
        let baggage = Self::Entries(list);
        let attributes = promoted_attributes(&baggage);
        (baggage, attributes)
    }
}

/// Entries of a `baggage` header; members that are not well formed are skipped, the last of a key wins.
fn parse_baggage(text: &str) -> Vec<BaggageEntry> {
    let mut entries: Vec<BaggageEntry> = Vec::with_capacity(8);
    if text.len() > MAX_BAGGAGE_BYTES {
        return entries;
    }
    let bytes = text.as_bytes();
    let mut at = 0;
    for _ in 0..MAX_BAGGAGE_ENTRIES {
        if at >= bytes.len() {
            break;
        }
        let start = at;
        let (mut equals, mut semicolon, mut is_encoded) = (None, None, false);
        while let Some(byte) = bytes.get(at) {
            match byte {
                b',' => break,
                b'=' if equals.is_none() && semicolon.is_none() => equals = Some(at),
                b';' if semicolon.is_none() => semicolon = Some(at),
                b'%' => is_encoded = true,
                _ => {}
            }
            at += 1;
        }
        let end = at;
        at += 1;
        let Some(equals) = equals else { continue };
        let value_end = semicolon.unwrap_or(end);
        let key = text[start..equals].trim_matches([' ', '\t']);
        let value = text[equals + 1..value_end].trim_matches([' ', '\t']);
        if key.is_empty() || !all_in(key, IN_KEY) || !all_in(value, IN_VALUE) {
            continue;
        }
        let value = if is_encoded { decode_baggage(value) } else { Some(value.to_owned()) };
        let Some(value) = value else { continue };
        if let Some(same) = entries.iter().position(|entry| entry.key == key) {
            entries.remove(same);
        }
        entries.push(BaggageEntry {
            key: match promoted_key(key) {
                Some(key) => Cow::Borrowed(key),
                None => Cow::Owned(key.to_owned()),
            },
            value,
            metadata: match semicolon {
                Some(semicolon) => text[semicolon + 1..end].trim().to_owned(),
                None => String::new(),
            },
        });
    }
    entries
}

/// Undoes percent-encoding; `None` when it is not well formed.
fn decode_baggage(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let digits = rest.get(..2)?.to_ascii_lowercase();
        out.push(hex_value(&digits)? as u8);
        rest = &rest[2..];
    }
    String::from_utf8(out).ok()
}

fn write_baggage(entries: &[BaggageEntry]) -> String {
    let mut out = String::with_capacity(entries.len() * 48);
    for entry in entries {
        if !out.is_empty() {
            out.push(',');
        }
        out.push_str(&entry.key);
        out.push('=');
        for byte in entry.value.bytes() {
            if is_baggage_octet(byte) && byte != b'%' {
                out.push(char::from(byte));
            } else {
                // Writing to a string cannot fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
        continue_with_metadata(&mut out, &entry.metadata);
    }
    out
}

fn continue_with_metadata(out: &mut String, metadata: &str) {
    if !metadata.is_empty() {
        out.push(';');
        out.push_str(metadata);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn extract(headers: &[(&str, &'static str)]) -> Context {
        Context::extract(|name| {
            headers.iter().find(|(header, _)| *header == name).map(|(_, value)| *value)
        })
    }

    fn inject(context: &Context) -> HashMap<&'static str, String> {
        let mut headers = HashMap::new();
        context.inject(|name, value| {
            headers.insert(name, value.to_owned());
        });
        headers
    }

    #[test]
    fn bytes_and_variables_carry_what_headers_do() {
        let headers = [("traceparent", PARENT), ("tracestate", "a=1,b=2"), ("baggage", "k=v%20w")];
        let context = extract(&headers);
        let bytes = context.to_bytes();
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            format!("traceparent: {PARENT}\ntracestate: a=1,b=2\nbaggage: k=v%20w\n")
        );
        assert_eq!(inject(&Context::from_bytes(&bytes)), inject(&context));
        let by_hand = format!("Host: x\r\nTRACEPARENT:{PARENT}\r\n\r\n");
        let read = Context::from_bytes(by_hand.as_bytes());
        assert_eq!(read.span_context(), context.span_context());
        for bytes in [&b""[..], b"traceparent", b"traceparent:", b"\xff\xff: 1\n"] {
            assert!(!Context::from_bytes(bytes).span_context().is_valid(), "{bytes:?}");
        }
        assert!(Context::empty().to_bytes().is_empty());

        let mut variables = HashMap::new();
        context.inject_env(|name, value| {
            variables.insert(name, value.to_owned());
        });
        let mut names: Vec<_> = variables.keys().copied().collect();
        names.sort_unstable();
        assert_eq!(names, ["BAGGAGE", "TRACEPARENT", "TRACESTATE"]);
        let read = Context::from_env(|name| variables.get(name).cloned());
        assert_eq!(inject(&read), inject(&context));
    }

    #[test]
    fn traceparent_is_read_strictly() {
        let accepted = [
            (PARENT, true),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", false),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03", true),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff", true),
            (" 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\t", true),
            ("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", true),
            ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-the-future-adds", true),
        ];
        for (text, sampled) in accepted {
            let span = extract(&[("traceparent", text)]).span_context();
            assert!(span.is_valid() && span.is_remote(), "{text}");
            assert_eq!(span.is_sampled(), sampled, "{text}");
            assert_eq!(span.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
            assert_eq!(span.span_id().to_string(), "b7ad6b7169203331");
        }
        let refused = [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.",
            "0g-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333é-01",
        ];
        for text in refused {
            assert!(!extract(&[("traceparent", text)]).span_context().is_valid(), "{text}");
        }
    }

    #[test]
    fn context_goes_out_as_it_came_in() {
        let context = extract(&[
            ("traceparent", PARENT),
            ("tracestate", "rojo=00f067aa0ba902b7,congo@vendor=t61rcWkgMzE"),
            ("baggage", "user=J%C3%BCrgen,task=7;private, broken"),
        ]);
        assert_eq!(context.baggage("user"), Some("Jürgen"));
        assert_eq!(context.baggage("task"), Some("7"));
        assert_eq!(context.baggage("broken"), None);
        let headers = inject(&context);
        assert_eq!(headers["traceparent"], PARENT);
        assert_eq!(headers["tracestate"], "rojo=00f067aa0ba902b7,congo@vendor=t61rcWkgMzE");
        assert_eq!(headers["baggage"], "user=J%C3%BCrgen,task=7;private");
    }

    #[test]
    fn malformed_tracestate_is_discarded_alone() {
        let too_many = (0..33).map(|at| format!("k{at}=v")).collect::<Vec<_>>().join(",").leak();
        for state in ["Upper=1", "a", "a=", "a=b=c", "@x=1", "a.b=1", too_many] {
            let context = extract(&[("traceparent", PARENT), ("tracestate", state)]);
            assert!(context.span_context().is_valid(), "{state}");
            assert!(!inject(&context).contains_key("tracestate"), "{state}");
        }
    }

    #[test]
    fn of_repeated_tracestate_keys_the_first_stays() {
        let context = extract(&[("traceparent", PARENT), ("tracestate", "a=1, b=2,a=3,,c@d@=4")]);
        assert_eq!(inject(&context)["tracestate"], "a=1,b=2,c@d@=4");
    }

    #[test]
    fn a_changed_tracestate_key_moves_to_the_front() {
        let context =
            extract(&[("traceparent", PARENT), ("tracestate", "a=1, b=2"), ("baggage", "k=v")]);
        let changed = context.with_tracestate_entry("b", "3");
        assert_eq!(inject(&changed)["tracestate"], "b=3,a=1");
        assert_eq!(changed.baggage("k"), Some("v"));
        assert_eq!(inject(&changed.with_tracestate_entry("c", "4"))["tracestate"], "c=4,b=3,a=1");
        for (key, value) in [("B", "1"), ("b", ""), ("b", "1,c=2")] {
            assert_eq!(
                inject(&context.with_tracestate_entry(key, value))["tracestate"],
                "a=1, b=2"
            );
        }
        let many: Vec<String> = (0..32).map(|at| format!("k{at}=v")).collect();
        let full = extract(&[("traceparent", PARENT), ("tracestate", many.join(",").leak())]);
        let text = inject(&full.with_tracestate_entry("new", "1"))["tracestate"].clone();
        assert_eq!(text.split(',').count(), 32);
        assert!(text.starts_with("new=1,k0=v") && text.ends_with(",k30=v"), "{text}");
        assert!(
            !inject(&Context::empty().with_tracestate_entry("a", "1")).contains_key("tracestate")
        );
    }

    #[test]
    fn a_space_in_baggage_goes_out_percent_encoded() {
        let written = |entries: &[(&'static str, String)]| match Baggage::of(entries).0 {
            Baggage::Plain(text) => text.into(),
            Baggage::Entries(entries) => write_baggage(&entries),
        };
        assert_eq!(written(&[("run", "a b+c".to_owned())]), "run=a%20b+c");
        let context = extract(&[("traceparent", PARENT), ("baggage", "run=a%20b+c")]);
        assert_eq!(context.baggage("run"), Some("a b+c"));
    }

    #[test]
    fn tracestate_without_a_parent_is_discarded() {
        let context = extract(&[("tracestate", "a=1")]);
        assert!(inject(&context).is_empty());
    }

    #[test]
    fn environment_variables_are_read_like_headers() {
        let context = Context::from_env(|name| (name == "TRACEPARENT").then(|| PARENT.to_owned()));
        assert_eq!(inject(&context)["traceparent"], PARENT);
    }

    #[test]
    fn baggage_that_is_passed_on_as_it_came_reads_as_if_it_had_been_taken_apart() {
        let texts = [
            ("a=1,bb=2", true),
            ("a=", true),
            ("a=b=c", true),
            ("", false),
            ("a", false),
            ("a=1,", false),
            (",a=1", false),
            ("a=1, b=2", false),
            ("a=1,a=2", false),
            ("a=%41", false),
            ("a=1;x", false),
            ("a=\"", false),
            ("a b=1", false),
            ("=1", false),
            ("a=é", false),
        ];
        for (text, plain) in texts {
            assert_eq!(plain_baggage::read(text, promoted_keys()).is_some(), plain, "{text}");
            let entries = parse_baggage(text);
            if plain {
                assert_eq!(write_baggage(&entries), text);
                let baggage = Baggage::parse(text).0.into_entries();
                assert_eq!(format!("{baggage:?}"), format!("{entries:?}"));
            }
        }
        let many =
            (0..=plain_baggage::MAX_ENTRIES).map(|at| format!("k{at}=v")).collect::<Vec<_>>();
        assert!(plain_baggage::read(&many[1..].join(","), &[]).is_some());
        assert!(plain_baggage::read(&many.join(","), &[]).is_none());
    }

    #[test]
    fn values_that_a_header_cannot_hold_are_encoded() {
        let written = |entries: &[(&'static str, String)]| match Baggage::of(entries).0 {
            Baggage::Plain(text) => text.into(),
            Baggage::Entries(entries) => write_baggage(&entries),
        };
        let entry = |key, value: &str| (key, value.to_owned());
        assert_eq!(written(&[entry("a", "1"), entry("b", "2")]), "a=1,b=2");
        assert_eq!(written(&[entry("a", "1,b=2")]), "a=1%2Cb=2");
        assert_eq!(written(&[entry("a", "100%")]), "a=100%25");
        assert_eq!(written(&[entry("a", "1"), entry("b", "2"), entry("a", "3")]), "b=2,a=3");
    }

    #[test]
    fn a_process_that_asks_itself_shares_what_it_wrote() {
        let context = extract(&[("traceparent", PARENT), ("baggage", "task=7")]);
        let guard = context.clone().attach();
        let same = extract(&[("baggage", "task=7")]);
        let other = extract(&[("baggage", "task=8")]);
        let stateful =
            extract(&[("traceparent", PARENT), ("tracestate", "a=1"), ("baggage", "task=7")]);
        drop(guard);
        let (shared, reused) =
            (context.shared().expect("baggage"), same.shared().expect("baggage"));
        assert!(Arc::ptr_eq(shared, reused) && !same.span_context().is_valid());
        assert_eq!(other.baggage("task"), Some("8"));
        assert_eq!(inject(&stateful)["tracestate"], "a=1");
    }

    #[test]
    fn oversized_baggage_is_discarded() {
        let text: &'static str = format!("a={}", "x".repeat(9000)).leak();
        assert_eq!(extract(&[("baggage", text)]).baggage("a"), None);
    }
}
