//! What is computed from the spans of rollouts: the critical path and the time bands.
//!
//! Nothing here knows where spans come from; [`trace`] tells what each one is ([`Piece`]).
//!
//! # Guarantees
//!
//! * The bands of a rollout add up to its wall clock, to the nanosecond, whatever its spans say.
//! * Nothing recurses over a tree, so a trace may be as deep as it likes.

mod bands;
mod buckets;
pub mod ids;
pub mod live;
pub mod manifest;
mod partition;
mod path;
pub mod query;
pub mod raw;
pub mod rollouts;
pub mod segment;
pub mod store;
mod timings;
pub mod trace;
pub mod vfs;
pub mod wal;

pub use bands::{Band, Bands};
pub use partition::{Partition, Segment, partition};
pub use timings::Timings;

/// CRC-32C of bytes that follow others, as the manifest has it; that of nothing is 0.
pub fn checksum_append(checksum: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(checksum, bytes)
}

/// What a span is, as far as bands are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    /// The driver's attempt of a rollout: it waits to be admitted, then makes one request.
    Attempt,
    /// A request that was made.
    Client {
        /// By a model server, or to a model endpoint.
        to_model: bool,
    },
    /// Work of a known kind.
    Known(Band),
    /// Of somebody else: it belongs to what its nearest known ancestor does.
    Unknown,
}

/// A stretch of a request that was spent waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Its begin, on the clock of the spans.
    pub from_nanos: u64,
    /// Its end.
    pub to_nanos: u64,
    /// For what: [`Band::Pool`] or [`Band::Retry`].
    pub band: Band,
}

/// One span below a rollout's root, or the root. Pieces lie in pre-order, the root first.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The piece of its parent; ignored for the root.
    pub parent: usize,
    /// Start, after the correction of clocks.
    pub start_nanos: u64,
    /// End, not before the start.
    pub end_nanos: u64,
    /// Decides between spans of the same times.
    pub span_id: u64,
    /// What it is.
    pub make: Make,
    /// Whether it is the serving side of a request.
    pub is_server: bool,
    /// Waits of its attempts, in any order.
    pub waits: Vec<Wait>,
    /// What the engine said about the call.
    pub timings: Option<Timings>,
}
