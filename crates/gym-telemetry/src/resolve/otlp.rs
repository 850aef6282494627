//! Where OTLP goes, signal by signal, by the rules of the OTLP exporter specification.

use super::{Headers, layers::Layers};
use crate::{
    config::{BOOL_EXPECTED, Protocol, parse_bool},
    env_vars::{self, per_signal},
    origin::{Origin, Sourced},
    secret::{Secret, SecretUrl},
};

/// A kind of telemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Metrics.
    Metrics,
    /// Log records.
    Logs,
}

impl Signal {
    /// All of them, in the order of [`per_signal`].
    pub const ALL: [Signal; 3] = [Signal::Traces, Signal::Metrics, Signal::Logs];

    /// As written in keys.
    pub fn as_str(self) -> &'static str {
        match self {
            Signal::Traces => "traces",
            Signal::Metrics => "metrics",
            Signal::Logs => "logs",
        }
    }
}

/// OTLP settings of the three signals.
#[derive(Clone, Debug, PartialEq)]
pub struct Otlp {
    /// Spans.
    pub traces: OtlpSignal,
    /// Metrics.
    pub metrics: OtlpSignal,
    /// Log records.
    pub logs: OtlpSignal,
    /// The base that was given for all signals, without the default.
    pub base_endpoint: Sourced<Option<SecretUrl>>,
}

impl Otlp {
    /// The settings of a signal.
    pub fn of(&self, signal: Signal) -> &OtlpSignal {
        match signal {
            Signal::Traces => &self.traces,
            Signal::Metrics => &self.metrics,
            Signal::Logs => &self.logs,
        }
    }
}

/// OTLP settings of one signal, as they will be used.
#[derive(Clone, Debug, PartialEq)]
pub struct OtlpSignal {
    /// The URL that is posted to, or the gRPC target.
    pub endpoint: Sourced<SecretUrl>,
    /// How it is carried.
    pub protocol: Sourced<Protocol>,
    /// `name=value,…`.
    pub headers: Sourced<Headers>,
    /// Milliseconds an export may take.
    pub timeout_millis: Sourced<u64>,
    /// gzip.
    pub gzip: Sourced<bool>,
    /// gRPC without TLS when the endpoint has no scheme.
    pub insecure: Sourced<bool>,
    /// File of the trusted certificates.
    pub certificate: Sourced<Option<String>>,
    /// File of the client's key.
    pub client_key: Sourced<Option<String>>,
    /// File of the client's certificate.
    pub client_certificate: Sourced<Option<String>>,
}

const TIMEOUT_MILLIS: u64 = 10_000;

pub(super) fn resolve(at: &mut Layers<'_>) -> Otlp {
    let block = at.block();
    let base_endpoint = at.standard(
        &[env_vars::OTEL_EXPORTER_OTLP_ENDPOINT],
        |text| Some(Some(SecretUrl::new(text.trim()))),
        "a URL",
        block.otlp_endpoint.clone().map(Some),
        None,
    );
    let otlp = Otlp {
        traces: signal(at, Signal::Traces, &base_endpoint),
        metrics: signal(at, Signal::Metrics, &base_endpoint),
        logs: signal(at, Signal::Logs, &base_endpoint),
        base_endpoint,
    };
    let mut cautions: Vec<String> = Vec::new();
    for signal in Signal::ALL {
        for caution in cautions_of(&otlp, signal) {
            if !cautions.contains(&caution) {
                cautions.push(caution);
            }
        }
    }
    at.cautions.extend(cautions);
    otlp
}

/// What cannot do what was meant.
fn cautions_of(otlp: &Otlp, signal: Signal) -> Vec<String> {
    let mut cautions = Vec::new();
    let of = otlp.of(signal);
    if let Some(base) = &otlp.base_endpoint.value
        && of.endpoint.origin == otlp.base_endpoint.origin
        && let Some(problem) =
            lens::config::doubled_path(base.expose(), lens_protocol(of.protocol.value))
    {
        cautions.push(format!("{} {problem}", setting(otlp.base_endpoint.origin, "otlp_endpoint")));
    }
    match (&of.client_certificate, &of.client_key) {
        (certificate, Sourced { value: None, .. }) if certificate.value.is_some() => {
            cautions.push(half(certificate.origin, env_vars::OTEL_EXPORTER_OTLP_CLIENT_KEY));
        }
        (Sourced { value: None, .. }, key) if key.value.is_some() => {
            cautions.push(half(key.origin, env_vars::OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE));
        }
        _ => {}
    }
    cautions
}

fn half(origin: Origin, missing: &str) -> String {
    format!("{} has no effect without {missing}", setting(origin, "client certificate"))
}

/// How a person wrote the setting.
fn setting(origin: Origin, key: &str) -> String {
    match origin {
        Origin::Variable(name) => name.to_owned(),
        _ => format!("telemetry.{key}"),
    }
}

fn signal(at: &mut Layers<'_>, signal: Signal, base: &Sourced<Option<SecretUrl>>) -> OtlpSignal {
    let nth = signal as usize;
    let block = at.block();
    let protocol = at.standard(
        &[per_signal::PROTOCOL[nth], env_vars::OTEL_EXPORTER_OTLP_PROTOCOL],
        Protocol::parse,
        Protocol::EXPECTED,
        block.otlp_protocol,
        Protocol::Grpc,
    );
    let insecure = at.standard(
        &[per_signal::INSECURE[nth], env_vars::OTEL_EXPORTER_OTLP_INSECURE],
        parse_bool,
        BOOL_EXPECTED,
        None,
        false,
    );
    let own = per_signal::ENDPOINT[nth];
    let carried = lens_protocol(protocol.value);
    let under = |base: &str| lens::config::signal_url(base, carried, lens_signal(signal));
    let endpoint = match (at.variable(own), &base.value) {
        (Some(url), _) => Sourced::new(url.trim().to_owned(), Origin::Variable(own)),
        (None, Some(url)) => Sourced::new(under(url.expose()), base.origin),
        (None, None) => {
            Sourced::new(under(lens::config::default_endpoint(carried)), Origin::Default)
        }
    };
    let endpoint =
        Sourced::new(SecretUrl::new(with_scheme(endpoint.value, insecure.value)), endpoint.origin);
    OtlpSignal {
        endpoint,
        protocol,
        headers: at.standard(
            &[per_signal::HEADERS[nth], env_vars::OTEL_EXPORTER_OTLP_HEADERS],
            |text| Some(Some(Secret::new(text.trim()))),
            "`name=value,…`",
            block.otlp_headers.clone().map(Some),
            None,
        ),
        timeout_millis: at.standard(
            &[per_signal::TIMEOUT[nth], env_vars::OTEL_EXPORTER_OTLP_TIMEOUT],
            |text| text.trim().parse().ok(),
            "milliseconds",
            None,
            TIMEOUT_MILLIS,
        ),
        gzip: at.standard(
            &[per_signal::COMPRESSION[nth], env_vars::OTEL_EXPORTER_OTLP_COMPRESSION],
            |text| match text.trim().to_ascii_lowercase().as_str() {
                "gzip" => Some(true),
                "none" => Some(false),
                _ => None,
            },
            "`gzip` or `none`",
            None,
            false,
        ),
        insecure,
        certificate: at
            .maybe(&[per_signal::CERTIFICATE[nth], env_vars::OTEL_EXPORTER_OTLP_CERTIFICATE]),
        client_key: at
            .maybe(&[per_signal::CLIENT_KEY[nth], env_vars::OTEL_EXPORTER_OTLP_CLIENT_KEY]),
        client_certificate: at.maybe(&[
            per_signal::CLIENT_CERTIFICATE[nth],
            env_vars::OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE,
        ]),
    }
}

fn lens_signal(signal: Signal) -> lens::config::Signal {
    match signal {
        Signal::Traces => lens::config::Signal::Traces,
        Signal::Metrics => lens::config::Signal::Metrics,
        Signal::Logs => lens::config::Signal::Logs,
    }
}

pub(crate) fn lens_protocol(protocol: Protocol) -> lens::config::Protocol {
    match protocol {
        Protocol::Grpc => lens::config::Protocol::Grpc,
        Protocol::HttpProtobuf => lens::config::Protocol::HttpProtobuf,
        Protocol::HttpJson => lens::config::Protocol::HttpJson,
    }
}

/// Without a scheme the endpoint is TLS unless `insecure` says otherwise.
fn with_scheme(url: String, insecure: bool) -> String {
    if url.contains("://") {
        return url;
    }
    format!("{}://{url}", if insecure { "http" } else { "https" })
}
