//! One logical request: attempts under a policy, one span, one reply read to its end.

use std::borrow::Cow;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};

use super::error::ClientError;
use super::meters::{self, Queued};
use super::pool::{Lease, NoLease, Pool};
use super::retry::{Failure, Policy};
use super::span::CallSpan;
use super::trace_headers::TraceHeaders;
use super::wire::{Body, ReplyHead, RequestHead, Unsent, Wire, WireError};
use super::{Client, connect};
use crate::http::{Call, ERROR_TYPE, Shard, respond_locally};
use crate::instance::Endpoint;
use crate::session::CookieJar;

const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("nemo-gym-rs/", env!("CARGO_PKG_VERSION")));
const ACCEPT_ANY: HeaderValue = HeaderValue::from_static("*/*");
/// A connection unused for this long may have been closed without its task having run since.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);
/// Largest reply that is read, as for requests that are served.
const MAX_REPLY_BYTES: usize = 512 << 20;
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A request that is being put together.
#[must_use = "a request is sent by `send`"]
pub struct Outgoing {
    client: Client,
    method: Method,
    endpoint: Endpoint,
    path: String,
    /// In the order in which they are sent; a name is there once.
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    policy: Policy,
    /// The request being served that this one is made for.
    call: Option<Call>,
    context: Option<lens::Context>,
    trace: TraceHeaders,
    silent: bool,
    limit: Option<Duration>,
}

/// A reply, read to its end.
#[derive(Debug)]
pub struct ClientReply {
    server: Endpoint,
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl ClientReply {
    /// The cookies that the reply sets.
    #[must_use]
    pub fn cookies(&self) -> CookieJar {
        CookieJar::from_set_cookie(&self.headers)
    }

    /// What a Gym server says that it failed of, where its status does not tell.
    #[must_use]
    pub fn error_type(&self) -> Option<&str> {
        self.headers.get(ERROR_TYPE)?.to_str().ok()
    }

    /// The reply itself when its status is 2xx.
    ///
    /// # Errors
    ///
    /// [`ClientError::Status`] with the body for every other status.
    pub fn ok(self) -> Result<Self, ClientError> {
        if self.status.is_success() {
            return Ok(self);
        }
        Err(ClientError::Status {
            name: self.server.name().to_owned(),
            status: self.status,
            error_type: self.error_type().map(str::to_owned),
            body: self.body,
        })
    }
}

impl Outgoing {
    pub(super) fn new(client: Client, method: Method, endpoint: Endpoint, path: &str) -> Self {
        let mut full_path = String::with_capacity(endpoint.base_path().len() + path.len());
        full_path.push_str(endpoint.base_path());
        full_path.push_str(path);
        Self {
            client,
            method,
            endpoint,
            path: full_path,
            headers: Vec::with_capacity(8),
            body: Bytes::new(),
            policy: Policy::default(),
            call: None,
            context: None,
            trace: TraceHeaders::none(),
            silent: false,
            limit: None,
        }
    }

    /// The JSON body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends these cookies.
    pub fn cookies(self, cookies: &CookieJar) -> Self {
        match cookies.header_value() {
            Some(value) => self.header(header::COOKIE, value),
            None => self,
        }
    }

    /// Sets a header.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        set(&mut self.headers, name, value);
        self
    }

    /// What may be repeated; [`Policy::Internal`] unless set.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Uses this trace context instead of the current one.
    pub fn context(mut self, context: lens::Context) -> Self {
        self.context = Some(context);
        self
    }

    /// Ends the whole request with [`ClientError::OutOfTime`] after `limit`.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Makes no span and sends no trace context: for probes.
    pub fn silent(mut self) -> Self {
        self.silent = true;
        self
    }

    pub(super) fn on_behalf_of(mut self, call: Call) -> Self {
        self.call = Some(call);
        self
    }

    /// Sends the request and reads the reply.
    ///
    /// What seldom happens is boxed: this future is a part of many others, and with hundreds of
    /// rollouts in flight its size is memory that every step walks.
    ///
    /// # Errors
    ///
    /// When no reply came within the policy. A reply with a failing status is no error here:
    /// see [`ClientReply::ok`].
    pub async fn send(mut self) -> Result<ClientReply, ClientError> {
        let context = match self.context.take() {
            Some(context) => context,
            None => lens::Context::current(),
        };
        let mut span = if self.silent {
            CallSpan::none()
        } else {
            CallSpan::start(
                &context,
                &self.method,
                &self.endpoint,
                &self.path,
                self.client.0.config.client_spans,
            )
        };
        self.finish_headers(context, &span);
        let result = match self.limit {
            None => self.attempts(&mut span).await,
            Some(limit) => {
                let attempts = Box::pin(tokio::time::timeout(limit, self.attempts(&mut span)));
                attempts.await.unwrap_or_else(|_| {
                    Err(ClientError::OutOfTime {
                        name: self.endpoint.name().to_owned(),
                        authority: self.endpoint.authority().to_owned(),
                        limit,
                    })
                })
            }
        };
        span.finish(&result);
        result
    }

    fn finish_headers(&mut self, context: lens::Context, span: &CallSpan) {
        set(&mut self.headers, header::USER_AGENT, USER_AGENT);
        let has = |wanted: HeaderName| self.headers.iter().any(|(name, _)| *name == wanted);
        let accept = (!has(header::ACCEPT)).then_some((header::ACCEPT, ACCEPT_ANY));
        let is_post = self.method == Method::POST;
        let content_type =
            (is_post && !has(header::CONTENT_TYPE)).then_some((header::CONTENT_TYPE, JSON));
        self.headers.extend(accept.into_iter().chain(content_type));
        if !self.silent {
            self.trace = span.trace_headers(context, &self.endpoint, &self.client.0.config);
            self.trace.settle(&mut self.headers, self.call.as_ref());
        }
    }

    async fn attempts(&mut self, span: &mut CallSpan) -> Result<ClientReply, ClientError> {
        let first = Instant::now();
        let (mut tries, mut server_errors) = (0, 0);
        loop {
            span.begin_attempt();
            let result = self.attempt(span).await;
            tries += 1;
            let failure = match &result {
                Ok(reply) if reply.status.as_u16() < 400 => None,
                Ok(reply) => {
                    server_errors += u32::from(reply.status == StatusCode::INTERNAL_SERVER_ERROR);
                    Some(Failure::Status(
                        reply.status,
                        retry_after(&reply.headers, SystemTime::now()),
                    ))
                }
                Err(error) => Some(error.failure()),
            };
            span.end_attempt(&result);
            let budget = self.client.0.config.patience.budget(self.policy);
            let next = failure.and_then(|failure| {
                self.policy.next(failure, tries, server_errors, first.elapsed(), budget)
            });
            match next {
                None => {
                    if failure.is_some() && tries > 1 {
                        self.mention(&result, first.elapsed(), || {
                            format!("gave up after {tries} attempts")
                        });
                    }
                    return result;
                }
                Some(wait) => {
                    let trying_for = first.elapsed() + wait;
                    self.mention(&result, trying_for, || {
                        format!(
                            "attempt {tries} failed, goes on for up to {} s",
                            budget.as_secs_f64()
                        )
                    });
                    span.backs_off(&self.endpoint, &result, wait);
                    Box::pin(tokio::time::sleep(wait)).await;
                }
            }
        }
    }

    /// Says that the request is being repeated, and why.
    fn mention(
        &self,
        result: &Result<ClientReply, ClientError>,
        trying_for: Duration,
        what_next: impl FnOnce() -> String,
    ) {
        let destination = self.endpoint.authority();
        let inner = &self.client.0;
        inner.mentions.mention(inner.config.listener.as_ref(), destination, trying_for, || {
            let what = match result {
                Ok(reply) => {
                    format!("{} answered with status {}", reply.server.name(), reply.status)
                }
                Err(error) => error.full_message(),
            };
            format!("{} {}{}: {what}; {}", self.method, self.origin(), self.path, what_next())
        });
    }

    /// Scheme and authority of the destination.
    fn origin(&self) -> String {
        let scheme = if self.endpoint.tls() { "https" } else { "http" };
        format!("{scheme}://{}", self.endpoint.authority())
    }

    /// Makes one attempt.
    async fn attempt(&mut self, span: &mut CallSpan) -> Result<ClientReply, ClientError> {
        if let Some(shard) = self.client.local(&self.endpoint) {
            return self.ask_locally(&shard, span).await;
        }
        let target = self.target()?;
        let endpoint = self.endpoint.clone();
        let client = self.client.clone();
        let pool = &client.0.pool;
        loop {
            let lease = match pool.try_acquire(endpoint.pool_key()) {
                Some(lease) => lease,
                None => {
                    span.waits_for_connection();
                    let waited = Box::pin(queue(pool, &endpoint)).await;
                    span.got_connection();
                    waited.map_err(|error| match error {
                        NoLease::Closed => ClientError::Closed { name: endpoint.name().to_owned() },
                        NoLease::QueueFull(limit) => {
                            ClientError::QueueFull { name: endpoint.name().to_owned(), limit }
                        }
                    })?
                }
            };
            let (mut connection, kept) = match lease {
                Lease::Kept(connection, unused) => {
                    if unused >= LOOK_AGAIN_AFTER {
                        // Lets the runtime hear that the server closed it.
                        tokio::task::yield_now().await;
                    }
                    (connection, true)
                }
                Lease::Open(permit) => {
                    span.connects();
                    let wire = Box::pin(self.connect()).await?;
                    meters::connected(&endpoint);
                    (permit.connected(wire), false)
                }
            };
            if kept && !connection.wire.is_open() {
                // The server closed a kept connection: nothing was sent, another one serves.
                continue;
            }
            span.awaits_reply();
            let exchanged = self.exchange(&mut connection.wire, &target);
            let ReplyHead { status, headers, body } = match self.watch(exchanged).await? {
                Ok(head) => head,
                Err(Unsent { was_begun: false, .. }) if kept => continue,
                Err(Unsent { error, was_begun }) => return Err(self.broken(error, was_begun)),
            };
            span.reply_begins();
            if self.policy == Policy::Model
                && status.is_success()
                && gym_telemetry::is_active()
                && let Some(call) = &self.call
            {
                call.note_model_answer();
            }
            let body = self.read(&mut connection.wire, body).await?;
            pool.release(connection);
            return Ok(ClientReply { server: self.endpoint.clone(), status, headers, body });
        }
    }

    /// Sends the request and reads the head of its reply.
    async fn exchange(&self, wire: &mut Wire, target: &str) -> Result<ReplyHead, Unsent> {
        let host = (&header::HOST, self.endpoint.host_header());
        let headers = self.headers.iter().map(|(name, value)| (name, value));
        let head = RequestHead {
            method: &self.method,
            target,
            headers: std::iter::once(host).chain(headers),
            trace: &self.trace,
        };
        wire.send(head, &self.body).await?;
        let reply = wire.reply(&self.method, MAX_REPLY_BYTES).await;
        reply.map_err(|error| Unsent { error, was_begun: true })
    }

    async fn connect(&self) -> Result<Wire, ClientError> {
        let inner = &self.client.0;
        let limit = inner.pool.limits().connect;
        let (sockets, probes) = (inner.config.same_host_sockets, inner.pool.limits().keep_alive);
        let opening = connect::open(&self.endpoint, &inner.tls, sockets, probes);
        let name = || (self.endpoint.name().to_owned(), self.endpoint.authority().to_owned());
        match tokio::time::timeout(limit, opening).await {
            Ok(Ok(wire)) => Ok(wire),
            Ok(Err(source)) => {
                let (name, authority) = name();
                Err(ClientError::Connect { name, authority, source })
            }
            Err(_) => {
                let (name, authority) = name();
                Err(ClientError::ConnectTimeout { name, authority, limit })
            }
        }
    }

    /// What follows the method in the request line.
    fn target(&self) -> Result<Cow<'static, str>, ClientError> {
        if is_plain(&self.path) {
            return Ok(Cow::Owned(self.path.clone()));
        }
        let uri = self.uri()?;
        Ok(Cow::Owned(uri.path_and_query().map_or("/", |target| target.as_str()).to_owned()))
    }

    fn uri(&self) -> Result<Uri, ClientError> {
        Uri::try_from(self.path.as_str()).map_err(|error| ClientError::Invalid {
            name: self.endpoint.name().to_owned(),
            source: error.into(),
        })
    }

    /// Asks the server that this client belongs to: the same request and the same spans on both
    /// sides, without a socket between them.
    async fn ask_locally(
        &mut self,
        shard: &Shard,
        span: &mut CallSpan,
    ) -> Result<ClientReply, ClientError> {
        let mut request = Request::new(());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri()?;
        let headers = request.headers_mut();
        // Beside the host: whence the request comes, and its baggage. A map makes room in powers of two.
        headers.reserve(self.headers.len() + 3);
        headers.insert(header::HOST, self.endpoint.host_header().clone());
        for (name, value) in &self.headers {
            headers.insert(name.clone(), value.clone());
        }
        self.trace.insert_into(headers);
        let (head, ()) = request.into_parts();
        span.awaits_reply();
        let answering = Box::pin(respond_locally(shard, head, self.body.clone()));
        let (head, body) = answering.await.into_parts();
        span.reply_begins();
        Ok(ClientReply {
            server: self.endpoint.clone(),
            status: head.status,
            headers: head.headers,
            body,
        })
    }

    async fn read(&self, wire: &mut Wire, mut body: Body) -> Result<Bytes, ClientError> {
        while !self.watch(wire.more(&mut body)).await?.map_err(|error| self.broken(error, true))? {}
        Ok(body.into_bytes())
    }

    /// Ends the wait for a silent server where the policy has a limit for that.
    async fn watch<T>(&self, waiting: impl Future<Output = T>) -> Result<T, ClientError> {
        match self.client.0.config.patience.silence(self.policy) {
            None => Ok(waiting.await),
            Some(limit) => {
                let waited = Box::pin(tokio::time::timeout(limit, waiting)).await;
                waited.map_err(|_| ClientError::Idle {
                    name: self.endpoint.name().to_owned(),
                    authority: self.endpoint.authority().to_owned(),
                    limit,
                })
            }
        }
    }

    fn broken(&self, source: WireError, sent: bool) -> ClientError {
        let name = self.endpoint.name().to_owned();
        if let WireError::TooLarge(limit_bytes) = source {
            return ClientError::TooLarge { name, limit_bytes };
        }
        let authority = self.endpoint.authority().to_owned();
        ClientError::Broken { name, authority, sent, source }
    }
}

/// Sets a header; one of the same name is replaced.
pub(super) fn set(
    headers: &mut Vec<(HeaderName, HeaderValue)>,
    name: HeaderName,
    value: HeaderValue,
) {
    match headers.iter_mut().find(|(known, _)| *known == name) {
        Some((_, old)) => *old = value,
        None => headers.push((name, value)),
    }
}

/// Whether a path may be sent as it is, without a look at the grammar of URIs.
fn is_plain(path: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-' | b'.');
    path.starts_with('/') && path.bytes().all(is_plain)
}

/// Waits for a connection, and measures the wait.
async fn queue(pool: &Pool, endpoint: &Endpoint) -> Result<Lease, NoLease> {
    let queued = Queued::begin(endpoint, pool.constraint(endpoint.pool_key()));
    let lease = pool.acquire(endpoint.pool_key()).await;
    match &lease {
        Ok(_) => queued.got(),
        Err(NoLease::QueueFull(_)) => queued.was_refused(),
        Err(NoLease::Closed) => {}
    }
    lease
}

/// `Retry-After`, in seconds or as a date; one that has passed asks for no wait.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_in_seconds_or_by_date_when_it_is_to_be_asked_again() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let wait = |text: &'static str| {
            let value = HeaderValue::from_static(text);
            retry_after(&HeaderMap::from_iter([(header::RETRY_AFTER, value)]), now)
        };
        assert_eq!(wait("7"), Some(Duration::from_secs(7)));
        assert_eq!(wait(" 1.5 "), Some(Duration::from_millis(1500)));
        // The date of the specification's own example is 08:49:37.
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:47 GMT"), Some(Duration::from_secs(10)));
        assert_eq!(wait("Sunday, 06-Nov-94 08:50:37 GMT"), Some(Duration::from_secs(60)));
        assert_eq!(wait("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(wait("soon"), None);
        assert_eq!(wait("-1"), None);
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
