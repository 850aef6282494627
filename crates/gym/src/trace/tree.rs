//! The spans of one trace as a tree.
//!
//! Nodes lie in pre-order: a subtree is a range. Whatever the spans say about each other, every
//! span is in the tree exactly once: a span whose parent is unknown is a root with a mark, a
//! circle is cut at its earliest span.

use std::collections::HashMap;

use super::span::{Kind, Span, SpanId};

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
}

impl Tree {
    /// Builds the tree of these spans (indices into `spans`, all of one trace, ids unique).
    pub fn build(spans: &[Span], members: &[usize]) -> Self {
        let by_id: HashMap<SpanId, usize> =
            members.iter().enumerate().map(|(at, &index)| (spans[index].span_id, at)).collect();
        let parents: Vec<Option<usize>> = members
            .iter()
            .map(|&index| spans[index].parent_id.and_then(|id| by_id.get(&id).copied()))
            .collect();
        let mut has_children = vec![false; members.len()];
        for parent in parents.iter().flatten() {
            has_children[*parent] = true;
        }

        // Ordered by time, so that children and roots come in order without sorting again.
        let mut order: Vec<usize> = (0..members.len()).collect();
        order.sort_by_key(|&at| {
            let span = &spans[members[at]];
            (span.start_nanos, std::cmp::Reverse(span.end_nanos), span.span_id)
        });

        let mut children = vec![Vec::new(); members.len()];
        let mut folded = vec![0; members.len()];
        let mut placed = vec![false; members.len()];
        let mut roots = Vec::new();
        for &at in &order {
            match parents[at] {
                Some(parent) if spans[members[at]].is_asgi_event && !has_children[at] => {
                    folded[parent] += 1;
                    placed[at] = true;
                }
                Some(parent) => children[parent].push(at),
                None => roots.push(at),
            }
        }

        let mut tree = Self { nodes: Vec::with_capacity(members.len()) };
        let mut next_circle = order.iter().copied();
        let mut roots = roots.into_iter();
        loop {
            let (root, reason) = if let Some(at) = roots.next() {
                let parent = spans[members[at]].parent_id;
                (at, parent.map_or(Root::Start, Root::ParentMissing))
            } else if let Some(at) = next_circle.find(|&at| !placed[at]) {
                (at, Root::Circle)
            } else {
                break;
            };
            let mut stack = vec![(root, None, Some(reason))];
            placed[root] = true;
            while let Some((at, parent, root)) = stack.pop() {
                let node = tree.nodes.len();
                tree.push(spans, members[at], parent, root, folded[at]);
                for &child in children[at].iter().rev() {
                    if !std::mem::replace(&mut placed[child], true) {
                        stack.push((child, Some(node), None));
                    }
                }
            }
        }
        tree.close();
        tree
    }

    fn push(
        &mut self,
        spans: &[Span],
        span: usize,
        parent: Option<usize>,
        root: Option<Root>,
        folded: usize,
    ) {
        let Span { start_nanos, end_nanos, kind, .. } = spans[span];
        let (depth, shift_nanos) = match parent.map(|parent| &self.nodes[parent]) {
            None => (0, 0),
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
            folded,
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
            intervals.extend(self.children(at).filter_map(|child| {
                let child = &self.nodes[child];
                let (start, end) =
                    (child.start_nanos.max(start_nanos), child.end_nanos.min(end_nanos));
                (start < end).then_some((start, end))
            }));
            let covered = covered_nanos(&mut intervals);
            self.nodes[at].self_nanos = end_nanos - start_nanos - covered;
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
