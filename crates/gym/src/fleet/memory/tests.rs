use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use super::*;

/// A folder that stands for `/proc`.
struct Proc(tempfile::TempDir);

impl Proc {
    fn new() -> Self {
        // Thousands of folders take their time on a disk.
        let in_memory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let proc = Self(in_memory.unwrap());
        proc.write("meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 300 kB\n");
        proc
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn process(&self, pid: u32, parent: u32, group: u32, started: u64) {
        let mut stat = format!("{pid} (a server) S {parent} {group}");
        for _ in 0..16 {
            stat.push_str(" 0");
        }
        writeln!(stat, " {started} 0 0").unwrap();
        self.write(&format!("{pid}/stat"), &stat);
    }

    fn rollup(&self, pid: u32, rss_kib: u64, pss_kib: u64) {
        let text = format!(
            "00400000-7ffe rollup\nRss: {rss_kib:>12} kB\nPss: {pss_kib:>12} kB\nPss_Dirty: 1 kB\n"
        );
        self.write(&format!("{pid}/smaps_rollup"), &text);
    }

    fn statm(&self, pid: u32, resident_pages: u64) {
        self.write(&format!("{pid}/statm"), &format!("9999 {resident_pages} 7 1 0 50 0\n"));
    }

    fn end(&self, pid: u32) {
        fs::remove_dir_all(self.path().join(pid.to_string())).unwrap();
    }
}

/// A report of its own for each test.
struct Own(Mutex<Report>);

impl Own {
    fn of(pids: &[u32]) -> Self {
        let servers = pids.iter().map(|pid| Server::new(&format!("s{pid}"), "kind", *pid));
        Self(Mutex::new(Report { servers: servers.collect(), host: None }))
    }

    fn sample(&self, proc: &Proc) {
        sample(proc.path(), || self.0.lock().unwrap());
    }

    fn usage(&self) -> BTreeMap<String, f64> {
        shown(self.0.lock().unwrap().usage())
    }

    fn take_peaks(&self) -> BTreeMap<String, f64> {
        shown(self.0.lock().unwrap().take_peaks())
    }

    fn processes(&self) -> BTreeMap<String, f64> {
        shown(self.0.lock().unwrap().processes())
    }
}

/// By the values of the attributes.
fn shown(observed: Observations<f64>) -> BTreeMap<String, f64> {
    let name = |attributes: &[(&'static str, Value)]| {
        attributes.iter().map(|(_, value)| value.to_string()).collect::<Vec<_>>().join(" ")
    };
    observed.iter().map(|(attributes, value)| (name(attributes), *value)).collect()
}

fn expected(pairs: &[(&str, u64)]) -> BTreeMap<String, f64> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), *value as f64)).collect()
}

const KIB: u64 = 1024;

#[test]
fn a_server_is_its_process_and_everything_below_it() {
    let proc = Proc::new();
    proc.process(1, 0, 1, 1);
    proc.process(10, 1, 10, 5);
    proc.process(11, 10, 10, 6);
    proc.process(12, 11, 99, 7);
    // Its parent has ended.
    proc.process(13, 1, 10, 8);
    proc.process(20, 1, 20, 9);
    for (pid, rss) in [(1, 5000), (10, 100), (11, 20), (12, 3), (13, 4), (20, 50)] {
        proc.rollup(pid, rss, rss / 2);
    }
    let own = Own::of(&[10, 20]);
    own.sample(&proc);
    assert_eq!(
        own.usage(),
        expected(&[
            ("s10 kind 10 rss", 127 * KIB),
            ("s10 kind 10 pss", 63 * KIB),
            ("s20 kind 20 rss", 50 * KIB),
            ("s20 kind 20 pss", 25 * KIB),
        ])
    );
    assert_eq!(own.processes(), expected(&[("s10 kind 10", 4), ("s20 kind 20", 1)]));
    let report = own.0.lock().unwrap();
    let host = report.host.unwrap();
    assert_eq!((host.total_bytes, host.used_bytes()), (1000 * KIB, 700 * KIB));
    let keys: Vec<_> = report.usage()[0].0.iter().map(|(key, _)| *key).collect();
    assert_eq!(
        keys,
        ["nemo.gym.server.name", "nemo.gym.server.type", "process.pid", "memory.type"]
    );
}

#[test]
fn without_a_rollup_rss_comes_from_statm_and_there_is_no_pss() {
    let proc = Proc::new();
    proc.process(10, 1, 10, 5);
    proc.process(11, 10, 10, 6);
    proc.rollup(10, 100, 60);
    proc.statm(11, 3);
    let own = Own::of(&[10]);
    own.sample(&proc);
    let page = rustix::param::page_size() as u64;
    // PSS of one of two processes would be less than the truth.
    assert_eq!(own.usage(), expected(&[("s10 kind 10 rss", 100 * KIB + 3 * page)]));
}

#[test]
fn the_peak_is_the_most_that_any_sample_showed() {
    let proc = Proc::new();
    proc.process(10, 1, 10, 5);
    let own = Own::of(&[10]);
    for (rss, pss) in [(100, 40), (300, 30), (200, 20)] {
        proc.rollup(10, rss, pss);
        own.sample(&proc);
    }
    let peak = [("s10 kind 10 rss", 300 * KIB), ("s10 kind 10 pss", 40 * KIB)];
    assert_eq!(own.take_peaks(), expected(&peak));
    assert_eq!(own.take_peaks(), expected(&peak), "it is still there");
    assert_eq!(own.usage()["s10 kind 10 rss"], (200 * KIB) as f64);
}

#[test]
fn a_server_that_is_gone_tells_its_peak_once_more_and_is_forgotten() {
    let proc = Proc::new();
    for pid in [10, 20] {
        proc.process(pid, 1, pid, 5);
        proc.rollup(pid, u64::from(pid), 1);
    }
    let own = Own::of(&[10, 20]);
    own.sample(&proc);
    proc.end(10);
    own.sample(&proc);
    assert_eq!(own.processes(), expected(&[("s20 kind 20", 1)]));
    assert!(!own.usage().contains_key("s10 kind 10 rss"));
    assert_eq!(own.take_peaks()["s10 kind 10 rss"], (10 * KIB) as f64);
    assert!(!own.take_peaks().contains_key("s10 kind 10 rss"));
    own.sample(&proc);
    assert_eq!(own.take_peaks().len(), 2, "the other one is still there");
}

#[test]
fn another_process_with_the_number_of_a_server_is_not_the_server() {
    let proc = Proc::new();
    proc.process(10, 1, 10, 5);
    proc.rollup(10, 7, 7);
    let own = Own::of(&[10]);
    own.sample(&proc);
    proc.process(10, 1, 10, 900);
    proc.rollup(10, 5000, 5000);
    own.sample(&proc);
    assert_eq!(own.usage(), BTreeMap::new());
    assert_eq!(own.take_peaks()["s10 kind 10 rss"], (7 * KIB) as f64);
}

#[test]
fn processes_that_end_while_they_are_read_are_no_error() {
    let proc = Proc::new();
    proc.process(10, 1, 10, 5);
    proc.rollup(10, 8, 4);
    // Seen by the walk, gone when its memory is asked for.
    proc.process(11, 10, 10, 6);
    // Ending: it has a line but no memory.
    proc.process(12, 10, 10, 6);
    proc.write("12/smaps_rollup", "");
    proc.statm(12, 0);
    // Gone between the walk and its line, or not readable at all.
    fs::create_dir(proc.path().join("13")).unwrap();
    proc.write("14/stat", "14 (half");
    let own = Own::of(&[10]);
    own.sample(&proc);
    assert_eq!(
        own.usage(),
        expected(&[("s10 kind 10 rss", 8 * KIB), ("s10 kind 10 pss", 4 * KIB)])
    );
    assert_eq!(own.processes(), expected(&[("s10 kind 10", 2)]));
}

/// Guarantees: a moment without a descriptor to spare takes nobody for dead.
#[test]
fn a_walk_that_cannot_be_finished_leaves_the_last_sample() {
    let proc = Proc::new();
    proc.process(10, 1, 10, 5);
    proc.rollup(10, 8, 4);
    let own = Own::of(&[10]);
    own.sample(&proc);
    // It exists and cannot be read, as with too many open files.
    fs::create_dir_all(proc.path().join("11/stat")).unwrap();
    proc.end(10);
    own.sample(&proc);
    assert_eq!(own.usage()["s10 kind 10 rss"], (8 * KIB) as f64);
    proc.end(11);
    own.sample(&proc);
    assert_eq!(own.usage(), BTreeMap::new());
}

/// Guarantees: the walk is one, however many servers there are, and a long chain of processes is no deep recursion.
#[test]
fn thousands_of_processes_are_walked_once_for_all_servers() {
    let proc = Proc::new();
    proc.process(10, 1, 10, 5);
    for pid in 11..2_000 {
        proc.process(pid, pid - 1, 3, 5);
    }
    let table = Table::read(proc.path()).unwrap();
    assert_eq!(table.tree(10).len(), 1_990);
    assert_eq!(table.tree(1_999), [1_999]);
    // A loop, which only a torn read can show, ends.
    proc.process(10, 1_999, 10, 5);
    assert_eq!(Table::read(proc.path()).unwrap().tree(10).len(), 1_990);
}

#[test]
fn this_process_has_memory() {
    let proc = Path::new(PROC);
    let pid = std::process::id();
    let table = Table::read(proc).unwrap();
    assert!(table.started(pid).is_some() && table.tree(pid).contains(&pid));
    let memory = Memory::read(proc, pid).unwrap();
    assert!(memory.rss_bytes > 1 << 20, "{memory:?}");
    assert!(memory.pss_bytes.is_none_or(|pss| pss > 0 && pss <= memory.rss_bytes), "{memory:?}");
}

#[tokio::test]
async fn stopping_takes_a_last_sample_and_waits_for_it() {
    let proc = Proc::new();
    proc.process(10, 1, 10, 5);
    proc.rollup(10, 10, 1);
    let servers = vec![Server::new("s10", "kind", 10)];
    let hour = Duration::from_secs(3600);
    let sampler = Sampler::spawn(servers, hour, proc.path().to_owned()).unwrap();
    while report().usage().is_empty() {
        tokio::task::yield_now().await;
    }
    proc.rollup(10, 30, 1);
    sampler.stop().await;
    assert_eq!(shown(report().usage())["s10 kind 10 rss"], (30 * KIB) as f64);
}

#[test]
fn other_systems_are_told_that_they_are_not_supported() {
    let said = RefCell::new(Vec::new());
    let say = |text: &str| said.borrow_mut().push(text.to_owned());
    assert!(start_on("macos", Vec::new(), Duration::from_secs(1), say).is_none());
    assert_eq!(said.into_inner(), [UNSUPPORTED]);
}
