//! The log that is written before anything is acknowledged: requests exactly as they were received.
//!
//! A frame is written with one call before the reply, so a killed process loses nothing that it acknowledged (W-1):
//! the kernel has it. `fdatasync` follows within 200 ms, or before the reply where that was asked for. There is no
//! second schema: reading a log back is the path of ingest.
//!
//! ```text
//! file:  "LENSWAL1" frame*
//! frame: len u32 | crc32c u32 | seq u64 | arrived u64 | signal u8 | encoding u8 | body      little-endian
//! ```
//!
//! `len` counts what follows the checksum, which covers the same.

mod body;
mod frame;
mod inflate;
mod log;
mod read;

pub use body::{BodyError, from_json, to_protobuf};
pub use frame::{Compression, Encoding, Format, Signal};
pub use inflate::{InflateError, inflate};
pub(crate) use log::Log;
pub use read::{Damage, FrameView};
pub(crate) use read::{read_file, wal_files};

/// Folder of the log in a store.
pub(crate) const FOLDER: &str = "wal";
