//! Bodies as they come: gRPC's frame and compression, never more than the limit.
#![no_main]

use bytes::Bytes;
use lens_observe::Compression;
use lens_observe::receiver::frame::unframe;
use lens_store::wal::inflate;
use libfuzzer_sys::fuzz_target;

const LIMIT_BYTES: usize = 100_000;

fuzz_target!(|data: &[u8]| {
    let Some((kind, body)) = data.split_first() else { return };
    let body = Bytes::copy_from_slice(body);
    let message = match unframe(&body) {
        Ok((_, message)) => message,
        Err(_) => body,
    };
    let compression = match kind % 3 {
        0 => Compression::Identity,
        1 => Compression::Gzip,
        _ => Compression::Zstd,
    };
    if let Ok(inflated) = inflate(&message, compression, LIMIT_BYTES) {
        assert!(inflated.len() <= LIMIT_BYTES);
    }
});
