//! What an inference engine says about its part of a call, laid onto the time that the call took.

use std::ops::Range;

use crate::partition::Segment;
use crate::{Band, Make, Piece};

/// How many stages an engine tells.
const STAGES: usize = 3;

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
    let Some(mut calls) = Calls::of(pieces) else { return false };
    let scaled = calls.fit(segments);
    *segments = calls.laid(segments);
    scaled
}

/// Calls that have timings.
struct Calls {
    all: Vec<Call>,
    /// Which of them each piece is part of.
    of_piece: Vec<Option<usize>>,
}

impl Calls {
    fn of(pieces: &[Piece]) -> Option<Self> {
        let all: Vec<Call> =
            with_timings(pieces).filter_map(|below| Call::new(pieces, below)).collect();
        if all.is_empty() {
            return None;
        }
        let mut of_piece = vec![None; pieces.len()];
        for (nth, call) in all.iter().enumerate() {
            of_piece[call.below.clone()].fill(Some(nth));
        }
        Some(Self { all, of_piece })
    }

    fn of_segment(&mut self, segment: &Segment) -> Option<&mut Call> {
        self.of_piece[segment.piece].map(|nth| &mut self.all[nth])
    }

    /// Makes the stages of each call fit into its model time; true when some did not.
    fn fit(&mut self, segments: &[Segment]) -> bool {
        for segment in segments.iter().filter(|segment| segment.band == Band::Model) {
            if let Some(call) = self.of_segment(segment) {
                call.add_room(segment);
            }
        }
        let mut scaled = false;
        for call in &mut self.all {
            scaled |= call.scale();
        }
        scaled
    }

    /// The segments with the stages in them, each call's until its reply, where every segment ends.
    fn laid(mut self, segments: &[Segment]) -> Vec<Segment> {
        let mut replies: Vec<u64> = self.all.iter().map(|call| call.reply_nanos).collect();
        replies.sort_unstable();
        let mut laid = Vec::with_capacity(segments.len() + (STAGES + 1) * self.all.len());
        // From the end on, because it is known where the last stage ends.
        for segment in segments.iter().rev() {
            let mut rest = *segment;
            let mut call = self.of_segment(segment);
            while let Some(reply) = replies.pop_if(|reply| *reply > rest.from_nanos) {
                if reply < rest.to_nanos {
                    lay(Segment { from_nanos: reply, ..rest }, call.as_deref_mut(), &mut laid);
                    rest.to_nanos = reply;
                }
            }
            lay(rest, call, &mut laid);
        }
        laid.reverse();
        laid
    }
}

/// Puts the stages of a call that are left into a segment, the last first, and what is left of the segment after them.
fn lay(mut rest: Segment, call: Option<&mut Call>, laid: &mut Vec<Segment>) {
    let is_before_reply = |call: &&mut Call| rest.to_nanos <= call.reply_nanos;
    if let Some(call) = call.filter(is_before_reply).filter(|_| rest.band == Band::Model) {
        for (band, left) in &mut call.left {
            let nanos = rest.nanos().min(*left);
            if nanos > 0 {
                let middle = rest.to_nanos - nanos;
                laid.push(Segment { from_nanos: middle, band: *band, ..rest });
                (rest.to_nanos, *left) = (middle, *left - nanos);
            }
        }
    }
    if rest.nanos() > 0 {
        laid.push(rest);
    }
}

/// A call that has timings.
struct Call {
    /// Its piece, and all below it.
    below: Range<usize>,
    /// When the engine had answered.
    reply_nanos: u64,
    /// Model time until then.
    room_nanos: u64,
    /// What is not laid out yet of each stage, the last first.
    left: [(Band, u64); STAGES],
}

impl Call {
    fn new(pieces: &[Piece], below: Range<usize>) -> Option<Self> {
        let call = &pieces[below.start];
        let timings = call.timings?;
        // The engine had answered when the last request to it was over; what follows is the server's own code.
        let asked = pieces[below.clone()].iter().skip(1);
        let asked = asked.filter(|piece| piece.make == Make::Client { to_model: true });
        let reply = asked.map(|piece| piece.end_nanos).max();
        Some(Self {
            below,
            reply_nanos: reply.map_or(call.end_nanos, |reply| reply.min(call.end_nanos)),
            room_nanos: 0,
            left: [
                (Band::Decode, timings.decode_nanos),
                (Band::Prefill, timings.prefill_nanos),
                (Band::Queue, timings.queue_nanos),
            ],
        })
    }

    /// Counts a segment of model time, as far as it lies before the reply.
    fn add_room(&mut self, segment: &Segment) {
        let to_nanos = segment.to_nanos.min(self.reply_nanos);
        self.room_nanos += to_nanos.saturating_sub(segment.from_nanos);
    }

    /// Makes the stages fit into the room; true when they did not.
    fn scale(&mut self) -> bool {
        let asked: u128 = self.left.iter().map(|(_, nanos)| u128::from(*nanos)).sum();
        let room = self.room_nanos;
        let fits = asked <= u128::from(room);
        if !fits {
            for (_, nanos) in &mut self.left {
                *nanos =
                    u64::try_from(u128::from(*nanos) * u128::from(room) / asked).unwrap_or(room);
            }
        }
        !fits
    }
}

/// Pieces with timings that none below them has, each with all that is below it.
fn with_timings(pieces: &[Piece]) -> impl Iterator<Item = Range<usize>> {
    let has_timings = |at: &usize| pieces[*at].timings.is_some();
    (0..pieces.len()).filter(has_timings).filter_map(move |at| {
        // In pre-order what is below a piece follows it.
        let mut end = at + 1;
        while pieces.get(end).is_some_and(|piece| piece.parent >= at) {
            if has_timings(&end) {
                return None;
            }
            end += 1;
        }
        Some(at..end)
    })
}

#[cfg(test)]
mod tests;
