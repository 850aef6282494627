//! What a killed store acknowledged is found again, each span once.
//!
//! This program is its own subject: it starts itself as a process that appends, flushes, merges and removes until it is
//! killed, and then looks. A request counts as acknowledged once the killed process has said so through a pipe, which
//! no signal takes back. `LENS_STORE_CRASH_ROUNDS` says how often (5).
//!
//! Guarantees: W-1, W-2, R-1.

#![allow(clippy::print_stdout, reason = "it reports itself")]

mod support;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lens_store::rollouts::{Filter, Kept};
use lens_store::store::{
    Compaction, Durability, FlushOptions, Options, Policy, Refusal, Retention, Snapshot, Store,
};
use support::{Numbered, found, request, rows, send};

const ROUNDS: &str = "LENS_STORE_CRASH_ROUNDS";
/// Kills of one store.
const KILLS: usize = 4;
const THREADS: u64 = 2;
/// Numbers of a thread begin here, times its own.
const OF_THREAD: u64 = 1 << 32;
/// Spans of a request.
const OF_REQUEST: u64 = 8;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--live", folder, kind, first] => live(Path::new(folder), kind, first),
        _ => {
            let rounds = std::env::var(ROUNDS).ok().and_then(|text| text.parse().ok()).unwrap_or(5);
            rehearse(rounds);
        }
    }
}

// ---- the process that is killed ----

fn now_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64
}

fn options(kind: &str) -> Options {
    let retention = match kind {
        "retention" => Retention { max_bytes: Some(20_000), max_age: None },
        _ => Retention::default(),
    };
    Options {
        durability: if kind == "power" { Durability::Power } else { Durability::Process },
        sync_interval: Duration::from_millis(5),
        wal_file_bytes: 4_000,
        flush: FlushOptions { max_spans: 64, ..FlushOptions::default() },
        compaction: Compaction { max_small_files: 1, small_bytes: 100_000, max_bytes: 1 << 20 },
        retention,
        policy: (kind == "policy").then_some(Policy {
            share: 0.5,
            slowest_per_task: 0,
            quiet: Duration::ZERO,
            run_quiet: Duration::ZERO,
        }),
        ..Options::default()
    }
}

fn live(folder: &Path, kind: &str, first: &str) {
    let first: u64 = first.parse().expect("a number");
    let store = Store::open(folder, options(kind)).expect("a store");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || write_spans(store, kind, thread * OF_THREAD + first));
        }
    });
}

/// One write for each line, which is smaller than what a pipe takes at once.
fn say(what: char, number: u64) {
    let line = format!("{what} {number}\n");
    std::io::stdout().lock().write_all(line.as_bytes()).expect("somebody listens");
    std::io::stdout().flush().expect("somebody listens");
}

/// Ends only by a signal.
fn write_spans(store: &Store, kind: &str, mut number: u64) {
    loop {
        // So that it flushes, merges and removes at least as much as it appends.
        while store.memory().spans > 128 {
            std::thread::yield_now();
        }
        say('S', number);
        loop {
            let start_nanos = now_nanos();
            let spans =
                (number..number + OF_REQUEST).map(|number| Numbered { number, start_nanos });
            let message = match kind {
                "policy" => Numbered::rollout_message,
                _ => Numbered::message,
            };
            match send(store, request(spans.map(message))) {
                Ok(_) => break,
                Err(Refusal::Overloaded { .. }) => std::thread::yield_now(),
                Err(refusal) => panic!("{refusal}"),
            }
        }
        say('A', number);
        number += OF_REQUEST;
    }
}

// ---- the one who looks ----

#[derive(Clone, Debug, Default)]
struct Said {
    /// First numbers of requests by thread, in their order.
    sent: BTreeMap<u64, Vec<u64>>,
    acknowledged: BTreeMap<u64, Vec<u64>>,
}

fn rehearse(rounds: usize) {
    let mut random = now_nanos();
    let mut next = |below: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) % below
    };
    let (mut acknowledged, mut merged, mut expired) = (0, 0, 0);
    let mut round = 0;
    while round < rounds {
        let kind = ["plain", "retention", "power", "policy"][round / KILLS % 4];
        let folder = support::folder();
        let mut said = Said::default();
        for _ in 0..KILLS.min(rounds - round) {
            let life = Duration::from_micros(1_000 + next(600_000));
            live_and_die(folder.path(), kind, life, &mut said);
            let seen = check(folder.path(), kind, &said);
            println!("round {round}: {kind} {life:?}: {seen:?}");
            merged += seen.merged;
            expired += seen.expired;
            round += 1;
        }
        acknowledged += said.acknowledged.values().map(Vec::len).sum::<usize>();
    }
    if rounds >= 16 {
        assert!(merged > 0 && expired > 0, "{merged} merged, {expired} expired");
    }
    println!(
        "test what_a_killed_store_acknowledged_is_found_once ... ok: {rounds} kills, \
         {acknowledged} requests acknowledged, {merged} merged segments, {expired} expired seen"
    );
}

fn live_and_die(folder: &Path, kind: &str, life: Duration, said: &mut Said) {
    // Behind everything that any life before began.
    let first = said.sent.iter().filter_map(|(thread, sent)| Some(sent.last()? - thread)).max();
    let first = first.map_or(0, |last| last + OF_REQUEST);
    let program = std::env::current_exe().expect("a program");
    let mut child = Command::new(program)
        .args(["--live", folder.to_str().expect("a readable name"), kind, &first.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut pipe = child.stdout.take().expect("a pipe");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).expect("text");
        text
    });
    // Not a wait for something: this is the moment of death.
    std::thread::sleep(Duration::from_millis(20) + life);
    assert!(child.try_wait().expect("it can be asked").is_none(), "it lives until it is killed");
    child.kill().expect("it can be killed");
    child.wait().expect("it can be waited for");
    let text = reader.join().expect("it was read");
    for line in text.lines().filter(|line| line.len() > 2) {
        let number: u64 = line[2..].parse().expect("a number");
        let list = if line.starts_with('A') { &mut said.acknowledged } else { &mut said.sent };
        list.entry(number / OF_THREAD * OF_THREAD).or_default().push(number);
    }
}

/// With a policy: each rollout that was acknowledged has its row, and all its spans unless the row says that they were
/// let go. Returns how many spans are not there.
fn check_marks(snapshot: &Snapshot, found: &BTreeMap<u64, usize>, requests: &[u64]) -> u64 {
    let rows = snapshot.rollout_rows(&Filter::default()).expect("readable");
    let rows: BTreeMap<_, _> = rows.into_iter().map(|row| (row.trace_id, row)).collect();
    let mut missing = 0;
    for first in requests.iter().flat_map(|first| [*first, first + 4]) {
        let row = rows.get(&Numbered { number: first, start_nanos: 0 }.trace_id());
        let row = row.unwrap_or_else(|| panic!("rollout {first} has no row"));
        assert_eq!(row.spans, 4, "a row says what there was: {row:?}");
        let there = (first..first + 4).filter(|number| found.contains_key(number)).count();
        assert!(there == 4 || there == 0 && row.kept == Kept::LetGo, "{there} of {row:?}");
        missing += 4 - there as u64;
    }
    missing
}

#[derive(Debug)]
#[allow(dead_code, reason = "printed")]
struct Seen {
    acknowledged: u64,
    found: u64,
    segments: usize,
    merged: u64,
    expired: u64,
}

fn check(folder: &Path, kind: &str, said: &Said) -> Seen {
    let mut seen = None;
    for attempt in 0..2 {
        let opened = match attempt {
            0 => Store::open_read_only(folder),
            _ => Store::open(folder, Options { background: false, ..options(kind) }),
        };
        let store = match opened {
            // Killed before it was made.
            Err(_) if attempt == 0 && said.acknowledged.is_empty() => continue,
            opened => opened.expect("a store"),
        };
        assert_eq!(store.damage(), []);
        let snapshot = store.snapshot();
        let removed = snapshot.manifest().removed;
        let (mut there, mut acknowledged, mut sent, mut let_go) = (0, 0, 0, 0);
        for (thread, requests) in &said.sent {
            let last = requests.last().expect("not empty") + OF_REQUEST;
            let found = found(&snapshot, *thread..last);
            assert!(found.values().all(|times| *times == 1), "each once");
            there += found.len() as u64;
            sent += requests.len() as u64 * OF_REQUEST;
            let requests = said.acknowledged.get(thread).map_or(&[][..], Vec::as_slice);
            acknowledged += requests.len() as u64 * OF_REQUEST;
            if kind == "policy" {
                let_go += check_marks(&snapshot, &found, requests);
                continue;
            }
            let count = |first: u64| {
                (first..first + OF_REQUEST).filter(|number| found.contains_key(number)).count()
            };
            let counts: Vec<usize> = requests.iter().map(|first| count(*first)).collect();
            let gone = counts.iter().take_while(|count| **count == 0).count();
            assert!(gone == 0 || removed.spans_expired > 0, "{gone} requests are lost (W-1)");
            assert!(
                counts[gone..].iter().all(|count| *count == OF_REQUEST as usize),
                "only the oldest go, and whole requests of a segment (R-1): {counts:?}"
            );
        }
        assert_eq!(rows(&snapshot), there, "no row is there twice (W-2)");
        assert!(let_go <= removed.spans_let_go, "{let_go} spans are missing");
        let accounted = there + removed.spans_expired + removed.spans_let_go;
        assert!(
            accounted >= acknowledged && accounted <= sent,
            "{accounted} {acknowledged} {sent}"
        );
        let segments = &snapshot.manifest().segments;
        seen = Some(Seen {
            acknowledged,
            found: there,
            segments: segments.len(),
            merged: segments.iter().filter(|segment| segment.level > 0).count() as u64,
            expired: removed.segments_expired,
        });
    }
    seen.expect("looked at")
}
