//! What a store cannot do, and what it does not take.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::manifest::ManifestError;

/// Why a store could not be opened, read or changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is none.
    #[error("{} is not a store", .0.display())]
    NotAStore(PathBuf),
    /// Another process writes it.
    #[error("{} is in use by {holder}", .path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
        /// Who has it, as far as it told.
        holder: String,
    },
    /// It has segments and nothing that says which of them count.
    #[error("{} has segments and no manifest", .0.display())]
    NoManifest(PathBuf),
    /// What says what it consists of cannot be used.
    #[error("{} cannot be used", .path.display())]
    Manifest {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: ManifestError,
    },
    /// A file could not be read or written.
    #[error("{} cannot be {what}", .path.display())]
    Io {
        /// `read`, `written`, …
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A change of its segments did not happen.
    #[error("{} cannot be changed: {reason}", .path.display())]
    Commit {
        /// The folder.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It was opened to be read.
    #[error("store is open for reading only")]
    ReadOnly,
}

impl StoreError {
    /// A file went away under a reader because the writer replaced it; a new snapshot has the new one.
    pub fn is_outdated(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Names the file of an error.
pub(super) fn at(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { what, path, source }
}

/// Why a request was not taken. Nothing of it is stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// More arrives than is written.
    #[error("store is overloaded")]
    Overloaded {
        /// When to come again.
        retry_after: Duration,
    },
    /// Nothing more fits on the disk.
    #[error("disk is full")]
    DiskFull {
        /// When to come again.
        retry_after: Duration,
    },
    /// The file system fails otherwise.
    #[error("store cannot write: {reason}")]
    Unavailable {
        /// How.
        reason: String,
        /// When to come again.
        retry_after: Duration,
    },
    /// It is not a request, and will not be one when it is sent again.
    #[error("not an OTLP request: {0}")]
    BadRequest(String),
}

/// What became of a request that was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// Items that were refused; the others are stored.
    pub rejected: u64,
    /// Why the first of them was.
    pub reason: Option<String>,
}

/// Something that was found broken. It was set aside where that was possible; the rest is readable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// What about it.
    pub reason: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.reason)
    }
}
