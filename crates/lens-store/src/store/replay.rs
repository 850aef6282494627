//! Reading a log back into memory: the path of ingest, with what was acknowledged before.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::DAMAGED;
use super::append::{Taken, take_apart};
use super::error::{Damage, StoreError, at};
use super::memory::Memory;
use super::options::Options;
use crate::vfs::{Sink, Vfs};
use crate::wal::{self, Encoding, FrameView, Log, read_file, to_protobuf, wal_files};

/// A file of a log that was read.
#[derive(Debug)]
pub(super) struct ReadFile {
    path: PathBuf,
    pub(super) number: u64,
    good_bytes: u64,
    torn_bytes: u64,
    /// 0 when it has no frames.
    last_seq: u64,
}

/// Something in a log that cannot be read.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) damage: Damage,
    /// What is there instead, and the name under which it is set aside.
    content: Option<(String, Bytes)>,
}

#[derive(Debug, Default)]
pub(super) struct Replayed {
    pub(super) files: Vec<ReadFile>,
    pub(super) last_seq: u64,
    pub(super) broken: Vec<Broken>,
}

/// Puts what the log holds after the watermark into memory.
pub(super) fn replay(
    store: &Path,
    watermark: u64,
    options: &Options,
    memory: &Memory,
) -> Result<Replayed, StoreError> {
    let folder = store.join(wal::FOLDER);
    let files = wal_files(&folder).map_err(at("read", &folder))?;
    let mut replayed = Replayed { last_seq: watermark, ..Replayed::default() };
    for (index, file) in files.iter().enumerate() {
        let is_last = index + 1 == files.len();
        // Those of the first file may all be committed.
        let after = if index == 0 { 0 } else { replayed.last_seq };
        let content = read_file(&file.path, after, is_last).map_err(at("read", &file.path))?;
        for damage in &content.damage {
            let name = file.path.file_name().unwrap_or_default().to_string_lossy();
            let reason = format!("{} bytes at {} are no frames", damage.bytes.len(), damage.offset);
            replayed.broken.push(Broken {
                damage: Damage { path: file.path.clone(), reason },
                content: Some((format!("{name}@{}", damage.offset), damage.bytes.clone())),
            });
        }
        let is_damaged = !content.damage.is_empty();
        let mut last_seq = 0;
        for frame in content.frames {
            last_seq = frame.seq;
            if frame.seq <= replayed.last_seq {
                continue;
            }
            if frame.seq > replayed.last_seq + 1 && !is_damaged {
                let (from, to) = (replayed.last_seq + 1, frame.seq - 1);
                let reason = format!("requests {from} to {to} are missing before it");
                let damage = Damage { path: file.path.clone(), reason };
                replayed.broken.push(Broken { damage, content: None });
            }
            replayed.last_seq = frame.seq;
            if let Err(reason) = take(&frame, options, memory) {
                let reason = format!("request {} cannot be read: {reason}", frame.seq);
                replayed.broken.push(Broken {
                    damage: Damage { path: file.path.clone(), reason },
                    content: Some((format!("request-{}", frame.seq), frame.body)),
                });
            }
        }
        replayed.files.push(ReadFile {
            path: file.path.clone(),
            number: file.number,
            good_bytes: content.good_bytes,
            torn_bytes: content.torn_bytes,
            last_seq,
        });
    }
    Ok(replayed)
}

fn take(frame: &FrameView, options: &Options, memory: &Memory) -> Result<(), String> {
    let FrameView { seq, arrived_nanos, signal, encoding, body } = frame;
    // A limit that was lowered since does not undo an acknowledgement.
    let limit = if *encoding == Encoding::PROTOBUF { usize::MAX } else { 1 << 30 };
    let limit = limit.max(options.max_request_bytes);
    let request =
        to_protobuf(*signal, *encoding, body, limit).map_err(|error| error.to_string())?;
    let Taken { mut batch, .. } =
        take_apart(*signal, &request).map_err(|error| error.to_string())?;
    batch.set_seq(*seq);
    memory.push(batch, *seq, *arrived_nanos, request.len());
    Ok(())
}

impl ReadFile {
    /// Makes a file that was read a part of the log that goes on.
    pub(super) fn keep(self, vfs: &Arc<dyn Vfs>, log: &mut Log) -> Result<(), StoreError> {
        if self.last_seq == 0 {
            return vfs.remove(&self.path).map_err(at("removed", &self.path));
        }
        if self.torn_bytes > 0 {
            // Files that follow would make damage of it.
            let cut = vfs
                .open(&self.path)
                .and_then(|file| file.cut(self.good_bytes).and_then(|()| file.sync()));
            cut.map_err(at("cut", &self.path))?;
        }
        log.add_closed(self.path, self.good_bytes, self.last_seq);
        Ok(())
    }
}

/// Keeps what could not be read for those who want to look at it. What cannot be kept is named all the same.
pub(super) fn set_aside(vfs: &Arc<dyn Vfs>, store: &Path, broken: &[Broken]) {
    let folder = store.join(DAMAGED);
    for (name, bytes) in broken.iter().filter_map(|broken| broken.content.as_ref()) {
        let write = || -> io::Result<()> {
            vfs.create_folder(&folder)?;
            io::Write::write_all(&mut Sink::new(vfs.create(&folder.join(name))?), bytes)
        };
        write().ok();
    }
}
