use proptest::prelude::*;

use super::*;
use crate::partition::tests::{any_piece, tree};
use crate::path;

/// The path of a rollout, each stretch of a model call or of anything else as its piece says.
fn path_of(pieces: &[Piece]) -> Vec<Segment> {
    let own = path::critical(pieces, &path::clipped(pieces)).into_iter();
    let band = |piece: usize| match pieces[piece].make {
        Make::Known(band) => band,
        _ => Band::Model,
    };
    own.map(|path::Own { piece, from_nanos, to_nanos }| Segment {
        piece,
        from_nanos,
        to_nanos,
        band: band(piece),
    })
    .collect()
}

/// Piece and band of each nanosecond.
fn nanos_of(segments: &[Segment]) -> Vec<(usize, Band)> {
    let of_segment = |segment: &Segment| {
        std::iter::repeat_n((segment.piece, segment.band), segment.nanos() as usize)
    };
    segments.iter().flat_map(of_segment).collect()
}

/// The same, nanosecond by nanosecond.
fn laid_simply(pieces: &[Piece], segments: &[Segment]) -> (bool, Vec<(usize, Band)>) {
    let mut nanos = nanos_of(segments);
    let begin = segments.first().map_or(0, |segment| segment.from_nanos);
    let mut scaled = false;
    for (carrier, call) in pieces.iter().enumerate() {
        let mut below: Vec<usize> = vec![carrier];
        below.extend((carrier + 1..pieces.len()).filter(|&at| {
            let mut above = at;
            while above > carrier {
                above = pieces[above].parent;
            }
            above == carrier
        }));
        let Some(timings) = call.timings else { continue };
        if below[1..].iter().any(|&at| pieces[at].timings.is_some()) {
            continue;
        }
        let asked = below[1..].iter().map(|&at| &pieces[at]);
        let asked = asked.filter(|piece| piece.make == Make::Client { to_model: true });
        let reply = asked.map(|piece| piece.end_nanos).max().unwrap_or(u64::MAX);
        let end = reply.min(call.end_nanos).saturating_sub(begin) as usize;
        let mut room: Vec<&mut Band> = nanos
            .iter_mut()
            .take(end)
            .filter(|(piece, band)| below.contains(piece) && *band == Band::Model)
            .map(|(_, band)| band)
            .collect();
        let Timings { queue_nanos, prefill_nanos, decode_nanos } = timings;
        let asked = queue_nanos + prefill_nanos + decode_nanos;
        let (fits, there) = (asked <= room.len() as u64, room.len() as u64);
        scaled |= !fits;
        let stages = [
            (Band::Decode, decode_nanos),
            (Band::Prefill, prefill_nanos),
            (Band::Queue, queue_nanos),
        ];
        for (stage, nanos) in stages {
            for _ in 0..if fits { nanos } else { nanos * there / asked } {
                if let Some(band) = room.pop() {
                    *band = stage;
                }
            }
        }
    }
    (scaled, nanos)
}

proptest! {
    /// Guarantees: every nanosecond is of the stage that it would be of if each was looked at alone.
    #[test]
    fn stages_are_laid_as_nanosecond_by_nanosecond(
        drawn in proptest::collection::vec(any_piece(), 1..40),
    ) {
        let pieces = tree(&drawn);
        let mut segments = path_of(&pieces);
        let expected = laid_simply(&pieces, &segments);
        let scaled = lay_out(&pieces, &mut segments);
        prop_assert_eq!((scaled, nanos_of(&segments)), expected);
    }
}
