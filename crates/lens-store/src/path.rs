//! The critical path: which span each moment of a rollout waited for.
//!
//! From the root's end backwards: at time t the walk goes into the child that ended last, at t or before it; what lies
//! between is the parent's own time. Children that run beside the one that ended last are off the path, and so is what
//! a child does outside of its parent.

use std::ops::Range;

use crate::Piece;
use crate::buckets::Buckets;

/// Time of one piece's own on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    pub(crate) piece: usize,
    pub(crate) from_nanos: u64,
    pub(crate) to_nanos: u64,
}

/// Where each piece lies inside of its parent; `None` for what is off the path with all below it.
pub(crate) fn clipped(pieces: &[Piece]) -> Vec<Option<(u64, u64)>> {
    let mut bounds: Vec<Option<(u64, u64)>> = Vec::with_capacity(pieces.len());
    for (at, piece) in pieces.iter().enumerate() {
        let own = (piece.start_nanos, piece.end_nanos.max(piece.start_nanos));
        let inside = if at == 0 {
            Some(own)
        } else {
            // Pre-order: a parent lies before its children.
            let parent = bounds.get(piece.parent).copied().flatten();
            parent.and_then(|(start, end)| {
                let clipped = (own.0.max(start), own.1.min(end));
                (clipped.0 <= clipped.1).then_some(clipped)
            })
        };
        bounds.push(inside);
    }
    bounds
}

struct Level {
    piece: usize,
    /// Children that were not looked at yet, those that end first in front.
    left: Range<usize>,
    /// Up to here time is accounted for, from the end.
    at_nanos: u64,
}

/// The path from begin to end, without gaps.
pub(crate) fn critical(pieces: &[Piece], bounds: &[Option<(u64, u64)>]) -> Vec<Own> {
    let Some(Some(root)) = bounds.first().copied() else { return Vec::new() };
    let children = children(pieces, bounds);
    let mut path = Vec::with_capacity(pieces.len());
    let mut own = |piece, from_nanos, to_nanos| {
        if from_nanos < to_nanos {
            path.push(Own { piece, from_nanos, to_nanos });
        }
    };
    let mut stack = vec![Level { piece: 0, left: children.range(0), at_nanos: root.1 }];
    while let Some(level) = stack.last_mut() {
        let Some(child) = level.left.next_back() else {
            let start = bounds[level.piece].map_or(level.at_nanos, |(start, _)| start);
            own(level.piece, start, level.at_nanos);
            stack.pop();
            continue;
        };
        let child = children.at(child);
        let Some((start, end)) = bounds[child] else { continue };
        // What ended later than the time that is left ran beside the path; what took no time has none.
        if end > level.at_nanos || start == end {
            continue;
        }
        own(level.piece, end, level.at_nanos);
        level.at_nanos = start;
        stack.push(Level { piece: child, left: children.range(child), at_nanos: end });
    }
    path.reverse();
    path
}

/// The children of each piece, in the order of their ends.
fn children(pieces: &[Piece], bounds: &[Option<(u64, u64)>]) -> Buckets<usize> {
    let mut children = Buckets::new(1..pieces.len(), pieces.len(), |at| pieces[at].parent);
    children.sort_each_by_key(|&at| {
        let (start, end) = bounds[at].unwrap_or_default();
        (end, start, pieces[at].span_id, at)
    });
    children
}
