//! A run over HTTP, against an agent that misbehaves on the wire.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gym_server::client::{Client, ClientConfig};
use gym_server::instance::Endpoint;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::run::{CollectOptions, Input};
use super::*;
use crate::printer::Printer;

/// What the agent saw.
#[derive(Default)]
struct Seen {
    runs: AtomicUsize,
    aggregations: AtomicUsize,
    headers: std::sync::Mutex<Vec<String>>,
}

/// Answers requests of one connection until it ends or misbehaves.
async fn serve(stream: TcpStream, seen: Arc<Seen>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        let body: Value = serde_json::from_slice(&body).ok()?;
        let (status, reply) = if head.starts_with("POST /run ") {
            seen.runs.fetch_add(1, Ordering::Relaxed);
            match body["_ng_task_index"].as_u64()? {
                1 => (500, "\"inner\"".to_owned()),
                2 => return None,
                3 => {
                    stream.write_all(b"nonsense\r\n\r\n").await.ok()?;
                    return None;
                }
                4 => std::future::pending().await,
                _ => (200, "{\"reward\": 1.0,\n \"response\": {}}".to_owned()),
            }
        } else {
            seen.aggregations.fetch_add(1, Ordering::Relaxed);
            seen.headers.lock().ok()?.push(head.clone());
            (200, "{\"key_metrics\":{}}".to_owned())
        };
        let text = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{reply}", reply.len());
        stream.write_all(text.as_bytes()).await.ok()?;
    }
}

#[test]
fn whatever_happens_on_the_wire_a_rollout_gets_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.jsonl");
    let rows: String = (0..40)
        .map(|row| format!("{{\"responses_create_params\":{{\"input\":\"{row}\"}}}}\n"))
        .collect();
    std::fs::write(&input, rows).unwrap();
    let mut options = CollectOptions::new(Some(Input::File(input)), dir.path().join("out.jsonl"));
    options.rows.agent = Some("a".to_owned());
    options.concurrency = Some(8);
    options.rollout_timeout = Some(std::time::Duration::from_millis(1500));
    let printer = Printer::from_terminal().quieted();
    let prepared = PreparedRun::prepare(options, &["a".to_owned()], &printer).unwrap();

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let seen = Arc::new(Seen::default());
    let summary = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&seen)));
            }
        });
        let endpoints = BTreeMap::from([("a".to_owned(), Endpoint::gym("a", "127.0.0.1", port))]);
        let dispatch = FleetAgents::new(Client::new(ClientConfig::default()), endpoints);
        let (_canceller, cancel) = cancellation();
        prepared.collect(dispatch, false, &lens::Context::empty(), &printer, cancel).await.unwrap()
    });

    assert_eq!((summary.done, summary.failed, summary.unmade), (36, 4, 0));
    assert_eq!(seen.runs.load(Ordering::Relaxed), 40, "a request that was sent is not sent again");
    assert_eq!(seen.aggregations.load(Ordering::Relaxed), 1);
    let failures = std::fs::read_to_string(dir.path().join("out_failures.jsonl")).unwrap();
    let mut failures: Vec<Value> =
        failures.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    failures.sort_by_key(|row| row["_ng_task_index"].as_u64());
    let classes: Vec<&str> =
        failures.iter().map(|row| row["_ng_failure_class"].as_str().unwrap()).collect();
    assert_eq!(classes, ["http_error", "transport_error", "transport_error", "timeout"]);
    let output = std::fs::read_to_string(dir.path().join("out.jsonl")).unwrap();
    assert_eq!(output.lines().count(), 36);
    assert!(output.starts_with("{\"reward\":1.0,\"response\":{},\"_ng_task_index\":"), "{output}");
    let head = seen.headers.lock().unwrap()[0].to_ascii_lowercase();
    let context = head.lines().find_map(|line| line.strip_prefix("traceparent: ")).unwrap();
    assert!(context.ends_with("-00"), "a call without a job span is recorded by nobody: {context}");
}
