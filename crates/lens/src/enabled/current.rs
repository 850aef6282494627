//! The contexts that a thread is in: a stack, of which the top is current.
//!
//! Whoever enters remembers the depth and leaves by it, so that guards dropped out of order never bring a context
//! back that was left before.

use std::cell::RefMut;
use std::mem;
use std::sync::Arc;

use super::context::{Context, Shared, SpanContext};
use super::thread::{self, Thread};

/// How deep a thread was before it entered; to leave by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Depth(u32);

/// Contexts that a thread can be in, one inside of the other; far more than its stack has room for.
const DEEPEST: usize = 1 << 30;
/// Contexts for which room is made at first.
const FIRST: usize = 32;

impl Depth {
    /// Of what was not entered.
    pub(super) const NONE: Self = Self(u32::MAX >> 1);

    /// As a number below the half of `u32`.
    pub(super) const fn number(self) -> u32 {
        self.0
    }

    pub(super) const fn from_number(number: u32) -> Self {
        Self(number)
    }
}

/// Places for contexts, of which so many are in use: the others are empty, so that a context is written where it
/// stays and nothing is dropped there.
pub(super) struct Contexts {
    in_use: usize,
    places: Vec<Context>,
}

impl Contexts {
    pub(super) const NONE: Self = Self { in_use: 0, places: Vec::new() };

    #[inline(always)]
    pub(super) fn current(&self) -> Option<&Context> {
        self.places.get(self.in_use.checked_sub(1)?)
    }

    /// Enters a context, given in parts; only after [`with_room`].
    #[inline(always)]
    pub(super) fn enter(&mut self, span: SpanContext, shared: Option<Arc<Shared>>) -> Depth {
        let depth = Depth(self.in_use as u32);
        if let Some(place) = self.places.get_mut(self.in_use) {
            place.fill(span, shared);
            self.in_use += 1;
        }
        depth
    }

    /// Empties the places from `depth` on.
    fn truncate(&mut self, depth: usize) {
        while self.in_use > depth {
            self.in_use -= 1;
            self.places[self.in_use].let_go();
        }
    }
}

/// The contexts with room for one more; `None` when they are in use, or the thread at its end.
#[inline(always)]
pub(super) fn with_room(thread: &Thread) -> Option<RefMut<'_, Contexts>> {
    let mut contexts = thread.contexts.try_borrow_mut().ok()?;
    if contexts.in_use == contexts.places.len() && !make_room(thread, &mut contexts) {
        return None;
    }
    Some(contexts)
}

#[cold]
#[inline(never)]
fn make_room(thread: &Thread, contexts: &mut Contexts) -> bool {
    let places = contexts.places.len();
    let may = thread.keeps() && places < DEEPEST;
    if may {
        contexts.places.resize(places + places.max(FIRST), Context::EMPTY);
    }
    may
}

/// Makes a context current on this thread.
#[inline]
pub(super) fn enter(context: Context) -> Depth {
    thread::with(|thread| {
        let Some(mut contexts) = with_room(thread) else { return Depth::NONE };
        let (span, shared) = context.into_parts();
        contexts.enter(span, shared)
    })
}

/// Leaves the context entered at `depth` and all that were entered below it; gives back the former.
#[inline]
pub(super) fn leave(depth: Depth) -> Option<Context> {
    thread::with(|thread| {
        let mut contexts = thread.contexts.try_borrow_mut().ok()?;
        let depth = depth.0 as usize;
        if contexts.in_use > depth + 1 {
            contexts.truncate(depth + 1);
        }
        if contexts.in_use != depth + 1 {
            return None;
        }
        contexts.in_use = depth;
        contexts.places.get_mut(depth).map(mem::take)
    })
}

/// Leaves as [`leave`] does and drops what was left.
#[inline(always)]
pub(super) fn leave_for_good(thread: &Thread, depth: Depth) {
    if let Ok(mut contexts) = thread.contexts.try_borrow_mut() {
        let depth = depth.0 as usize;
        // Nearly always there is one to leave.
        if contexts.in_use == depth + 1
            && let Some(left) = contexts.places.get_mut(depth)
        {
            left.let_go();
            contexts.in_use = depth;
        } else {
            contexts.truncate(depth);
        }
    }
}

/// Lends the current context.
#[inline]
pub(super) fn with<R>(read: impl FnOnce(Option<&Context>) -> R) -> R {
    thread::with(|thread| match thread.contexts.try_borrow() {
        Ok(contexts) => read(contexts.current()),
        Err(_) => read(None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enabled::{SpanContext, SpanId, TraceId};

    fn context(number: u64) -> Context {
        let trace_id = TraceId { high: 0, low: 1 };
        Context::from_parts(SpanContext::new(trace_id, SpanId(number), true), None)
    }

    fn current() -> u64 {
        with(|context| context.map_or(0, |context| context.span_context().span_id().0))
    }

    #[test]
    fn context_left_out_of_order_never_comes_back() {
        let outer = enter(context(1));
        let inner = enter(context(2));
        assert_eq!(current(), 2);
        assert!(leave(outer).is_some());
        assert_eq!(current(), 0);
        assert!(leave(inner).is_none());
        assert_eq!(current(), 0);
        assert!(leave(Depth::NONE).is_none());
    }

    #[test]
    fn what_is_left_shares_nothing_any_more_however_deep_it_was() {
        let shared = Arc::new(Shared::default());
        let deep = 3 * FIRST as u64;
        let enter_all = || -> Vec<Depth> {
            let of = |number| context(number).into_parts().0;
            let all =
                (1..=deep).map(|number| Context::from_parts(of(number), Some(Arc::clone(&shared))));
            all.map(enter).collect()
        };
        let leave_for_good = |depth| thread::with(|thread| leave_for_good(thread, depth));
        let depths = enter_all();
        assert_eq!((current(), Arc::strong_count(&shared)), (deep, 1 + deep as usize));
        for depth in depths.into_iter().rev() {
            leave_for_good(depth);
        }
        assert_eq!((current(), Arc::strong_count(&shared)), (0, 1));
        let depths = enter_all();
        leave_for_good(depths[1]);
        assert_eq!((current(), Arc::strong_count(&shared)), (1, 2));
        assert!(leave(depths[0]).is_some_and(|context| context.shared().is_some()));
        assert_eq!((current(), Arc::strong_count(&shared)), (0, 1));
    }
}
