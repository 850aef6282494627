//! The head server: tells other processes which servers there are and what they are configured with.
//!
//! It serves three documents that are made before it is asked, and makes no spans.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

/// Path of the merged config.
pub const CONFIG_PATH: &str = "/global_config_dict_yaml";
/// Path of the list of instances.
pub const INSTANCES_PATH: &str = "/server_instances";

/// An instance as `/server_instances` shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are the wire contract")]
pub struct ServerInstance {
    pub config_path: Option<String>,
    pub dir_path: Option<String>,
    pub entrypoint: Option<String>,
    pub host: Option<String>,
    pub name: Option<String>,
    pub pid: Option<u32>,
    pub port: Option<u16>,
    pub process_name: Option<String>,
    pub server_type: Option<String>,
    pub start_time: Option<f64>,
    pub status: Option<String>,
    pub uptime_seconds: Option<f64>,
    pub url: Option<String>,
}

/// What the head server answers with.
#[derive(Debug)]
pub struct Documents {
    /// A JSON string literal whose value is the YAML text of the merged config.
    config: Bytes,
    /// The JSON array of instances; empty until they are spawned.
    instances: OnceLock<Bytes>,
}

impl Documents {
    /// `yaml` is the merged config, interpolations left as they are.
    pub fn new(yaml: &str) -> Arc<Self> {
        let config = serde_json::Value::from(yaml).to_string().into();
        Arc::new(Self { config, instances: OnceLock::new() })
    }

    /// Publishes the instances, once.
    pub fn publish(&self, instances: &[ServerInstance]) {
        let text = serde_json::to_vec(instances).unwrap_or_default();
        let _ = self.instances.set(text.into());
    }

    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let body = match path {
            "/" => Bytes::from_static(br#"{"status":"ok"}"#),
            CONFIG_PATH => self.config.clone(),
            INSTANCES_PATH => {
                self.instances.get().cloned().unwrap_or_else(|| Bytes::from_static(b"[]"))
            }
            _ => {
                return json(
                    StatusCode::NOT_FOUND,
                    Bytes::from_static(br#"{"detail":"Not Found"}"#),
                );
            }
        };
        if method == Method::GET {
            return json(StatusCode::OK, body);
        }
        let detail = Bytes::from_static(br#"{"detail":"Method Not Allowed"}"#);
        let mut reply = json(StatusCode::METHOD_NOT_ALLOWED, detail);
        reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        reply
    }
}

fn json(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut reply = Response::new(Full::new(body));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

/// A head server that serves until it is dropped.
#[derive(Debug)]
pub struct Server(tokio::task::JoinHandle<()>);

impl Server {
    /// Serves `documents` on the current runtime.
    pub fn spawn(listener: TcpListener, documents: Arc<Documents>) -> Self {
        Self(tokio::spawn(serve(listener, documents)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn serve(listener: TcpListener, documents: Arc<Documents>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, _)) => {
                let documents = Arc::clone(&documents);
                connections.spawn(async move {
                    let service = service_fn(|request: Request<Incoming>| {
                        let reply = documents.answer(request.method(), request.uri().path());
                        std::future::ready(Ok::<_, Infallible>(reply))
                    });
                    // A client that hangs up in the middle is its own business.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .timer(TokioTimer::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
            // Out of descriptors: let some go before the next try.
            Err(error) if error.kind() != io::ErrorKind::ConnectionAborted => {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// The bytes of a reply without its date.
    async fn bytes_of(request: &str) -> String {
        let documents = Documents::new("a: \"b\"\nc: ${d}\n");
        documents.publish(&[ServerInstance {
            process_name: Some("policy_model".to_owned()),
            port: Some(1),
            ..ServerInstance::default()
        }]);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let server = Server::spawn(listener, documents);
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
        let head = format!("{request} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("sent");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.expect("answered");
        drop(server);
        reply
            .lines()
            .filter(|line| !line.starts_with("date: "))
            .map(|line| format!("{line}\n"))
            .collect()
    }

    #[tokio::test]
    async fn the_config_is_a_json_string_of_yaml() {
        insta::assert_snapshot!(bytes_of("GET /global_config_dict_yaml").await, @r#"
        HTTP/1.1 200 OK
        content-type: application/json
        connection: close
        content-length: 21

        "a: \"b\"\nc: ${d}\n"
        "#);
    }

    #[tokio::test]
    async fn instances_have_every_key_of_the_contract() {
        insta::assert_snapshot!(bytes_of("GET /server_instances").await, @r#"
        HTTP/1.1 200 OK
        content-type: application/json
        connection: close
        content-length: 214

        [{"config_path":null,"dir_path":null,"entrypoint":null,"host":null,"name":null,"pid":null,"port":1,"process_name":"policy_model","server_type":null,"start_time":null,"status":null,"uptime_seconds":null,"url":null}]
        "#);
    }

    #[tokio::test]
    async fn health_unknown_paths_and_wrong_methods_are_answered_as_by_the_reference() {
        insta::assert_snapshot!(bytes_of("GET /").await, @r#"
        HTTP/1.1 200 OK
        content-type: application/json
        connection: close
        content-length: 15

        {"status":"ok"}
        "#);
        insta::assert_snapshot!(bytes_of("GET /nothing").await, @r#"
        HTTP/1.1 404 Not Found
        content-type: application/json
        connection: close
        content-length: 22

        {"detail":"Not Found"}
        "#);
        insta::assert_snapshot!(bytes_of("POST /server_instances").await, @r#"
        HTTP/1.1 405 Method Not Allowed
        content-type: application/json
        allow: GET
        connection: close
        content-length: 31

        {"detail":"Method Not Allowed"}
        "#);
    }
}
