//! Chooses at compile time what to record of a value: the method found with the fewest automatic references wins.

use std::fmt::Display;

use super::span::Span;

/// A value to look at.
#[doc(hidden)]
#[derive(Debug)]
pub struct Outcome<'a, T>(pub &'a T);

/// A `Result` whose error can be displayed: type and text are recorded.
#[doc(hidden)]
pub trait RecordError {
    fn lens_record(&self, span: &mut Span);
}

impl<T, E: Display> RecordError for &&Outcome<'_, Result<T, E>> {
    fn lens_record(&self, span: &mut Span) {
        if let Err(error) = self.0
            && span.is_recording()
        {
            span.record_exception(std::any::type_name::<E>(), &error.to_string());
        }
    }
}

/// A `Result` whose error cannot be displayed: its type is recorded.
#[doc(hidden)]
pub trait RecordOpaqueError {
    fn lens_record(&self, span: &mut Span);
}

impl<T, E> RecordOpaqueError for &Outcome<'_, Result<T, E>> {
    fn lens_record(&self, span: &mut Span) {
        if self.0.is_err() && span.is_recording() {
            span.record_exception(std::any::type_name::<E>(), "");
        }
    }
}

/// Any other value: nothing is recorded.
#[doc(hidden)]
pub trait RecordAny {
    fn lens_record(&self, span: &mut Span);
}

impl<T> RecordAny for Outcome<'_, T> {
    #[inline]
    fn lens_record(&self, _span: &mut Span) {}
}
