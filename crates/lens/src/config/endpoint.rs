//! Endpoint rules of the OTLP exporter specification.

use super::Protocol;

/// What is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Metrics.
    Metrics,
    /// Log records.
    Logs,
}

impl Signal {
    /// The part of the environment variables that names the signal, e.g. `TRACES`.
    pub fn env_name(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
            Self::Logs => "LOGS",
        }
    }

    /// The path that OTLP/HTTP appends to a base endpoint.
    pub fn http_path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Metrics => "/v1/metrics",
            Self::Logs => "/v1/logs",
        }
    }
}

/// The base endpoint that applies when none is configured.
pub fn default_endpoint(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Grpc => "http://localhost:4317",
        Protocol::HttpProtobuf | Protocol::HttpJson => "http://localhost:4318",
    }
}

/// The address of a signal below a base endpoint (`OTEL_EXPORTER_OTLP_ENDPOINT`). A per-signal endpoint is used as it is.
pub fn signal_url(base: &str, protocol: Protocol, signal: Signal) -> String {
    match protocol {
        Protocol::Grpc => base.to_owned(),
        Protocol::HttpProtobuf | Protocol::HttpJson => {
            format!("{}{}", base.trim_end_matches('/'), signal.http_path())
        }
    }
}

/// What is wrong with a base endpoint that holds the path of a signal already; `None` when it does not.
///
/// The rest of a sentence that begins with the name of the setting.
pub fn doubled_path(base: &str, protocol: Protocol) -> Option<String> {
    if protocol == Protocol::Grpc {
        return None;
    }
    let base = base.trim().trim_end_matches('/');
    let signals = [Signal::Traces, Signal::Metrics, Signal::Logs];
    let signal = signals.into_iter().find(|signal| base.ends_with(signal.http_path()))?;
    let (path, own) = (signal.http_path(), signal.env_name());
    Some(format!(
        "ends in {path}, and the path of each signal is added to it, so that nothing arrives: \
         leave {path} out, or give it as OTEL_EXPORTER_OTLP_{own}_ENDPOINT"
    ))
}
