//! Which traces a segment has, as sorted 32-bit hashes of their ids: small enough to be held for every segment.
//!
//! A file is `LENSIDX1`, the number of hashes, the hashes in little-endian order, and a CRC-32C of it all. One that
//! is missing or damaged is made again from the file of spans.

use std::io::{self, Write};

use super::{SegmentError, SpanReader};
use crate::ids::TraceId;

const MAGIC: &[u8; 8] = b"LENSIDX1";

/// The hashes of one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceIndex {
    hashes: Box<[u32]>,
}

/// The same in every process and version, since it is on disk.
fn hash(id: TraceId) -> u32 {
    let id = id.number();
    let folded = id as u64 ^ (id >> 64) as u64;
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

impl TraceIndex {
    /// Of ids in any order.
    pub fn new(ids: impl Iterator<Item = TraceId>) -> Self {
        let mut hashes: Vec<u32> = ids.map(hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        Self { hashes: hashes.into() }
    }

    /// Of a file of spans: what its index would be.
    ///
    /// # Errors
    ///
    /// When the file is damaged.
    pub fn of(spans: &SpanReader) -> Result<Self, SegmentError> {
        Ok(Self::new(spans.trace_ids("", usize::MAX)?.into_iter()))
    }

    /// `false` when the segment has no span of the trace; `true` is wrong once in 43,000 times per 100,000 traces.
    pub fn may_have(&self, id: TraceId) -> bool {
        // Hashes are spread evenly, so a guess is near.
        self.hashes.binary_search(&hash(id)).is_ok()
    }

    /// Bytes in memory and, but for 16, in a file.
    pub fn bytes(&self) -> usize {
        self.hashes.len() * 4
    }

    /// Writes it.
    ///
    /// # Errors
    ///
    /// When the medium fails.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(self.bytes() + 16);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&(self.hashes.len() as u32).to_le_bytes());
        for hash in &self.hashes {
            bytes.extend_from_slice(&hash.to_le_bytes());
        }
        let sum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        out.write_all(&bytes)
    }

    /// Reads what was written.
    ///
    /// # Errors
    ///
    /// When it is damaged.
    pub fn read(bytes: &[u8]) -> Result<Self, SegmentError> {
        let damaged = || SegmentError::Damaged("not an index of traces".into());
        let (body, sum) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
        let hashes = body.strip_prefix(MAGIC).and_then(|rest| rest.get(4..)).ok_or_else(damaged)?;
        let (hashes, rest) = hashes.as_chunks::<4>();
        let hashes: Box<[u32]> = hashes.iter().map(|hash| u32::from_le_bytes(*hash)).collect();
        let count = (hashes.len() as u32).to_le_bytes();
        let is_whole = rest.is_empty() && body[MAGIC.len()..MAGIC.len() + 4] == count;
        if !is_whole || crc32c::crc32c(body) != u32::from_le_bytes(*sum) || !hashes.is_sorted() {
            return Err(damaged());
        }
        Ok(Self { hashes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_knows_its_traces_and_is_refused_when_damaged() {
        let id = |nth: u64| TraceId::from_bytes(&u128::from(nth * 7_919 + 1).to_be_bytes());
        let index = TraceIndex::new((0..1_000).filter_map(id));
        assert!((0..1_000).filter_map(id).all(|id| index.may_have(id)));
        let wrong = (1_000..101_000).filter_map(id).filter(|id| index.may_have(*id)).count();
        assert!(wrong < 5, "{wrong} of 100,000");
        let mut bytes = Vec::new();
        index.write(&mut bytes).unwrap();
        assert_eq!(bytes.len(), index.bytes() + 16);
        assert_eq!(TraceIndex::read(&bytes).unwrap(), index);
        for at in [0, 8, 12, 500, bytes.len() - 1] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(TraceIndex::read(&damaged).is_err(), "byte {at}");
        }
        assert!(TraceIndex::read(&bytes[..bytes.len() - 4]).is_err());
        assert!(TraceIndex::read(b"").is_err());
    }
}
