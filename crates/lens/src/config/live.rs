//! When open spans are told of.

use std::time::Duration;

use super::ExporterKind;

/// Whether spans of long-lived groups are told of in log records while they are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LiveEvents {
    /// Where the receiver of spans says that it shows them.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl LiveEvents {
    /// `auto`, or a boolean.
    pub fn parse(text: &str) -> Option<Self> {
        if text.trim().eq_ignore_ascii_case("auto") {
            return Some(Self::Auto);
        }
        super::parse_bool(text).map(|on| if on { Self::On } else { Self::Off })
    }
}

/// How open spans are told of. The records go where `logs_otlp` says, whether or not the program's own are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveSettings {
    /// Whether they are.
    pub events: LiveEvents,
    /// Where the records go; [`ExporterKind::None`] is off.
    pub exporter: ExporterKind,
    /// Time between two records about one span.
    pub heartbeat: Duration,
}

impl Default for LiveSettings {
    fn default() -> Self {
        Self {
            events: LiveEvents::Auto,
            exporter: ExporterKind::Otlp,
            heartbeat: Duration::from_secs(5),
        }
    }
}
