//! What a killed process had ended arrives, once; what it had open arrives, truncated.
//!
//! This program is its own subject: it starts itself as a process that writes spans until it is killed, and again as
//! the one that ships what was left. A span counts as ended once `Span::end` has returned; the killed process says so
//! in a file, one write for each span, which no signal takes back. `LENS_CRASH_ROUNDS` says how often (5).

#![allow(clippy::print_stdout, reason = "it reports itself")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use lens::config::{BatchSettings, ExporterKind, LensConfig, Protocol, SpoolSettings};
use lens::{Group, Span, TelemetryHandle};
use lens_testing::{CollectedSpan, OtlpSink, decode, free_port};
use serde_json::Value;

static JOB: Group = Group::new("job").long_lived();
static ROLLOUT: Group = Group::new("rollout").long_lived();
static WORK: Group = Group::new("work");
static GROUPS: &[&Group] = &[&JOB, &ROLLOUT, &WORK];

const ROUNDS: &str = "LENS_CRASH_ROUNDS";
const NUMBER: &str = "number";
/// What the journal says of a span.
const OPENED: char = 'O';
const ENDED: char = 'E';

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--live", folder, endpoint, slots] => live(Path::new(folder), endpoint, slots),
        ["--recover", folder, endpoint] => recover(Path::new(folder), endpoint),
        _ => {
            let rounds = std::env::var(ROUNDS).ok().and_then(|text| text.parse().ok()).unwrap_or(5);
            rehearse(rounds);
        }
    }
}

// ---- the process that is killed ----

fn config(folder: &Path, endpoint: &str) -> LensConfig {
    lens::register("crash", GROUPS, &[]);
    let mut config = LensConfig {
        enabled: true,
        service_name: "crash".to_owned(),
        span_groups: "all".to_owned(),
        metrics_exporter: ExporterKind::None,
        spool: SpoolSettings {
            ring_folder: Some(folder.join("rings")),
            overflow_folder: Some(folder.join("overflow")),
            run_id: "run".to_owned(),
            ships_dead: false,
        },
        ..LensConfig::default()
    };
    config.traces_otlp.endpoint = format!("{endpoint}/v1/traces");
    config.traces_otlp.protocol = Protocol::HttpProtobuf;
    config.traces_otlp.timeout = Duration::from_secs(5);
    config
}

fn live(folder: &Path, endpoint: &str, slots: &str) {
    let slots: usize = slots.parse().expect("a number");
    let mut config = config(folder, endpoint);
    config.batch = BatchSettings {
        max_queue_bytes: slots * (64 << 10),
        max_batch_bytes: 128 << 10,
        schedule_delay: Duration::from_millis(10),
        ..BatchSettings::default()
    };
    let handle = lens::setup_telemetry(config).expect("telemetry starts");
    assert_eq!(handle.warnings(), Vec::<String>::new());
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let handle = &handle;
            scope.spawn(move || write_spans(thread, &Journal::create(folder, thread), handle));
        }
    });
}

struct Journal(File);

impl Journal {
    fn create(folder: &Path, thread: usize) -> Self {
        let path = folder.join(format!("journal-{thread}"));
        Self(OpenOptions::new().create(true).append(true).open(path).expect("a journal"))
    }

    fn say(&self, what: char, span: &str) {
        let line = format!("{what} {span}\n");
        (&self.0).write_all(line.as_bytes()).expect("the journal takes it");
    }
}

fn key(span: &Span) -> String {
    let context = span.context();
    format!("{}/{}", context.trace_id(), context.span_id())
}

/// One job, rollouts below it, three of them open at any time, short spans all along. Ends only by a signal.
fn write_spans(thread: usize, journal: &Journal, handle: &TelemetryHandle) {
    let job = open(journal, Span::start(&JOB, "job"));
    let mut rollouts = Vec::new();
    for number in 0_u64.. {
        if number % 64 == 0 {
            rollouts.insert(0, open(journal, Span::start(&ROLLOUT, "rollout")));
            if rollouts.len() > 3 {
                end(journal, rollouts.pop().expect("a rollout"));
            }
        }
        if number % 16 == 0 {
            make_room(handle);
        }
        let mut span = Span::start(&WORK, "work");
        span.set(NUMBER, number);
        span.set("thread", thread);
        span.set("padding", "some words, so that a slot does not hold thousands of spans");
        end(journal, span);
    }
    end(journal, job);
}

fn open(journal: &Journal, span: Span) -> Span {
    journal.say(OPENED, &key(&span));
    span
}

fn end(journal: &Journal, span: Span) {
    let key = key(&span);
    span.end();
    journal.say(ENDED, &key);
}

/// A full ring drops spans and counts them, which is not what is shown here.
fn make_room(handle: &TelemetryHandle) {
    loop {
        let snapshot = handle.snapshot();
        assert_eq!(snapshot.dropped, [], "nothing may be dropped while this is measured");
        assert_eq!(snapshot.unrecorded, 0, "every open span has its record");
        if snapshot.buffer_fill < 0.7 {
            return;
        }
        std::thread::yield_now();
    }
}

// ---- the process that ships what was left ----

fn recover(folder: &Path, endpoint: &str) {
    let mut config = config(folder, endpoint);
    config.batch.max_queue_bytes = 64 << 10;
    config.batch.max_batch_bytes = 128 << 10;
    let handle = lens::setup_telemetry(config).expect("telemetry starts");
    assert!(handle.adopt_dead(Duration::from_secs(20)));
    assert!(handle.force_flush(Duration::from_secs(20)), "{:?}", handle.snapshot());
    assert_eq!(handle.snapshot().unrecovered, 0);
    assert!(handle.shutdown(Duration::from_secs(20)));
}

// ---- the one who looks ----

/// What differs between rounds.
#[derive(Clone, Copy, Debug)]
struct Round {
    is_collector_up: bool,
    slots: usize,
    recoverers: usize,
    kills_a_recoverer: bool,
    life: Duration,
}

#[derive(Debug, Default)]
struct Seen {
    ended: usize,
    open: usize,
    twice: usize,
}

fn rehearse(rounds: usize) {
    let mut random = lens::now_unix_nanos();
    let mut next = |below: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) % below
    };
    let mut total = Seen::default();
    for at in 0..rounds {
        let round = Round {
            is_collector_up: at % 2 == 0,
            slots: if at % 4 < 2 { 256 } else { 12 },
            recoverers: 1 + at % 5 / 3,
            kills_a_recoverer: at % 5 == 1,
            life: Duration::from_micros(1_000 + next(300_000)),
        };
        let seen = rehearse_one(round, next(8_000));
        println!("round {at}: {round:?}: {seen:?}");
        total.ended += seen.ended;
        total.open += seen.open;
        total.twice += seen.twice;
    }
    println!(
        "test what_a_killed_process_ended_arrives ... ok: {rounds} rounds, {total:?}, none lost"
    );
}

fn start(arguments: &[&str]) -> Child {
    let program = std::env::current_exe().expect("a program");
    Command::new(program).args(arguments).spawn().expect("it starts")
}

/// Ends a process as nothing can prevent.
fn kill(mut child: Child) {
    child.kill().expect("it can be killed");
    child.wait().expect("it can be waited for");
}

fn rehearse_one(round: Round, recoverer_micros: u64) -> Seen {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("a readable name");
    let sink = OtlpSink::start().expect("a sink");
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let up = sink.http_endpoint();
    let endpoint = if round.is_collector_up { &up } else { &nowhere };

    let child = start(&["--live", path, endpoint, &round.slots.to_string()]);
    wait_for("the first span", || {
        journals(folder.path()).iter().filter(|text| text.contains(ENDED)).count() == 2
    });
    // Not a wait for something: this is the moment of death.
    std::thread::sleep(round.life);
    kill(child);

    if round.kills_a_recoverer {
        let recoverer = start(&["--recover", path, &up]);
        std::thread::sleep(Duration::from_micros(recoverer_micros));
        kill(recoverer);
    }
    let recoverers: Vec<Child> =
        (0..round.recoverers).map(|_| start(&["--recover", path, &up])).collect();
    for mut recoverer in recoverers {
        assert!(recoverer.wait().expect("it can be waited for").success(), "{round:?}");
    }
    let left: Vec<_> = lens::spools(&folder.path().join("rings"));
    assert!(left.is_empty(), "{round:?}: {left:?}");
    let left = lens::leftovers(&folder.path().join("overflow"));
    assert!(left.is_empty(), "{round:?}: {left:?}");
    check(round, folder.path(), &sink)
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn journals(folder: &Path) -> Vec<String> {
    let read = |thread| fs::read_to_string(folder.join(format!("journal-{thread}")));
    (0..2).filter_map(|thread| read(thread).ok()).collect()
}

/// Spans of the journal by what is said of them; a line that was cut by the death says nothing.
fn said(folder: &Path, what: char) -> BTreeSet<String> {
    let whole = |text: &String| text.rfind('\n').map(|end| text[..end].to_owned());
    let texts: Vec<String> = journals(folder).iter().filter_map(whole).collect();
    texts
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| line.strip_prefix(what).map(|span| span.trim().to_owned()))
        .collect()
}

fn check(round: Round, folder: &Path, sink: &OtlpSink) -> Seen {
    let mut spans: BTreeMap<String, Vec<CollectedSpan>> = BTreeMap::new();
    let mut requests: Vec<BTreeSet<String>> = Vec::new();
    let mut times: HashMap<String, usize> = HashMap::new();
    for request in sink.requests() {
        let found = decode(&request.body).expect("a request");
        let keys: BTreeSet<String> =
            found.iter().map(|span| format!("{}/{}", span.trace_id, span.span_id)).collect();
        assert_eq!(keys.len(), found.len(), "{round:?}: a request holds no span twice");
        for span in found {
            let key = format!("{}/{}", span.trace_id, span.span_id);
            *times.entry(key.clone()).or_default() += 1;
            spans.entry(key).or_default().push(span);
        }
        requests.push(keys);
    }
    let (ended, opened) = (said(folder, ENDED), said(folder, OPENED));
    let missing: Vec<&String> = ended.iter().filter(|key| !spans.contains_key(*key)).collect();
    assert!(missing.is_empty(), "{round:?}: {} of {} lost", missing.len(), ended.len());

    let is_truncated = |span: &CollectedSpan| {
        span.attributes.get(lens::semconv::TRUNCATED) == Some(&Value::Bool(true))
    };
    for (key, copies) in &spans {
        assert!(copies.iter().all(|copy| copy == &copies[0]), "{round:?}: {key} in two forms");
        assert_eq!(copies[0].service(), "crash");
        assert_eq!(copies[0].scope, "crash");
        if ended.contains(key) {
            assert!(!is_truncated(&copies[0]), "{round:?}: {key} had ended: {copies:?}");
        }
    }
    let mut open = 0;
    for key in opened.difference(&ended) {
        let copies = spans.get(key).unwrap_or_else(|| panic!("{round:?}: open {key} is missing"));
        // It may have ended without having said so: between `end` and the journal.
        if is_truncated(&copies[0]) {
            assert!(copies[0].end_nanos >= copies[0].start_nanos);
            let event = copies[0].events.last().expect("it says when it was cut off");
            assert_eq!(event.name, lens::semconv::TRUNCATED);
            assert_eq!(event.unix_nanos, copies[0].end_nanos);
            open += 1;
        }
    }
    assert!(open >= 2, "{round:?}: two jobs were open, {open} arrived");

    let twice: BTreeSet<String> =
        times.into_iter().filter(|(_, times)| *times > 1).map(|(key, _)| key).collect();
    // One request was in flight at each kill, where somebody took it.
    let explained = usize::from(round.is_collector_up) + usize::from(round.kills_a_recoverer);
    let mut unexplained = twice.clone();
    for _ in 0..explained {
        let best = requests.iter().max_by_key(|request| request.intersection(&unexplained).count());
        if let Some(request) = best {
            unexplained.retain(|key| !request.contains(key));
        }
    }
    assert!(
        unexplained.is_empty(),
        "{round:?}: {} of {} spans twice",
        unexplained.len(),
        twice.len()
    );
    Seen { ended: ended.len(), open, twice: twice.len() }
}
