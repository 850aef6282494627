//! What an inference engine says about its part of a call, laid onto the time that the call took.

use crate::partition::Segment;
use crate::{Band, Make, Piece};

/// Nanoseconds of an engine's stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// In its queue.
    pub queue_nanos: u64,
    /// Reading the prompt.
    pub prefill_nanos: u64,
    /// Writing.
    pub decode_nanos: u64,
}

/// Cuts the stages out of the model time of every call that has timings; true when some did not fit and were scaled.
pub(crate) fn lay_out(pieces: &[Piece], segments: &mut Vec<Segment>) -> bool {
    let mut scaled = false;
    let mut laid: Vec<Segment> = Vec::new();
    for (carrier, end) in carriers(pieces) {
        let Some(timings) = pieces[carrier].timings else { continue };
        let below = carrier..end;
        // The engine had answered when the last request to it was over; what follows is the server's own code.
        let asked = below
            .clone()
            .filter(|&at| at != carrier && pieces[at].make == Make::Client { to_model: true });
        let call = &pieces[carrier];
        let reply = asked.map(|at| pieces[at].end_nanos).max();
        let reply = reply.map_or(call.end_nanos, |reply| reply.min(call.end_nanos));
        cut(segments, reply);
        // Segments lie in the order of time: only those of the call are looked at.
        let first = segments.partition_point(|segment| segment.to_nanos <= call.start_nanos);
        let last = segments.partition_point(|segment| segment.from_nanos < reply);
        let is_model =
            |segment: &Segment| segment.band == Band::Model && below.contains(&segment.piece);
        let of_call = segments.get(first..last).unwrap_or_default();
        let room: u64 =
            of_call.iter().filter(|segment| is_model(segment)).map(Segment::nanos).sum();
        let stages = [
            (Band::Decode, timings.decode_nanos),
            (Band::Prefill, timings.prefill_nanos),
            (Band::Queue, timings.queue_nanos),
        ];
        let asked: u128 = stages.iter().map(|(_, nanos)| u128::from(*nanos)).sum();
        let fits = asked <= u128::from(room);
        scaled |= !fits;
        let mut at = last;
        // What takes the place of the segments from `at` on, the last first.
        laid.clear();
        for (band, nanos) in stages {
            let mut left = if fits {
                nanos
            } else {
                u64::try_from(u128::from(nanos) * u128::from(room) / asked).unwrap_or(room)
            };
            while left > 0 && at > first {
                let segment = &mut segments[at - 1];
                if is_model(segment) && segment.nanos() > left {
                    let middle = segment.to_nanos - left;
                    laid.push(Segment { from_nanos: middle, band, ..*segment });
                    segment.to_nanos = middle;
                    break;
                }
                at -= 1;
                if is_model(segment) {
                    left -= segment.nanos();
                    laid.push(Segment { band, ..*segment });
                } else {
                    laid.push(*segment);
                }
            }
        }
        segments.splice(at..last, laid.drain(..).rev());
    }
    scaled
}

/// Pieces with timings that none below them has, and where what is below them ends.
fn carriers(pieces: &[Piece]) -> Vec<(usize, usize)> {
    // In pre-order what is below a piece follows it.
    let mut ends = vec![pieces.len(); pieces.len()];
    let mut open: Vec<usize> = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        while let Some(&last) = open.last() {
            if at > 0 && last == piece.parent {
                break;
            }
            ends[last] = at;
            open.pop();
        }
        open.push(at);
    }
    let has: Vec<usize> = (0..pieces.len()).filter(|&at| pieces[at].timings.is_some()).collect();
    let is_deepest =
        |&(place, at): &(usize, usize)| has.get(place + 1).is_none_or(|&next| next >= ends[at]);
    has.iter().copied().enumerate().filter(is_deepest).map(|(_, at)| (at, ends[at])).collect()
}

/// Splits the segment that `at` lies in.
fn cut(segments: &mut Vec<Segment>, at: u64) {
    let place = segments.partition_point(|segment| segment.to_nanos <= at);
    if let Some(segment) = segments.get_mut(place)
        && segment.from_nanos < at
    {
        let rest = Segment { from_nanos: at, ..*segment };
        segment.to_nanos = at;
        segments.insert(place + 1, rest);
    }
}
