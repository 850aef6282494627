//! Time, memory and the end.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lens_observe::receiver::{Limits, Options, Reason};
use lens_observe::{Accepted, Incoming, Intake, Receiver, Refused};

use crate::support::{
    EXPORT, PROTOBUF, call, framed, grpc, http, options, parse, request, send, start,
};

const PATIENCE: Duration = Duration::from_secs(20);

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

fn head(length: usize) -> String {
    format!("POST /v1/traces HTTP/1.1\r\nhost: x\r\n{PROTOBUF}content-length: {length}\r\n\r\n")
}

/// Reads one answer that has a length.
fn read_answer(stream: &mut TcpStream) -> crate::support::Answer {
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("an answer");
        answer.push(byte[0]);
    }
    let length =
        parse(&answer).header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("its body");
    answer.extend(body);
    parse(&answer)
}

#[test]
fn a_body_that_does_not_come_is_given_up() {
    let limits = Limits { body_timeout: Duration::from_millis(200), ..Limits::default() };
    let (receiver, _) = start(Options { limits, ..options() });
    let mut stream = TcpStream::connect(http(&receiver)).unwrap();
    stream.write_all(head(10).as_bytes()).unwrap();
    stream.write_all(b"five.").unwrap();
    let answer = read_answer(&mut stream);
    assert_eq!(answer.status, 408);
    assert_eq!(receiver.snapshot().in_flight_bytes, 0);
}

#[test]
fn bytes_in_flight_are_bounded_and_counted() {
    let limits = Limits { in_flight_bytes: 100_000, ..Limits::default() };
    let (receiver, keeper) = start(Options { limits, ..options() });
    let mut holding = TcpStream::connect(http(&receiver)).unwrap();
    holding.write_all(head(90_001).as_bytes()).unwrap();
    holding.write_all(&[0; 90_000]).unwrap();
    wait_until("the bytes are held", || receiver.snapshot().in_flight_bytes == 90_000);
    assert_eq!(receiver.snapshot().in_flight_limit_bytes, 100_000);
    let large = request(1000);
    let answer = send(http(&receiver), "POST", "/v1/traces", PROTOBUF, &large);
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")));
    let reply = call(grpc(&receiver), EXPORT, &[], framed(0, &large));
    assert_eq!(reply.code, "8");
    assert!(reply.headers.contains_key("grpc-status-details-bin"), "{reply:?}");
    drop(holding);
    wait_until("the bytes are given back", || receiver.snapshot().in_flight_bytes == 0);
    assert_eq!(send(http(&receiver), "POST", "/v1/traces", PROTOBUF, &large).status, 200);
    assert_eq!(
        (keeper.span_count(), receiver.snapshot().refused_for(Reason::Overloaded)),
        (1000, 2)
    );
    assert_eq!(receiver.snapshot().refused_for(Reason::CutOff), 1);
}

#[test]
fn a_connection_is_kept_while_it_is_used_and_closed_when_it_is_silent_for_long() {
    let limits = Limits { idle_timeout: Duration::from_millis(800), ..Limits::default() };
    let (receiver, _) = start(Options { limits, ..options() });
    let mut stream = TcpStream::connect(http(&receiver)).unwrap();
    let begun = Instant::now();
    // In use for longer than it may be silent.
    while begun.elapsed() < Duration::from_millis(1600) {
        stream.write_all(head(0).as_bytes()).unwrap();
        assert_eq!(read_answer(&mut stream).status, 200);
        std::thread::sleep(Duration::from_millis(200));
    }
    let silent = Instant::now();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(stream.read(&mut [0]).expect("an orderly end"), 0);
    assert!(silent.elapsed() >= Duration::from_millis(400));
    wait_until("it is not counted", || receiver.snapshot().connections == 0);
    // Longer than Go (90 s), Java and Python clients keep idle connections.
    assert!(Limits::default().idle_timeout >= Duration::from_secs(300));
}

#[test]
fn connections_beyond_the_limit_wait_for_idle_ones_to_be_closed() {
    let limits = Limits { connections: 8, ..Limits::default() };
    let notices = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&notices);
    let notify = Arc::new(move |notice: &lens_observe::receiver::Notice| {
        heard.lock().unwrap().push(notice.to_string());
    });
    let (receiver, _) = start(Options { limits, notify, ..options() });
    let mut streams: Vec<_> =
        (0..40).map(|_| TcpStream::connect(http(&receiver)).unwrap()).collect();
    for stream in &mut streams {
        stream.write_all(head(0).as_bytes()).unwrap();
    }
    for stream in &mut streams {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(read_answer(stream).status, 200);
    }
    let snapshot = receiver.snapshot();
    assert_eq!((snapshot.connections_total, snapshot.connections_limit), (40, 8));
    assert!(snapshot.connections_shed >= 32, "{snapshot:?}");
    let notices = notices.lock().unwrap();
    assert!(notices[0].contains("as many as there may be"), "{notices:?}");
    assert!(notices.len() < 6, "{notices:?}");
}

/// Tells when it was called, and waits to be let go.
struct Gate {
    entered: mpsc::SyncSender<()>,
    leave: Mutex<mpsc::Receiver<()>>,
}

impl Intake for Gate {
    fn accept(&self, _: Incoming) -> Result<Accepted, Refused> {
        let _ = self.entered.send(());
        let _ = self.leave.lock().unwrap().recv();
        Ok(Accepted::default())
    }
}

#[test]
fn what_is_in_flight_when_the_receiver_stops_is_answered() {
    let (entered, has_entered) = mpsc::sync_channel(8);
    let (let_go, leave) = mpsc::channel();
    let gate = Arc::new(Gate { entered, leave: Mutex::new(leave) });
    let receiver = Receiver::start(options(), gate).expect("a receiver");
    let address = http(&receiver);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(head(0).as_bytes()).unwrap();
    has_entered.recv_timeout(PATIENCE).expect("the request came");
    let stopping = std::thread::spawn(move || receiver.stop());
    // Nobody is accepted any more once the listener is closed, which the other thread does.
    let_go.send(()).unwrap();
    assert_eq!(read_answer(&mut stream).status, 200);
    assert!(stopping.join().expect("it stopped"));
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_sender_that_never_ends_does_not_keep_the_receiver_from_stopping() {
    let (receiver, _) = start(Options { grace: Duration::from_millis(100), ..options() });
    let mut stream = TcpStream::connect(http(&receiver)).unwrap();
    stream.write_all(head(10).as_bytes()).unwrap();
    wait_until("it is connected", || receiver.snapshot().connections == 1);
    let begun = Instant::now();
    assert!(receiver.stop());
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn an_intake_that_hangs_does_not_keep_the_receiver_from_stopping() {
    let (entered, has_entered) = mpsc::sync_channel(8);
    let (let_go, leave) = mpsc::channel();
    let gate = Arc::new(Gate { entered, leave: Mutex::new(leave) });
    let options = Options { grace: Duration::from_millis(50), ..options() };
    let receiver = Receiver::start(options, gate).expect("a receiver");
    let mut stream = TcpStream::connect(http(&receiver)).unwrap();
    stream.write_all(head(0).as_bytes()).unwrap();
    has_entered.recv_timeout(PATIENCE).expect("the request came");
    let begun = Instant::now();
    assert!(!receiver.stop());
    assert!(begun.elapsed() < PATIENCE);
    drop(let_go);
}
