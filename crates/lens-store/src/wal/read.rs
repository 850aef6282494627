//! The reading end of the log.
//!
//! What is broken in a file is passed over, named, and the frames after it are read. Only a broken end of the last
//! file is nobody's damage: its writer died over it, before it acknowledged the frame.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::frame::{Encoding, Head, MAGIC, Signal};

/// A file of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WalFile {
    pub(crate) path: PathBuf,
    pub(crate) number: u64,
}

/// One request of the log.
#[derive(Clone, Debug)]
pub struct FrameView {
    /// Its number.
    pub seq: u64,
    /// When it was received, Unix nanoseconds.
    pub arrived_nanos: u64,
    /// What it carries.
    pub signal: Signal,
    /// What the body is.
    pub encoding: Encoding,
    /// As received.
    pub body: Bytes,
}

/// Bytes of a file that are no frames and should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where they begin.
    pub offset: u64,
    /// How many.
    pub bytes: Bytes,
}

/// What a file holds.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) frames: Vec<FrameView>,
    pub(crate) damage: Vec<Damage>,
    /// Bytes up to the end of the last frame.
    pub(crate) good_bytes: u64,
    /// Bytes after that, which nobody acknowledged.
    pub(crate) torn_bytes: u64,
}

/// The files of a log, oldest first.
pub(crate) fn wal_files(folder: &Path) -> io::Result<Vec<WalFile>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number = name.strip_suffix(".wal").and_then(|number| number.parse().ok());
        files.extend(number.map(|number| WalFile { path, number }));
    }
    files.sort_by_key(|file| file.number);
    Ok(files)
}

/// Reads a file whose frames follow `last_seq`. `is_last` says that a writer may have died over its end.
pub(crate) fn read_file(path: &Path, last_seq: u64, is_last: bool) -> io::Result<Content> {
    Ok(read(&fs::read(path)?.into(), last_seq, is_last))
}

fn read(file: &Bytes, mut last_seq: u64, is_last: bool) -> Content {
    let mut content = Content::default();
    let mut at = if file.starts_with(&MAGIC) { MAGIC.len() } else { 0 };
    content.good_bytes = at as u64;
    // Where bytes began that are no frame.
    let mut bad_from = (at == 0).then_some(0);
    while at < file.len() {
        let is_plausible = bad_from.is_none() || Head::follows(&file[at..], last_seq);
        let found = is_plausible.then(|| Head::decode(&file[at..])).flatten();
        let Some((head, length)) = found else {
            bad_from.get_or_insert(at);
            at += 1;
            continue;
        };
        if let Some(from) = bad_from.take() {
            content.damage.push(Damage { offset: from as u64, bytes: file.slice(from..at) });
        }
        let body = file.slice(at + super::frame::HEAD_BYTES..at + length);
        let Head { seq, arrived_nanos, signal, encoding } = head;
        content.frames.push(FrameView { seq, arrived_nanos, signal, encoding, body });
        last_seq = seq;
        at += length;
        content.good_bytes = at as u64;
    }
    match bad_from {
        Some(from) if !is_last => {
            content.damage.push(Damage { offset: from as u64, bytes: file.slice(from..) });
        }
        Some(_) => content.torn_bytes = file.len() as u64 - content.good_bytes,
        None => {}
    }
    content
}
