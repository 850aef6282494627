//! The contexts that a thread is in: a stack, of which the top is current.
//!
//! Whoever enters remembers the depth and leaves by it, so that guards dropped out of order never bring a context
//! back that was left before.

use std::cell::RefMut;

use super::context::Context;
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

    #[inline(always)]
    pub(super) fn of(stack: &[Context]) -> Self {
        Self(stack.len() as u32)
    }

    /// As a number below the half of `u32`.
    pub(super) const fn number(self) -> u32 {
        self.0
    }

    pub(super) const fn from_number(number: u32) -> Self {
        Self(number)
    }
}

/// The stack with room for one more context; `None` when it is in use, or the thread at its end.
#[inline(always)]
pub(super) fn with_room(thread: &Thread) -> Option<RefMut<'_, Vec<Context>>> {
    let mut stack = thread.contexts.try_borrow_mut().ok()?;
    if stack.len() == stack.capacity() && !make_room(thread, &mut stack) {
        return None;
    }
    Some(stack)
}

#[cold]
#[inline(never)]
fn make_room(thread: &Thread, stack: &mut Vec<Context>) -> bool {
    let may = thread.keeps() && stack.len() < DEEPEST;
    if may {
        stack.reserve(stack.len().max(FIRST));
    }
    may
}

/// Makes a context current on this thread.
#[inline]
pub(super) fn enter(context: Context) -> Depth {
    thread::with(|thread| {
        let Some(mut stack) = with_room(thread) else { return Depth::NONE };
        let depth = Depth::of(&stack);
        stack.push(context);
        depth
    })
}

/// Leaves the context entered at `depth` and all that were entered below it; gives back the former.
#[inline]
pub(super) fn leave(depth: Depth) -> Option<Context> {
    thread::with(|thread| {
        let mut stack = thread.contexts.try_borrow_mut().ok()?;
        let depth = depth.0 as usize;
        if stack.len() > depth + 1 {
            stack.truncate(depth + 1);
        }
        if stack.len() == depth + 1 { stack.pop() } else { None }
    })
}

/// Leaves as [`leave`] does and drops what was left.
#[inline(always)]
pub(super) fn leave_for_good(thread: &Thread, depth: Depth) {
    if let Ok(mut stack) = thread.contexts.try_borrow_mut() {
        let depth = depth.0 as usize;
        // Nearly always there is one to leave.
        if stack.len() == depth + 1 {
            if let Some(left) = stack.last_mut() {
                left.let_go();
            }
            // Nothing is left to drop in it.
            if let Some(left) = stack.pop() {
                std::mem::forget(left);
            }
        } else {
            stack.truncate(depth);
        }
    }
}

/// Lends the current context.
#[inline]
pub(super) fn with<R>(read: impl FnOnce(Option<&Context>) -> R) -> R {
    thread::with(|thread| match thread.contexts.try_borrow() {
        Ok(stack) => read(stack.last()),
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
}
