//! The contexts that a thread is in: a stack, of which the top is current.
//!
//! Whoever enters remembers the depth and leaves by it, so that guards dropped out of order never bring a context
//! back that was left before.

use std::cell::RefCell;

use super::context::Context;

thread_local! {
    static STACK: RefCell<Vec<Context>> = const { RefCell::new(Vec::new()) };
}

/// How deep a thread was before it entered; to leave by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Depth(u32);

impl Depth {
    /// Of what was not entered.
    pub(super) const NONE: Self = Self(u32::MAX);
}

/// Makes a context current on this thread.
#[inline]
pub(super) fn enter(context: Context) -> Depth {
    STACK
        .try_with(|stack| {
            let mut stack = stack.try_borrow_mut().ok()?;
            let depth = Depth(stack.len() as u32);
            stack.push(context);
            Some(depth)
        })
        .ok()
        .flatten()
        .unwrap_or(Depth::NONE)
}

/// Makes a context current that is made from the one before; one look at the thread for both.
#[inline]
pub(super) fn enter_below(make: impl FnOnce(&Context) -> Option<Context>) -> Depth {
    let mut make = Some(make);
    let depth = STACK.try_with(|stack| {
        let mut stack = stack.try_borrow_mut().ok()?;
        let make = make.take()?;
        let depth = Depth(stack.len() as u32);
        let context = make(stack.last().unwrap_or(&Context::EMPTY))?;
        stack.push(context);
        Some(depth)
    });
    if let Some(make) = make {
        // A thread at its end has no stack any more; what is made is current nowhere.
        let _ = make(&Context::EMPTY);
    }
    depth.ok().flatten().unwrap_or(Depth::NONE)
}

/// Leaves the context entered at `depth` and all that were entered below it; gives back the former.
#[inline]
pub(super) fn leave(depth: Depth) -> Option<Context> {
    // What is above is dropped outside of the borrow: a context may hold the last reference to a host's value.
    let mut left = None;
    let _ = STACK.try_with(|stack| {
        if let Ok(mut stack) = stack.try_borrow_mut() {
            let depth = depth.0 as usize;
            if stack.len() > depth + 1 {
                stack.truncate(depth + 1);
            }
            if stack.len() == depth + 1 {
                left = stack.pop();
            }
        }
    });
    left
}

/// Leaves as [`leave`] does and drops what was left.
#[inline]
pub(super) fn leave_for_good(depth: Depth) {
    let _ = STACK.try_with(|stack| {
        if let Ok(mut stack) = stack.try_borrow_mut() {
            stack.truncate(depth.0 as usize);
        }
    });
}

/// Lends the current context.
#[inline]
pub(super) fn with<R>(read: impl FnOnce(Option<&Context>) -> R) -> R {
    let mut read = Some(read);
    let result = STACK.try_with(|stack| {
        let stack = stack.try_borrow().ok()?;
        read.take().map(|read| read(stack.last()))
    });
    match (result, read) {
        (Ok(Some(result)), _) => result,
        (_, Some(read)) => read(None),
        // `read` is taken only where its result is returned.
        (_, None) => unreachable!("the reader ran without a result"),
    }
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
