//! What a log record says, whoever takes it.

use crate::Value;
use crate::severity::Severity;

/// One log record, on its way to [`logs::emit_record`](crate::logs::emit_record).
#[derive(Clone, Copy, Debug)]
pub struct LogRecord<'a> {
    /// How bad it is.
    pub severity: Severity,
    /// What it says.
    pub body: &'a str,
    /// The last of a key wins.
    pub attributes: &'a [(&'static str, Value)],
    /// Name of the kind of event, or empty.
    pub event_name: &'a str,
    /// What it is about, mostly a module: the instrumentation scope; empty for that of this crate.
    pub target: &'a str,
}
