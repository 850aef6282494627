//! From a body as it was received to the request in it.

use std::io::Read;

use bytes::Bytes;
use lens_otlp::DecodeError;

use super::frame::{Compression, Encoding, Format, Signal};

/// Why a body is not a request.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It is not compressed as it says.
    #[error("body is not valid {0}")]
    Compression(&'static str, #[source] std::io::Error),
    /// It is longer than it may be when it is inflated.
    #[error("body is longer than {0} bytes when inflated")]
    TooLong(usize),
    /// It is not JSON, or not OTLP's.
    #[error("body is not an OTLP request in JSON")]
    Json(#[source] DecodeError),
}

/// Undoes the compression of a body, up to a length.
///
/// # Errors
///
/// When it is not compressed so, or too long.
pub fn inflate(
    body: &Bytes,
    compression: Compression,
    max_bytes: usize,
) -> Result<Bytes, BodyError> {
    let read = |name, reader: &mut dyn Read| {
        let mut inflated = Vec::with_capacity((body.len() * 4).min(max_bytes));
        let limit = max_bytes as u64 + 1;
        let read = reader.take(limit).read_to_end(&mut inflated);
        read.map_err(|error| BodyError::Compression(name, error))?;
        if inflated.len() > max_bytes {
            return Err(BodyError::TooLong(max_bytes));
        }
        Ok(Bytes::from(inflated))
    };
    match compression {
        Compression::None if body.len() > max_bytes => Err(BodyError::TooLong(max_bytes)),
        Compression::None => Ok(body.clone()),
        Compression::Gzip => read("gzip", &mut flate2::read::MultiGzDecoder::new(&body[..])),
        Compression::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(&body[..]);
            read("zstd", &mut decoder.map_err(|error| BodyError::Compression("zstd", error))?)
        }
    }
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
    match (encoding.format, signal) {
        (Format::Protobuf, _) => Ok(inflated),
        (Format::Json, signal) => {
            let read = match signal {
                Signal::Traces => lens_otlp::json::decode_trace_request,
                Signal::Logs => lens_otlp::json::decode_logs_request,
                Signal::Metrics => lens_otlp::json::decode_metrics_request,
            };
            read(&inflated).map(Bytes::from).map_err(BodyError::Json)
        }
    }
}
