//! What became of one small export that was made to see whether exports arrive.

use std::time::Duration;

use crate::config::Signal;

/// What the receiver of a [`Probe`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It took it.
    Delivered,
    /// It answered with success and refused what was inside.
    Rejected,
    /// It refused, or there was no answer that counts.
    Failed,
    /// The settings cannot be used: nothing was sent.
    Unusable,
}

/// One span, metric or log record on its way to where the settings send that signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What was sent.
    pub signal: Signal,
    /// What became of it.
    pub delivery: Delivery,
    /// The trace in which to look for it; the span and the log record are in the same one.
    pub trace_id: String,
    /// Until that was known.
    pub took: Duration,
    /// What is wrong, as one clause without the endpoint.
    pub trouble: Option<String>,
    /// What mends it, with the name of the variable.
    pub advice: Option<String>,
}
