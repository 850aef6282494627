//! An export request as an HTTP request; the message is never copied.

use std::io::Write as _;
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HOST, TE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use http_body_util::Full;

use super::connection::Body;
use super::{Prepared, Protocol, Signal, TargetError};
use crate::json;

const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("lens-otlp/", env!("CARGO_PKG_VERSION")));

/// A message that several may hold.
struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// One request's body, as often as it is sent.
#[derive(Clone, Debug)]
pub(super) struct Content {
    prefix: Bytes,
    message: Bytes,
}

impl Content {
    /// `None` when the request is malformed or too long for its framing.
    pub(super) fn new(target: &Prepared, request: &Arc<Vec<u8>>) -> Option<Self> {
        let mut message = Bytes::from_owner(Shared(Arc::clone(request)));
        if target.protocol == Protocol::HttpJson {
            message = to_json(target.signal, request)?.into();
        }
        if target.gzip {
            message = gzip(&message)?.into();
        }
        let mut prefix = Bytes::new();
        if target.protocol == Protocol::Grpc {
            let [a, b, c, d] = u32::try_from(message.len()).ok()?.to_be_bytes();
            prefix = Bytes::copy_from_slice(&[u8::from(target.gzip), a, b, c, d]);
        }
        Some(Self { prefix, message })
    }
}

fn to_json(signal: Signal, request: &[u8]) -> Option<String> {
    let encoded = match signal {
        Signal::Traces => json::encode_trace_request(request),
        Signal::Metrics => json::encode_metrics_request(request),
        Signal::Logs => json::encode_logs_request(request),
    };
    encoded.ok()
}

fn gzip(body: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    encoder.write_all(body).ok()?;
    encoder.finish().ok()
}

/// Address and headers of every request to a target.
pub(super) fn head(
    target: &super::Target,
    secure: bool,
    authority: &str,
    path: &str,
) -> Result<(Uri, HeaderMap), TargetError> {
    let invalid = || TargetError::Endpoint(target.endpoint.clone());
    let is_grpc = target.protocol == Protocol::Grpc;
    // HTTP/2 wants the whole address, HTTP/1.1 to an origin server the path alone.
    let uri = if is_grpc {
        let scheme = if secure { "https" } else { "http" };
        format!("{scheme}://{authority}{path}")
    } else {
        path.to_owned()
    };
    let uri = Uri::try_from(uri).map_err(|_| invalid())?;
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, AGENT);
    if is_grpc {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        if target.gzip {
            headers.insert("grpc-encoding", HeaderValue::from_static("gzip"));
        }
    } else {
        let json = target.protocol == Protocol::HttpJson;
        let kind = if json { "application/json" } else { "application/x-protobuf" };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(ACCEPT, HeaderValue::from_static(kind));
        headers.insert(HOST, HeaderValue::from_str(authority).map_err(|_| invalid())?);
        if target.gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
    }
    for (name, value) in &target.headers {
        let header = |_: &dyn std::error::Error| TargetError::Header(name.clone());
        let name = http::HeaderName::from_bytes(name.as_bytes()).map_err(|error| header(&error))?;
        let mut value = HeaderValue::from_str(value).map_err(|error| header(&error))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok((uri, headers))
}

pub(super) fn request(target: &Prepared, content: &Content) -> Request<Body> {
    let body = content.prefix.clone().chain(content.message.clone());
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = target.uri.clone();
    request.headers_mut().clone_from(&target.headers);
    request
}
