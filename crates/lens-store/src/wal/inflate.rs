//! Decompression that stops at a bound.
//!
//! The bound holds for memory, not only for the result: the buffer never grows beyond it, and a Zstandard frame may ask
//! for a window of 8 MiB at most, which is what RFC 9659 grants to a content encoding.

use std::io::{self, Read};

use bytes::Bytes;

use super::frame::Compression;

/// The largest window of a Zstandard frame, as a power of two.
const ZSTD_WINDOW_LOG: u32 = 23;
/// Where the growth of a result begins.
const FIRST_BYTES: usize = 64 << 10;

/// Why a body cannot be decompressed.
#[derive(Debug, thiserror::Error)]
pub enum InflateError {
    /// It is larger than allowed.
    #[error("it inflates to more than {limit_bytes} bytes")]
    TooLarge {
        /// What is allowed.
        limit_bytes: usize,
    },
    /// It is not what it says it is.
    #[error("it cannot be decompressed")]
    Corrupt(#[source] io::Error),
}

/// Decompresses a body of up to `limit_bytes`, with every member or frame that it has. An uncompressed one is shared.
///
/// # Errors
///
/// When it is larger, or corrupt.
pub fn inflate(
    body: &Bytes,
    compression: Compression,
    limit_bytes: usize,
) -> Result<Bytes, InflateError> {
    match compression {
        Compression::Identity if body.len() > limit_bytes => {
            Err(InflateError::TooLarge { limit_bytes })
        }
        Compression::Identity => Ok(body.clone()),
        Compression::Gzip => {
            let members = flate2::bufread::MultiGzDecoder::new(body.as_ref());
            read_up_to(members, body.len(), limit_bytes)
        }
        Compression::Zstd => {
            let frames = zstd::stream::read::Decoder::with_buffer(body.as_ref());
            let mut frames = frames.map_err(InflateError::Corrupt)?;
            frames.window_log_max(ZSTD_WINDOW_LOG).map_err(InflateError::Corrupt)?;
            read_up_to(frames, body.len(), limit_bytes)
        }
    }
}

fn read_up_to(
    mut from: impl Read,
    compressed_bytes: usize,
    limit_bytes: usize,
) -> Result<Bytes, InflateError> {
    let mut out = Vec::new();
    // Telemetry shrinks to a fifth or less; a wrong guess costs a move, or memory that is never touched.
    let mut grow_bytes = compressed_bytes.saturating_mul(8).max(FIRST_BYTES);
    loop {
        // One byte more than is allowed shows that there is more.
        let room = grow_bytes.min((limit_bytes - out.len()).saturating_add(1));
        out.reserve_exact(room);
        let read = from.by_ref().take(room as u64).read_to_end(&mut out);
        if read.map_err(InflateError::Corrupt)? < room {
            // Spans are kept as slices of this for a while.
            out.shrink_to_fit();
            return Ok(out.into());
        }
        if out.len() > limit_bytes {
            return Err(InflateError::TooLarge { limit_bytes });
        }
        grow_bytes = out.len();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(content: &[u8]) -> Vec<u8> {
        ::zstd::stream::encode_all(content, 1).unwrap()
    }

    #[test]
    fn every_member_and_frame_of_a_body_is_read() {
        for (compression, compress) in [
            (Compression::Gzip, gzip as fn(&[u8]) -> Vec<u8>),
            (Compression::Zstd, zstd as fn(&[u8]) -> Vec<u8>),
        ] {
            let mut body = compress(b"one ");
            body.extend(compress(&[b'2'; 300_000]));
            body.extend(compress(b" three"));
            let inflated = inflate(&body.into(), compression, 1 << 20).unwrap();
            assert_eq!(inflated.len(), 300_010, "{compression:?}");
            assert!(inflated.starts_with(b"one 2") && inflated.ends_with(b"2 three"));
        }
    }

    #[test]
    fn the_bound_is_exact() {
        for (compression, body) in [
            (Compression::Gzip, gzip(&[7; 200_000])),
            (Compression::Zstd, zstd(&[7; 200_000])),
            (Compression::Identity, vec![7; 200_000]),
        ] {
            let body = Bytes::from(body);
            assert_eq!(inflate(&body, compression, 200_000).unwrap().len(), 200_000);
            let error = inflate(&body, compression, 199_999).unwrap_err();
            assert!(matches!(error, InflateError::TooLarge { limit_bytes: 199_999 }), "{error}");
        }
    }

    #[test]
    fn what_is_cut_off_or_something_else_is_corrupt() {
        for (compression, mut body) in
            [(Compression::Gzip, gzip(b"content")), (Compression::Zstd, zstd(b"content"))]
        {
            for bytes in [Bytes::from_static(b"not compressed at all"), {
                body.truncate(body.len() - 1);
                body.into()
            }] {
                let error = inflate(&bytes, compression, 1 << 20).unwrap_err();
                assert!(matches!(error, InflateError::Corrupt(_)), "{compression:?}: {error}");
            }
        }
    }

    #[test]
    fn a_frame_that_asks_for_a_huge_window_is_refused() {
        let mut encoder = ::zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(27).unwrap();
        encoder.include_contentsize(false).unwrap();
        encoder.write_all(&[1; 100]).unwrap();
        let body = Bytes::from(encoder.finish().unwrap());
        assert!(matches!(
            inflate(&body, Compression::Zstd, 1 << 20),
            Err(InflateError::Corrupt(_))
        ));
    }

    #[test]
    fn an_empty_body_is_an_empty_request() {
        assert!(inflate(&Bytes::new(), Compression::Identity, 10).unwrap().is_empty());
        assert!(inflate(&gzip(b"").into(), Compression::Gzip, 10).unwrap().is_empty());
    }
}
