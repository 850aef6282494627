//! Severities of log records.

/// How bad it is; numbers as in OpenTelemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Finest.
    Trace = 1,
    /// For developers.
    Debug = 5,
    /// As expected.
    Info = 9,
    /// Unexpected, and handled.
    Warn = 13,
    /// Failed.
    Error = 17,
}

impl Severity {
    /// The text in OpenTelemetry.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "TRACE",
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }
}
