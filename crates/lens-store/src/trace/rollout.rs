//! Traces and the rollouts in them.
//!
//! A rollout's root is the topmost `gym.rollout.attempt`, served `POST /run` or `gym.rollout` of
//! its branch. Its duration leaves out the wait for a slot (admission), as everywhere.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use gym_telemetry::semconv;
use memchr::memmem;

use super::foreign;
use super::scan::{Content, Head, Scan};
use super::span::{Kind, Span};
use super::tree::Tree;
use super::twins;
use crate::ids::{SpanId, TraceId};
use crate::raw::RawSpan;

/// All spans, trace by trace, in order of their start.
#[derive(Debug, Default)]
pub struct Traces {
    /// Every span, in the order of ids.
    pub spans: Vec<Span>,
    /// The traces, earliest first.
    pub traces: Vec<Trace>,
    by_id: HashMap<TraceId, usize>,
}

/// One trace.
#[derive(Debug)]
pub struct Trace {
    /// Its id.
    pub trace_id: TraceId,
    /// Its spans.
    pub tree: Tree,
    /// Earliest start.
    pub start_nanos: u64,
    /// Latest end.
    pub end_nanos: u64,
    /// The rollouts in it.
    pub rollouts: Vec<Rollout>,
}

/// One rollout: a subtree of a trace.
#[derive(Debug, Clone)]
pub struct Rollout {
    /// Root node.
    pub node: usize,
    /// Its id, when any of its spans has one.
    pub id: Option<Arc<str>>,
    /// Wall clock without admission.
    pub duration_nanos: u64,
    /// Wait for a slot.
    pub admission_nanos: u64,
}

/// Something to draw: a whole trace, or one rollout of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// Index of the trace.
    pub trace: usize,
    /// First node.
    pub first: usize,
    /// One past the last node.
    pub end: usize,
}

impl Traces {
    /// Groups and assembles. Copies are left out.
    pub fn assemble(mut spans: Vec<Span>) -> Self {
        twins::distinct(&mut spans);
        let mut traces = Vec::new();
        let mut first = 0;
        while first < spans.len() {
            let trace_id = spans[first].raw.trace_id;
            let rest = &spans[first..];
            let end = first + rest.partition_point(|span| span.raw.trace_id <= trace_id);
            traces.push(Trace::new(trace_id, Tree::build(&spans, first..end), &spans));
            first = end;
        }
        traces.sort_by_key(|trace| (trace.start_nanos, trace.trace_id));
        let by_id = traces.iter().enumerate().map(|(at, trace)| (trace.trace_id, at)).collect();
        Self { spans, traces, by_id }
    }

    /// Where a trace is.
    pub fn find(&self, trace_id: TraceId) -> Option<usize> {
        self.by_id.get(&trace_id).copied()
    }

    /// The rollout with this root.
    pub fn find_rollout(&self, trace_id: TraceId, root: SpanId) -> Option<(usize, &Rollout)> {
        let trace = self.find(trace_id)?;
        let mut rollouts = self.traces[trace].rollouts.iter();
        let has_root = |rollout: &&Rollout| self.span(trace, rollout.node).raw.span_id == root;
        Some((trace, rollouts.find(has_root)?))
    }

    /// The span of a node.
    pub fn span(&self, trace: usize, node: usize) -> &Span {
        &self.spans[self.traces[trace].tree.nodes[node].span]
    }

    /// All rollouts as (trace, rollout), in order of time.
    pub fn rollouts(&self) -> impl Iterator<Item = (usize, &Rollout)> {
        self.traces
            .iter()
            .enumerate()
            .flat_map(|(at, trace)| trace.rollouts.iter().map(move |rollout| (at, rollout)))
    }

    /// Rollouts from the slowest on.
    pub fn slowest_first(&self) -> Vec<(usize, &Rollout)> {
        let mut rollouts: Vec<_> = self.rollouts().collect();
        rollouts.sort_by_key(|(_, rollout)| std::cmp::Reverse(rollout.duration_nanos));
        rollouts
    }

    /// A whole trace.
    pub fn whole(&self, trace: usize) -> Section {
        Section { trace, first: 0, end: self.traces[trace].tree.nodes.len() }
    }

    /// Every span of a section as it came, those that are folded into their parents among them.
    pub fn raw_of(&self, section: Section) -> Vec<&RawSpan> {
        let nodes = &self.traces[section.trace].tree.nodes[section.first..section.end];
        let mut found: Vec<&RawSpan> =
            nodes.iter().map(|node| &self.spans[node.span].raw).collect();
        if nodes.iter().any(|node| node.folded > 0) {
            let shown: HashSet<SpanId> = found.iter().map(|span| span.span_id).collect();
            let trace_id = self.traces[section.trace].trace_id;
            let first = self.spans.partition_point(|span| span.raw.trace_id < trace_id);
            let of_trace = self.spans[first..].iter().take_while(|s| s.raw.trace_id == trace_id);
            let folded = of_trace.filter(|span| {
                let is_below = span.parent_id.is_some_and(|parent| shown.contains(&parent));
                span.is_asgi_event && is_below && !shown.contains(&span.raw.span_id)
            });
            found.extend(folded.map(|span| &span.raw));
        }
        found
    }

    /// What to draw for a rollout: its subtree, or its whole trace when that is all there is.
    pub fn section(&self, trace: usize, rollout: &Rollout) -> Section {
        let whole = &self.traces[trace];
        if whole.rollouts.len() == 1 {
            return self.whole(trace);
        }
        Section { trace, first: rollout.node, end: whole.tree.nodes[rollout.node].end }
    }
}

impl Trace {
    fn new(trace_id: TraceId, tree: Tree, spans: &[Span]) -> Self {
        let start_nanos = tree.nodes.iter().map(|node| node.start_nanos).min().unwrap_or(0);
        let end_nanos = tree.nodes.iter().map(|node| node.end_nanos).max().unwrap_or(0);
        let rollouts = rollouts_of(&tree, spans);
        Self { trace_id, tree, start_nanos, end_nanos, rollouts }
    }

    /// From the earliest start to the latest end.
    pub fn duration_nanos(&self) -> u64 {
        self.end_nanos - self.start_nanos
    }
}

fn rollouts_of(tree: &Tree, spans: &[Span]) -> Vec<Rollout> {
    let mut rollouts = Vec::new();
    let mut at = 0;
    while at < tree.nodes.len() {
        let node = &tree.nodes[at];
        if !is_rollout_root(&spans[node.span]) {
            at += 1;
            continue;
        }
        let id = tree.nodes[at..node.end].iter().find_map(|n| spans[n.span].rollout_id.clone());
        let admission_nanos = admission_nanos(tree, at, spans);
        rollouts.push(Rollout {
            node: at,
            id,
            duration_nanos: node.duration_nanos() - admission_nanos,
            admission_nanos,
        });
        at = node.end;
    }
    rollouts
}

fn is_rollout_root(span: &Span) -> bool {
    match span.kind {
        Kind::Server => &*span.name == "POST /run",
        _ => matches!(&*span.name, semconv::span::ROLLOUT_ATTEMPT | semconv::span::ROLLOUT),
    }
}

/// Whether a span may be the root of a rollout, found out without taking it apart; `false` is right for every span
/// that says its name and its kind once, as all senders do. What makes a name that of a request for a rollout is a path at its end, or in an attribute where the name has none.
pub(crate) fn may_be_rollout_root(span: &RawSpan) -> bool {
    const NAME: u64 = 5;
    const KIND: u64 = 6;
    const ATTRIBUTES: u64 = 9;
    let mut scan = Scan(&span.message);
    let Head { mut name, mut kind, .. } = scan.head();
    loop {
        match scan.next() {
            Ok(Some((NAME, Content::Bytes(bytes)))) => name = bytes,
            Ok(Some((KIND, Content::Number(number)))) => kind = number,
            Ok(Some((number, _))) if !name.is_empty() && (kind != 0 || number >= ATTRIBUTES) => {
                break;
            }
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(_) => return true,
        }
    }
    // One that says no kind before its attributes is taken for either.
    let is_root = || {
        let roots = [semconv::span::ROLLOUT_ATTEMPT, semconv::span::ROLLOUT];
        roots.iter().any(|root| root.as_bytes() == name)
    };
    let is_request = || {
        let has_path = name.ends_with(b"/run");
        let prefix = foreign::ROLLOUT_PATH_PREFIX.as_bytes();
        has_path || !name.contains(&b' ') && memmem::find(&span.message, prefix).is_some()
    };
    match Kind::from_otlp(kind) {
        Kind::Server => is_request(),
        _ => is_root() || kind == 0 && is_request(),
    }
}

/// What an attempt did before its first request; what it says itself when requests are not traced.
fn admission_nanos(tree: &Tree, node: usize, spans: &[Span]) -> u64 {
    let root = &tree.nodes[node];
    let span = &spans[root.span];
    if &*span.name != semconv::span::ROLLOUT_ATTEMPT {
        return 0;
    }
    let first_client = tree
        .children(node)
        .map(|child| &tree.nodes[child])
        .find(|child| spans[child.span].kind == Kind::Client);
    let nanos = match first_client {
        Some(client) => client.start_nanos.saturating_sub(root.start_nanos),
        None => span.count(semconv::ADMISSION_WAIT_NANOS).unwrap_or(0),
    };
    nanos.min(root.duration_nanos())
}

/// Whether `id` is the rollout that was asked for, or a later attempt of it.
pub fn is_attempt_of(id: &str, wanted: &str) -> bool {
    let Some(rest) = id.strip_prefix(wanted) else { return false };
    rest.is_empty()
        || rest
            .strip_prefix("-a")
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
}
