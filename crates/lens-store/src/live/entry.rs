//! One rollout that is under way: which of its long-lived spans are open, and what happened last.

use std::sync::Arc;

use gym_telemetry::semconv;

use super::process::{ProcessId, Processes};
use super::row::Happened;
use super::told::root_rank;
use crate::ids::SpanId;

/// Open spans of one rollout that are kept.
const MAX_OPEN: usize = 64;
/// Requests of one rollout that are being repeated and kept apart.
const MAX_REPEATED: usize = 64;

/// One rollout.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Where its row stands. It never changes, so that rows do not change places when more becomes known.
    pub(super) order_nanos: u64,
    pub(super) rollout: Option<Box<str>>,
    pub(super) run: Arc<str>,
    pub(super) task: Option<i64>,
    pub(super) index: Option<i64>,
    pub(super) attempt: i64,
    pub(super) agent: Option<Arc<str>>,
    pub(super) open: Vec<Open>,
    /// All times below are of the receiver's clock: this is the start of its earliest span.
    pub(super) begun_nanos: u64,
    /// When a span of it was last told to be open.
    pub(super) heard_nanos: u64,
    /// When a span of it last began or ended.
    pub(super) moved_nanos: u64,
    pub(super) last: Last,
    pub(super) retries: u32,
    /// Requests that are being repeated, and how often they are among `retries`.
    pub(super) repeated: Vec<(SpanId, u32)>,
    pub(super) retrying: Option<Retrying>,
    pub(super) gone: Option<Gone>,
}

/// An open span.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) span_id: SpanId,
    pub(super) parent_id: Option<SpanId>,
    pub(super) name: Arc<str>,
    pub(super) process: ProcessId,
    pub(super) begun_nanos: u64,
    pub(super) heard_nanos: u64,
    /// What its process says that it waits for.
    pub(super) stage: Option<Arc<str>>,
}

/// What happened last.
#[derive(Clone, Debug)]
pub(super) struct Last {
    pub(super) what: Happened,
    pub(super) name: Arc<str>,
    pub(super) server: Arc<str>,
    pub(super) at_nanos: u64,
}

/// A request that failed and is going to be sent again.
#[derive(Clone, Debug)]
pub(super) struct Retrying {
    pub(super) span_id: SpanId,
    /// Which one, and why.
    pub(super) text: Arc<str>,
    /// When it failed.
    pub(super) at_nanos: u64,
    /// When it is sent again.
    pub(super) until_nanos: u64,
}

/// A process that ended inside the rollout.
#[derive(Clone, Debug)]
pub(super) struct Gone {
    pub(super) name: Arc<str>,
    pub(super) process: ProcessId,
    pub(super) server: Arc<str>,
    pub(super) at_nanos: u64,
    /// Nothing is above what it left open: nobody goes on.
    pub(super) is_root: bool,
}

/// Where a rollout is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stage<'a> {
    pub(super) name: &'a str,
    pub(super) process: ProcessId,
    pub(super) begun_nanos: u64,
    pub(super) heard_nanos: u64,
}

impl Entry {
    /// Takes in that a span is open; false when there is no room for it.
    pub(super) fn alive(&mut self, open: Open, processes: &Processes) -> bool {
        self.heard_nanos = self.heard_nanos.max(open.heard_nanos);
        self.begun_nanos = self.begun_nanos.min(open.begun_nanos);
        if let Some(known) = self.open.iter_mut().find(|known| known.span_id == open.span_id) {
            known.heard_nanos = open.heard_nanos;
            known.stage = open.stage;
            return true;
        }
        if self.open.len() >= MAX_OPEN {
            return false;
        }
        if self.gone.as_ref().is_some_and(|gone| !gone.is_root && open.begun_nanos > gone.at_nanos)
        {
            self.gone = None;
        }
        let server = &processes.get(open.process).server;
        if matches!(&*open.name, super::RUN_REQUEST | semconv::span::ROLLOUT) {
            self.agent = Some(Arc::clone(server));
        }
        self.happened(Last {
            what: Happened::Began,
            name: Arc::clone(&open.name),
            server: Arc::clone(server),
            at_nanos: open.begun_nanos,
        });
        self.open.push(open);
        true
    }

    /// Takes in what happened, unless something later is known.
    pub(super) fn happened(&mut self, last: Last) {
        self.moved_nanos = self.moved_nanos.max(last.at_nanos);
        if last.at_nanos >= self.last.at_nanos {
            self.last = last;
        }
    }

    /// Takes in that a request will have been sent again so often; false when there is no room for it.
    pub(super) fn repeats(&mut self, span_id: SpanId, resent: u32) -> bool {
        let is_full = self.repeated.len() >= MAX_REPEATED;
        let known = match self.repeated.iter_mut().find(|(known, _)| *known == span_id) {
            Some((_, known)) => std::mem::replace(known, resent.max(*known)),
            None if is_full => return false,
            None => {
                self.repeated.push((span_id, resent));
                0
            }
        };
        self.retries = self.retries.saturating_add(resent.saturating_sub(known));
        true
    }

    /// Takes in that a request is over; how often it was sent again is what its span says. Whether that was at all, or
    /// was to be.
    pub(super) fn repeated(&mut self, span_id: SpanId, resent: u32) -> bool {
        let place = self.repeated.iter().position(|(known, _)| *known == span_id);
        let known = place.map_or(0, |place| self.repeated.swap_remove(place).1);
        self.retries = self.retries.saturating_sub(known).saturating_add(resent);
        self.retrying.take_if(|retrying| retrying.span_id == span_id);
        known > 0 || resent > 0
    }

    /// The request that is waited for, unless something else happened since it failed.
    pub(super) fn retrying(&self) -> Option<&Retrying> {
        self.retrying.as_ref().filter(|retrying| retrying.at_nanos >= self.moved_nanos)
    }

    /// Whether the rollout is over when this span has ended.
    pub(super) fn is_over_with(&self, span_id: SpanId, name: &str) -> bool {
        let others = self.open.iter().filter(|open| open.span_id != span_id);
        let above = others.filter_map(|open| root_rank(&open.name)).min();
        root_rank(name).is_some_and(|rank| above.is_none_or(|above| rank <= above))
    }

    /// The innermost open span: of those that nothing open is below, the one that began last.
    pub(super) fn stage(&self) -> Option<Stage<'_>> {
        let has_child =
            |open: &Open| self.open.iter().any(|other| other.parent_id == Some(open.span_id));
        let leaves = self.open.iter().filter(|open| !has_child(open));
        let last = leaves.max_by_key(|open| (open.begun_nanos, open.span_id))?;
        Some(Stage {
            name: last.stage.as_deref().unwrap_or(&last.name),
            process: last.process,
            begun_nanos: last.begun_nanos,
            heard_nanos: last.heard_nanos,
        })
    }
}
