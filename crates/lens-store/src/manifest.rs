//! The one place that says what a store consists of: replaced whole, so that every change of a store is one commit.
//!
//! Segments that enter and the number of the last request in them (the watermark) are one document, so a request is
//! in exactly one of the log after the watermark and the committed segments (W-2).

use std::fs;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::vfs::{Vfs, write_all};

pub(crate) const NAME: &str = "manifest.json";
const UNFINISHED: &str = "manifest.json.part";
/// What is written, and the newest that is read.
const FORMAT: u32 = 1;

/// A table of a store; each is a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Table {
    /// One row for each span.
    Spans,
    /// One row for each trace of a segment.
    Traces,
    /// One row for each version of a rollout.
    Rollouts,
    /// One row for each log record.
    Logs,
    /// One row for each point of a metric.
    Points,
    /// Which traces a segment has; rebuilt from the spans when it is missing.
    Index,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Spans, Self::Traces, Self::Rollouts, Self::Logs, Self::Points, Self::Index];

    /// Its folder.
    pub fn folder(self) -> &'static str {
        match self {
            Self::Spans => "spans",
            Self::Traces => "traces",
            Self::Rollouts => "rollouts",
            Self::Logs => "logs",
            Self::Points => "points",
            Self::Index => "index",
        }
    }

    /// Extension of its files.
    pub fn extension(self) -> &'static str {
        if self == Self::Index { "idx" } else { "parquet" }
    }
}

/// One file of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Which table it is of.
    pub table: Table,
    /// Its rows.
    pub rows: u64,
    /// Its length.
    pub bytes: u64,
    /// CRC-32C of all of it.
    pub crc32c: u32,
}

/// What was committed together for one date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentEntry {
    /// Names its files; never used twice in a store.
    pub number: u64,
    /// How often its rows were merged.
    pub level: u32,
    /// Date of its rows, `2026-11-29`, UTC (S-3).
    pub date: String,
    /// Earliest start among its spans, Unix nanoseconds; of all its rows where it has no spans.
    pub min_start_nanos: u64,
    /// Latest start.
    pub max_start_nanos: u64,
    /// Lowest trace id among its spans, hex; empty without spans.
    pub min_trace_id: String,
    /// Highest.
    pub max_trace_id: String,
    /// Lowest number of a request that it has rows of.
    pub min_seq: u64,
    /// Highest.
    pub max_seq: u64,
    /// When its newest row was received, Unix nanoseconds.
    pub arrived_nanos: u64,
    /// Its files.
    pub files: Vec<FileEntry>,
}

impl SegmentEntry {
    /// Its file of a table.
    pub fn file(&self, table: Table) -> Option<&FileEntry> {
        self.files.iter().find(|file| file.table == table)
    }

    /// Where its file of a table is, in the folder of a store.
    pub fn path(&self, table: Table) -> PathBuf {
        path(table, &self.date, self.number, self.level)
    }

    /// Bytes of all its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// Where a file of a segment is, in the folder of a store.
pub(crate) fn path(table: Table, date: &str, number: u64, level: u32) -> PathBuf {
    let name = format!("{number:06}-l{level}.{}", table.extension());
    [table.folder(), &format!("date={date}"), &name].iter().collect()
}

/// What policies and retention took out of a store, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Rollouts whose spans were let go by the volume policy; their rows are kept.
    pub rollouts_let_go: u64,
    /// Spans of these.
    pub spans_let_go: u64,
    /// Spans that had arrived more than once.
    pub spans_repeated: u64,
    /// Segments that were removed by retention.
    pub segments_expired: u64,
    /// Spans of these.
    pub spans_expired: u64,
    /// Segments that could not be read any more and were set aside.
    pub segments_damaged: u64,
}

/// The content of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this form.
    pub format: u32,
    /// One more with each commit.
    pub generation: u64,
    /// Requests up to this number are in segments, the others in the log.
    pub watermark: u64,
    /// Number for the next segment.
    pub next_number: u64,
    /// Oldest commit first.
    pub segments: Vec<SegmentEntry>,
    /// What is not there any more.
    pub removed: Removed,
}

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file system says no.
    #[error("manifest cannot be read or written")]
    Io(#[from] io::Error),
    /// It is not a manifest, or not whole.
    #[error("manifest is damaged: {0}")]
    Damaged(&'static str),
    /// Written by a newer version of this program.
    #[error("manifest has format {0}, this program reads up to {FORMAT}")]
    Newer(u32),
}

#[derive(Serialize, Deserialize)]
struct Document {
    checksum: String,
    manifest: Box<RawValue>,
}

impl Manifest {
    /// Reads the manifest of a store; `None` when there is none.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn read(store: &Path) -> Result<Option<Self>, ManifestError> {
        let text = match fs::read_to_string(store.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(ManifestError::Damaged("it is not text"));
            }
            text => text?,
        };
        Self::parse(&text).map(Some)
    }

    fn parse(text: &str) -> Result<Self, ManifestError> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let document: Document =
            serde_json::from_str(text).map_err(|_| ManifestError::Damaged("it is not JSON"))?;
        let body = document.manifest.get();
        if document.checksum != checksum(body) {
            return Err(ManifestError::Damaged("its checksum is not that of its content"));
        }
        let unreadable = |_| ManifestError::Damaged("a field is missing or of another type");
        let Version { format } = serde_json::from_str(body).map_err(unreadable)?;
        if format > FORMAT {
            return Err(ManifestError::Newer(format));
        }
        serde_json::from_str(body).map_err(unreadable)
    }

    /// Replaces the manifest of a store. Once this returns, and only then, the new one counts.
    ///
    /// After an error either of the two may be there: the caller reads which.
    pub(crate) fn write(&self, vfs: &Arc<dyn Vfs>, store: &Path) -> Result<(), ManifestError> {
        let written = Self { format: FORMAT, ..self.clone() };
        let body = serde_json::to_string(&written)
            .and_then(RawValue::from_string)
            .map_err(io::Error::from)?;
        let document = Document { checksum: checksum(body.get()), manifest: body };
        let mut text = serde_json::to_vec(&document).map_err(io::Error::from)?;
        text.push(b'\n');
        let unfinished = store.join(UNFINISHED);
        let file = vfs.create(&unfinished)?;
        write_all(file.as_ref(), &mut [IoSlice::new(&text)])?;
        file.sync()?;
        vfs.rename(&unfinished, &store.join(NAME))?;
        vfs.sync_folder(store)?;
        Ok(())
    }

    /// Spans in all segments.
    pub fn spans(&self) -> u64 {
        self.segments.iter().filter_map(|segment| segment.file(Table::Spans)).map(|f| f.rows).sum()
    }
}

fn checksum(body: &str) -> String {
    format!("crc32c:{:08x}", crc32c::crc32c(body.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::RealFiles;

    #[test]
    fn a_manifest_is_read_as_it_was_written_and_a_changed_one_is_refused() {
        let store = tempfile::tempdir().unwrap();
        assert!(Manifest::read(store.path()).unwrap().is_none());
        let vfs: Arc<dyn Vfs> = Arc::new(RealFiles);
        let manifest =
            Manifest { format: FORMAT, generation: 3, watermark: 17, ..Manifest::default() };
        manifest.write(&vfs, store.path()).unwrap();
        assert_eq!(Manifest::read(store.path()).unwrap(), Some(manifest));
        let path = store.path().join(NAME);
        let text = fs::read_to_string(&path).unwrap();
        for (from, to) in [("17", "18"), ("\"manifest\"", "\"manifast\""), ("}\n", "")] {
            fs::write(&path, text.replace(from, to)).unwrap();
            assert!(matches!(Manifest::read(store.path()), Err(ManifestError::Damaged(_))));
        }
    }

    #[test]
    fn a_manifest_of_a_newer_program_is_not_taken_for_damage() {
        let body = r#"{"format":9,"shape":"unknown"}"#;
        let text = format!(r#"{{"checksum":"{}","manifest":{body}}}"#, checksum(body));
        assert!(matches!(Manifest::parse(&text), Err(ManifestError::Newer(9))));
    }
}
