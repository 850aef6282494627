//! One request as its handler sees it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use crate::client::{Client, Outgoing};
use crate::instance::Endpoint;
use crate::rollout::RolloutId;
use crate::session::{CookieJar, SessionId};

/// W3C trace context, parent.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// W3C trace context, vendors' state.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// W3C baggage.
pub const BAGGAGE: HeaderName = HeaderName::from_static("baggage");

/// What a Gym server says that it failed of: the `error.type` of a reply that is an error because
/// time ran out. A status alone does not tell that through several servers.
pub const ERROR_TYPE: HeaderName = HeaderName::from_static("x-nemo-gym-error-type");

/// One request. Clones share it.
#[derive(Clone, Debug)]
pub struct Call(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    client: Client,
    session: SessionId,
    uri: Uri,
    prefix_len: usize,
    rollout: OnceLock<RolloutId>,
    headers: HeaderMap,
    /// Whether any header of a trace came.
    is_traced: bool,
    cookies: OnceLock<CookieJar>,
    reply_cookies: Mutex<CookieJar>,
    server_attributes: Mutex<Vec<(&'static str, lens::Value)>>,
    model_answered: OnceLock<Instant>,
}

impl Call {
    pub(crate) fn new(
        client: Client,
        session: SessionId,
        uri: Uri,
        prefix_len: usize,
        rollout: Option<RolloutId>,
        headers: HeaderMap,
        is_traced: bool,
    ) -> Self {
        Self(Arc::new(Parts {
            client,
            session,
            uri,
            prefix_len,
            rollout: rollout.map(OnceLock::from).unwrap_or_default(),
            headers,
            is_traced,
            cookies: OnceLock::new(),
            reply_cookies: Mutex::default(),
            server_attributes: Mutex::default(),
            model_answered: OnceLock::new(),
        }))
    }

    /// A request that came from nowhere, for work that serves no request and for tests.
    #[must_use]
    pub fn detached(client: Client) -> Self {
        let (uri, headers) = (Uri::from_static("/"), HeaderMap::new());
        Self::new(client, SessionId::random(), uri, 0, None, headers, false)
    }

    /// Identity of the caller's session; new when it sent none.
    #[must_use]
    pub fn session_id(&self) -> &str {
        self.0.session.as_str()
    }

    /// Cookies that the caller sent.
    #[must_use]
    pub fn cookies(&self) -> &CookieJar {
        self.0.cookies.get_or_init(|| CookieJar::from_request(&self.0.headers))
    }

    /// Path as routing saw it, without a rollout prefix.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.0.uri.path()[self.0.prefix_len..]
    }

    /// `/ng-rollout/<id>…` as it came, when the path had one.
    #[must_use]
    pub fn prefix(&self) -> Option<&str> {
        (self.0.prefix_len > 0).then(|| &self.0.uri.path()[..self.0.prefix_len])
    }

    /// The rollout that the request belongs to, where it is known.
    #[must_use]
    pub fn rollout(&self) -> Option<&RolloutId> {
        self.0.rollout.get()
    }

    pub(crate) fn set_rollout(&self, id: RolloutId) {
        // A rollout that is known from path or baggage stays.
        let _ = self.0.rollout.set(id);
    }

    /// A header of the request.
    #[must_use]
    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        self.0.headers.get(name)?.to_str().ok()
    }

    /// Headers of the request.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.0.headers
    }

    /// Adds a cookie to the reply.
    pub fn set_cookie(&self, name: &str, value: &str) {
        let mut cookies = self.0.reply_cookies.lock().unwrap_or_else(PoisonError::into_inner);
        cookies.insert(name, value);
    }

    pub(crate) fn take_reply_cookies(&self) -> CookieJar {
        std::mem::take(&mut *self.0.reply_cookies.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds an attribute to the SERVER span of this request.
    pub fn set_server_attribute(&self, key: &'static str, value: impl Into<lens::Value>) {
        self.0
            .server_attributes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((key, value.into()));
    }

    pub(crate) fn take_server_attributes(&self) -> Vec<(&'static str, lens::Value)> {
        std::mem::take(
            &mut *self.0.server_attributes.lock().unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// The first byte of a model endpoint's reply, which this request is served with, is here.
    pub(crate) fn note_model_answer(&self) {
        // Of several calls the first counts.
        let _ = self.0.model_answered.set(Instant::now());
    }

    /// When the model's reply began.
    pub(crate) fn model_answered(&self) -> Option<Instant> {
        self.0.model_answered.get().copied()
    }

    /// Hands over every header of a trace as it came, for a process that makes no trace context of
    /// its own.
    pub(crate) fn each_trace_header(
        &self,
        with_baggage: bool,
        mut take: impl FnMut(HeaderName, HeaderValue),
    ) {
        if !self.0.is_traced {
            return;
        }
        let headers = &self.0.headers;
        let mut parents = headers.get_all(TRACEPARENT).iter();
        // Two parents are no parent.
        if let (Some(value), None) = (parents.next(), parents.next()) {
            take(TRACEPARENT, value.clone());
            if let Some(value) = list(headers, &TRACESTATE) {
                take(TRACESTATE, value);
            }
        }
        if let Some(value) = list(headers, &BAGGAGE).filter(|_| with_baggage) {
            take(BAGGAGE, value);
        }
    }

    /// The client of the shard that serves this request.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// A POST request on behalf of this one: it continues its trace.
    pub fn post(&self, endpoint: &Endpoint, path: &str) -> Outgoing {
        Client::on_behalf_of(self.clone(), self.0.client.post(endpoint, path))
    }

    /// A GET request on behalf of this one.
    pub fn get(&self, endpoint: &Endpoint, path: &str) -> Outgoing {
        Client::on_behalf_of(self.clone(), self.0.client.get(endpoint, path))
    }
}

/// The value of a header; of one that is there several times, the list that they are together.
fn list(headers: &HeaderMap, name: &HeaderName) -> Option<HeaderValue> {
    let mut values = headers.get_all(name).iter();
    match (values.next()?, values.next()) {
        (alone, None) => Some(alone.clone()),
        (_, Some(_)) => HeaderValue::try_from(joined(headers, name)?).ok(),
    }
}

/// The values of a header that may be there several times, as one list.
pub(super) fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    Some(values.collect::<Vec<_>>().join(",")).filter(|text| !text.is_empty())
}
