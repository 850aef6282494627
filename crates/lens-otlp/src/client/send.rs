//! One export: framing, tries, verdict.

use std::io::Write as _;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HOST, TE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use tokio::time::{Instant, sleep, timeout_at};

use super::connection::{Broken, Connection};
use super::retry::{Verdict, back_off, judge_grpc, judge_http};
use super::{Outcome, Prepared, Protocol};
use crate::wire::{Content, Fields};

/// Responses are read so far.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("lens-otlp/", env!("CARGO_PKG_VERSION")));

/// What a sender keeps between requests.
#[derive(Debug, Default)]
pub(super) struct State {
    connection: Option<Connection>,
    requests: u64,
}

pub(super) async fn send(
    state: &tokio::sync::Mutex<State>,
    target: &Prepared,
    body: &[u8],
) -> Outcome {
    let deadline = Instant::now() + target.timeout;
    let Ok(mut state) = timeout_at(deadline, state.lock()).await else {
        return Outcome::FAILED;
    };
    state.requests += 1;
    let Some(body) = frame(target, body) else { return Outcome::Refused };
    let mut tries = 0;
    loop {
        tries += 1;
        let wait = match timeout_at(deadline, try_once(&mut state, target, body.clone())).await {
            Ok(Ok(Verdict::Accepted { rejected })) => return Outcome::Accepted { rejected },
            Ok(Ok(Verdict::Refused)) => return Outcome::Refused,
            Ok(Ok(Verdict::Retry(wait))) => wait,
            Ok(Err(Broken)) => {
                state.connection = None;
                None
            }
            Err(_) => {
                // What is left of the exchange must not meet the next request.
                state.connection = None;
                return Outcome::FAILED;
            }
        };
        // A cheap spread is enough: it only keeps processes of a fleet apart.
        let spread = f64::from(std::process::id() % 97) / 97.0;
        let pause = wait.unwrap_or(Duration::ZERO).max(back_off(tries, spread));
        if Instant::now() + pause >= deadline {
            return Outcome::Failed { not_before: wait };
        }
        sleep(pause).await;
    }
}

fn gzip(body: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    encoder.write_all(body).ok()?;
    encoder.finish().ok()
}

/// The request body as it goes out.
fn frame(target: &Prepared, body: &[u8]) -> Option<Bytes> {
    let json;
    let body = if target.protocol == Protocol::HttpJson {
        json = crate::json::encode_trace_request(body).ok()?;
        json.as_bytes()
    } else {
        body
    };
    let compressed = if target.gzip { Some(gzip(body)?) } else { None };
    let content = compressed.as_deref().unwrap_or(body);
    if target.protocol != Protocol::Grpc {
        return Some(compressed.map_or_else(|| Bytes::copy_from_slice(body), Bytes::from));
    }
    let mut framed = BytesMut::with_capacity(content.len() + 5);
    framed.put_u8(u8::from(target.gzip));
    framed.put_u32(u32::try_from(content.len()).ok()?);
    framed.put_slice(content);
    Some(framed.freeze())
}

fn request(target: &Prepared, body: Bytes) -> Result<Request<Full<Bytes>>, Broken> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    let grpc = target.protocol == Protocol::Grpc;
    // HTTP/2 wants the whole address, HTTP/1.1 to an origin server the path alone.
    let uri = if grpc {
        let scheme = if target.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{}", target.authority, target.path)
    } else {
        target.path.clone()
    };
    *request.uri_mut() = Uri::try_from(uri).map_err(|_| Broken)?;
    let headers = request.headers_mut();
    headers.insert(USER_AGENT, AGENT);
    match target.protocol {
        Protocol::Grpc => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            headers.insert(TE, HeaderValue::from_static("trailers"));
            if target.gzip {
                headers.insert("grpc-encoding", HeaderValue::from_static("gzip"));
            }
        }
        Protocol::HttpProtobuf | Protocol::HttpJson => {
            let json = target.protocol == Protocol::HttpJson;
            let kind = if json { "application/json" } else { "application/x-protobuf" };
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            headers.insert(ACCEPT, HeaderValue::from_static(kind));
            let host = HeaderValue::from_str(&target.authority).map_err(|_| Broken)?;
            headers.insert(HOST, host);
            if target.gzip {
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            }
        }
    }
    for (name, value) in &target.headers {
        headers.insert(name, value.clone());
    }
    Ok(request)
}

async fn try_once(state: &mut State, target: &Prepared, body: Bytes) -> Result<Verdict, Broken> {
    let mut connection = match state.connection.take().filter(|open| !open.is_closed()) {
        Some(connection) => connection,
        None => Connection::open(target).await?,
    };
    let response = connection.send(request(target, body)?).await?;
    let verdict = match target.protocol {
        Protocol::Grpc => read_grpc(response).await?,
        _ => read_http(target, response).await?,
    };
    state.connection = Some(connection);
    Ok(verdict)
}

async fn read_http(target: &Prepared, response: Response<Incoming>) -> Result<Verdict, Broken> {
    let (head, body) = response.into_parts();
    // Read to the end even when it does not matter: the connection is used again.
    let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await.map_err(|_| Broken)?;
    if !head.status.is_success() {
        return Ok(judge_http(head.status, &head.headers));
    }
    let rejected = match target.protocol {
        Protocol::HttpJson => rejected_in_json(&body.to_bytes()),
        _ => rejected_items(&body.to_bytes()),
    };
    Ok(Verdict::Accepted { rejected })
}

async fn read_grpc(response: Response<Incoming>) -> Result<Verdict, Broken> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await.map_err(|_| Broken)?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    let status = grpc_status(&trailers).or_else(|| grpc_status(&head.headers));
    match status {
        Some(0) => {
            let message = body.to_bytes();
            // A compressed reply is not asked for, so its content is not looked at.
            let plain = message.first() == Some(&0);
            let rejected =
                if plain { rejected_items(message.get(5..).unwrap_or_default()) } else { 0 };
            Ok(Verdict::Accepted { rejected })
        }
        Some(code) => {
            let asked = pushback(&trailers).or_else(|| pushback(&head.headers));
            Ok(judge_grpc(code, asked))
        }
        // Something between us and the receiver answered.
        None if !head.status.is_success() => Ok(judge_http(head.status, &head.headers)),
        None => Ok(Verdict::Retry(None)),
    }
}

fn grpc_status(headers: &HeaderMap) -> Option<u32> {
    headers.get("grpc-status")?.to_str().ok()?.trim().parse().ok()
}

fn pushback(headers: &HeaderMap) -> Option<Duration> {
    let millis = headers.get("grpc-retry-pushback-ms")?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_millis(millis))
}

/// `partial_success.rejected_*` of a response; zero when there is none or it is malformed.
fn rejected_items(response: &[u8]) -> u64 {
    fn field(message: &[u8], number: u32) -> Option<Content<'_>> {
        let mut fields = Fields::new(message).filter_map(Result::ok);
        fields.find(|(found, _)| *found == number).map(|(_, content)| content)
    }
    let partial = field(response, 1).and_then(|content| content.bytes().ok());
    let rejected = partial.and_then(|partial| field(partial, 1));
    rejected.and_then(|content| content.varint().ok()).unwrap_or(0)
}

fn rejected_in_json(response: &[u8]) -> u64 {
    let Ok(response) = serde_json::from_slice::<serde_json::Value>(response) else { return 0 };
    match &response["partialSuccess"]["rejectedSpans"] {
        serde_json::Value::String(text) => text.parse().unwrap_or(0),
        number => number.as_u64().unwrap_or(0),
    }
}
