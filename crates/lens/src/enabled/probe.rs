//! Sends one span, one metric and one log record as the settings say, beside any telemetry of this process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lens_otlp::encode::{LogParts, Scope, SpanParts, put_request, put_scope_item};
use lens_otlp::metrics::{Identity, Interval, Number, NumberPoint, Temporality, put_sum};

use super::diagnosis::Diagnosis;
use super::otlp::{OtlpOutcome, OtlpTicket, chain, start_client, target};
use super::{clock, ids, resource};
use crate::config::{ExporterKind, LensConfig, OtlpSettings, Signal};
use crate::semconv;
use crate::severity::Severity;
use crate::{Delivery, Probe, SetupError};

/// The client keeps the limit; this only covers a thread that does not run at all.
const GRACE: Duration = Duration::from_secs(1);

/// Sends a probe of every signal that goes out over OTLP, all at once, and waits for what becomes of them, each at
/// most as long as its settings and `limit` allow. Neither starts nor disturbs the telemetry of this process.
///
/// # Errors
///
/// When the client's thread cannot be started.
pub fn probe(config: &LensConfig, limit: Duration) -> Result<Vec<Probe>, SetupError> {
    let client = start_client()?;
    let resource = resource::encode(&resource::attributes(config));
    let trace_id = trace_id();
    let signals = [
        (Signal::Traces, config.traces_exporter, &config.traces_otlp),
        (Signal::Metrics, config.metrics_exporter, &config.metrics_otlp),
        (Signal::Logs, config.logs_exporter, &config.logs_otlp),
    ];
    let mut sent = Vec::new();
    let since = Instant::now();
    for (signal, exporter, settings) in signals {
        if exporter != ExporterKind::Otlp {
            continue;
        }
        let mut settings = settings.clone();
        settings.timeout = settings.timeout.min(limit);
        let request = Arc::new(request(signal, &resource, trace_id));
        sent.push(match client.open(target(signal, &settings)) {
            Ok(sender) => {
                let ticket = sender.begin(request, std::thread::current());
                Sent::Under { signal, settings, sender, ticket: OtlpTicket::new(ticket) }
            }
            Err(error) => Sent::Done(Probe {
                signal,
                delivery: Delivery::Unusable,
                trace_id: trace_id.to_string(),
                took: Duration::ZERO,
                trouble: Some(chain(&error)),
                advice: Some(Diagnosis::new(signal, &settings).hint_of_target(&error)),
            }),
        });
    }
    let give_up = since + limit + GRACE;
    loop {
        for one in &mut sent {
            one.look(since, trace_id, Instant::now() >= give_up);
        }
        if sent.iter().all(|one| matches!(one, Sent::Done(_))) {
            break;
        }
        std::thread::park_timeout(give_up.saturating_duration_since(Instant::now()));
    }
    Ok(sent.into_iter().filter_map(Sent::done).collect())
}

enum Sent {
    Under {
        signal: Signal,
        settings: OtlpSettings,
        sender: lens_otlp::client::Sender,
        ticket: OtlpTicket,
    },
    Done(Probe),
}

impl Sent {
    /// Takes the outcome once it is there; when it is too late, for a failure.
    fn look(&mut self, since: Instant, trace_id: ids::TraceId, is_late: bool) {
        let Self::Under { signal, settings, sender, ticket } = self else { return };
        let outcome = match ticket.outcome() {
            Some(outcome) => outcome,
            None if is_late => OtlpOutcome::Failed { not_before: None },
            None => return,
        };
        let delivery = match outcome {
            OtlpOutcome::Exported { rejected: 0 } => Delivery::Delivered,
            OtlpOutcome::Exported { .. } => Delivery::Rejected,
            OtlpOutcome::Rejected | OtlpOutcome::Failed { .. } => Delivery::Failed,
        };
        let diagnosis = Diagnosis::new(*signal, settings);
        let trouble = if delivery == Delivery::Delivered { None } else { sender.take_trouble() };
        let mut probe = Probe {
            signal: *signal,
            delivery,
            trace_id: trace_id.to_string(),
            took: since.elapsed(),
            trouble: trouble.as_ref().map(ToString::to_string),
            advice: trouble.as_ref().map(|trouble| diagnosis.hint(trouble)),
        };
        if delivery == Delivery::Rejected && probe.trouble.is_none() {
            probe.trouble = Some("the receiver answered and refused what was sent".to_owned());
            probe.advice = Some("the receiver's own log says why".to_owned());
        }
        *self = Self::Done(probe);
    }

    fn done(self) -> Option<Probe> {
        match self {
            Self::Done(probe) => Some(probe),
            Self::Under { .. } => None,
        }
    }
}

fn trace_id() -> ids::TraceId {
    let bits = u128::from(ids::random()) << 64 | u128::from(ids::random().max(1));
    ids::TraceId::from_bytes(bits.to_be_bytes())
}

fn request(signal: Signal, resource: &[u8], trace_id: ids::TraceId) -> Vec<u8> {
    let now = clock::now_unix_nanos();
    let mut message = Vec::new();
    let mut items = Vec::new();
    let span_id = ids::random().max(1).to_be_bytes();
    match signal {
        Signal::Traces => {
            SpanParts {
                trace_id: trace_id.to_bytes(),
                span_id,
                name: semconv::PROBE,
                kind: 1,
                start_nanos: now,
                end_nanos: now + 1,
                ..SpanParts::default()
            }
            .put(&mut message);
            put_scope_item(&mut items, &message);
        }
        Signal::Metrics => {
            let identity = Identity {
                name: semconv::PROBE,
                unit: "1",
                description: "sent to see whether metrics arrive",
            };
            let point = NumberPoint { attributes: &[], value: Number::Int(1), exemplars: &[] };
            let interval = Interval { start_nanos: now, end_nanos: now + 1 };
            let points = std::iter::once(point);
            put_sum(&mut items, &identity, interval, Temporality::Cumulative, true, points);
        }
        Signal::Logs => {
            LogParts {
                time_nanos: now,
                observed_nanos: now,
                severity_number: Severity::Info as u8,
                severity_text: Severity::Info.as_str(),
                body: "sent to see whether log records arrive",
                span: Some((trace_id.to_bytes(), span_id)),
                event_name: semconv::PROBE,
                ..LogParts::default()
            }
            .put(&mut message);
            put_scope_item(&mut items, &message);
        }
    }
    let scope = Scope { name: semconv::PROBE, version: env!("CARGO_PKG_VERSION") };
    let mut out = Vec::new();
    put_request(&mut out, resource, std::iter::once((scope, items.as_slice())));
    out
}
