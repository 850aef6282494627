//! Traces: spans in their places, and the rollouts among them.
//!
//! Everything here works on [`RawSpan`](crate::raw::RawSpan)s, wherever they were read from. [`Reader`] takes out of each
//! what every view needs and leaves the rest encoded; [`Traces::assemble`] puts spans in their places.
//!
//! # Guarantees
//!
//! * Every span is in exactly one place, whatever the spans say of each other: late, orphaned, circular, ending before
//!   they begin, of any time.
//! * Copies of a span count once. Spans of one id that differ are all kept, with a mark.
//! * What is assembled does not depend on the order in which the spans came.
//! * Nothing recurses over a tree, so a trace may be as deep as it likes.

mod bands;
pub mod foreign;
mod keys;
mod plain;
mod reader;
mod resource;
mod rollout;
mod scan;
mod span;
pub mod timestamp;
mod tree;
mod twins;

pub use bands::{bands_of, place_of, unanswered};
pub use plain::{printable, scalar_text};
pub use reader::Reader;
pub(crate) use reader::Said;
pub use resource::{Resource, role};
pub(crate) use rollout::may_be_rollout_root;
pub use rollout::{Rollout, Section, Trace, Traces, is_attempt_of};
pub use span::{Kind, Span, Status};
pub use tree::{Node, Placeholder, Root, Tree};
pub use twins::distinct;

#[cfg(test)]
mod golden;
#[cfg(test)]
pub(crate) mod tests;
