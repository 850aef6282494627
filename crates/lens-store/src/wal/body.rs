//! From a body as it was received to the request in it.

use bytes::Bytes;
use lens_otlp::{DecodeError, json};

use super::frame::{Encoding, Format, Signal};
use super::inflate::{InflateError, inflate};

/// Why a body is not a request.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It is not compressed as it says, or too long.
    #[error("body cannot be inflated")]
    Inflate(#[from] InflateError),
    /// It is not JSON, or not OTLP's.
    #[error("body is not an OTLP request in JSON")]
    Json(#[source] DecodeError),
}

/// A request in JSON, as protobuf.
///
/// # Errors
///
/// When it is none.
pub fn from_json(signal: Signal, text: &[u8]) -> Result<Bytes, DecodeError> {
    let decoded = match signal {
        Signal::Traces => json::decode_trace_request(text),
        Signal::Logs => json::decode_logs_request(text),
        Signal::Metrics => json::decode_metrics_request(text),
    };
    decoded.map(Bytes::from)
}

/// The request in a body, as protobuf; it shares the body's memory when that is protobuf already.
///
/// # Errors
///
/// When it cannot be inflated or is not what it says.
pub fn to_protobuf(
    signal: Signal,
    encoding: Encoding,
    body: &Bytes,
    max_bytes: usize,
) -> Result<Bytes, BodyError> {
    let inflated = inflate(body, encoding.compression, max_bytes)?;
    match encoding.format {
        Format::Protobuf => Ok(inflated),
        Format::Json => from_json(signal, &inflated).map_err(BodyError::Json),
    }
}
