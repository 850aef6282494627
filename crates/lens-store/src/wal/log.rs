//! The writing end of the log.
//!
//! A frame that could not be written whole is cut off again before anything follows it; while that fails too,
//! nothing is written. So there is never a torn frame but at the end of the last file.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{Encoding, Head, MAGIC, MAX_BODY_BYTES, Signal};
use crate::vfs::{Vfs, VfsFile, write_all};

/// A file that takes no more frames.
#[derive(Debug)]
struct Closed {
    path: PathBuf,
    bytes: u64,
    last_seq: u64,
}

#[derive(Debug)]
struct Current {
    file: Arc<dyn VfsFile>,
    path: PathBuf,
    bytes: u64,
    last_seq: u64,
    /// A part of a frame follows `bytes`.
    is_torn: bool,
}

/// The log of the one writer.
#[derive(Debug)]
pub(crate) struct Log {
    vfs: Arc<dyn Vfs>,
    folder: PathBuf,
    max_file_bytes: u64,
    next_number: u64,
    next_seq: u64,
    current: Option<Current>,
    /// Oldest first.
    closed: Vec<Closed>,
    /// Closed files that `fdatasync` has not seen.
    unsynced: Vec<Arc<dyn VfsFile>>,
}

impl Log {
    /// A log that goes on after `last_seq`; it makes its first file when it gets its first frame.
    pub(crate) fn new(
        vfs: Arc<dyn Vfs>,
        folder: &Path,
        max_file_bytes: u64,
        last_number: u64,
        last_seq: u64,
    ) -> Self {
        Self {
            vfs,
            folder: folder.to_owned(),
            max_file_bytes,
            next_number: last_number + 1,
            next_seq: last_seq + 1,
            current: None,
            closed: Vec::new(),
            unsynced: Vec::new(),
        }
    }

    /// A file of an earlier writer that still holds something.
    pub(crate) fn add_closed(&mut self, path: PathBuf, bytes: u64, last_seq: u64) {
        self.closed.push(Closed { path, bytes, last_seq });
    }

    /// Writes a request; returns its number. Nothing of it is there when this fails.
    pub(crate) fn append(
        &mut self,
        signal: Signal,
        encoding: Encoding,
        arrived_nanos: u64,
        body: &[u8],
    ) -> io::Result<u64> {
        if body.len() > MAX_BODY_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if self.current.as_ref().is_some_and(|current| current.bytes >= self.max_file_bytes) {
            self.rotate();
        }
        let seq = self.next_seq;
        let current = self.writable()?;
        let head = Head { seq, arrived_nanos, signal, encoding }.encode(body);
        let slices = &mut [IoSlice::new(&head), IoSlice::new(body)];
        if let Err(error) = write_all(current.file.as_ref(), slices) {
            current.is_torn = true;
            current.mend().ok();
            return Err(error);
        }
        current.bytes += (head.len() + body.len()) as u64;
        current.last_seq = seq;
        self.next_seq += 1;
        Ok(seq)
    }

    /// The file for the next frame, without a part of another at its end.
    fn writable(&mut self) -> io::Result<&mut Current> {
        if self.current.is_none() {
            self.current = Some(self.create()?);
            self.next_number += 1;
        }
        let current = self.current.as_mut().ok_or(io::ErrorKind::NotFound)?;
        current.mend()?;
        Ok(current)
    }

    fn create(&self) -> io::Result<Current> {
        let path = self.folder.join(format!("{:010}.wal", self.next_number));
        let file = self.vfs.create(&path)?;
        let made = write_all(file.as_ref(), &mut [IoSlice::new(&MAGIC)])
            .and_then(|()| self.vfs.sync_folder(&self.folder));
        if let Err(error) = made {
            // Overwritten by the next attempt if it stays.
            self.vfs.remove(&path).ok();
            return Err(error);
        }
        let bytes = MAGIC.len() as u64;
        Ok(Current { file, path, bytes, last_seq: 0, is_torn: false })
    }

    /// Ends the current file; the next frame begins another. One that is torn stays until it is mended.
    pub(crate) fn rotate(&mut self) {
        let is_done = |current: &mut Current| current.last_seq > 0 && !current.is_torn;
        if let Some(Current { file, path, bytes, last_seq, .. }) = self.current.take_if(is_done) {
            self.unsynced.push(file);
            self.closed.push(Closed { path, bytes, last_seq });
        }
    }

    /// Removes files whose frames all are committed elsewhere.
    pub(crate) fn drop_through(&mut self, watermark: u64) {
        let vfs = Arc::clone(&self.vfs);
        self.closed.retain(|file| file.last_seq > watermark || vfs.remove(&file.path).is_err());
    }

    /// Files with frames that may not survive a loss of power, and the last number among all frames.
    pub(crate) fn take_unsynced(&mut self) -> (Vec<Arc<dyn VfsFile>>, u64) {
        let mut files = std::mem::take(&mut self.unsynced);
        files.extend(self.current.as_ref().map(|current| Arc::clone(&current.file)));
        (files, self.last_seq())
    }

    /// Number of the newest frame.
    pub(crate) fn last_seq(&self) -> u64 {
        self.next_seq - 1
    }

    /// Bytes of all its files.
    pub(crate) fn bytes(&self) -> u64 {
        let current = self.current.as_ref().map_or(0, |current| current.bytes);
        current + self.closed.iter().map(|file| file.bytes).sum::<u64>()
    }
}

impl Current {
    fn mend(&mut self) -> io::Result<()> {
        if self.is_torn {
            self.file.cut(self.bytes)?;
            self.is_torn = false;
        }
        Ok(())
    }
}
