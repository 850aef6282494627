//! What is acknowledged is found whatever the file system does: each of its calls fails once, and for good.
//!
//! Every session writes and reads column files, which takes its time unoptimised, so only every thirteenth call fails
//! here, another one in each test; `LENS_STORE_FAULTS=all` lets each fail.
//!
//! Guarantees: W-1, W-2, S-1.

mod support;

use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use lens_store::store::{Compaction, Durability, FlushOptions, Options, Refusal, Store};
use lens_store::vfs::{RealFiles, Vfs, VfsFile};
use support::{Numbered, append, found, rows};

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Nothing happens.
    Broken,
    /// Nothing more fits.
    Full,
    /// Something happens: a part of a write, all of a rename.
    Torn,
}

#[derive(Debug)]
struct Plan {
    calls: usize,
    fails_at: usize,
    fault: Fault,
    for_good: bool,
    failed: Vec<&'static str>,
}

/// Files that survive the end of the process, and calls that fail as planned.
#[derive(Clone, Debug)]
struct FaultyFiles(Arc<Mutex<Plan>>);

impl FaultyFiles {
    fn new(fails_at: usize, fault: Fault, for_good: bool) -> Self {
        let failed = Vec::new();
        Self(Arc::new(Mutex::new(Plan { calls: 0, fails_at, fault, for_good, failed })))
    }

    fn call<T>(
        &self,
        name: &'static str,
        whole: impl FnOnce() -> io::Result<T>,
        half: impl FnOnce(),
    ) -> io::Result<T> {
        let mut plan = self.0.lock().expect("no panic");
        plan.calls += 1;
        if plan.calls != plan.fails_at && !(plan.for_good && plan.calls > plan.fails_at) {
            drop(plan);
            return whole();
        }
        plan.failed.push(name);
        let fault = plan.fault;
        drop(plan);
        match fault {
            Fault::Broken => {}
            Fault::Full => return Err(io::ErrorKind::StorageFull.into()),
            Fault::Torn => half(),
        }
        Err(io::Error::other("planned"))
    }
}

#[derive(Debug)]
struct FaultyFile {
    files: FaultyFiles,
    file: Arc<dyn VfsFile>,
    /// The next write is a short one.
    is_short: AtomicBool,
}

impl Vfs for FaultyFiles {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        let file = self.call(
            "create",
            || RealFiles.create(path),
            || {
                RealFiles.create(path).ok();
            },
        )?;
        Ok(Arc::new(FaultyFile { files: self.clone(), file, is_short: AtomicBool::new(true) }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        let file = self.call("open", || RealFiles.open(path), || {})?;
        Ok(Arc::new(FaultyFile { files: self.clone(), file, is_short: AtomicBool::new(true) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(
            "rename",
            || RealFiles.rename(from, to),
            || {
                RealFiles.rename(from, to).ok();
            },
        )
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(
            "remove",
            || RealFiles.remove(path),
            || {
                RealFiles.remove(path).ok();
            },
        )
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.call(
            "create_folder",
            || RealFiles.create_folder(path),
            || {
                RealFiles.create_folder(path).ok();
            },
        )
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        self.call("sync_folder", || Ok(()), || {})
    }
}

impl VfsFile for FaultyFile {
    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        // Every other write is a short one: who writes has to go on.
        let first = slices.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice);
        let half = [IoSlice::new(&first[..first.len().div_ceil(2)])];
        let is_short = self.is_short.fetch_xor(true, Ordering::Relaxed);
        let part = if is_short { &half[..] } else { slices };
        let write_half = || drop(self.file.write(&half));
        self.files.call("write", || self.file.write(part), write_half)
    }

    fn sync(&self) -> io::Result<()> {
        self.files.call("sync", || Ok(()), || {})
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        self.files.call("cut", || self.file.cut(bytes), || {})
    }
}

/// What a session says of its requests: which numbers, and whether they were acknowledged.
type Said = Vec<(Range<u64>, Result<(), Refusal>)>;

/// Appends, flushes and merges; goes on after every failure. Not closed: its end is that of a killed process.
fn session(folder: &Path, vfs: FaultyFiles, durability: Durability) -> Said {
    let mut said = Said::new();
    let options = Options {
        vfs: Arc::new(vfs),
        durability,
        background: false,
        wal_file_bytes: 1_200,
        flush: FlushOptions { max_spans: 1, ..FlushOptions::default() },
        compaction: Compaction { max_small_files: 2, ..Compaction::default() },
        ..Options::default()
    };
    let now = options.clock.now_nanos();
    for life in 0..2 {
        let Ok(store) = Store::open(folder, options.clone()) else { continue };
        for step in 0..6 {
            let first = (life * 6 + step) * 3;
            let spans = (first..first + 3).map(|number| Numbered { number, start_nanos: now });
            said.push((first..first + 3, append(&store, spans).map(|_| ())));
            // It may fail: everything stays where it is.
            match step {
                1 | 3 => drop(store.flush()),
                4 => drop(store.maintain()),
                _ => {}
            }
        }
    }
    said
}

fn check(folder: &Path, said: &Said, plan: &str) {
    let last = said.last().map_or(0, |(numbers, _)| numbers.end);
    for attempt in 0..2 {
        let store = match attempt {
            0 => Store::open_read_only(folder),
            _ => Store::open(folder, Options { background: false, ..Options::default() }),
        };
        let store = match store {
            Ok(store) => store,
            // A store that was never made.
            Err(_) if attempt == 0 && !folder.join("manifest.json").exists() => continue,
            Err(error) => panic!("{plan}: {error:?}"),
        };
        let snapshot = store.snapshot();
        let found = found(&snapshot, 0..last);
        assert_eq!(store.damage(), [], "{plan}");
        assert!(found.values().all(|times| *times == 1), "{plan}: {found:?}");
        assert_eq!(rows(&snapshot), found.len() as u64, "{plan}: a row twice (W-2)");
        for (numbers, answer) in said {
            let there = numbers.clone().filter(|number| found.contains_key(number)).count();
            match answer {
                Ok(()) => assert_eq!(there, 3, "{plan}: {numbers:?} was acknowledged (W-1)"),
                // Written, and perhaps not for ever.
                Err(Refusal::Unavailable { .. }) => assert!(there == 0 || there == 3, "{plan}"),
                Err(_) => assert_eq!(there, 0, "{plan}: {numbers:?} was refused"),
            }
        }
    }
}

const ALL: &str = "LENS_STORE_FAULTS";

/// `offset` says which calls fail when not all do.
fn every_call_fails(fault: Fault, for_good: bool, durability: Durability, offset: usize) {
    let all = std::env::var(ALL).is_ok_and(|value| value == "all");
    let (first, step) = if all { (1, 1) } else { (1 + offset, 13) };
    let mut seen = std::collections::BTreeSet::new();
    for fails_at in (first..).step_by(step) {
        let folder = support::folder();
        let path = folder.path().join("store");
        let files = FaultyFiles::new(fails_at, fault, for_good);
        let said = session(&path, files.clone(), durability);
        let plan = files.0.lock().expect("no panic");
        let about = format!("call {fails_at} {fault:?} {:?} {for_good}", plan.failed.first());
        check(&path, &said, &about);
        let Some(first) = plan.failed.first() else {
            assert_eq!(said.len(), 12, "{about}");
            assert!(said.iter().all(|(_, answer)| answer.is_ok()), "{about}");
            break;
        };
        seen.insert(*first);
    }
    assert!(seen.len() > 1, "{seen:?}");
    if all {
        for name in ["create", "write", "sync", "sync_folder", "rename", "remove", "create_folder"]
        {
            assert!(seen.contains(name), "{name} was never called: {seen:?}");
        }
    }
}

#[test]
fn a_call_that_fails_once_costs_nothing_that_was_acknowledged() {
    for (durability, offset) in [(Durability::Process, 0), (Durability::Power, 6)] {
        every_call_fails(Fault::Broken, false, durability, offset);
    }
}

#[test]
fn a_call_that_does_half_of_its_work_costs_nothing_that_was_acknowledged() {
    for (durability, offset) in [(Durability::Process, 3), (Durability::Power, 9)] {
        every_call_fails(Fault::Torn, false, durability, offset);
    }
}

#[test]
fn a_full_disk_costs_nothing_that_was_acknowledged_and_is_told_as_such() {
    for (for_good, offset) in [(false, 1), (true, 7)] {
        every_call_fails(Fault::Full, for_good, Durability::Process, offset);
    }
    let folder = support::folder();
    let files = FaultyFiles::new(usize::MAX, Fault::Full, true);
    let options = Options { vfs: Arc::new(files.clone()), background: false, ..Options::default() };
    let store = Store::open(folder.path(), options).expect("a store");
    let span = |number| Numbered { number, start_nanos: 1 };
    append(&store, [span(0)]).expect("taken");
    files.0.lock().expect("no panic").fails_at = 0;
    let refused = append(&store, [span(1)]);
    assert!(matches!(refused, Err(Refusal::DiskFull { .. })), "{refused:?}");
    store.flush().expect_err("nothing fits");
    assert_eq!(found(&store.snapshot(), 0..2), [(0, 1)].into());
    // Somebody made room.
    files.0.lock().expect("no panic").fails_at = usize::MAX;
    append(&store, [span(1)]).expect("taken");
    store.flush().expect("written");
    assert_eq!(found(&store.snapshot(), 0..2), [(0, 1), (1, 1)].into());
}

#[test]
fn a_file_system_that_breaks_for_good_costs_nothing_that_was_acknowledged() {
    for (fault, offset) in [(Fault::Broken, 4), (Fault::Torn, 11)] {
        every_call_fails(fault, true, Durability::Process, offset);
    }
}
