//! A rollout's wall clock as segments, each with the span it waited for and the band it belongs to.

use std::borrow::Cow;

use crate::path::{self, Own};
use crate::{Band, Bands, Make, Piece, Wait, timings};

/// A stretch of a rollout's wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The piece whose own time it is.
    pub piece: usize,
    /// Its begin.
    pub from_nanos: u64,
    /// Its end.
    pub to_nanos: u64,
    /// What it was spent on.
    pub band: Band,
}

impl Segment {
    /// How long it is.
    pub fn nanos(&self) -> u64 {
        self.to_nanos - self.from_nanos
    }
}

/// A rollout's wall clock, without gaps and overlaps.
#[derive(Clone, Debug, Default)]
pub struct Partition {
    /// From begin to end.
    pub segments: Vec<Segment>,
    /// An engine's timings did not fit into the call and were scaled.
    pub timings_scaled: bool,
    /// Requests on the path whose serving side is not among the spans.
    pub unanswered: Vec<usize>,
}

impl Partition {
    /// The sums by band.
    pub fn bands(&self) -> Bands {
        let mut bands = Bands::default();
        for segment in &self.segments {
            bands[segment.band] += segment.nanos();
        }
        bands
    }
}

/// Where the time of a rollout went. The pieces lie in pre-order, the root first.
pub fn partition(pieces: &[Piece]) -> Partition {
    let bounds = path::clipped(pieces);
    let labels = labels(pieces, &bounds);
    let path = path::critical(pieces, &bounds);
    let mut partition = Partition::default();
    // Most of the path are requests with a wait or two, and what they are for.
    partition.segments.reserve(2 * path.len());
    for own in path {
        let Label { band, admitted_nanos, is_unanswered, .. } = labels[own.piece];
        if is_unanswered {
            partition.unanswered.push(own.piece);
        }
        match admitted_nanos {
            Some(at) => {
                let at = at.clamp(own.from_nanos, own.to_nanos);
                put(&mut partition.segments, own.piece, own.from_nanos, at, Band::Admission);
                put(&mut partition.segments, own.piece, at, own.to_nanos, band);
            }
            None => put_with_waits(&mut partition.segments, &pieces[own.piece], own, band),
        }
    }
    // A request that others ran beside has several stretches of its own.
    partition.unanswered.sort_unstable();
    partition.unanswered.dedup();
    partition.timings_scaled = timings::lay_out(pieces, &mut partition.segments);
    partition
}

#[derive(Clone, Copy)]
struct Label {
    /// Of its own time.
    band: Band,
    /// Of what is below it and unknown.
    inherited: Band,
    /// Until then its own time is admission.
    admitted_nanos: Option<u64>,
    is_unanswered: bool,
}

fn labels(pieces: &[Piece], bounds: &[Option<(u64, u64)>]) -> Vec<Label> {
    let mut answered = vec![false; pieces.len()];
    let mut first_child: Vec<Option<u64>> = vec![None; pieces.len()];
    for (at, piece) in pieces.iter().enumerate().skip(1) {
        if let Some(answered) = answered.get_mut(piece.parent) {
            *answered |= piece.is_server;
            if let Some((start, _)) = bounds[at] {
                let first = &mut first_child[piece.parent];
                *first = Some(first.map_or(start, |known| known.min(start)));
            }
        }
    }
    let mut labels: Vec<Label> = Vec::with_capacity(pieces.len());
    for (at, piece) in pieces.iter().enumerate() {
        let above = if at == 0 { Band::Other } else { labels[piece.parent].inherited };
        let plain =
            |band| Label { band, inherited: band, admitted_nanos: None, is_unanswered: false };
        labels.push(match piece.make {
            Make::Known(band) => plain(band),
            Make::Unknown => plain(above),
            Make::Attempt => {
                // Without a request of its own it says itself how long it waited.
                let waited = piece.waits.iter().filter(|wait| wait.band == Band::Admission);
                let waited = waited.map(|wait| wait.to_nanos).max();
                Label { admitted_nanos: first_child[at].or(waited), ..plain(Band::Other) }
            }
            Make::Client { to_model } => {
                let inherited = if to_model { Band::Model } else { Band::Network };
                let band = match (answered[at], to_model) {
                    (true, _) => Band::Network,
                    (false, true) => Band::Model,
                    (false, false) => Band::Other,
                };
                let is_unanswered = !answered[at] && !to_model;
                Label { inherited, is_unanswered, ..plain(band) }
            }
        });
    }
    labels
}

fn put(segments: &mut Vec<Segment>, piece: usize, from_nanos: u64, to_nanos: u64, band: Band) {
    if from_nanos < to_nanos {
        segments.push(Segment { piece, from_nanos, to_nanos, band });
    }
}

/// Own time of a request, with what it waited for cut out.
fn put_with_waits(segments: &mut Vec<Segment>, piece: &Piece, own: Own, band: Band) {
    let begin = |wait: &Wait| (wait.from_nanos, wait.to_nanos);
    // They mostly come in the order of time.
    let waits = if piece.waits.is_sorted_by_key(begin) {
        Cow::Borrowed(&*piece.waits)
    } else {
        let mut waits = piece.waits.clone();
        waits.sort_unstable_by_key(begin);
        Cow::Owned(waits)
    };
    let mut at = own.from_nanos;
    for wait in &*waits {
        let (from, to) = (wait.from_nanos.max(at), wait.to_nanos.min(own.to_nanos));
        if from < to {
            put(segments, own.piece, at, from, band);
            put(segments, own.piece, from, to, wait.band);
            at = to;
        }
    }
    put(segments, own.piece, at, own.to_nanos, band);
}

#[cfg(test)]
pub(crate) mod tests;
