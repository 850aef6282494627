//! A service that calls whom it is told to call: the peer that the W3C Trace Context test harness asks for.
//!
//! `trace_context [PORT]` listens on 127.0.0.1 (port 5000 unless given, 0 for any) until it is ended. How to run the harness against it
//! is in `docs/reference/trace_context.md`.

use std::process::ExitCode;
use std::sync::Arc;

use bytes::Bytes;
use gym_server::client::ClientConfig;
use gym_server::http::{Call, HttpError, Reply, ServeOptions, Server, Service};
use gym_server::instance::{Endpoint, ServerType};
use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Where the harness posts to.
const PATH: &str = "/test";

/// One call to make.
#[derive(Deserialize)]
struct Order {
    url: String,
    arguments: Box<RawValue>,
}

/// `POST /test` with a list of calls; each is made in turn with its arguments as the body.
fn service() -> Service {
    let mut service = Service::new(ServerType::ResourcesServers, "trace_context".to_owned());
    service.route(Method::POST, PATH, |call, body| async move { obey(call, body).await });
    service
}

/// The harness listens on this host and is a third party, so it is named as one that gets the trace context.
fn options() -> ServeOptions {
    let client =
        ClientConfig { propagate_to: vec!["127.0.0.1".to_owned()], ..ClientConfig::default() };
    ServeOptions { client, same_host_sockets: false, ..ServeOptions::default() }
}

async fn obey(call: Call, body: Bytes) -> Result<Reply, HttpError> {
    let orders: Vec<Order> = serde_json::from_slice(&body)
        .map_err(|error| HttpError::failed("ValueError", &error.to_string()))?;
    for order in orders {
        let endpoint = Endpoint::external(&order.url)
            .map_err(|error| HttpError::failed("ValueError", &error.to_string()))?;
        call.post(&endpoint, "")
            .body(order.arguments.get().to_owned())
            .send()
            .await
            .map_err(|error| HttpError::failed("ConnectionError", &error.to_string()))?;
    }
    Ok(Reply::json_bytes(&b"{}"[..]))
}

fn main() -> ExitCode {
    let port = std::env::args().nth(1).map_or(Ok(5000), |text| text.parse());
    let Ok(port) = port else {
        return fail("expected a port number");
    };
    let _ = gym_telemetry::init_telemetry(Some("trace_context"), None, &[]);
    let server = match Server::bind("127.0.0.1", port) {
        Ok(server) => server,
        Err(error) => return fail(&error.to_string()),
    };
    say(&format!("listening on http://{}{PATH}", server.address()));
    // Never told to stop: the process is ended.
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    match server.serve(Arc::new(service()), &options(), stopped) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(why: &str) -> ExitCode {
    say(&format!("error: {why}"));
    ExitCode::from(2)
}

#[allow(clippy::print_stderr, reason = "telemetry has stdout")]
fn say(line: &str) {
    eprintln!("{line}");
}
