//! What one HTTP hop costs on this machine with nothing but hyper: the floor under every fleet.
//!
//! One process serves a fixed reply, another keeps `--connections` requests in flight, each on a
//! single-threaded runtime, with the body sizes of a rollout's hops. Prints requests per second
//! and the CPU of either side per request; seven hops make a rollout.

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const REQUEST_BYTES: usize = 1500;
const REPLY_BYTES: usize = 2500;
const SECONDS: u64 = 4;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match arguments.next().as_deref() {
        Some("serve") => runtime.block_on(serve()),
        Some(connections) => drive(&runtime, connections.parse()?),
        None => [16, 256].into_iter().try_for_each(|connections| drive(&runtime, connections)),
    }
}

async fn serve() -> Outcome<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let body = Bytes::from(vec![b'x'; REPLY_BYTES]);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let body = body.clone();
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(
            TokioIo::new(stream),
            service_fn(move |request: Request<Incoming>| {
                let body = body.clone();
                async move {
                    let _ = request.into_body().collect().await;
                    Ok::<_, Infallible>(Response::new(Full::new(body)))
                }
            }),
        ));
    }
}

fn drive(runtime: &tokio::runtime::Runtime, connections: usize) -> Outcome<()> {
    let mut server =
        Command::new(std::env::current_exe()?).arg("serve").stdout(Stdio::piped()).spawn()?;
    let mut address = String::new();
    BufReader::new(server.stdout.take().ok_or("no stdout")?).read_line(&mut address)?;
    let address = address.trim().to_owned();
    let served = format!("/proc/{}/stat", server.id());
    let done = Arc::new(AtomicU64::new(0));
    let (requests, own, theirs) = runtime.block_on(async {
        for _ in 0..connections {
            let stream = tokio::net::TcpStream::connect(&address).await?;
            stream.set_nodelay(true)?;
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream))
                    .await?;
            tokio::spawn(connection);
            let done = Arc::clone(&done);
            tokio::spawn(async move {
                let body = Bytes::from(vec![b'x'; REQUEST_BYTES]);
                loop {
                    let request =
                        Request::post("/").header("host", "x").body(Full::new(body.clone()));
                    let Ok(request) = request else { return };
                    if sender.ready().await.is_err() {
                        return;
                    }
                    let Ok(response) = sender.send_request(request).await else { return };
                    let _ = response.into_body().collect().await;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let before = (done.load(Ordering::Relaxed), cpu("/proc/self/stat"), cpu(&served));
        let started = Instant::now();
        tokio::time::sleep(Duration::from_secs(SECONDS)).await;
        let requests = (done.load(Ordering::Relaxed) - before.0) as f64;
        println!(
            "{connections:4} connections: {:8.0} requests/s",
            requests / started.elapsed().as_secs_f64()
        );
        Ok::<_, Box<dyn std::error::Error>>((
            requests,
            cpu("/proc/self/stat") - before.1,
            cpu(&served) - before.2,
        ))
    })?;
    server.kill()?;
    server.wait()?;
    let (client, served) = (own / requests * 1e6, theirs / requests * 1e6);
    println!(
        "     CPU per request: client {client:.1} µs, server {served:.1} µs; seven hops {:.0} µs",
        7.0 * (client + served)
    );
    Ok(())
}

/// User and system seconds of a process.
fn cpu(path: &str) -> f64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let rest: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| rest.get(index).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}
