//! Spans from the wire.
//!
//! One walk over a span takes out what every view needs and notes which of the attributes that matter to bands and rows it
//! has, so that most spans are never looked into again. Equal texts and processes are shared.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use gym_telemetry::semconv;
use lens_otlp::DecodeError;
use lens_otlp::encode::SPAN_ATTRIBUTES;
use lens_otlp::view::{AnyValue, key_value};
use memchr::memmem::Finder;

use super::foreign;
use super::keys::{Key, TARGET_RANK};
use super::plain::printable;
use super::resource::Resource;
use super::scan::{self, Scan};
use super::span::{Kind, Span, Status};
use crate::ids::SpanId;
use crate::raw::{Origin, RawResource, RawSpan};

/// So many origins are remembered at once.
const ORIGINS: usize = 4096;

/// What is in front of a rollout's id in a path.
static ROLLOUT_PATH: LazyLock<Finder<'static>> =
    LazyLock::new(|| Finder::new(foreign::ROLLOUT_PATH_PREFIX));

/// What the attributes of a span say something about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said(u8);

impl Said {
    /// An engine's stages.
    pub(crate) const TIMINGS: Self = Self(1);
    /// Who was called.
    pub(crate) const DESTINATION: Self = Self(1 << 1);
    /// How often a request was sent again.
    pub(crate) const RESENT: Self = Self(1 << 2);
    /// Which rollout of which run it is part of.
    pub(crate) const INDEX: Self = Self(1 << 3);
    /// How a rollout ended.
    pub(crate) const OUTCOME: Self = Self(1 << 4);
    /// The class of a failure, or that the caller went away.
    pub(crate) const FAILURE: Self = Self(1 << 5);
    /// That a model endpoint was called.
    pub(crate) const TO_MODEL: Self = Self(1 << 6);

    pub(crate) fn has(self, what: Self) -> bool {
        self.0 & what.0 != 0
    }

    fn add(&mut self, what: Self) {
        self.0 |= what.0;
    }
}

/// Makes [`Span`]s, sharing what is equal among them.
#[derive(Default, Debug)]
pub struct Reader {
    /// Names that are shown as they are.
    names: Texts,
    texts: Texts,
    /// The last attribute with a rollout's id, and that id: the spans of a rollout follow each other.
    rollout: Option<(Box<[u8]>, Arc<str>)>,
    resources: HashMap<RawResource, Arc<Resource>>,
    /// The place of one is found by its address; it is held, so that the address stays its own.
    origins: Vec<Option<(Arc<Origin>, Arc<Resource>)>>,
}

impl Reader {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// When it is malformed; never for a span from [`decode`](crate::raw::decode).
    pub fn read(&mut self, raw: RawSpan) -> Result<Span, DecodeError> {
        let resource = self.resource(&raw.origin);
        let fields = Fieldwise::read(&raw.message)?;
        let name = self.name(&fields)?;
        let rollout_id = self.rollout_id(&fields, &raw.message)?;
        let Fieldwise { parent_id, kind, end_nanos, status, said, first_event, .. } = fields;
        let (is_asgi_event, is_truncated) = (fields.is_asgi_event, fields.is_truncated);
        Ok(Span {
            parent_id,
            name,
            kind,
            end_nanos: end_nanos.max(raw.start_nanos),
            status,
            rollout_id,
            is_asgi_event,
            is_truncated: is_truncated || end_nanos == 0,
            ends_before_start: end_nanos != 0 && end_nanos < raw.start_nanos,
            is_twin: false,
            said,
            first_event,
            resource,
            raw,
        })
    }

    fn name(&mut self, fields: &Fieldwise<'_>) -> Result<Arc<str>, DecodeError> {
        // A target changes only names without a path of their own.
        if fields.target.is_none()
            && let Some(known) = self.names.find(fields.name)
        {
            return Ok(known);
        }
        let name = text(fields.name)?;
        Ok(match display_name(name, fields.target) {
            None => self.names.shared(name),
            Some(shown) => self.texts.shared(&shown),
        })
    }

    fn rollout_id(
        &mut self,
        fields: &Fieldwise<'_>,
        message: &[u8],
    ) -> Result<Option<Arc<str>>, DecodeError> {
        if let (Some((known, id)), Some(pair)) = (&self.rollout, fields.rollout)
            && **known == *pair
        {
            return Ok(Some(Arc::clone(id)));
        }
        let said = fields.rollout.map(key_value).transpose()?.and_then(|(_, value)| value);
        let id = match said {
            Some(AnyValue::String(id)) => self.printable(id),
            Some(AnyValue::Int(id)) => self.texts.shared(&id.to_string()),
            _ => {
                let path = fields.has_path.then(|| rollout_path(message)).flatten();
                let id = path.and_then(rollout_in_path);
                return Ok(id.map(|(id, _)| self.printable(id)));
            }
        };
        self.rollout = fields.rollout.map(|pair| (pair.into(), Arc::clone(&id)));
        Ok(Some(id))
    }

    fn printable(&mut self, text: &str) -> Arc<str> {
        match text.contains(char::is_control) {
            false => self.texts.shared(text),
            true => self.texts.shared(&printable(text)),
        }
    }

    fn resource(&mut self, origin: &Arc<Origin>) -> Arc<Resource> {
        let place = place_of(Arc::as_ptr(origin) as u64, ORIGINS);
        if let Some(Some((known, resource))) = self.origins.get(place)
            && Arc::ptr_eq(known, origin)
        {
            return Arc::clone(resource);
        }
        let resource = match self.resources.get(&*origin.resource) {
            Some(resource) => Arc::clone(resource),
            None => {
                let resource = Arc::new(Resource::read(&origin.resource));
                // A copy of its own: the message is part of a request that is much larger.
                let key = RawResource {
                    message: bytes::Bytes::copy_from_slice(&origin.resource.message),
                    schema_url: origin.resource.schema_url.clone(),
                };
                self.resources.insert(key, Arc::clone(&resource));
                resource
            }
        };
        self.origins.resize(ORIGINS, None);
        self.origins[place] = Some((Arc::clone(origin), Arc::clone(&resource)));
        resource
    }
}

/// One of so many places, a power of two.
fn place_of(word: u64, places: usize) -> usize {
    // The upper bits of the product depend on all of the word.
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - places.ilog2())) as usize
}

/// Texts that were read not long ago. A place is found by length and ends and holds one text: two that want the same place
/// cost an allocation now and then, whoever chose them, and memory is bounded.
#[derive(Default, Debug)]
struct Texts(Vec<Option<Arc<str>>>);

impl Texts {
    const PLACES: usize = 1024;

    fn find(&self, text: &[u8]) -> Option<Arc<str>> {
        let known = self.0.get(Self::place(text))?.as_ref()?;
        (known.as_bytes() == text).then(|| Arc::clone(known))
    }

    fn shared(&mut self, text: &str) -> Arc<str> {
        if self.0.is_empty() {
            self.0.resize(Self::PLACES, None);
        }
        let place = &mut self.0[Self::place(text.as_bytes())];
        match place {
            Some(known) if **known == *text => Arc::clone(known),
            _ => Arc::clone(place.insert(text.into())),
        }
    }

    fn place(text: &[u8]) -> usize {
        let eight = |bytes: &[u8]| match bytes.first_chunk() {
            Some(eight) => u64::from_le_bytes(*eight),
            None => {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                u64::from_le_bytes(word)
            }
        };
        let end = text.len().saturating_sub(8);
        let middle = text.len() / 2;
        let word = eight(text)
            ^ eight(&text[end..]).rotate_left(23)
            ^ eight(&text[middle..]).rotate_left(41)
            ^ text.len() as u64;
        place_of(word, Self::PLACES)
    }
}

fn text(bytes: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|_| DecodeError::Utf8)
}

/// A span's fields, taken out in one walk.
struct Fieldwise<'a> {
    parent_id: Option<SpanId>,
    name: &'a [u8],
    kind: Kind,
    end_nanos: u64,
    status: Status,
    said: Said,
    first_event: Option<u32>,
    is_asgi_event: bool,
    is_truncated: bool,
    /// The attribute with the rollout's id.
    rollout: Option<&'a [u8]>,
    /// It has attributes that a rollout's id may be in the path of.
    has_path: bool,
    /// Path and query of the request, as older conventions call it.
    target: Option<&'a str>,
}

impl<'a> Fieldwise<'a> {
    fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut scan = Scan(message);
        let head = scan.head();
        let mut fields = Self {
            parent_id: SpanId::from_bytes(head.parent_id),
            name: head.name,
            kind: Kind::from_otlp(head.kind),
            end_nanos: head.end_nanos,
            status: Status::Unset,
            said: Said::default(),
            first_event: None,
            is_asgi_event: false,
            is_truncated: false,
            rollout: None,
            has_path: false,
            target: None,
        };
        loop {
            let left = scan.0.len();
            let Some(field) = scan.next_likely(SPAN_ATTRIBUTES)? else { return Ok(fields) };
            match field {
                (4, content) => fields.parent_id = SpanId::from_bytes(content.bytes()?),
                (5, content) => fields.name = content.bytes()?,
                (6, content) => fields.kind = Kind::from_otlp(content.number()?),
                (8, content) => fields.end_nanos = content.fixed()?,
                (9, content) => fields.attribute(content.bytes()?),
                (11, _) if fields.first_event.is_none() => {
                    fields.first_event = u32::try_from(message.len() - left).ok();
                }
                (15, content) => fields.status(content.bytes()?)?,
                _ => {}
            }
        }
    }

    fn status(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        let mut scan = Scan(message);
        while let Some(field) = scan.next()? {
            if let (3, content) = field {
                self.status = Status::from_number(content.number()?);
            }
        }
        Ok(())
    }

    fn attribute(&mut self, pair: &'a [u8]) {
        let is_model = |pair| scan::has_text(pair, semconv::value::destination::MODEL);
        match Key::of(scan::key(pair)) {
            Some(Key::RolloutId) => self.rollout = Some(pair),
            Some(Key::Says(what)) => self.said.add(what),
            Some(Key::DestinationKind) if is_model(pair) => self.said.add(Said::TO_MODEL),
            Some(Key::AsgiEvent) => self.is_asgi_event = true,
            Some(Key::Truncated) => {
                self.is_truncated = matches!(key_value(pair), Ok((_, Some(AnyValue::Bool(true)))));
            }
            Some(Key::Path(_)) => self.has_path = true,
            Some(Key::Target) => {
                self.has_path = true;
                if let Ok((_, Some(AnyValue::String(target)))) = key_value(pair) {
                    self.target = Some(target);
                }
            }
            None | Some(Key::DestinationKind) => {}
        }
    }
}

/// A path with a rollout's id in it, from the attribute that counts most and of equal ones the last.
fn rollout_path(message: &[u8]) -> Option<&str> {
    // Nearly none has the segment in front of a rollout's id.
    ROLLOUT_PATH.find(message)?;
    let paths = scan::pairs(message, SPAN_ATTRIBUTES).filter_map(|(key, pair)| {
        let rank = match Key::of(key)? {
            Key::Path(rank) => rank,
            Key::Target => TARGET_RANK,
            _ => return None,
        };
        match key_value(pair) {
            Ok((_, Some(AnyValue::String(path)))) if has_rollout(path) => Some((rank, path)),
            _ => None,
        }
    });
    let most = paths.reduce(|known, path| if path.0 <= known.0 { path } else { known });
    most.map(|(_, path)| path)
}

/// Whether a path has the segment in front of a rollout's id; nearly none has.
fn has_rollout(path: &str) -> bool {
    let prefix = foreign::ROLLOUT_PATH_PREFIX.as_bytes();
    let bytes = path.as_bytes();
    bytes.len() > prefix.len()
        && (0..bytes.len() - prefix.len())
            .any(|at| bytes[at] == b'/' && bytes[at..].starts_with(prefix))
}

/// Rollout id and the rest of `…/ng-rollout/<id>/verify`.
fn rollout_in_path(path: &str) -> Option<(&str, &str)> {
    let (_, tail) = path.split_once(foreign::ROLLOUT_PATH_PREFIX)?;
    let end = tail.find('/')?;
    (end > 0).then(|| (&tail[..end], &tail[end..]))
}

/// The reference names a request under `/ng-rollout/<id>` after the prefixed route, or after no
/// route at all; the prefix says nothing that the rollout id does not.
fn display_name(name: &str, target: Option<&str>) -> Option<String> {
    let cut = match (name.split_once(' '), target) {
        (Some((method, path)), _) if path.starts_with(foreign::ROLLOUT_PATH_PREFIX) => {
            rollout_in_path(path).map(|(_, rest)| format!("{method} {rest}"))
        }
        (None, Some(target)) => rollout_in_path(target)
            .map(|(_, rest)| format!("{name} {}", rest.split('?').next().unwrap_or(rest))),
        _ => None,
    };
    let shown = cut.as_deref().unwrap_or(name);
    match shown {
        "" => Some("(no name)".to_owned()),
        shown if shown.contains(char::is_control) => Some(printable(shown)),
        _ => cut,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::Sketch;
    use super::*;

    fn any_sketch() -> impl Strategy<Value = Sketch> {
        let name = prop::sample::select(vec![
            "POST",
            "POST /run",
            "POST /ng-rollout/{rollout_id}/verify",
            "gym.rollout",
            "a\u{1b}[31mb",
            "",
        ]);
        let texts = prop::sample::subsequence(
            vec![
                (semconv::ROLLOUT_ID, "0-1"),
                (semconv::ROLLOUT_ID, "0\u{7}-1"),
                (semconv::ERROR_TYPE, "timeout"),
                (semconv::HTTP_DESTINATION_KIND, "model"),
                (semconv::URL_PATH, "/ng-rollout/3-4/run"),
                (semconv::URL_FULL, "http://localhost/ng-rollout/5-6/verify"),
                (foreign::LEGACY_HTTP_TARGET, "/ng-rollout/7-8/verify?x=1"),
                (foreign::LEGACY_HTTP_TARGET, "/verify"),
            ],
            0..4,
        );
        let numbers = prop::sample::subsequence(
            vec![(semconv::ROLLOUT_ID, 7), (semconv::TASK_INDEX, 1)],
            0..2,
        );
        let attempts = prop::collection::vec(Just((0, 1, 2)), 0..2);
        (name, texts, numbers, attempts).prop_map(|(name, texts, numbers, attempts)| Sketch {
            name,
            texts,
            numbers,
            attempts,
            ..Sketch::default()
        })
    }

    proptest! {
        /// Guarantees: what is remembered of spans before changes nothing of what is read from one.
        #[test]
        fn a_span_is_read_alike_whatever_was_read_before(
            sketches in prop::collection::vec(any_sketch(), 0..12),
        ) {
            let mut reader = Reader::default();
            for sketch in &sketches {
                let said = |span: Span| {
                    (span.name, span.rollout_id, span.said, span.first_event, span.is_asgi_event)
                };
                let again = said(reader.read(sketch.raw()).unwrap());
                prop_assert_eq!(again, said(Reader::default().read(sketch.raw()).unwrap()));
            }
        }

        /// Guarantees: events are found from where the first of them is.
        #[test]
        fn the_first_event_is_where_it_is_said_to_be(sketch in any_sketch()) {
            let raw = sketch.raw();
            let events: Vec<_> = scan::pairs(&raw.message, 11).map(|(_, event)| event).collect();
            let span = Reader::default().read(raw.clone()).unwrap();
            let rest = span.first_event.map_or(&[][..], |at| &raw.message[at as usize..]);
            let found: Vec<_> = scan::pairs(rest, 11).map(|(_, event)| event).collect();
            prop_assert_eq!(found, events);
        }
    }

    #[test]
    fn of_several_paths_with_a_rollout_the_one_that_counts_most_tells_its_id() {
        let read = |texts: &[(&'static str, &'static str)]| {
            let sketch = Sketch { texts: texts.to_vec(), ..Sketch::default() };
            let span = Reader::default().read(sketch.raw()).unwrap();
            span.rollout_id.map(|id| id.to_string())
        };
        let path = (semconv::URL_PATH, "/ng-rollout/1-1/run");
        let url = (semconv::URL_FULL, "http://agent/ng-rollout/2-2/run");
        let target = (foreign::LEGACY_HTTP_TARGET, "/ng-rollout/3-3/run");
        let id = (semconv::ROLLOUT_ID, "4-4");
        for (texts, expected) in [
            (&[target, url, path, id][..], Some("4-4")),
            (&[target, path, url][..], Some("1-1")),
            (&[url, target][..], Some("2-2")),
            (&[(semconv::URL_PATH, "/run"), target][..], Some("3-3")),
            (&[path, (semconv::URL_PATH, "/ng-rollout/5-5/run")][..], Some("5-5")),
            (&[path, (semconv::URL_PATH, "/run")][..], Some("1-1")),
            (&[("text", "/ng-rollout/6-6/run"), (semconv::URL_PATH, "/run")][..], None),
        ] {
            assert_eq!(read(texts).as_deref(), expected, "{texts:?}");
        }
    }

    #[test]
    fn a_prefixed_route_is_named_like_the_route() {
        assert_eq!(
            display_name("POST /ng-rollout/{rollout_id}/v1/responses", None).as_deref(),
            Some("POST /v1/responses")
        );
        assert_eq!(
            display_name("POST", Some("/ng-rollout/0-0/verify?x=1")).as_deref(),
            Some("POST /verify")
        );
        assert_eq!(display_name("POST", Some("/nowhere")), None);
        assert_eq!(display_name("", None).as_deref(), Some("(no name)"));
    }

    #[test]
    fn a_name_cannot_control_the_terminal() {
        assert_eq!(display_name("a\u{1b}[31mb\n", None).as_deref(), Some("a\u{fffd}[31mb\u{fffd}"));
    }
}
