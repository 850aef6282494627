//! Settings of this crate as those of the OTLP client.

use std::sync::Arc;
use std::time::Duration;

use lens_otlp::client::{self, Client, Outcome, Sender};

use super::diagnosis::Diagnosis;
use crate::SetupError;
use crate::config::{LensConfig, OtlpSettings, Protocol, Signal};

/// Starts the client's thread.
pub(super) fn start_client() -> Result<Client, SetupError> {
    Client::start().map_err(|error| SetupError::Thread { reason: error.to_string() })
}

/// Where one signal goes.
pub(super) fn target(signal: Signal, settings: &OtlpSettings) -> client::Target {
    client::Target {
        signal: match signal {
            Signal::Traces => client::Signal::Traces,
            Signal::Metrics => client::Signal::Metrics,
            Signal::Logs => client::Signal::Logs,
        },
        endpoint: settings.endpoint.clone(),
        protocol: match settings.protocol {
            Protocol::Grpc => client::Protocol::Grpc,
            Protocol::HttpProtobuf => client::Protocol::HttpProtobuf,
            Protocol::HttpJson => client::Protocol::HttpJson,
        },
        headers: settings.headers.clone(),
        timeout: settings.timeout,
        gzip: settings.gzip,
        certificate: settings.certificate.clone(),
        client_identity: settings.client_identity.clone(),
        max_request_bytes: client::MAX_REQUEST_BYTES,
    }
}

/// A sender of one signal.
pub(super) fn sender(
    client: &Client,
    signal: Signal,
    settings: &OtlpSettings,
) -> Result<Sender, SetupError> {
    let opened = client.open(target(signal, settings));
    opened.map_err(|error| SetupError::Exporter { reason: chain(&error) })
}

/// An error with its sources as one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum OtlpOutcome {
    Exported {
        rejected: u64,
    },
    Rejected,
    /// Not delivered within the budget; the receiver may have said when to come again.
    Failed {
        not_before: Option<Duration>,
    },
}

/// A request on its way.
#[derive(Debug)]
pub(super) struct OtlpTicket(client::Ticket);

impl OtlpTicket {
    pub(super) fn new(ticket: client::Ticket) -> Self {
        Self(ticket)
    }

    /// `None` while it is on its way.
    pub(super) fn outcome(&self) -> Option<OtlpOutcome> {
        Some(match self.0.outcome()? {
            Outcome::Accepted { rejected } => OtlpOutcome::Exported { rejected },
            Outcome::Refused => OtlpOutcome::Rejected,
            Outcome::Failed { not_before } => OtlpOutcome::Failed { not_before },
        })
    }
}

/// Batches of one signal over OTLP.
#[derive(Debug)]
pub(super) struct OtlpBatches {
    sender: Sender,
    diagnosis: Diagnosis,
}

impl OtlpBatches {
    pub(super) fn spans(client: &Client, config: &LensConfig) -> Result<Self, SetupError> {
        Self::new(client, Signal::Traces, &config.traces_otlp, config.batch.export_timeout)
    }

    pub(super) fn logs(client: &Client, config: &LensConfig) -> Result<Self, SetupError> {
        Self::new(client, Signal::Logs, &config.logs_otlp, config.log_batch.export_timeout)
    }

    fn new(
        client: &Client,
        signal: Signal,
        settings: &OtlpSettings,
        export_timeout: Duration,
    ) -> Result<Self, SetupError> {
        let mut settings = settings.clone();
        settings.timeout = settings.timeout.min(export_timeout);
        let sender = sender(client, signal, &settings)?;
        Ok(Self { sender, diagnosis: Diagnosis::new(signal, &settings) })
    }

    /// Begins to send; the calling thread is unparked when the outcome is known.
    pub(super) fn begin(&self, request: Arc<Vec<u8>>) -> OtlpTicket {
        OtlpTicket(self.sender.begin(request, std::thread::current()))
    }

    /// Whether the receiver said that it shows what is open.
    pub(super) fn is_observed(&self) -> bool {
        self.sender.is_observed()
    }

    /// How often a try found nobody there.
    pub(super) fn refusals(&self) -> u64 {
        self.sender.refusals()
    }

    /// Lets a request that pauses try at once.
    pub(super) fn hurry(&self) {
        self.sender.hurry();
    }

    /// Says once what keeps requests from being delivered.
    pub(super) fn explain(&self) {
        self.diagnosis.say(&self.sender);
    }
}
