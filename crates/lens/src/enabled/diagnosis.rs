//! What keeps telemetry from being delivered, said once for each signal with the setting that mends it.

use lens_otlp::client::{Sender, TargetError, Trouble};

use super::diagnostics::Said;
use crate::config::{OtlpSettings, Protocol, Signal};
use crate::env_vars as vars;

/// The endpoint of one signal and whether its trouble was told.
#[derive(Debug)]
pub(super) struct Diagnosis {
    signal: Signal,
    endpoint: String,
    protocol: Protocol,
    /// Worth waiting for, e.g. a collector that starts later.
    passing: Said,
    /// Nothing but another setting helps.
    lasting: Said,
    /// A part was rejected.
    rejected: Said,
}

impl Diagnosis {
    pub(super) fn new(signal: Signal, settings: &OtlpSettings) -> Self {
        Self {
            signal,
            endpoint: without_credentials(&settings.endpoint),
            protocol: settings.protocol,
            passing: Said::new(),
            lasting: Said::new(),
            rejected: Said::new(),
        }
    }

    /// Says what the sender last met.
    pub(super) fn say(&self, sender: &Sender) {
        if let Some(trouble) = sender.take_trouble() {
            let said = match &trouble {
                Trouble::Rejected { .. } => &self.rejected,
                trouble if is_passing(trouble) => &self.passing,
                _ => &self.lasting,
            };
            said.say(&self.text(&trouble));
        }
    }

    /// What mends settings that cannot be used.
    pub(super) fn hint_of_target(&self, error: &TargetError) -> String {
        let variable = match error {
            TargetError::Endpoint(_) => vars::OTEL_EXPORTER_OTLP_ENDPOINT,
            TargetError::Header(_) => vars::OTEL_EXPORTER_OTLP_HEADERS,
            _ => vars::OTEL_EXPORTER_OTLP_CERTIFICATE,
        };
        let variable = self.variable(variable);
        match error {
            TargetError::Certificate { .. } => {
                format!("PEM files are set by {variable}, those of a client beside it")
            }
            _ => format!("it is set by {variable}"),
        }
    }

    fn text(&self, trouble: &Trouble) -> String {
        let signal = self.signal.env_name().to_ascii_lowercase();
        let protocol = self.protocol.as_str();
        let Self { endpoint, .. } = self;
        let hint = self.hint(trouble);
        if let Trouble::Rejected { .. } = trouble {
            return format!("{signal} to {endpoint} over {protocol}: {trouble}; {hint}");
        }
        format!("{signal} cannot be delivered to {endpoint} over {protocol}: {trouble}; {hint}")
    }

    /// The variable of this signal, whose general form holds too.
    fn variable(&self, general: &str) -> String {
        let rest = general.strip_prefix(vars::OTEL_EXPORTER_OTLP).unwrap_or(general);
        format!("{general} or {}{}_{rest}", vars::OTEL_EXPORTER_OTLP, self.signal.env_name())
    }

    /// What mends it, with the names of the variables.
    pub(super) fn hint(&self, trouble: &Trouble) -> String {
        let endpoint = self.variable(vars::OTEL_EXPORTER_OTLP_ENDPOINT);
        let protocol = self.variable(vars::OTEL_EXPORTER_OTLP_PROTOCOL);
        match trouble {
            Trouble::ConnectionRefused | Trouble::Unreachable(_) => {
                format!("is a receiver running there? The address is set by {endpoint}")
            }
            Trouble::NoSuchHost(_) => format!("the address is set by {endpoint}"),
            Trouble::NotTls => format!("let {endpoint} begin with http://"),
            Trouble::WantsTls => format!("let {endpoint} begin with https://"),
            Trouble::Tls(_) => {
                let certificate = self.variable(vars::OTEL_EXPORTER_OTLP_CERTIFICATE);
                format!("trusted certificates are set by {certificate}")
            }
            Trouble::GrpcPort => format!(
                "set {protocol} to {}, or let {endpoint} name the port for http (usually 4318)",
                Protocol::Grpc.as_str()
            ),
            Trouble::HttpPort => format!(
                "set {protocol} to {}, or let {endpoint} name the port for grpc (usually 4317)",
                Protocol::HttpProtobuf.as_str()
            ),
            Trouble::ClosedEarly | Trouble::Broken(_) => {
                let usual = match self.protocol {
                    Protocol::Grpc => 4317,
                    Protocol::HttpProtobuf | Protocol::HttpJson => 4318,
                };
                format!("does the receiver speak what {protocol} says (usual port: {usual})?")
            }
            Trouble::Credentials(_) => {
                let headers = self.variable(vars::OTEL_EXPORTER_OTLP_HEADERS);
                format!("headers with credentials are set by {headers}")
            }
            Trouble::NoSuchPath { .. }
                if self.protocol != Protocol::Grpc && repeats_signal_path(&self.endpoint) =>
            {
                let path = self.signal.http_path();
                format!(
                    "{path} is appended to {}, which must not end in the path of a signal itself",
                    vars::OTEL_EXPORTER_OTLP_ENDPOINT
                )
            }
            Trouble::NoSuchPath { .. } if self.protocol != Protocol::Grpc => {
                let own =
                    format!("{}{}_ENDPOINT", vars::OTEL_EXPORTER_OTLP, self.signal.env_name());
                let path = self.signal.http_path();
                format!(
                    "{own} is used as it is and mostly ends in {path}, which is appended to {}",
                    vars::OTEL_EXPORTER_OTLP_ENDPOINT
                )
            }
            Trouble::NoSuchPath { .. } => {
                format!("does the receiver take {}?", self.signal.env_name().to_ascii_lowercase())
            }
            Trouble::TimedOut => {
                let timeout = self.variable(vars::OTEL_EXPORTER_OTLP_TIMEOUT);
                format!(
                    "does something between here and the receiver swallow what is sent? The address is set by \
                     {endpoint}, the time that an export may take by {timeout}"
                )
            }
            Trouble::Status(_) | Trouble::TooLarge(_) | Trouble::Rejected { .. } => {
                "the receiver's own log may say why; what is delivered, waits and is lost is counted".to_owned()
            }
            _ => "what is delivered, waits and is lost is counted".to_owned(),
        }
    }
}

fn is_passing(trouble: &Trouble) -> bool {
    matches!(
        trouble,
        Trouble::ConnectionRefused
            | Trouble::Unreachable(_)
            | Trouble::NoSuchHost(_)
            | Trouble::ClosedEarly
            | Trouble::TimedOut
            | Trouble::Status(_)
    )
}

/// Whether the path of a signal stands in an address behind that of another, or of itself: what comes of a base
/// endpoint that has a path already.
fn repeats_signal_path(endpoint: &str) -> bool {
    let paths = [Signal::Traces, Signal::Metrics, Signal::Logs].map(Signal::http_path);
    let path = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let rest = paths.iter().find_map(|last| path.trim_end_matches('/').strip_suffix(last));
    rest.is_some_and(|rest| paths.iter().any(|path| rest.trim_end_matches('/').ends_with(path)))
}

/// The endpoint without what stands before an `@`.
fn without_credentials(endpoint: &str) -> String {
    match endpoint.split_once("://") {
        Some((scheme, rest)) => {
            let authority = rest.split(['/', '?']).next().unwrap_or_default();
            let start = authority.rfind('@').map_or(0, |at| at + 1);
            format!("{scheme}://{}", &rest[start..])
        }
        None => endpoint.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(protocol: Protocol, endpoint: &str, trouble: &Trouble) -> String {
        let mut settings = OtlpSettings::for_signal(Signal::Traces);
        settings.endpoint = endpoint.to_owned();
        settings.protocol = protocol;
        Diagnosis::new(Signal::Traces, &settings).text(trouble)
    }

    #[test]
    fn endpoint_trouble_and_setting_are_named() {
        assert_eq!(
            text(Protocol::Grpc, "http://localhost:4317", &Trouble::ConnectionRefused),
            "traces cannot be delivered to http://localhost:4317 over grpc: the connection was refused; is a \
             receiver running there? The address is set by OTEL_EXPORTER_OTLP_ENDPOINT or \
             OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
        );
        assert_eq!(
            text(Protocol::HttpProtobuf, "http://localhost:4317/v1/traces", &Trouble::GrpcPort),
            "traces cannot be delivered to http://localhost:4317/v1/traces over http/protobuf: this is a port for \
             grpc, and http was spoken to it; set OTEL_EXPORTER_OTLP_PROTOCOL or \
             OTEL_EXPORTER_OTLP_TRACES_PROTOCOL to grpc, or let OTEL_EXPORTER_OTLP_ENDPOINT or \
             OTEL_EXPORTER_OTLP_TRACES_ENDPOINT name the port for http (usually 4318)"
        );
        let missing = Trouble::NoSuchPath { path: "/".to_owned(), status: "HTTP 404".to_owned() };
        assert_eq!(
            text(Protocol::HttpProtobuf, "http://localhost:4318", &missing),
            "traces cannot be delivered to http://localhost:4318 over http/protobuf: the receiver has nothing at / \
             (HTTP 404); OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is used as it is and mostly ends in /v1/traces, which \
             is appended to OTEL_EXPORTER_OTLP_ENDPOINT"
        );
    }

    #[test]
    fn credentials_in_an_endpoint_are_not_told() {
        let told = text(Protocol::Grpc, "http://me:secret@host:1/a@b", &Trouble::TimedOut);
        assert!(told.contains(" http://host:1/a@b ") && !told.contains("secret"), "{told}");
    }

    #[test]
    fn a_base_that_has_the_path_of_a_signal_is_recognised() {
        assert!(repeats_signal_path("http://h:4318/v1/traces/v1/traces"));
        assert!(repeats_signal_path("https://h/otlp/v1/traces/v1/logs/"));
        assert!(!repeats_signal_path("http://h:4318/v1/traces"));
        assert!(!repeats_signal_path("http://h/v1/traces/of/us"));
        assert!(!repeats_signal_path("localhost:4317"));
    }
}
