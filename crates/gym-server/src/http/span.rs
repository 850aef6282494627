//! The SERVER span and the metrics of one request.

use std::sync::Arc;

use gym_telemetry::groups::SERVER;
use gym_telemetry::semconv;
use http::{HeaderValue, Method, StatusCode};
use lens::{AttributeSet, Context, Moment, Span, SpanKind};

use super::meters::{self, Measured};
use super::router::Route;
use super::server::Peer;
use crate::rollout::RolloutId;
use crate::session::SessionMark;

/// One request being served. Dropped before its reply was handed over, it is cancelled.
pub(crate) struct RequestSpan {
    span: Span,
    measured: Option<Subject>,
    request_bytes: Option<usize>,
    response_bytes: Option<usize>,
    is_head: bool,
    status: Option<StatusCode>,
    started: Moment,
    done: bool,
}

impl RequestSpan {
    /// Starts the span below the context that the request carries.
    pub(crate) fn start(
        route: Option<&Arc<Route>>,
        method: &Method,
        path: &str,
        host: Option<&HeaderValue>,
        peer: &Peer,
        parent: &Context,
    ) -> Self {
        // Health checks make no spans and no metric: they would drown the rollouts.
        let is_health_check = path == "/" && (*method == Method::GET || *method == Method::HEAD);
        let span = if SERVER.is_enabled() && !is_health_check {
            start_span(route.map(|route| &**route), method, path, host, peer, parent)
        } else {
            Span::disabled()
        };
        let is_measured = lens::metrics::is_enabled() && !is_health_check;
        let measured = is_measured.then(|| Subject::begin(route, method));
        Self {
            span,
            measured,
            request_bytes: None,
            response_bytes: None,
            is_head: *method == Method::HEAD,
            status: None,
            started: Moment::now(),
            done: false,
        }
    }

    /// The context that the handler runs in.
    pub(crate) fn context(&self, parent: &Context) -> Context {
        if self.span.context().is_valid() { parent.with_span(&self.span) } else { parent.clone() }
    }

    pub(crate) fn set_rollout(&mut self, rollout: &RolloutId) {
        if self.span.is_recording() {
            self.span.set(semconv::ROLLOUT_ID, rollout.as_str());
        }
    }

    pub(crate) fn is_recording(&self) -> bool {
        self.span.is_recording()
    }

    pub(crate) fn set_session(&mut self, mark: SessionMark) {
        self.span.set(semconv::SESSION_MARK, mark.hex().as_str());
    }

    pub(crate) fn set(&mut self, key: &'static str, value: lens::Value) {
        self.span.set(key, value);
    }

    /// Notes the status of the reply; `error_type` names a failure of the handler.
    pub(crate) fn answered(&mut self, status: StatusCode, error_type: Option<String>) {
        self.status = Some(status);
        if !self.span.is_recording() {
            return;
        }
        self.span.set(semconv::HTTP_RESPONSE_STATUS_CODE, i64::from(status.as_u16()));
        if status.is_server_error() {
            let error_type = error_type.unwrap_or_else(|| status.as_u16().to_string());
            self.span.set(semconv::ERROR_TYPE, error_type);
            self.span.set_error("");
        }
    }

    /// The body of the request was read.
    pub(crate) fn has_read(&mut self, bytes: usize) {
        self.request_bytes = Some(bytes);
    }

    /// The reply has a body of this size.
    pub(crate) fn replies_with(&mut self, bytes: usize) {
        self.response_bytes = Some(bytes);
    }

    /// Whether the reply has a head only, whatever its body.
    pub(crate) fn is_head(&self) -> bool {
        self.is_head
    }

    /// Ends the span: the last byte of the reply was handed over.
    pub(crate) fn complete(mut self) {
        self.done = true;
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        if !self.done && self.span.is_recording() {
            self.span.set(semconv::CANCELLED, true);
        }
        if let Some(subject) = &self.measured {
            subject.end(Measured {
                status: self.status.map(|status| status.as_u16()),
                seconds: self.started.nanos_until(Moment::now()) as f64 * 1e-9,
                request_bytes: self.request_bytes,
                response_bytes: self.response_bytes,
            });
        }
    }
}

/// What a request is measured as.
enum Subject {
    Route(Arc<Route>),
    /// No route takes it; its method.
    Unmatched(&'static str),
}

impl Subject {
    fn begin(route: Option<&Arc<Route>>, method: &Method) -> Self {
        match route {
            Some(route) => {
                route.meters.count(metric_method(&route.method), 1);
                Self::Route(Arc::clone(route))
            }
            None => {
                let method = metric_method(method);
                meters::count_unmatched(method, 1);
                Self::Unmatched(method)
            }
        }
    }

    fn end(&self, measured: Measured) {
        match self {
            Self::Route(route) => {
                let method = metric_method(&route.method);
                route.meters.count(method, -1);
                route.meters.record(method, route.template, measured);
            }
            Self::Unmatched(method) => {
                meters::count_unmatched(method, -1);
                meters::record_unmatched(method, measured);
            }
        }
    }
}

/// The method as attributes have it.
fn metric_method(method: &Method) -> &'static str {
    match known_method(method) {
        UNKNOWN_METHOD => OTHER_METHOD,
        known => known,
    }
}

fn start_span(
    route: Option<&Route>,
    method: &Method,
    path: &str,
    host: Option<&HeaderValue>,
    peer: &Peer,
    parent: &Context,
) -> Span {
    let name: std::borrow::Cow<'static, str> = match route {
        Some(route) => route.span_name.into(),
        None => known_method(method).into(),
    };
    let mut span = Span::build(&SERVER, name).kind(SpanKind::Server).parent(parent).start();
    if !span.is_recording() {
        return span;
    }
    match route {
        Some(route) => span.set_all(route.attributes.get_or_init(|| of_route(route))),
        None => span.set_all(&of_request(method, None)),
    }
    span.set(semconv::URL_PATH, path);
    let (known_host, ends) = peer.ends.get_or_init(|| (host.cloned(), of_ends(host, peer)));
    if known_host.as_ref() == host {
        span.set_all(ends);
    } else {
        span.set_all(&of_ends(host, peer));
    }
    span
}

fn of_route(route: &Route) -> AttributeSet {
    of_request(&route.method, Some(route.template))
}

/// What all requests of a method to a route have in common.
fn of_request(method: &Method, template: Option<&'static str>) -> AttributeSet {
    let mut attributes: Vec<(&'static str, lens::Value)> = match known_method(method) {
        UNKNOWN_METHOD => vec![
            (semconv::HTTP_REQUEST_METHOD, OTHER_METHOD.into()),
            (semconv::HTTP_REQUEST_METHOD_ORIGINAL, method.as_str().to_owned().into()),
        ],
        known => vec![(semconv::HTTP_REQUEST_METHOD, known.into())],
    };
    if let Some(template) = template {
        attributes.push((semconv::HTTP_ROUTE, template.into()));
    }
    attributes.push((semconv::URL_SCHEME, "http".into()));
    attributes.push((semconv::NETWORK_PROTOCOL_VERSION, "1.1".into()));
    AttributeSet::new(&attributes)
}

/// What all requests of a client to one host have in common.
fn of_ends(host: Option<&HeaderValue>, peer: &Peer) -> AttributeSet {
    let mut attributes: Vec<(&'static str, lens::Value)> = Vec::new();
    if let Some(host) = host.and_then(|host| host.to_str().ok()) {
        // An address in brackets has colons of its own.
        let (address, port) = match host.rsplit_once(':') {
            Some((address, port)) if !host.ends_with(']') => (address, port.parse::<i64>().ok()),
            _ => (host, None),
        };
        attributes.push((semconv::SERVER_ADDRESS, address.to_owned().into()));
        attributes.extend(port.map(|port| (semconv::SERVER_PORT, port.into())));
    }
    attributes.push((semconv::CLIENT_ADDRESS, peer.address.clone().into()));
    AttributeSet::new(&attributes)
}

/// What the conventions put in place of a method that is not known, in the names of spans.
const UNKNOWN_METHOD: &str = "HTTP";
/// And in attributes.
const OTHER_METHOD: &str = "_OTHER";

/// The method, or its replacement in the names of spans.
fn known_method(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "HEAD" => "HEAD",
        "OPTIONS" => "OPTIONS",
        "PATCH" => "PATCH",
        "TRACE" => "TRACE",
        "CONNECT" => "CONNECT",
        _ => UNKNOWN_METHOD,
    }
}
