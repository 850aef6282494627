//! A server and a client over real sockets: shapes, sessions, and what a broken peer does.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use gym_server::client::{Client, ClientConfig, ClientError, Policy, PoolLimits};
use gym_server::http::{HttpError, Reply, ServeOptions, Server, Service};
use gym_server::instance::{Endpoint, ServerType};
use gym_server::session::CookieJar;
use http::{Method, StatusCode};
use lens_testing::free_port;
use tokio::sync::watch;

struct Running {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server ends");
        }
    }
}

impl Running {
    fn endpoint(&self) -> Endpoint {
        Endpoint::gym("echo", "127.0.0.1", self.address.port())
    }
}

fn start_with(routes: impl FnOnce(&mut Service)) -> Running {
    let mut service = Service::new(ServerType::ResourcesServers, "echo___echo".to_owned());
    routes(&mut service);
    run(service, 1)
}

fn start(server_type: ServerType, workers: usize) -> Running {
    let mut service = Service::new(server_type, "echo___echo".to_owned());
    service.route(Method::POST, "/echo", |call, body| async move {
        let session = call.session_id().to_owned();
        call.set_cookie("other", "1");
        let prefix = call.prefix().unwrap_or_default().to_owned();
        let text = String::from_utf8_lossy(&body).into_owned();
        Reply::json(&serde_json::json!({"session": session, "prefix": prefix, "body": text}))
    });
    service.route(Method::POST, "/v1/responses", |call, _| async move {
        Reply::json(&serde_json::json!({"prefix": call.prefix()}))
    });
    service.route(Method::POST, "/panic", |_, _| async { panic!("handler") });
    service.route(Method::POST, "/broken", |_, _| async {
        Err::<Reply, _>(HttpError::failed("ValueError", "no"))
    });
    service.route(Method::POST, "/slow", |_, _| async {
        std::future::pending::<()>().await;
        Ok(Reply::json_bytes(Bytes::new()))
    });
    run(service, workers)
}

fn run(service: Service, workers: usize) -> Running {
    let server = Server::bind("127.0.0.1", 0).expect("a free port");
    let address = server.address();
    let (stop, stopped) = watch::channel(false);
    let thread = std::thread::spawn(move || {
        let options =
            ServeOptions { workers, grace: Duration::from_millis(50), ..Default::default() };
        server.serve(Arc::new(service), &options, stopped).expect("serves");
    });
    Running { address, stop, thread: Some(thread) }
}

fn raw(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.write_all(request.as_bytes()).expect("sends");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("reads");
    text
}

fn post(path: &str, extra: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{extra}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn refusals_have_the_reference_shapes_and_carry_a_session() {
    let server = start(ServerType::ResourcesServers, 1);
    let unknown = raw(server.address, &post("/nope", "", "{}"));
    assert!(unknown.starts_with("HTTP/1.1 404"), "{unknown}");
    assert!(unknown.ends_with(r#"{"detail":"Not Found"}"#), "{unknown}");
    assert!(unknown.contains("set-cookie: echo___echo="), "{unknown}");
    let wrong = raw(server.address, "GET /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(wrong.starts_with("HTTP/1.1 405"), "{wrong}");
    assert!(wrong.ends_with(r#"{"detail":"Method Not Allowed"}"#), "{wrong}");
    let health = raw(server.address, "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(health.ends_with(r#"{"status":"ok"}"#), "{health}");
    let broken = raw(server.address, &post("/broken", "", "{}"));
    assert!(broken.starts_with("HTTP/1.1 500") && !broken.contains("set-cookie"), "{broken}");
    assert!(broken.ends_with(r#""ValueError('no')""#), "{broken}");
}

/// Guarantees: one broken request neither ends the server nor another request.
#[test]
fn a_panic_in_a_handler_is_one_failed_request() {
    let server = start(ServerType::ResourcesServers, 2);
    let panicked = raw(server.address, &post("/panic", "", "{}"));
    assert!(panicked.ends_with(r#""An unknown error occurred""#), "{panicked}");
    assert!(raw(server.address, &post("/echo", "", "{}")).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_session_lasts_as_long_as_its_cookie_is_sent_back() {
    let server = start(ServerType::ResourcesServers, 1);
    let first = raw(server.address, &post("/echo", "", "{}"));
    let cookie = first.split("set-cookie: echo___echo=").nth(1).expect("a cookie");
    let id = cookie.split(';').next().expect("a value");
    assert!(cookie.contains("path=/; Max-Age=1209600; httponly; samesite=lax"), "{cookie}");
    assert!(first.contains("set-cookie: other=1"), "{first}");
    let kept =
        raw(server.address, &post("/echo", &format!("cookie: a=b; echo___echo={id}\r\n"), "{}"));
    assert!(kept.contains(&format!(r#""session":"{id}""#)), "{kept}");
    let forged = raw(server.address, &post("/echo", "cookie: echo___echo=forged\r\n", "{}"));
    assert!(!forged.contains(r#""session":"forged""#), "{forged}");
}

#[test]
fn a_rollout_prefix_is_taken_off_everywhere_but_on_agents() {
    let server = start(ServerType::ResourcesServers, 1);
    let echoed = raw(server.address, &post("/ng-rollout/7-2/echo", "", "{}"));
    assert!(echoed.contains(r#""prefix":"/ng-rollout/7-2""#), "{echoed}");
    let agent = start(ServerType::ResponsesApiAgents, 1);
    let twin = post("/ng-rollout/7-2/training-token-capture/v1/responses", "", "{}");
    assert!(raw(agent.address, &twin).contains("training-token-capture"));
    assert!(
        raw(agent.address, &post("/ng-rollout/7-2/echo", "", "{}")).starts_with("HTTP/1.1 404")
    );
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = start(ServerType::ResourcesServers, 1);
    let mut requests = String::new();
    for number in 0..20 {
        let body = format!("n{number}");
        let keep = if number == 19 { "close" } else { "keep-alive" };
        requests.push_str(&format!(
            "POST /echo HTTP/1.1\r\nhost: x\r\nconnection: {keep}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
    }
    let text = raw(server.address, &requests);
    let order: Vec<usize> =
        (0..20).map(|n| text.find(&format!(r#""body":"n{n}""#)).expect("an answer")).collect();
    assert!(order.is_sorted(), "{order:?}");
}

#[tokio::test]
async fn a_client_reuses_connections_within_its_limits() {
    let server = start(ServerType::ResourcesServers, 2);
    let limits = PoolLimits { per_host: 4, ..PoolLimits::default() };
    let client = Client::new(ClientConfig { limits, ..ClientConfig::default() });
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..200 {
        let sending = client.post(&server.endpoint(), "/echo").body(format!("n{number}")).send();
        tasks.spawn(async move { (number, sending.await.expect("a reply")) });
    }
    while let Some(done) = tasks.join_next().await {
        let (number, reply) = done.expect("no panic");
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        assert!(text.contains(&format!(r#""body":"n{number}""#)), "{text}");
        assert!(reply.cookies().get("echo___echo").is_some());
    }
}

#[tokio::test]
async fn cookies_go_back_to_the_server_that_set_them() {
    let server = start(ServerType::ResourcesServers, 1);
    let client = Client::new(ClientConfig::default());
    let first = client.post(&server.endpoint(), "/echo").body("{}").send().await.expect("a reply");
    let jar: CookieJar = first.cookies();
    let second = client.post(&server.endpoint(), "/echo").body("{}").cookies(&jar).send().await;
    let second = second.expect("a reply");
    let session = |body: &Bytes| -> String {
        let value: serde_json::Value = serde_json::from_slice(body).expect("JSON");
        value["session"].as_str().expect("a session").to_owned()
    };
    assert_eq!(session(&first.body), session(&second.body));
}

#[tokio::test]
async fn a_closed_port_is_named_at_once_when_nothing_may_be_repeated() {
    let port = free_port();
    let client = Client::new(ClientConfig::default());
    let endpoint = Endpoint::gym("policy_model", "127.0.0.1", port);
    let error = client.post(&endpoint, "/run").policy(Policy::Once).send().await;
    let message = error.expect_err("nobody listens").full_message();
    assert!(message.contains("policy_model") && message.contains(&port.to_string()), "{message}");
}

/// Guarantees: on one host a Gym server is reached through the socket beside its port, and its
/// port serves whoever does not know of that.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_gym_server_of_this_host_is_reached_beside_its_port() {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
    fn answer(mut stream: impl std::io::Read + std::io::Write, body: &str) {
        let mut buffer = [0; 4096];
        let _ = stream.read(&mut buffer);
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\n\r\n";
        let _ = stream.write_all(format!("{head}{body}").as_bytes());
    }
    let tcp = TcpListener::bind("127.0.0.1:0").expect("binds");
    let port = tcp.local_addr().expect("an address").port();
    let name = UnixAddress::from_abstract_name(format!("nemo-gym/127.0.0.1:{port}")).expect("fits");
    let unix = UnixListener::bind_addr(&name).expect("binds");
    std::thread::spawn(move || tcp.incoming().flatten().for_each(|stream| answer(stream, "tcp")));
    std::thread::spawn(move || unix.incoming().flatten().for_each(|stream| answer(stream, "uds")));
    let ask = async |endpoint: &Endpoint, same_host_sockets| {
        let client = Client::new(ClientConfig { same_host_sockets, ..ClientConfig::default() });
        client.post(endpoint, "/").body("{}").send().await.expect("a reply").body
    };
    let gym = Endpoint::gym("tools", "127.0.0.1", port);
    assert_eq!(ask(&gym, true).await, "uds");
    assert_eq!(ask(&gym, false).await, "tcp");
    let model = Endpoint::model(&format!("http://127.0.0.1:{port}")).expect("a URL");
    assert_eq!(ask(&model, true).await, "tcp");

    let server = start(ServerType::ResourcesServers, 2);
    let name = format!("nemo-gym/{}", server.address);
    let beside = UnixAddress::from_abstract_name(name).expect("fits");
    while UnixStream::connect_addr(&beside).is_err() {
        std::thread::yield_now();
    }
    for sockets in [true, false] {
        assert_eq!(ask(&server.endpoint(), sockets).await, r#"{"detail":"Method Not Allowed"}"#);
    }
}

/// A server that breaks `broken` connections after reading a request, then answers.
fn flaky(broken: usize, status: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = listener.local_addr().expect("an address");
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in listener.incoming().take(16) {
            let Ok(mut stream) = stream else { return };
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer);
            if count.fetch_add(1, Ordering::SeqCst) < broken {
                if status.is_empty() {
                    continue;
                }
                let _ = stream.write_all(
                    format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\nretry-after: 0\r\nconnection: close\r\n\r\n{{}}").as_bytes(),
                );
                continue;
            }
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}");
        }
    });
    (address, seen)
}

#[tokio::test]
async fn a_request_with_effects_is_sent_once_and_others_again() {
    let client = Client::new(ClientConfig::default());
    let (address, seen) = flaky(1, "");
    let endpoint = Endpoint::gym("tools", "127.0.0.1", address.port());
    let error = client.post(&endpoint, "/verify").send().await.expect_err("not repeated");
    assert!(matches!(error, ClientError::Broken { sent: true, .. }), "{error:?}");
    assert_eq!(seen.load(Ordering::SeqCst), 1);

    let (address, seen) = flaky(1, "");
    let endpoint = Endpoint::gym("tools", "127.0.0.1", address.port());
    let reply = client.post(&endpoint, "/seed").policy(Policy::InternalIdempotent).send().await;
    assert_eq!(reply.expect("repeated").status, StatusCode::OK);
    assert_eq!(seen.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_busy_model_is_asked_again_and_a_broken_one_three_times() {
    let client = Client::new(ClientConfig::default());
    let ask = |port: u16| {
        let endpoint = Endpoint::model(&format!("http://127.0.0.1:{port}/v1")).expect("a URL");
        client.post(&endpoint, "/chat/completions").policy(Policy::Model).send()
    };
    let (address, seen) = flaky(5, "429 Too Many Requests");
    assert_eq!(ask(address.port()).await.expect("a reply").status, StatusCode::OK);
    assert_eq!(seen.load(Ordering::SeqCst), 6);
    let (address, seen) = flaky(9, "500 Internal Server Error");
    assert_eq!(
        ask(address.port()).await.expect("a reply").status,
        StatusCode::INTERNAL_SERVER_ERROR
    );
    assert_eq!(seen.load(Ordering::SeqCst), 3);
    let (address, seen) = flaky(9, "404 Not Found");
    assert_eq!(ask(address.port()).await.expect("a reply").status, StatusCode::NOT_FOUND);
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

/// Guarantees: a connection that its server closed while it was kept is no failure, even for
/// requests that are sent once.
#[tokio::test]
async fn a_kept_connection_that_was_closed_is_replaced() {
    let client = Client::new(ClientConfig::default());
    let server = start(ServerType::ResourcesServers, 1);
    let endpoint = server.endpoint();
    client.post(&endpoint, "/echo").body("{}").send().await.expect("a reply");
    let port = endpoint.port();
    // The server stops, and the connection ages, while the client's runtime stands still.
    drop(server);
    std::thread::sleep(Duration::from_millis(10));
    let again = TcpListener::bind(("127.0.0.1", port)).expect("the port is free again");
    std::thread::spawn(move || {
        let (mut stream, _) = again.accept().expect("a connection");
        let mut buffer = [0; 4096];
        let _ = stream.read(&mut buffer);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
    });
    let reply = client.post(&endpoint, "/echo").body("{}").send().await.expect("a reply");
    assert_eq!(reply.status, StatusCode::OK);
}

#[tokio::test]
async fn a_stopped_server_cancels_what_hangs() {
    let server = start(ServerType::ResourcesServers, 1);
    let client = Client::new(ClientConfig::default());
    let hanging = tokio::spawn(client.post(&server.endpoint(), "/slow").body("{}").send());
    tokio::time::sleep(Duration::from_millis(50)).await;
    tokio::task::spawn_blocking(move || drop(server)).await.expect("stops");
    assert!(hanging.await.expect("no panic").is_err());
}

/// Guarantees: a service whose telemetry is off does not cut its callers' traces.
#[tokio::test]
async fn trace_headers_pass_through_a_service_that_traces_nothing() {
    let behind = start_with(|service| {
        service.route(Method::POST, "/headers", |call, _| async move {
            let header = |name: &'static str| {
                call.header(&http::HeaderName::from_static(name)).map(str::to_owned)
            };
            Reply::json(&serde_json::json!([
                header("traceparent"),
                header("tracestate"),
                header("baggage"),
            ]))
        });
    });
    let (gym, model) = (
        behind.endpoint(),
        Endpoint::model(&format!("http://127.0.0.1:{}", behind.address.port())).expect("a URL"),
    );
    let front = start_with(move |service| {
        for (path, target) in [("/gym", gym.clone()), ("/model", model.clone())] {
            service.route(Method::POST, path, move |call, _| {
                let target = target.clone();
                async move {
                    let reply = call.post(&target, "/headers").body("{}").send().await?;
                    Ok(Reply::json_bytes(reply.body))
                }
            });
        }
    });
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = format!("traceparent: {parent}\r\ntracestate: a=1\r\nbaggage: k=v\r\n");
    let answer = raw(front.address, &post("/gym", &headers, "{}"));
    assert!(answer.ends_with(&format!(r#"["{parent}","a=1","k=v"]"#)), "{answer}");
    // Baggage stays between Gym servers.
    let answer = raw(front.address, &post("/model", &headers, "{}"));
    assert!(answer.ends_with(&format!(r#"["{parent}","a=1",null]"#)), "{answer}");
}

#[tokio::test]
async fn model_endpoints_get_no_trace_headers_where_they_are_not_to() {
    let behind = start_with(|service| {
        service.route(Method::POST, "/headers", |call, _| async move {
            let has = |name| call.headers().contains_key(name);
            Reply::json(&serde_json::json!([has("traceparent"), has("tracestate")]))
        });
    });
    let url = format!("http://127.0.0.1:{}", behind.address.port());
    for (propagate_to_models, expected) in [(true, "[true,true]"), (false, "[false,false]")] {
        let model = Endpoint::model(&url).expect("a URL");
        let mut service = Service::new(ServerType::ResponsesApiModels, "m___m".to_owned());
        service.route(Method::POST, "/ask", move |call, _| {
            let model = model.clone();
            async move {
                Ok(Reply::json_bytes(call.post(&model, "/headers").body("{}").send().await?.body))
            }
        });
        let server = Server::bind("127.0.0.1", 0).expect("a free port");
        let address = server.address();
        let (stop, stopped) = watch::channel(false);
        let client = ClientConfig { propagate_to_models, ..ClientConfig::default() };
        let options = ServeOptions { client, ..ServeOptions::default() };
        let thread = std::thread::spawn(move || {
            server.serve(Arc::new(service), &options, stopped).expect("serves");
        });
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let headers = format!("traceparent: {parent}\r\ntracestate: a=1\r\n");
        let answer = raw(address, &post("/ask", &headers, "{}"));
        assert!(answer.ends_with(expected), "{propagate_to_models}: {answer}");
        stop.send_replace(true);
        thread.join().expect("the server ends");
    }
}
