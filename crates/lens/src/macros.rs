//! The site macros; they expand to the same tokens whether telemetry is compiled in or not.

/// Opens a span of a group around a scope or an expression.
///
/// `managed_span!(GROUP, "name", KEY = value, …)` gives a guard: the span is current until the guard is dropped.
/// The guard is not `Send`, so it cannot be held across an `.await`; use [`InSpan`](crate::InSpan) there.
/// `managed_span!(GROUP, "name", KEY = value => expression)` gives the value of the expression; an `Err` is
/// recorded (type and `Display`) and sets the status ERROR, a value that is no `Result` passes unchanged.
/// `managed_span!(GROUP, "name", KEY = value => async { … })`, or `async move`, gives a future with the same promise:
/// the span starts here, is current while the future is polled and ends with it.
///
/// A key is a path to a `&'static str` constant or a literal. When the group is off neither name nor values are
/// evaluated. A panic inside is recorded as an `exception` event.
#[macro_export]
macro_rules! managed_span {
    (@set $guard:ident) => {};
    (@set $guard:ident ,) => {};
    (@set $guard:ident, $key:literal = $value:expr $(, $($rest:tt)*)?) => {
        $guard.set($key, $value);
        $crate::managed_span!(@set $guard $(, $($rest)*)?);
    };
    (@set $guard:ident, $key:path = $value:expr $(, $($rest:tt)*)?) => {
        $guard.set($key, $value);
        $crate::managed_span!(@set $guard $(, $($rest)*)?);
    };
    (@guard $group:expr, $name:expr $(, $($attributes:tt)*)?) => {{
        let group: &'static $crate::Group = &$group;
        if group.is_enabled() {
            #[allow(unused_mut)]
            let mut guard = $crate::SpanGuard::open(group, $name);
            $crate::managed_span!(@set guard $(, $($attributes)*)?);
            guard
        } else {
            $crate::SpanGuard::disabled()
        }
    }};
    (@future $group:expr, $name:expr, [$($future:tt)*] $(, $($attributes:tt)*)?) => {{
        let lens_group: &'static $crate::Group = &$group;
        #[allow(unused_mut)]
        let mut lens_span = $crate::Span::disabled();
        if lens_group.is_enabled() {
            lens_span = $crate::Span::start(lens_group, $name);
            $crate::managed_span!(@set lens_span $(, $($attributes)*)?);
        }
        $crate::__private::trace_block(lens_span, $($future)*, |lens_span, lens_value| {
            $crate::__record_outcome!(*lens_span, *lens_value);
        })
    }};
    // Looks for `=> expression` behind the attributes.
    (@split $group:expr, $name:expr, [$($done:tt)*]) => {
        $crate::managed_span!(@guard $group, $name $($done)*)
    };
    (@split $group:expr, $name:expr, [$($done:tt)*] ,) => {
        $crate::managed_span!(@guard $group, $name $($done)*)
    };
    (@split $group:expr, $name:expr, [$($done:tt)*], => $($body:tt)+) => {
        $crate::managed_span!(@split $group, $name, [$($done)*] => $($body)+)
    };
    (@split $group:expr, $name:expr, [$($done:tt)*] => async move $body:block) => {
        $crate::managed_span!(@future $group, $name, [async move $body] $($done)*)
    };
    (@split $group:expr, $name:expr, [$($done:tt)*] => async $body:block) => {
        $crate::managed_span!(@future $group, $name, [async $body] $($done)*)
    };
    (@split $group:expr, $name:expr, [$($done:tt)*] => $body:expr) => {{
        #[allow(unused_mut)]
        let mut lens_guard = $crate::managed_span!(@guard $group, $name $($done)*);
        #[allow(clippy::let_unit_value)]
        let lens_value = $body;
        $crate::__record_outcome!(lens_guard, lens_value);
        ::core::mem::drop(lens_guard);
        lens_value
    }};
    (@split $group:expr, $name:expr, [$($done:tt)*], $key:literal = $value:expr => $($body:tt)+) => {
        $crate::managed_span!(@split $group, $name, [$($done)* , $key = $value] => $($body)+)
    };
    (@split $group:expr, $name:expr, [$($done:tt)*], $key:literal = $value:expr $(, $($rest:tt)*)?) => {
        $crate::managed_span!(@split $group, $name, [$($done)* , $key = $value] $(, $($rest)*)?)
    };
    (@split $group:expr, $name:expr, [$($done:tt)*], $key:path = $value:expr => $($body:tt)+) => {
        $crate::managed_span!(@split $group, $name, [$($done)* , $key = $value] => $($body)+)
    };
    (@split $group:expr, $name:expr, [$($done:tt)*], $key:path = $value:expr $(, $($rest:tt)*)?) => {
        $crate::managed_span!(@split $group, $name, [$($done)* , $key = $value] $(, $($rest)*)?)
    };
    ($group:expr, $name:expr => $($body:tt)+) => {
        $crate::managed_span!(@split $group, $name, [] => $($body)+)
    };
    ($group:expr, $name:expr $(, $($rest:tt)*)?) => {
        $crate::managed_span!(@split $group, $name, [] $(, $($rest)*)?)
    };
}

/// Opens a span that belongs to no group: it exists whenever telemetry is on.
///
/// The forms are those of [`managed_span!`] without the group.
#[macro_export]
macro_rules! span {
    ($($arguments:tt)*) => {
        $crate::managed_span!($crate::ALWAYS, $($arguments)*)
    };
}

/// Records an `Err` on a span; chosen at compile time by how the method below resolves.
#[doc(hidden)]
#[macro_export]
macro_rules! __record_outcome {
    ($span:expr, $value:expr) => {{
        #[allow(unused_imports)]
        use $crate::__private::{RecordAny as _, RecordError as _, RecordOpaqueError as _};
        (&&&$crate::__private::Outcome(&$value)).lens_record(&mut $span);
    }};
}
