//! Test doubles: an OTLP sink, spans kept in memory, trees of spans as text, load.
//!
//! [`OtlpSink`] receives over the wire what any sender sends; [`collect`] runs a closure and returns the spans that
//! ended meanwhile; [`render_tree`] turns spans into text for snapshots; [`load`] makes requests by the million.
//! A dev-dependency only.

mod collected;
pub mod load;
mod memory;
mod numbers;
mod port;
mod sink;
pub mod tls;
mod tree;

pub use collected::{
    CollectedEvent, CollectedLink, CollectedLog, CollectedSpan, decode, decode_logs,
};
pub use memory::{collect, collect_groups};
pub use numbers::{CollectedNumber, decode_numbers};
pub use port::free_port;
pub use sink::{Counts, OtlpSink, ReceivedRequest, Reply, Signal};
pub use tree::{TreeOptions, render_tree};
