//! Log records of a `ScopeLogs`.

use super::{AnyValue, Attributes};
use crate::wire::{DecodeError, Fields};

/// One log record.
#[derive(Clone, Copy, Debug)]
pub struct LogView<'a> {
    message: &'a [u8],
    /// When it happened.
    pub time_nanos: u64,
    /// When it was seen.
    pub observed_nanos: u64,
    /// 1 to 24.
    pub severity_number: u64,
    /// E.g. `INFO`.
    pub severity_text: &'a str,
    /// The message.
    pub body: AnyValue<'a>,
    /// 16 bytes, or empty.
    pub trace_id: &'a [u8],
    /// 8 bytes, or empty.
    pub span_id: &'a [u8],
    /// Name of the event, or empty.
    pub event_name: &'a str,
    /// Attributes that the sender dropped.
    pub dropped_attributes: u64,
    /// Trace flags in the low byte.
    pub flags: u32,
}

impl<'a> LogView<'a> {
    /// Reads an encoded `LogRecord`.
    ///
    /// # Errors
    ///
    /// When the message's own fields or its body are malformed.
    pub fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut view = Self {
            message,
            time_nanos: 0,
            observed_nanos: 0,
            severity_number: 0,
            severity_text: "",
            body: AnyValue::Empty,
            trace_id: &[],
            span_id: &[],
            event_name: "",
            dropped_attributes: 0,
            flags: 0,
        };
        for field in Fields::new(message) {
            match field? {
                (1, content) => view.time_nanos = content.fixed64()?,
                (2, content) => view.severity_number = content.varint()?,
                (3, content) => view.severity_text = content.text()?,
                (5, content) => view.body = AnyValue::read_top(content)?,
                (7, content) => view.dropped_attributes = content.varint()?,
                (8, content) => view.flags = content.fixed32()?,
                (9, content) => view.trace_id = content.bytes()?,
                (10, content) => view.span_id = content.bytes()?,
                (11, content) => view.observed_nanos = content.fixed64()?,
                (12, content) => view.event_name = content.text()?,
                _ => {}
            }
        }
        Ok(view)
    }

    /// Attributes of the record.
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.message, 6)
    }
}
