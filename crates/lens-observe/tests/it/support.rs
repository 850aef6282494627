//! A receiver with an intake that keeps what it gets, and senders that are no OTLP library.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use lens_observe::receiver::{Limits, Options};
use lens_observe::{Accepted, Incoming, Intake, Receiver, Refused, Signal};
use lens_otlp::encode::{
    RESOURCE_ATTRIBUTES, Scope, SpanParts, put_key_value, put_request, put_scope_item,
};
use lens_store::raw;

/// Decodes spans as a store does, keeps every request, and refuses when told to.
#[derive(Default)]
pub struct Keeper {
    pub requests: Mutex<Vec<Incoming>>,
    pub spans: Mutex<Vec<raw::RawSpan>>,
    /// What to answer next; `None` leaves it to the request.
    pub orders: Mutex<VecDeque<Option<Result<Accepted, Refused>>>>,
}

impl Keeper {
    pub fn span_count(&self) -> usize {
        self.spans.lock().unwrap().len()
    }

    pub fn last(&self) -> Incoming {
        self.requests.lock().unwrap().last().expect("a request").clone()
    }
}

impl Intake for Keeper {
    fn accept(&self, request: Incoming) -> Result<Accepted, Refused> {
        let ordered = self.orders.lock().unwrap().pop_front().flatten();
        if let Some(Err(refused)) = ordered {
            return Err(refused);
        }
        let mut accepted = Accepted::default();
        if request.signal == Signal::Traces {
            let decoded = raw::decode(&request.request, 0)
                .map_err(|error| Refused::Malformed(error.to_string()))?;
            accepted.rejected = decoded.refused;
            accepted.message = decoded.reason.map(|reason| reason.to_string());
            self.spans.lock().unwrap().extend(decoded.spans);
        }
        self.requests.lock().unwrap().push(request);
        Ok(match ordered {
            Some(Ok(ordered)) => ordered,
            _ => accepted,
        })
    }
}

/// Free ports of this host.
/// An intake that refuses is asked once.
pub fn options() -> Options {
    let limits = Limits { room_timeout: Duration::ZERO, ..Limits::default() };
    Options {
        limits,
        grpc: vec!["127.0.0.1:0".parse().unwrap()],
        http: vec!["127.0.0.1:0".parse().unwrap()],
        ..Options::default()
    }
}

pub fn start(options: Options) -> (Receiver, Arc<Keeper>) {
    let keeper = Arc::new(Keeper::default());
    let receiver = Receiver::start(options, Arc::clone(&keeper) as Arc<dyn Intake>);
    (receiver.expect("a receiver"), keeper)
}

pub fn http(receiver: &Receiver) -> SocketAddr {
    receiver.http_addresses()[0]
}

pub fn grpc(receiver: &Receiver) -> SocketAddr {
    receiver.grpc_addresses()[0]
}

/// An encoded request of so many spans.
pub fn request(spans: u64) -> Vec<u8> {
    let messages: Vec<Vec<u8>> = (1..=spans).map(|at| span(at, &[])).collect();
    request_of(&messages)
}

pub fn span(at: u64, attributes: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    SpanParts {
        trace_id: [7; 16],
        span_id: at.to_be_bytes(),
        name: "a span",
        kind: 1,
        start_nanos: 1,
        end_nanos: 2,
        attributes,
        ..SpanParts::default()
    }
    .put(&mut message);
    message
}

pub fn request_of(spans: &[Vec<u8>]) -> Vec<u8> {
    let mut items = Vec::new();
    for span in spans {
        put_scope_item(&mut items, span);
    }
    let mut resource = Vec::new();
    put_key_value(&mut resource, RESOURCE_ATTRIBUTES, "service.name", "wire-test");
    let mut out = Vec::new();
    put_request(&mut out, &resource, std::iter::once((Scope::default(), items.as_slice())));
    out
}

pub fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// An answer over HTTP.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// `google.rpc.Status.message` of a protobuf body.
    pub fn status_message(&self) -> String {
        lens_otlp::view::Repeated::new(&self.body, 2)
            .next()
            .and_then(Result::ok)
            .map(|text| String::from_utf8(text.to_vec()).unwrap())
            .unwrap_or_default()
    }
}

/// One request on a connection of its own.
pub fn send(address: SocketAddr, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // A receiver that refuses may close before everything was written.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    parse(&answer)
}

pub fn parse(answer: &[u8]) -> Answer {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut parsed = httparse::Response::new(&mut headers);
    let length = match parsed.parse(answer) {
        Ok(httparse::Status::Complete(length)) => length,
        other => panic!("{other:?}: {:?}", String::from_utf8_lossy(answer)),
    };
    Answer {
        status: parsed.code.unwrap(),
        headers: parsed
            .headers
            .iter()
            .map(|header| {
                let value = String::from_utf8_lossy(header.value).into_owned();
                (header.name.to_ascii_lowercase(), value)
            })
            .collect(),
        body: answer[length..].to_vec(),
    }
}

pub const PROTOBUF: &str = "content-type: application/x-protobuf\r\n";
pub const JSON: &str = "content-type: application/json\r\n";

/// An answer over gRPC.
#[derive(Debug)]
pub struct Reply {
    pub code: String,
    pub message: String,
    pub headers: HeaderMap,
    pub trailers: HeaderMap,
    /// Of the response, without its prefix.
    pub body: Bytes,
}

impl Reply {
    /// Only trailers, and those among the headers.
    pub fn is_trailers_only(&self) -> bool {
        self.trailers.is_empty() && self.body.is_empty()
    }
}

pub const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

pub fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let mut out = vec![flag];
    out.extend_from_slice(&(message.len() as u32).to_be_bytes());
    out.extend_from_slice(message);
    out
}

/// One call on a connection of its own.
pub fn call(address: SocketAddr, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Reply {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
        let (mut sender, connection) = hyper::client::conn::http2::handshake::<_, _, Full<Bytes>>(
            TokioExecutor::new(),
            TokioIo::new(stream),
        )
        .await
        .expect("HTTP/2");
        tokio::spawn(connection);
        let mut request = Request::post(format!("http://{address}{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let response = sender.send_request(request).await.expect("a response");
        let (head, body) = response.into_parts();
        assert_eq!(head.status, 200);
        let body = body.collect().await.expect("a body");
        let trailers = body.trailers().cloned().unwrap_or_default();
        let body = body.to_bytes();
        let text = |name: &str| {
            let found = trailers.get(name).or_else(|| head.headers.get(name));
            found.map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
        };
        Reply {
            code: text("grpc-status"),
            message: text("grpc-message"),
            body: body.slice(body.len().min(5)..),
            headers: head.headers,
            trailers,
        }
    })
}
