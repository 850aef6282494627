//! What is measured of requests to a server: duration, sizes of bodies, and how many are under way.
//!
//! Handles are bound once for a route and a status. A request that no route takes is measured
//! without `http.route`; its handle is looked up, because its method can be anything.

use std::sync::{Mutex, OnceLock, PoisonError};

use gym_telemetry::semconv::value::outcome;
use gym_telemetry::{metrics, semconv};
use lens::Value;
use lens::metrics::{BoundHistogram, BoundUpDownCounter};

/// The handles of one route.
#[derive(Debug, Default)]
pub(crate) struct RouteMeters {
    active: OnceLock<BoundUpDownCounter>,
    /// Those of status 200.
    usual: OnceLock<Meters>,
    others: Mutex<Vec<(Option<u16>, Meters)>>,
}

/// The handles of requests that ended alike.
#[derive(Clone, Debug)]
struct Meters {
    duration: BoundHistogram,
    request_bytes: BoundHistogram,
    response_bytes: BoundHistogram,
}

/// What one request came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    /// `None` when the caller went away before there was a reply.
    pub(crate) status: Option<u16>,
    pub(crate) seconds: f64,
    /// `None` when the body was not read to its end.
    pub(crate) request_bytes: Option<usize>,
    /// `None` when there was no reply.
    pub(crate) response_bytes: Option<usize>,
}

impl Meters {
    fn of(attributes: &[(&'static str, Value)]) -> Self {
        Self {
            duration: metrics::HTTP_SERVER_DURATION.bind(attributes),
            request_bytes: metrics::HTTP_SERVER_REQUEST_BODY_SIZE.bind(attributes),
            response_bytes: metrics::HTTP_SERVER_RESPONSE_BODY_SIZE.bind(attributes),
        }
    }

    fn record(&self, measured: Measured) {
        self.duration.record(measured.seconds);
        if let Some(bytes) = measured.request_bytes {
            self.request_bytes.record(bytes as f64);
        }
        if let Some(bytes) = measured.response_bytes {
            self.response_bytes.record(bytes as f64);
        }
    }
}

impl RouteMeters {
    /// A request to the route began, or ended.
    pub(crate) fn count(&self, method: &'static str, change: i64) {
        let bind = || metrics::HTTP_SERVER_ACTIVE_REQUESTS.bind(&of_method(method));
        self.active.get_or_init(bind).add(change);
    }

    /// A request to the route ended.
    pub(crate) fn record(&self, method: &'static str, route: &'static str, measured: Measured) {
        let status = measured.status;
        let bind = || Meters::of(&attributes(method, Some(route), status));
        if status == Some(200) {
            return self.usual.get_or_init(bind).record(measured);
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, meters)) = others.iter().find(|(known, _)| *known == status) {
            return meters.record(measured);
        }
        let meters = bind();
        meters.record(measured);
        others.push((status, meters));
    }
}

/// A request that no route takes began, or ended.
pub(crate) fn count_unmatched(method: &'static str, change: i64) {
    metrics::HTTP_SERVER_ACTIVE_REQUESTS.add(change, &of_method(method));
}

/// A request that no route takes ended.
pub(crate) fn record_unmatched(method: &'static str, measured: Measured) {
    Meters::of(&attributes(method, None, measured.status)).record(measured);
}

fn of_method(method: &'static str) -> [(&'static str, Value); 2] {
    [
        (semconv::HTTP_REQUEST_METHOD, Value::from_static(method)),
        (semconv::URL_SCHEME, Value::from_static("http")),
    ]
}

fn attributes(
    method: &'static str,
    route: Option<&'static str>,
    status: Option<u16>,
) -> Vec<(&'static str, Value)> {
    let mut attributes = Vec::from(of_method(method));
    attributes.extend(route.map(|route| (semconv::HTTP_ROUTE, Value::from_static(route))));
    attributes.push((semconv::NETWORK_PROTOCOL_VERSION, Value::from_static("1.1")));
    match status {
        Some(status) => {
            attributes.push((semconv::HTTP_RESPONSE_STATUS_CODE, i64::from(status).into()));
            if status >= 500 {
                attributes.push((semconv::ERROR_TYPE, status.to_string().into()));
            }
        }
        None => attributes.push((semconv::ERROR_TYPE, Value::from_static(outcome::CANCELLED))),
    }
    attributes
}
