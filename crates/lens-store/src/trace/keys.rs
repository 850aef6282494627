//! The attributes that bands, rows and names are made of. Nearly every attribute of a span is none of them, which its
//! length and a few bytes tell.

use gym_telemetry::semconv;

use super::foreign;
use super::reader::Said;

/// What an attribute says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// The rollout's id.
    RolloutId,
    /// Something that is looked up when it is wanted.
    Says(Said),
    /// What kind of server is called.
    DestinationKind,
    /// That the span is one of an ASGI server's events.
    AsgiEvent,
    /// Whether the span was cut off.
    Truncated,
    /// A path that a rollout's id may be in; of several the highest rank counts.
    Path(u8),
    /// Path and query, as older conventions call them: such a path too.
    Target,
}

/// The rank of [`Key::Target`] among paths.
pub(super) const TARGET_RANK: u8 = 2;

/// A key, what it says, and how its text ends: others of the same length mostly end otherwise, which is quicker to see.
struct Known {
    text: &'static str,
    end: u64,
    key: Key,
}

impl Known {
    const fn new(text: &'static str, key: Key) -> Self {
        Self { text, end: end_of(text.as_bytes()), key }
    }
}

/// The last bytes of a text as a number; of a shorter one 0.
#[inline]
const fn end_of(text: &[u8]) -> u64 {
    match text.last_chunk() {
        Some(end) => u64::from_le_bytes(*end),
        None => 0,
    }
}

/// All of them, short ones first.
const KEYS: [Known; 22] = [
    Known::new(semconv::URL_PATH, Key::Path(0)),
    Known::new(semconv::URL_FULL, Key::Path(1)),
    Known::new(semconv::ERROR_TYPE, Key::Says(Said::FAILURE)),
    Known::new(foreign::LEGACY_HTTP_TARGET, Key::Target),
    Known::new(foreign::ASGI_EVENT_TYPE, Key::AsgiEvent),
    Known::new(semconv::CANCELLED, Key::Says(Said::FAILURE)),
    Known::new(semconv::ROLLOUT_ID, Key::RolloutId),
    Known::new(semconv::TASK_INDEX, Key::Says(Said::INDEX)),
    Known::new(lens::semconv::TRUNCATED, Key::Truncated),
    Known::new(semconv::ROLLOUT_INDEX, Key::Says(Said::INDEX)),
    Known::new(semconv::ATTEMPT_INDEX, Key::Says(Said::INDEX)),
    Known::new(semconv::COLLECTION_ID, Key::Says(Said::INDEX)),
    Known::new(semconv::ROLLOUT_OUTCOME, Key::Says(Said::OUTCOME)),
    Known::new(semconv::HTTP_REQUEST_RESEND_COUNT, Key::Says(Said::RESENT)),
    Known::new(semconv::MODEL_QUEUE_NANOS, Key::Says(Said::TIMINGS)),
    Known::new(semconv::MODEL_DECODE_NANOS, Key::Says(Said::TIMINGS)),
    Known::new(semconv::MODEL_PREFILL_NANOS, Key::Says(Said::TIMINGS)),
    Known::new(semconv::GEN_AI_LATENCY_TIME_IN_QUEUE, Key::Says(Said::TIMINGS)),
    Known::new(semconv::HTTP_DESTINATION_KIND, Key::DestinationKind),
    Known::new(semconv::GEN_AI_LATENCY_TIME_IN_MODEL_DECODE, Key::Says(Said::TIMINGS)),
    Known::new(semconv::GEN_AI_LATENCY_TIME_IN_MODEL_PREFILL, Key::Says(Said::TIMINGS)),
    Known::new(semconv::HTTP_DESTINATION_SERVER_NAME, Key::Says(Said::DESTINATION)),
];

/// How many keys are shorter than each length, up to one past the longest.
const SHORTER: [u8; KEYS[KEYS.len() - 1].text.len() + 2] = {
    let mut shorter = [0; _];
    let mut length = 0;
    while length < shorter.len() {
        let mut count = 0;
        while count < KEYS.len() && KEYS[count].text.len() < length {
            count += 1;
        }
        shorter[length] = count as u8;
        length += 1;
    }
    shorter
};

impl Key {
    /// The key with this text, if it is one of them.
    #[inline]
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        let from = usize::from(*SHORTER.get(text.len())?);
        let to = usize::from(*SHORTER.get(text.len() + 1)?);
        let end = end_of(text);
        let is_text = |known: &&Known| known.end == end && known.text.as_bytes() == text;
        KEYS.get(from..to)?.iter().find(is_text).map(|known| known.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_and_nothing_else_is() {
        assert!(KEYS.is_sorted_by_key(|known| known.text.len()));
        for Known { text, key, .. } in KEYS {
            assert_eq!(Key::of(text.as_bytes()), Some(key), "{text}");
            let mut other = text.to_owned();
            other.pop();
            assert_eq!(Key::of(other.as_bytes()), None, "{other}");
            other.push('~');
            assert_eq!(Key::of(other.as_bytes()), None, "{other}");
        }
        for length in 0..100 {
            assert_eq!(Key::of("x".repeat(length).as_bytes()), None, "{length}");
        }
    }
}
