//! `gym store info|files|verify|compact|replay`.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;

use anyhow::Context as _;
use lens_store::manifest::{FileEntry, SegmentEntry, Table};
use lens_store::store::{DAMAGED, Options, Snapshot, Store};
use lens_store::trace::timestamp;
use serde_json::{Value, json};

use super::store_replay;
use crate::args::{StoreCommand, StoreCompactArgs, StoreFilesArgs, StoreInfoArgs, StoreVerifyArgs};
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::render::Advise as _;
use crate::trace::{Align, Canvas, counted, table};

/// Runs one of the commands.
pub fn run(command: &StoreCommand, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    match command {
        StoreCommand::Info(args) => info(args, printer),
        StoreCommand::Files(args) => files(args, printer),
        StoreCommand::Verify(args) => verify(args, printer),
        StoreCommand::Compact(args) => compact(args, printer),
        StoreCommand::Replay(args) => store_replay::run(args, printer),
    }
}

pub(super) fn open(dir: &Path) -> Result<Store, anyhow::Error> {
    Store::open_read_only(dir).with_context(|| format!("cannot open the store {}", dir.display()))
}

/// Every file that counts, with the segment that it is of.
fn entries(snapshot: &Snapshot) -> impl Iterator<Item = (&SegmentEntry, &FileEntry)> {
    let segments = snapshot.manifest().segments.iter();
    segments.flat_map(|segment| segment.files.iter().map(move |file| (segment, file)))
}

fn info(args: &StoreInfoArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    let store = open(&args.dir)?;
    let snapshot = store.snapshot();
    let manifest = snapshot.manifest();
    let sum = |table: Table, of: fn(&FileEntry) -> u64| -> u64 {
        entries(&snapshot).filter(|(_, file)| file.table == table).map(|(_, file)| of(file)).sum()
    };
    let files: Vec<(Table, u64, u64)> = Table::ALL
        .into_iter()
        .map(|table| (table, sum(table, |file| file.rows), sum(table, |file| file.bytes)))
        .collect();
    let starts = manifest.segments.iter().map(|segment| segment.min_start_nanos).min();
    let ends = manifest.segments.iter().map(|segment| segment.max_start_nanos).max();
    let (removed, memory) = (manifest.removed, store.memory());
    let is_written = Store::is_written(&args.dir);
    let damage: Vec<String> = store.damage().iter().map(ToString::to_string).collect();
    if args.json {
        let tables: serde_json::Map<String, Value> = files
            .iter()
            .map(|(table, rows, bytes)| {
                (table.folder().to_owned(), json!({ "rows": rows, "bytes": bytes }))
            })
            .collect();
        let document = json!({
            "dir": args.dir,
            "written_now": is_written,
            "segments": manifest.segments.len(),
            "tables": tables,
            "first_start_unix_nano": starts,
            "last_start_unix_nano": ends,
            "spans_in_log": memory.spans,
            "removed": removed,
            "damage": damage,
        });
        printer.data(&document.to_string())?;
        return Ok(ExitStatus::Done);
    }
    let mut text = format!(
        "{}: {}{}\n",
        args.dir.display(),
        counted(manifest.segments.len(), "segment", "segments"),
        if is_written { ", being written now" } else { "" }
    );
    if let (Some(first), Some(last)) = (starts, ends) {
        let (first, last) = (timestamp::to_readable(first), timestamp::to_readable(last));
        text.push_str(&format!("spans from {first} to {last} UTC\n"));
    }
    text.push_str(&format!("in the log, not yet in files: {} spans\n\n", memory.spans));
    let rows: Vec<Vec<String>> = files
        .iter()
        .filter(|(_, rows, bytes)| rows + bytes > 0)
        .map(|(table, rows, bytes)| {
            vec![table.folder().to_owned(), rows.to_string(), bytes.to_string()]
        })
        .collect();
    let header = [("TABLE", Align::Left), ("ROWS", Align::Right), ("BYTES", Align::Right)];
    text.push_str(&table(&Canvas::of(printer), &header, &rows, 0));
    for (count, what) in [
        (removed.rollouts_let_go, "rollouts whose spans were let go"),
        (removed.spans_let_go, "spans let go"),
        (removed.spans_repeated, "spans that had arrived more than once"),
        (removed.spans_expired, "spans removed by retention"),
        (removed.segments_damaged, "segments set aside because they could not be read"),
    ] {
        if count > 0 {
            text.push_str(&format!("{count} {what}\n"));
        }
    }
    printer.data(text.trim_end())?;
    for damage in damage {
        printer.warn(&damage);
    }
    Ok(ExitStatus::Done)
}

fn files(args: &StoreFilesArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    let store = open(&args.dir)?;
    let snapshot = store.snapshot();
    let listed = entries(&snapshot).map(|(segment, file)| {
        (args.dir.join(segment.path(file.table)), file.table.folder(), file.rows, file.bytes)
    });
    if args.json {
        let listed: Vec<Value> = listed
            .map(|(path, table, rows, bytes)| {
                json!({ "path": path, "table": table, "rows": rows, "bytes": bytes })
            })
            .collect();
        printer.data(&json!({ "files": listed }).to_string())?;
        return Ok(ExitStatus::Done);
    }
    let paths: Vec<String> = listed.map(|(path, ..)| path.display().to_string()).collect();
    if !paths.is_empty() {
        printer.data(&paths.join("\n"))?;
    }
    printer.say(&counted(paths.len(), "file", "files"));
    Ok(ExitStatus::Done)
}

/// What is wrong with a file.
fn fault(path: &Path, entry: &FileEntry) -> Option<String> {
    let checked = || -> std::io::Result<(u64, u32)> {
        let mut reader = BufReader::with_capacity(1 << 20, File::open(path)?);
        let (mut bytes, mut checksum) = (0, 0);
        let mut buffer = vec![0; 1 << 20];
        loop {
            match reader.read(&mut buffer)? {
                0 => return Ok((bytes, checksum)),
                count => {
                    bytes += count as u64;
                    checksum = lens_store::checksum_append(checksum, &buffer[..count]);
                }
            }
        }
    };
    match checked() {
        Err(error) => Some(error.to_string()),
        Ok((bytes, _)) if bytes != entry.bytes => {
            Some(format!("it has {bytes} bytes, not {}", entry.bytes))
        }
        Ok((_, checksum)) if checksum != entry.crc32c => {
            Some("its content is not what was written".to_owned())
        }
        Ok(_) => None,
    }
}

fn verify(args: &StoreVerifyArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    let store = open(&args.dir)?;
    let snapshot = store.snapshot();
    let mut count = 0;
    let mut faults: Vec<(String, String)> =
        store.damage().into_iter().map(|d| (d.path.display().to_string(), d.reason)).collect();
    for (segment, entry) in entries(&snapshot) {
        count += 1;
        let path = args.dir.join(segment.path(entry.table));
        if let Some(reason) = fault(&path, entry) {
            faults.push((path.display().to_string(), reason));
        }
    }
    let set_aside = snapshot.manifest().removed.segments_damaged;
    faults.sort();
    faults.dedup_by(|a, b| a.0 == b.0);
    if args.json {
        let faults: Vec<Value> =
            faults.iter().map(|(path, reason)| json!({ "path": path, "reason": reason })).collect();
        let document = json!({ "files": count, "faults": faults, "segments_set_aside": set_aside });
        printer.data(&document.to_string())?;
    } else {
        for (path, reason) in &faults {
            printer.data(&format!("{path}: {reason}"))?;
        }
    }
    if set_aside > 0 {
        let lost = counted(usize::try_from(set_aside).unwrap_or(usize::MAX), "segment", "segments");
        let aside = args.dir.join(DAMAGED);
        printer.warn(&format!("{lost} set aside earlier: what is in {} is lost", aside.display()));
    }
    printer.say(&format!(
        "{} and the log checked, {}",
        counted(count, "file", "files"),
        if faults.is_empty() {
            "all as written".to_owned()
        } else {
            format!("{} not as written", faults.len())
        }
    ));
    Ok(if faults.is_empty() { ExitStatus::Done } else { ExitStatus::Negative })
}

fn compact(args: &StoreCompactArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    // Opening to write makes a store where there is none; a mistyped folder must not become one.
    drop(open(&args.dir)?);
    let options = Options { background: false, ..Options::default() };
    let store = Store::open(&args.dir, options)
        .with_context(|| format!("cannot write the store {}", args.dir.display()))
        .advise(|| "end the `gym observe` that writes it; it merges files by itself".to_owned())?;
    store.flush()?;
    let merged = store.compact()?;
    let left = store.snapshot().manifest().segments.len();
    let damage = store.damage();
    store.close()?;
    printer
        .say(&format!("merged {}; there are {left} now", counted(merged, "segment", "segments")));
    for damaged in &damage {
        printer.warn(&format!("left out: {damaged}"));
    }
    Ok(if damage.is_empty() { ExitStatus::Done } else { ExitStatus::Negative })
}
