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

/// All of them, short ones first.
const KEYS: [(&str, Key); 22] = [
    (semconv::URL_PATH, Key::Path(0)),
    (semconv::URL_FULL, Key::Path(1)),
    (semconv::ERROR_TYPE, Key::Says(Said::FAILURE)),
    (foreign::LEGACY_HTTP_TARGET, Key::Target),
    (foreign::ASGI_EVENT_TYPE, Key::AsgiEvent),
    (semconv::CANCELLED, Key::Says(Said::FAILURE)),
    (semconv::ROLLOUT_ID, Key::RolloutId),
    (semconv::TASK_INDEX, Key::Says(Said::INDEX)),
    (lens::semconv::TRUNCATED, Key::Truncated),
    (semconv::ROLLOUT_INDEX, Key::Says(Said::INDEX)),
    (semconv::ATTEMPT_INDEX, Key::Says(Said::INDEX)),
    (semconv::COLLECTION_ID, Key::Says(Said::INDEX)),
    (semconv::ROLLOUT_OUTCOME, Key::Says(Said::OUTCOME)),
    (semconv::HTTP_REQUEST_RESEND_COUNT, Key::Says(Said::RESENT)),
    (semconv::MODEL_QUEUE_NANOS, Key::Says(Said::TIMINGS)),
    (semconv::MODEL_DECODE_NANOS, Key::Says(Said::TIMINGS)),
    (semconv::MODEL_PREFILL_NANOS, Key::Says(Said::TIMINGS)),
    (semconv::GEN_AI_LATENCY_TIME_IN_QUEUE, Key::Says(Said::TIMINGS)),
    (semconv::HTTP_DESTINATION_KIND, Key::DestinationKind),
    (semconv::GEN_AI_LATENCY_TIME_IN_MODEL_DECODE, Key::Says(Said::TIMINGS)),
    (semconv::GEN_AI_LATENCY_TIME_IN_MODEL_PREFILL, Key::Says(Said::TIMINGS)),
    (semconv::HTTP_DESTINATION_SERVER_NAME, Key::Says(Said::DESTINATION)),
];

/// How many keys are shorter than each length, up to one past the longest.
const SHORTER: [u8; KEYS[KEYS.len() - 1].0.len() + 2] = {
    let mut shorter = [0; _];
    let mut length = 0;
    while length < shorter.len() {
        let mut count = 0;
        while count < KEYS.len() && KEYS[count].0.len() < length {
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
        // Others of the same length mostly end otherwise, which is quicker to see.
        let end = text.last_chunk::<8>();
        let is_text = |known: &[u8]| known.last_chunk() == end && known == text;
        let same_length = KEYS.get(from..to)?;
        same_length.iter().find(|(known, _)| is_text(known.as_bytes())).map(|(_, key)| *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_and_nothing_else_is() {
        assert!(KEYS.is_sorted_by_key(|(text, _)| text.len()));
        for (text, key) in KEYS {
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
