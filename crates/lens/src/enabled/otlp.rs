//! Settings of this crate as those of the OTLP client.

use lens_otlp::client::{self, Client, Outcome, Sender};

use super::pipeline::{ExportOutcome, SpanBatch, SpanExporter};
use crate::SetupError;
use crate::config::{LensConfig, OtlpSettings, Protocol, Signal};

/// Starts the client's thread.
pub(super) fn start_client() -> Result<Client, SetupError> {
    Client::start().map_err(|error| SetupError::Thread { reason: error.to_string() })
}

/// A sender of one signal.
pub(super) fn sender(
    client: &Client,
    signal: Signal,
    settings: &OtlpSettings,
) -> Result<Sender, SetupError> {
    let target = client::Target {
        signal: match signal {
            Signal::Traces => client::Signal::Traces,
            Signal::Metrics => client::Signal::Metrics,
            Signal::Logs => client::Signal::Logs,
        },
        endpoint: settings.endpoint.clone(),
        protocol: match settings.protocol {
            Protocol::Grpc => client::Protocol::Grpc,
            Protocol::HttpProtobuf => client::Protocol::HttpProtobuf,
            // Only traces have a JSON form; a receiver of JSON takes protobuf on the same path.
            Protocol::HttpJson if signal != Signal::Traces => client::Protocol::HttpProtobuf,
            Protocol::HttpJson => client::Protocol::HttpJson,
        },
        headers: settings.headers.clone(),
        timeout: settings.timeout,
        gzip: settings.gzip,
        certificate: settings.certificate.clone(),
        client_identity: settings.client_identity.clone(),
    };
    client.open(target).map_err(|error| SetupError::Exporter { reason: chain(&error) })
}

/// An error with its sources as one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// Spans over OTLP.
#[derive(Debug)]
pub(super) struct OtlpSpans {
    sender: Sender,
}

impl OtlpSpans {
    pub(super) fn new(client: &Client, config: &LensConfig) -> Result<Self, SetupError> {
        let mut settings = config.traces_otlp.clone();
        settings.timeout = settings.timeout.min(config.batch.export_timeout);
        Ok(Self { sender: sender(client, Signal::Traces, &settings)? })
    }
}

impl SpanExporter for OtlpSpans {
    fn export(&mut self, batch: &SpanBatch) -> ExportOutcome {
        match self.sender.send(batch.shared_request()) {
            Outcome::Accepted { rejected } => ExportOutcome::Exported { rejected },
            Outcome::Refused => ExportOutcome::Rejected,
            Outcome::Failed => ExportOutcome::Failed,
        }
    }
}
