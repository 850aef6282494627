//! What is measured of outbound requests, whether or not they have spans.
//!
//! The handles of what usual requests record are bound once and kept with their destination: such a
//! request takes no lock and makes no attributes. What is rare looks its handle up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};

use gym_telemetry::metrics;
use gym_telemetry::semconv::value::{attempt_outcome, destination, outcome, queue_constraint};
use gym_telemetry::semconv::{self, metric, unit};
use http::Method;
use lens::metrics::{BoundHistogram, Counter};
use lens::{Moment, Value};

use super::error::ClientError;
use super::outgoing::ClientReply;
use crate::instance::{Endpoint, EndpointKind};

/// The handles of one destination.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    /// POST and GET that ended with status 200.
    usual: [OnceLock<BoundHistogram>; 2],
    /// By constraint, then by outcome.
    queued: [OnceLock<BoundHistogram>; 6],
    opened: OnceLock<Arc<AtomicU64>>,
}

/// How a destination is called on spans and metrics.
pub(super) fn destination_of(endpoint: &Endpoint) -> (&'static str, Value) {
    let kind = match endpoint.kind() {
        EndpointKind::Gym => {
            return (semconv::HTTP_DESTINATION_SERVER_NAME, endpoint.name().to_owned().into());
        }
        EndpointKind::Model => destination::MODEL,
        EndpointKind::External => destination::EXTERNAL,
    };
    (semconv::HTTP_DESTINATION_KIND, Value::from_static(kind))
}

/// One logical request under way.
#[derive(Debug)]
pub(super) struct Measured {
    since: Moment,
    endpoint: Endpoint,
    is_post: bool,
}

impl Measured {
    /// `None` while metrics are off.
    pub(super) fn begin(endpoint: &Endpoint, method: &Method) -> Option<Self> {
        lens::metrics::is_enabled().then(|| Self {
            since: Moment::now(),
            endpoint: endpoint.clone(),
            is_post: *method == Method::POST,
        })
    }

    /// The request ended so.
    pub(super) fn end(self, result: &Result<ClientReply, ClientError>) {
        match result {
            Ok(reply) => match reply.status.as_u16() {
                200 => self.record_usual(),
                status if status < 400 => self.record(Some(status), None),
                status => self.record(Some(status), Some(status.to_string())),
            },
            Err(error) => {
                if error.is_timeout() {
                    let internal = self.endpoint.kind() == EndpointKind::Gym;
                    let internal = (semconv::HTTP_INTERNAL, internal.into());
                    metrics::HTTP_TIMEOUT_TOTAL.add(1, &[internal]);
                }
                self.record(None, Some(error.error_type()));
            }
        }
    }

    /// Nobody waits for it any longer.
    pub(super) fn cancelled(self) {
        self.record(None, Some(outcome::CANCELLED.to_owned()));
    }

    /// An attempt is going to be repeated, for this reason.
    pub(super) fn repeats(reason: &'static str) {
        let reason = (semconv::HTTP_ATTEMPT_REASON, Value::from_static(reason));
        metrics::HTTP_RETRY_TOTAL.add(1, &[reason]);
    }

    fn seconds(&self) -> f64 {
        self.since.nanos_until(Moment::now()) as f64 * 1e-9
    }

    fn record_usual(self) {
        let usual = &self.endpoint.meters().usual[usize::from(self.is_post)];
        let bind = || metrics::HTTP_CLIENT_DURATION.bind(&self.attributes(Some(200), None));
        usual.get_or_init(bind).record(self.seconds());
    }

    fn record(&self, status: Option<u16>, error_type: Option<String>) {
        let attributes = self.attributes(status, error_type);
        metrics::HTTP_CLIENT_DURATION.record(self.seconds(), &attributes);
    }

    fn attributes(
        &self,
        status: Option<u16>,
        error_type: Option<String>,
    ) -> Vec<(&'static str, Value)> {
        let method = if self.is_post { Method::POST } else { Method::GET };
        let mut attributes = vec![
            (semconv::HTTP_REQUEST_METHOD, method.as_str().into()),
            (semconv::SERVER_ADDRESS, self.endpoint.host().to_owned().into()),
            (semconv::SERVER_PORT, i64::from(self.endpoint.port()).into()),
            destination_of(&self.endpoint),
        ];
        let status = status.map(|status| i64::from(status).into());
        attributes.extend(status.map(|status| (semconv::HTTP_RESPONSE_STATUS_CODE, status)));
        attributes.extend(error_type.map(|name| (semconv::ERROR_TYPE, name.into())));
        attributes
    }
}

/// Which limit a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Constraint {
    Total,
    PerHost,
    /// Neither is reached: others came first.
    Unknown,
}

/// A request in the queue for a connection. Dropped before it [`got`](Self::got) one, it gave up.
pub(super) struct Queued<'a>(Option<(Moment, &'a Endpoint, Constraint)>);

impl<'a> Queued<'a> {
    pub(super) fn begin(endpoint: &'a Endpoint, constraint: Constraint) -> Self {
        let is_on = lens::metrics::is_enabled();
        Self(is_on.then(|| (Moment::now(), endpoint, constraint)))
    }

    /// A connection came.
    pub(super) fn got(mut self) {
        self.record(true);
    }

    /// The queue took no more.
    pub(super) fn was_refused(mut self) {
        self.0 = None;
    }

    fn record(&mut self, is_ok: bool) {
        let Some((since, endpoint, constraint)) = self.0.take() else { return };
        let millis = since.nanos_until(Moment::now()) as f64 * 1e-6;
        let bind = || {
            let constraint = match constraint {
                Constraint::Total => queue_constraint::TOTAL,
                Constraint::PerHost => queue_constraint::PER_HOST,
                Constraint::Unknown => queue_constraint::UNKNOWN,
            };
            let outcome = if is_ok { attempt_outcome::OK } else { attempt_outcome::ABANDONED };
            metrics::HTTP_POOL_QUEUE.bind(&[
                (semconv::HTTP_POOL_QUEUE_CONSTRAINT, Value::from_static(constraint)),
                (semconv::HTTP_POOL_ATTEMPT_OUTCOME, Value::from_static(outcome)),
                destination_of(endpoint),
            ])
        };
        let index = constraint as usize * 2 + usize::from(is_ok);
        endpoint.meters().queued[index].get_or_init(bind).record(millis);
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.record(false);
    }
}

/// A destination, and how many connections were opened to it.
type Opened = ((&'static str, String), Arc<AtomicU64>);

/// What every client of the process opened: shards have a pool each, a destination has one total.
static OPENED: Mutex<Vec<Opened>> = Mutex::new(Vec::new());

/// A connection to `endpoint` was opened.
pub(super) fn connected(endpoint: &Endpoint) {
    if lens::metrics::is_enabled() {
        let opened = endpoint.meters().opened.get_or_init(|| opened_to(endpoint));
        opened.fetch_add(1, Ordering::Relaxed);
    }
}

fn opened_to(endpoint: &Endpoint) -> Arc<AtomicU64> {
    static OBSERVED: Once = Once::new();
    OBSERVED.call_once(|| {
        Counter::observable(
            metric::HTTP_POOL_CONNECT_TOTAL,
            unit::CONNECTION,
            "Connections opened, by destination",
            || {
                let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
                let total = |((key, name), total): &Opened| {
                    (vec![(*key, name.clone().into())], total.load(Ordering::Relaxed))
                };
                opened.iter().map(total).collect()
            },
        );
    });
    let (key, name) = destination_of(endpoint);
    let name = name.to_string();
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = opened.iter().find(|((k, n), _)| *k == key && *n == name);
    if let Some((_, total)) = known {
        return Arc::clone(total);
    }
    let total = Arc::new(AtomicU64::new(0));
    opened.push(((key, name), Arc::clone(&total)));
    total
}
