//! OTLP wire format: encoding, reading, JSON form, and the client that ships it.
//!
//! There are no generated message structs: [`encode`] appends protobuf bytes to a buffer once, [`view`] walks
//! them in place, [`json`] translates between the two encodings of OTLP. What crosses crate borders is bytes.
//!
//! Readers never panic on malformed input and skip fields they do not know.

mod base64;
pub mod encode;
pub mod event;
pub mod json;
pub mod metrics;
pub mod split;
pub mod view;
pub mod wire;

#[cfg(feature = "client")]
pub mod client;

pub use wire::DecodeError;
