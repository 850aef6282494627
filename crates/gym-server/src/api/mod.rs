//! The wire bodies of the Gym: Responses and chat requests and replies, read and written without building trees.
//!
//! A body is scanned once into slices of its own text ([`json`]); what is sent on is spliced from those slices.
//! Reading is strict where the reference is strict: a body that does not pass yields the entries of a 422 reply
//! ([`Rejection`]), shaped like those of FastAPI and pydantic.
//! Not guaranteed: checks below the level of an item's required fields; nested values are carried through as they came.

pub mod chat;
mod check;
mod create_params;
mod detail;
pub mod ids;
mod item;
pub mod json;
mod names;
mod object;
mod reply;
mod response;
mod run;
mod table;
mod usage;

pub use create_params::{CreateParams, Field, Urls};
pub use detail::{Detail, Loc, Rejection};
pub use item::{Item, ItemKind, items, output_text};
pub use object::Object;
pub use reply::{
    ReplyHead, write_function_call_item, write_message_item, write_reasoning_item, write_reply,
};
pub use response::{Response, ResponseError, ResponseField};
pub use run::RunRequest;
pub use usage::Usage;
pub(crate) use usage::number as token_count;

/// Whether an item of `input` has the fields that its type requires.
pub fn is_valid_item(raw: &str) -> bool {
    item::is_valid(raw)
}

/// Whether an element of `tools` has the fields that its type requires.
pub fn is_valid_tool(raw: &str) -> bool {
    check::is_tool(raw)
}

#[cfg(test)]
mod tests;
