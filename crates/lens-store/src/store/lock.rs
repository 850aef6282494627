//! One writer for each store: a lock on a file for as long as it lives.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::error::{StoreError, at};

const NAME: &str = "LOCK";

/// Held by the writer; the kernel takes it back when the process is gone.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock, or says who has it.
    pub(super) fn take(store: &Path) -> Result<Self, StoreError> {
        let path = store.join(NAME);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(at("opened", &path))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            // What it says is a courtesy; the lock is what counts.
            file.take(200).read_to_string(&mut holder).ok();
            let holder = match holder.trim() {
                "" => "another process".to_owned(),
                holder => holder.to_owned(),
            };
            return Err(StoreError::InUse { path: store.to_owned(), holder });
        }
        let program = std::env::args_os().next().unwrap_or_default();
        let program = Path::new(&program).file_name().unwrap_or_default().to_string_lossy();
        let says = format!("process {} ({program})\n", std::process::id());
        // On a full disk it stays silent.
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(says.as_bytes()))
            .ok();
        Ok(Self { _file: file })
    }

    /// Whether somebody writes the store.
    pub(super) fn is_held(store: &Path) -> bool {
        let file = File::open(store.join(NAME));
        file.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
    }
}
