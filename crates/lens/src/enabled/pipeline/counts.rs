//! The counts of a pipeline as words in the head of its mapping, for whoever looks from outside.

use crate::PipelineSnapshot;
use crate::semconv::drop_reason;

/// How many words there are. The places are part of the file's format; new ones come at the end.
pub(in crate::enabled) const WORDS: usize = 16;

/// Reasons of drops, in the order of their words.
const REASONS: [&str; 5] = [
    drop_reason::BUFFER_FULL,
    drop_reason::TOO_LARGE,
    drop_reason::EXPORT_FAILED,
    drop_reason::SPOOL_FULL,
    drop_reason::SHUT_DOWN,
];

/// A snapshot as words.
pub(in crate::enabled) fn to_words(snapshot: &PipelineSnapshot) -> [u64; WORDS] {
    let of = |reason: &str| {
        let known = snapshot.dropped.iter().find(|(known, _)| *known == reason);
        known.map_or(0, |(_, count)| *count)
    };
    let [buffer_full, too_large, export_failed, spool_full, shut_down] = REASONS.map(of);
    [
        snapshot.ended,
        snapshot.exported,
        snapshot.rejected,
        snapshot.spooled,
        snapshot.queued,
        snapshot.recovered,
        snapshot.unrecovered,
        snapshot.unrecorded,
        snapshot.buffer_bytes,
        snapshot.buffer_fill.to_bits(),
        snapshot.export_failures,
        buffer_full,
        too_large,
        export_failed,
        spool_full,
        shut_down,
    ]
}

/// The snapshot that the words are.
pub(in crate::enabled) fn from_words(words: &[u64; WORDS]) -> PipelineSnapshot {
    let [
        ended,
        exported,
        rejected,
        spooled,
        queued,
        recovered,
        unrecovered,
        unrecorded,
        buffer_bytes,
        buffer_fill,
        export_failures,
        dropped @ ..,
    ] = *words;
    let dropped = REASONS.into_iter().zip(dropped).filter(|(_, count)| *count > 0).collect();
    PipelineSnapshot {
        ended,
        exported,
        rejected,
        dropped,
        spooled,
        queued,
        recovered,
        unrecovered,
        unrecorded,
        buffer_bytes,
        buffer_fill: f64::from_bits(buffer_fill),
        export_failures,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_the_same_after_it_was_words() {
        let snapshot = PipelineSnapshot {
            ended: 1,
            exported: 2,
            rejected: 3,
            dropped: vec![(drop_reason::TOO_LARGE, 4), (drop_reason::SHUT_DOWN, 5)],
            spooled: 6,
            queued: 7,
            recovered: 8,
            unrecovered: 9,
            unrecorded: 10,
            buffer_bytes: 11,
            buffer_fill: 0.25,
            export_failures: 12,
        };
        assert_eq!(from_words(&to_words(&snapshot)), snapshot);
    }
}
