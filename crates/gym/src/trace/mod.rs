//! Reading traces back and drawing them.
//!
//! Everything below works on spans of `lens_store`, whatever they were read from: console lines of this
//! software, console lines of the Python reference, OTLP JSON, a store.
//! Reading is tolerant (logs are cut off, mixed with other text, written twice); what was skipped
//! is counted in [`ReadReport`], never dropped in silence. Nothing here recurses over a tree, so
//! a trace may be as deep as it likes.

mod bar;
mod console_line;
mod diff;
mod encode;
mod export;
mod in_flight;
mod json;
mod list;
mod otlp_json;
mod perfetto;
mod read;
mod report;
mod runs;
mod search;
mod select;
mod shared;
mod source;
mod stragglers;
mod summary;
mod text;
mod timeline;

pub use diff::{Diff, Selection};
pub use export::export;
pub use in_flight::{in_flight_sentence, in_flight_table};
pub use json::{list_document, show_document};
pub use lens_store::trace::{Section, Traces};
pub use list::list_table;
pub use read::counted;
pub use report::Report;
pub use runs::{run_text, run_value, runs_table};
pub use search::{found_table, metrics_table};
pub use select::{Choice, Chosen, NotFound, Unanswered, choose, no_rollouts};
pub use shared::shared_of;
pub use source::{Answer, Asked, Source, SourceError};
pub use stragglers::Found;
pub use summary::{summarise, summary_table};
pub use text::{Align, Canvas, duration_text, table};
pub use timeline::timeline;

#[cfg(test)]
mod tests;
