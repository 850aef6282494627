//! Spans from the wire.
//!
//! One walk over a span takes out what every view needs and notes which of the attributes that matter to bands and rows it
//! has, so that most spans are never looked into again. Equal texts and processes are shared.

use std::collections::hash_map::{Entry, HashMap};
use std::sync::Arc;

use gym_telemetry::semconv;
use lens_otlp::DecodeError;
use lens_otlp::view::{AnyValue, key_value};

use super::foreign;
use super::plain::printable;
use super::resource::Resource;
use super::scan::{self, Scan};
use super::span::{Kind, Span, Status};
use crate::ids::SpanId;
use crate::raw::{Origin, RawResource, RawSpan};

/// So many processes are remembered at once.
const MAX_ORIGINS: usize = 4096;

/// How long the keys are that are looked for.
const LENGTHS: std::ops::RangeInclusive<usize> = 8..=37;

/// What the attributes of a span say something about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said(u16);

impl Said {
    /// It has events.
    pub(crate) const EVENTS: Self = Self(1);
    /// An engine's stages.
    pub(crate) const TIMINGS: Self = Self(1 << 1);
    /// Who was called.
    pub(crate) const DESTINATION: Self = Self(1 << 2);
    /// How often a request was sent again.
    pub(crate) const RESENT: Self = Self(1 << 3);
    /// Which rollout of which run it is part of.
    pub(crate) const INDEX: Self = Self(1 << 4);
    /// How a rollout ended.
    pub(crate) const OUTCOME: Self = Self(1 << 5);
    /// The class of a failure, or that the caller went away.
    pub(crate) const FAILURE: Self = Self(1 << 6);
    /// That a model endpoint was called.
    pub(crate) const TO_MODEL: Self = Self(1 << 7);

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
    texts: Texts,
    resources: HashMap<RawResource, Arc<Resource>>,
    /// By address; the origin is held, so that the address stays its own.
    origins: HashMap<usize, (Arc<Origin>, Arc<Resource>)>,
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
        let name = match fields.display_name() {
            None => self.texts.shared(fields.name),
            Some(name) => self.texts.shared(&name),
        };
        let rollout_id = match fields.rollout_id()? {
            None => None,
            Some(RolloutId::Plain(id)) if !id.contains(char::is_control) => {
                Some(self.texts.shared(id))
            }
            Some(RolloutId::Plain(id)) => Some(self.texts.shared(&printable(id))),
            Some(RolloutId::Number(id)) => Some(self.texts.shared(&id.to_string())),
        };
        let Fieldwise { parent_id, kind, end_nanos, status, said, .. } = fields;
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
            resource,
            raw,
        })
    }

    fn resource(&mut self, origin: &Arc<Origin>) -> Arc<Resource> {
        let address = Arc::as_ptr(origin) as usize;
        if let Some((_, resource)) = self.origins.get(&address) {
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
        if self.origins.len() >= MAX_ORIGINS {
            self.origins.clear();
        }
        match self.origins.entry(address) {
            Entry::Occupied(known) => Arc::clone(&known.get().1),
            Entry::Vacant(place) => Arc::clone(&place.insert((Arc::clone(origin), resource)).1),
        }
    }
}

/// Texts that were read not long ago. A place is found by length and ends and holds one text: two that want the same place
/// cost an allocation now and then, whoever chose them, and memory is bounded.
#[derive(Default, Debug)]
struct Texts(Vec<Option<Arc<str>>>);

impl Texts {
    const PLACES: usize = 1024;

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
        let eight = |bytes: &[u8]| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        };
        let end = text.len().saturating_sub(8);
        let middle = text.len() / 2;
        let word = eight(&text[..text.len().min(8)])
            ^ eight(&text[end..]).rotate_left(23)
            ^ eight(&text[middle..text.len().min(middle + 8)]).rotate_left(41)
            ^ text.len() as u64;
        // The upper bits of the product depend on all of the word.
        (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % Self::PLACES
    }
}

enum RolloutId<'a> {
    Plain(&'a str),
    Number(i64),
}

/// A span's fields, taken out in one walk.
struct Fieldwise<'a> {
    parent_id: Option<SpanId>,
    name: &'a str,
    kind: Kind,
    end_nanos: u64,
    status: Status,
    said: Said,
    is_asgi_event: bool,
    is_truncated: bool,
    /// The attribute with the rollout's id.
    rollout: Option<&'a [u8]>,
    /// A path with a rollout's id in it, from the attribute that counts most.
    path: Option<(u8, &'a str)>,
    /// Path and query of the request, as older conventions call it.
    target: Option<&'a str>,
}

impl<'a> Fieldwise<'a> {
    fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut fields = Self {
            parent_id: None,
            name: "",
            kind: Kind::Internal,
            end_nanos: 0,
            status: Status::Unset,
            said: Said::default(),
            is_asgi_event: false,
            is_truncated: false,
            rollout: None,
            path: None,
            target: None,
        };
        let mut scan = Scan(message);
        while let Some(field) = scan.next()? {
            match field {
                (4, content) => fields.parent_id = SpanId::from_bytes(content.bytes()?),
                (5, content) => fields.name = content.text()?,
                (6, content) => fields.kind = Kind::from_otlp(content.number()?),
                (8, content) => fields.end_nanos = content.fixed()?,
                (9, content) => fields.attribute(content.bytes()?)?,
                (11, _) => fields.said.add(Said::EVENTS),
                (15, content) => fields.status(content.bytes()?)?,
                _ => {}
            }
        }
        Ok(fields)
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

    fn attribute(&mut self, message: &'a [u8]) -> Result<(), DecodeError> {
        let key = scan::key(message);
        // No key of the others is shorter or longer, and a span has many others.
        if !(LENGTHS.contains(&key.len())) {
            return Ok(());
        }
        let Ok(key) = std::str::from_utf8(key) else { return Err(DecodeError::Utf8) };
        match key {
            semconv::ROLLOUT_ID => self.rollout = Some(message),
            semconv::TASK_INDEX
            | semconv::ROLLOUT_INDEX
            | semconv::ATTEMPT_INDEX
            | semconv::COLLECTION_ID => self.said.add(Said::INDEX),
            semconv::HTTP_DESTINATION_KIND => {
                let kind = key_value(message)?.1;
                let model = semconv::value::destination::MODEL;
                if matches!(kind, Some(AnyValue::String(kind)) if kind == model) {
                    self.said.add(Said::TO_MODEL);
                }
            }
            semconv::HTTP_DESTINATION_SERVER_NAME => self.said.add(Said::DESTINATION),
            semconv::HTTP_REQUEST_RESEND_COUNT => self.said.add(Said::RESENT),
            semconv::ROLLOUT_OUTCOME => self.said.add(Said::OUTCOME),
            semconv::ERROR_TYPE | semconv::CANCELLED => self.said.add(Said::FAILURE),
            semconv::MODEL_QUEUE_NANOS
            | semconv::MODEL_PREFILL_NANOS
            | semconv::MODEL_DECODE_NANOS
            | semconv::GEN_AI_LATENCY_TIME_IN_QUEUE
            | semconv::GEN_AI_LATENCY_TIME_IN_MODEL_PREFILL
            | semconv::GEN_AI_LATENCY_TIME_IN_MODEL_DECODE => self.said.add(Said::TIMINGS),
            foreign::ASGI_EVENT_TYPE => self.is_asgi_event = true,
            lens::semconv::TRUNCATED => {
                self.is_truncated = matches!(key_value(message)?.1, Some(AnyValue::Bool(true)));
            }
            semconv::URL_PATH => self.path(0, message)?,
            semconv::URL_FULL => self.path(1, message)?,
            foreign::LEGACY_HTTP_TARGET => {
                self.path(2, message)?;
                if let Some(AnyValue::String(target)) = key_value(message)?.1 {
                    self.target = Some(target);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn path(&mut self, rank: u8, message: &'a [u8]) -> Result<(), DecodeError> {
        let (_, value) = key_value(message)?;
        if let Some(AnyValue::String(path)) = value
            && has_rollout(path)
            && self.path.is_none_or(|(known, _)| rank <= known)
        {
            self.path = Some((rank, path));
        }
        Ok(())
    }

    fn rollout_id(&self) -> Result<Option<RolloutId<'a>>, DecodeError> {
        let said = match self.rollout {
            Some(message) => key_value(message)?.1,
            None => None,
        };
        Ok(match said {
            Some(AnyValue::String(id)) => Some(RolloutId::Plain(id)),
            Some(AnyValue::Int(id)) => Some(RolloutId::Number(id)),
            _ => self
                .path
                .and_then(|(_, path)| rollout_in_path(path))
                .map(|(id, _)| RolloutId::Plain(id)),
        })
    }

    /// The name when it is not shown as it is.
    fn display_name(&self) -> Option<String> {
        display_name(self.name, self.target)
    }
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
    use super::*;

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
