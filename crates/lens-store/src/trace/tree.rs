//! The spans of one trace as a tree.
//!
//! Nodes lie in pre-order: a subtree is a range. Whatever the spans say about each other, every
//! span is in the tree exactly once; a circle is cut at its earliest span.
//!
//! A parent that is not there has a place all the same: what names it lies below a [`Placeholder`], one level down and
//! together. Spans are sent when they end, children before their parent, so in a running trace most parents are missing:
//! when one comes it takes the place that was kept, and the rows below it stay in their order.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use super::span::{Kind, Span};
use crate::buckets::sort_spread;
use crate::ids::SpanId;

/// No node, or no span.
const NONE: u32 = u32::MAX;

/// Why a node has no parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Root {
    /// It is the start of its trace.
    Start,
    /// Its parent was not among the spans.
    ParentMissing(SpanId),
    /// It is its own ancestor.
    Circle,
}

/// The place of a span that is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placeholder {
    /// Its id.
    pub span_id: SpanId,
    /// First node below it.
    pub first: usize,
    /// One past the last node below it.
    pub end: usize,
    /// Earliest start of what is below it.
    pub start_nanos: u64,
    /// Latest end of what is below it.
    pub end_nanos: u64,
}

/// One span in its place.
#[derive(Clone, Debug)]
pub struct Node {
    /// Index of the span.
    pub span: usize,
    /// Index of the parent node.
    pub parent: Option<usize>,
    /// Set for nodes without parent.
    pub root: Option<Root>,
    /// Distance from the root.
    pub depth: usize,
    /// One past the last node of its subtree.
    pub end: usize,
    /// Start after the correction of clocks.
    pub start_nanos: u64,
    /// End after the correction of clocks.
    pub end_nanos: u64,
    /// By how much its clock, and its ancestors', were corrected.
    pub shift_nanos: i64,
    /// Its duration without the time that its children cover.
    pub self_nanos: u64,
    /// ASGI event spans below it that are not shown.
    pub folded: usize,
}

impl Node {
    /// Wall clock.
    pub fn duration_nanos(&self) -> u64 {
        self.end_nanos - self.start_nanos
    }
}

/// The nodes of one trace in pre-order.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// See [`Node`].
    pub nodes: Vec<Node>,
    /// The places of parents that are missing, in order.
    pub placeholders: Vec<Placeholder>,
}

impl Tree {
    /// Builds the tree of these spans, all of one trace, in the order of their ids.
    pub fn build(spans: &[Span], members: Range<usize>) -> Self {
        let own = &spans[members.clone()];
        let ids: Vec<SpanId> = own.iter().map(|span| span.raw.span_id).collect();
        let mut has_children = vec![false; own.len()];
        let parents: Vec<u32> = own
            .iter()
            .map(|span| {
                let Some(parent) = span.parent_id else { return NONE };
                let at = ids.partition_point(|id| *id < parent);
                if ids.get(at) != Some(&parent) {
                    return NONE;
                }
                has_children[at] = true;
                number(at)
            })
            .collect();

        // Ordered by time, so that children and roots come in order without sorting again. Of two at one time the longer
        // one is first, then the one with the lower id.
        let time = |(at, span): (usize, &Span)| {
            (span.raw.start_nanos, Reverse(span.end_nanos), number(at))
        };
        let mut order: Vec<_> = own.iter().enumerate().map(time).collect();
        sort_spread(&mut order, |(start_nanos, ..)| start_nanos);

        // The children of a node as a list: its last, and the one before each.
        let mut last_child = vec![NONE; own.len()];
        let mut previous_sibling = vec![NONE; own.len()];
        let mut folded = vec![0_u32; own.len()];
        let mut placed = vec![false; own.len()];
        let mut roots = Vec::new();
        for &(.., at) in &order {
            let span = &own[at as usize];
            match parents[at as usize] {
                NONE => roots.push(at),
                parent if span.is_asgi_event && !has_children[at as usize] => {
                    folded[parent as usize] += 1;
                    placed[at as usize] = true;
                }
                parent => {
                    let last = std::mem::replace(&mut last_child[parent as usize], at);
                    previous_sibling[at as usize] = last;
                }
            }
        }
        gather(own, &mut roots);

        let mut tree = Self { nodes: Vec::with_capacity(own.len()), placeholders: Vec::new() };
        let mut next_circle = order.iter().map(|&(.., at)| at);
        let mut roots = roots.into_iter();
        let mut stack = Vec::new();
        loop {
            let (root, reason) = if let Some(at) = roots.next() {
                let parent = own[at as usize].parent_id;
                (at, parent.map_or(Root::Start, Root::ParentMissing))
            } else if let Some(at) = next_circle.find(|&at| !placed[at as usize]) {
                (at, Root::Circle)
            } else {
                break;
            };
            stack.push((root, None, Some(reason)));
            placed[root as usize] = true;
            while let Some((at, parent, root)) = stack.pop() {
                let node = tree.nodes.len();
                tree.push(spans, members.start + at as usize, parent, root, folded[at as usize]);
                // The first child is on top then.
                let mut child = last_child[at as usize];
                while child != NONE {
                    if !std::mem::replace(&mut placed[child as usize], true) {
                        stack.push((child, Some(node), None));
                    }
                    child = previous_sibling[child as usize];
                }
            }
        }
        tree.close();
        tree.keep_places();
        tree
    }

    fn push(
        &mut self,
        spans: &[Span],
        span: usize,
        parent: Option<usize>,
        root: Option<Root>,
        folded: u32,
    ) {
        let Span { end_nanos, kind, .. } = spans[span];
        let start_nanos = spans[span].raw.start_nanos;
        let (depth, shift_nanos) = match parent.map(|parent| &self.nodes[parent]) {
            None => (usize::from(matches!(root, Some(Root::ParentMissing(_)))), 0),
            Some(above) => {
                let (start, end) = (
                    shifted(start_nanos, above.shift_nanos),
                    shifted(end_nanos, above.shift_nanos),
                );
                let crosses = kind == Kind::Server && spans[above.span].kind == Kind::Client;
                let fits = end - start <= above.end_nanos - above.start_nanos;
                // A reply cannot be served before it is asked for: the clocks differ.
                let correction = if !crosses || !fits {
                    0
                } else if start < above.start_nanos {
                    difference(above.start_nanos, start)
                } else if end > above.end_nanos {
                    difference(above.end_nanos, end)
                } else {
                    0
                };
                (above.depth + 1, above.shift_nanos.saturating_add(correction))
            }
        };
        self.nodes.push(Node {
            span,
            parent,
            root,
            depth,
            end: 0,
            start_nanos: shifted(start_nanos, shift_nanos),
            end_nanos: shifted(end_nanos, shift_nanos),
            shift_nanos,
            self_nanos: 0,
            folded: folded as usize,
        });
    }

    /// Fills in what is known only when all nodes are there.
    fn close(&mut self) {
        for at in (0..self.nodes.len()).rev() {
            self.nodes[at].end = self.nodes[at].end.max(at + 1);
            let (end, parent) = (self.nodes[at].end, self.nodes[at].parent);
            if let Some(parent) = parent {
                let parent = &mut self.nodes[parent];
                parent.end = parent.end.max(end);
            }
        }
        let mut intervals = Vec::new();
        for at in 0..self.nodes.len() {
            let Node { start_nanos, end_nanos, .. } = self.nodes[at];
            intervals.clear();
            for child in self.children(at) {
                let child = &self.nodes[child];
                let (start, end) =
                    (child.start_nanos.max(start_nanos), child.end_nanos.min(end_nanos));
                if start < end {
                    intervals.push((start, end));
                }
            }
            let covered = covered_nanos(&mut intervals);
            self.nodes[at].self_nanos = end_nanos - start_nanos - covered;
        }
    }

    /// Fills in the places of parents that are missing; what is below each lies together.
    fn keep_places(&mut self) {
        let mut root = 0;
        while root < self.nodes.len() {
            let Node { root: reason, start_nanos, end, .. } = self.nodes[root];
            if let Some(Root::ParentMissing(span_id)) = reason {
                let end_nanos = self.nodes[root..end].iter().map(|node| node.end_nanos).max();
                let end_nanos = end_nanos.unwrap_or(start_nanos);
                match self.placeholders.last_mut() {
                    Some(last) if last.span_id == span_id && last.end == root => {
                        last.end = end;
                        last.start_nanos = last.start_nanos.min(start_nanos);
                        last.end_nanos = last.end_nanos.max(end_nanos);
                    }
                    _ => self.placeholders.push(Placeholder {
                        span_id,
                        first: root,
                        end,
                        start_nanos,
                        end_nanos,
                    }),
                }
            }
            root = end;
        }
    }

    /// The child nodes of a node, in order of time.
    pub fn children(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.nodes[node].end;
        let mut next = node + 1;
        std::iter::from_fn(move || {
            let child = next;
            (child < end).then(|| {
                next = self.nodes[child].end;
                child
            })
        })
    }

    /// The nodes without parent.
    pub fn roots(&self) -> impl Iterator<Item = usize> + '_ {
        let mut next = 0;
        std::iter::from_fn(move || {
            let root = next;
            (root < self.nodes.len()).then(|| {
                next = self.nodes[root].end;
                root
            })
        })
    }
}

/// Puts roots that miss the same parent beside each other, where the first of them is.
fn gather(spans: &[Span], roots: &mut [u32]) {
    let mut place_of: HashMap<SpanId, usize> = HashMap::new();
    let missing = |at: u32| spans[at as usize].parent_id;
    if roots.iter().filter(|&&at| missing(at).is_some()).count() < 2 {
        return;
    }
    let mut placed: Vec<(usize, usize, u32)> = roots
        .iter()
        .enumerate()
        .map(|(place, &at)| {
            let first = missing(at).map_or(place, |id| *place_of.entry(id).or_insert(place));
            (first, place, at)
        })
        .collect();
    placed.sort_unstable();
    for (root, (.., at)) in roots.iter_mut().zip(placed) {
        *root = at;
    }
}

/// More spans of one trace than this are in no trace.
fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(NONE)
}

/// Length of the union; sorts the intervals.
fn covered_nanos(intervals: &mut [(u64, u64)]) -> u64 {
    intervals.sort_unstable();
    let mut covered = 0;
    let mut reached = 0;
    for &(start, end) in intervals.iter() {
        let start = start.max(reached);
        if end > start {
            covered += end - start;
            reached = end;
        }
    }
    covered
}

fn shifted(nanos: u64, shift_nanos: i64) -> u64 {
    nanos.saturating_add_signed(shift_nanos)
}

fn difference(to: u64, from: u64) -> i64 {
    i64::try_from(i128::from(to) - i128::from(from)).unwrap_or(0)
}
