//! Parquet's encodings, as far as they are used here: runs and packed bits, and packed deltas.

use lens_otlp::wire::put_varint;

/// Bits that a value up to `most` takes.
pub(super) const fn width_of(most: u64) -> u32 {
    64 - most.leading_zeros()
}

/// Appends eight values of `width` bits, lowest bit first.
fn put_eight(out: &mut Vec<u8>, values: &[u32; 8], width: u32) {
    if width <= 8 {
        let mut packed = 0_u64;
        for (nth, value) in values.iter().enumerate() {
            packed |= u64::from(*value) << (nth as u32 * width);
        }
        out.extend_from_slice(&packed.to_le_bytes()[..width as usize]);
    } else if width <= 16 {
        let mut packed = 0_u128;
        for (nth, value) in values.iter().enumerate() {
            packed |= u128::from(*value) << (nth as u32 * width);
        }
        out.extend_from_slice(&packed.to_le_bytes()[..width as usize]);
    } else {
        let (mut packed, mut bits) = (0_u64, 0);
        for value in values {
            packed |= u64::from(*value) << bits;
            bits += width;
            while bits >= 8 {
                out.push(packed as u8);
                packed >>= 8;
                bits -= 8;
            }
        }
    }
}

/// Values from this many equal ones on are a run.
const RUN: usize = 8;

fn run_at(values: &[u32]) -> usize {
    let Some(first) = values.first() else { return 0 };
    values.iter().take_while(|value| *value == first).count()
}

/// Appends values of `width` bits as runs and packed bits (`RLE`), without a length.
pub(super) fn put_hybrid(out: &mut Vec<u8>, values: &[u32], width: u32) {
    let mut rest = values;
    while !rest.is_empty() {
        let run = run_at(rest);
        if run >= RUN || run == rest.len() {
            put_varint(out, (run as u64) << 1);
            let value = rest[0].to_le_bytes();
            out.extend_from_slice(&value[..width.div_ceil(8) as usize]);
            rest = &rest[run..];
            continue;
        }
        // Packed groups of eight, up to a group that begins with a run.
        let mut end = 8.min(rest.len());
        while end < rest.len() {
            let next = &rest[end..];
            if next.len() >= RUN && next[..RUN].iter().all(|value| *value == next[0]) {
                break;
            }
            end = (end + 8).min(rest.len());
        }
        let packed = &rest[..end];
        put_varint(out, (packed.len().div_ceil(8) as u64) << 1 | 1);
        let (whole, last) = packed.as_chunks::<8>();
        for values in whole {
            put_eight(out, values, width);
        }
        if !last.is_empty() {
            let mut values = [0; 8];
            values[..last.len()].copy_from_slice(last);
            put_eight(out, &values, width);
        }
        rest = &rest[end..];
    }
}

/// Appends levels of one bit with their length in front, as a data page of version 1 has them.
pub(super) fn put_levels(out: &mut Vec<u8>, bits: &mut Bits) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    let len = bits.len();
    let (bytes, ones) = bits.finish();
    if ones == 0 || ones == len {
        put_varint(out, (len as u64) << 1);
        out.push(u8::from(ones > 0));
    } else {
        put_varint(out, (bytes.len() as u64) << 1 | 1);
        out.extend_from_slice(bytes);
    }
    let len = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&len.to_le_bytes());
}

/// A row of bits, lowest first.
#[derive(Default)]
pub(super) struct Bits {
    bytes: Vec<u8>,
    ones: usize,
    /// The last bits, fewer than it has room for.
    word: u64,
    used: u32,
}

impl Bits {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        (self.ones, self.word, self.used) = (0, 0, 0);
    }

    fn len(&self) -> usize {
        self.bytes.len() * 8 + self.used as usize
    }

    /// Adds as many equal bits.
    #[inline]
    pub(super) fn push_run(&mut self, bit: bool, count: usize) {
        let mut left = count;
        while left > 0 {
            let taken = left.min((u64::BITS - self.used) as usize);
            let ones = if bit { u64::MAX >> (u64::BITS - taken as u32) } else { 0 };
            self.add(ones, taken as u32);
            left -= taken;
        }
    }

    #[inline]
    pub(super) fn push(&mut self, bit: bool) {
        self.add(u64::from(bit), 1);
    }

    /// Adds as many bits as there is room for, at most.
    #[inline]
    fn add(&mut self, bits: u64, count: u32) {
        self.word |= bits << self.used;
        self.used += count;
        if self.used == u64::BITS {
            self.bytes.extend_from_slice(&self.word.to_le_bytes());
            self.ones += self.word.count_ones() as usize;
            (self.word, self.used) = (0, 0);
        }
    }

    /// The bits, filled up to a byte with zeros, and how many are set. Nothing can be added until they are cleared.
    pub(super) fn finish(&mut self) -> (&[u8], usize) {
        let bytes = self.used.div_ceil(8) as usize;
        self.bytes.extend_from_slice(&self.word.to_le_bytes()[..bytes]);
        self.ones += self.word.count_ones() as usize;
        (self.word, self.used) = (0, 0);
        (&self.bytes, self.ones)
    }
}

const BLOCK: usize = 128;
const MINIBLOCK: usize = 32;

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// Appends 64-bit values as packed deltas (`DELTA_BINARY_PACKED`).
pub(super) fn put_deltas(out: &mut Vec<u8>, values: &[i64]) {
    put_varint(out, BLOCK as u64);
    put_varint(out, (BLOCK / MINIBLOCK) as u64);
    put_varint(out, values.len() as u64);
    let Some((first, rest)) = values.split_first() else {
        put_varint(out, 0);
        return;
    };
    put_varint(out, zigzag(*first));
    let mut before = *first;
    let mut deltas = [0_i64; BLOCK];
    for block in rest.chunks(BLOCK) {
        for (delta, value) in deltas.iter_mut().zip(block) {
            *delta = value.wrapping_sub(before);
            before = *value;
        }
        put_block(out, &deltas[..block.len()]);
    }
}

fn put_block(out: &mut Vec<u8>, deltas: &[i64]) {
    let least = deltas.iter().copied().min().unwrap_or(0);
    put_varint(out, zigzag(least));
    let widths_at = out.len();
    out.extend_from_slice(&[0; BLOCK / MINIBLOCK]);
    for (nth, miniblock) in deltas.chunks(MINIBLOCK).enumerate() {
        let mut any = 0;
        for delta in miniblock {
            any |= delta.wrapping_sub(least) as u64;
        }
        let width = width_of(any);
        out[widths_at + nth] = width as u8;
        if width > 0 {
            put_miniblock(out, miniblock, least, width);
        }
    }
}

/// Appends texts of one length (`DELTA_LENGTH_BYTE_ARRAY`).
pub(super) fn put_same_length(out: &mut Vec<u8>, texts: &[u8], width: usize) {
    put_deltas(out, &vec![width as i64; texts.len() / width]);
    out.extend_from_slice(texts);
}

/// Appends texts of one length of which neighbours begin alike (`DELTA_BYTE_ARRAY`).
pub(super) fn put_prefixed(out: &mut Vec<u8>, texts: &[u8], width: usize) {
    let mut before: &[u8] = &[];
    let (mut shared, mut suffixes) = (Vec::with_capacity(texts.len() / width), Vec::new());
    for text in texts.chunks_exact(width) {
        let same = if text == before {
            width
        } else {
            before.iter().zip(text).take_while(|(one, other)| one == other).count()
        };
        shared.push(same as i64);
        suffixes.extend_from_slice(&text[same..]);
        before = text;
    }
    put_deltas(out, &shared);
    shared.iter_mut().for_each(|same| *same = width as i64 - *same);
    put_deltas(out, &shared);
    out.extend_from_slice(&suffixes);
}

/// The values of a miniblock are always 32, missing ones are zero.
fn put_miniblock(out: &mut Vec<u8>, deltas: &[i64], least: i64, width: u32) {
    let bytes = width as usize * MINIBLOCK / 8;
    let at = out.len();
    out.resize(at + bytes, 0);
    let (mut packed, mut bits) = (0_u128, 0);
    let mut place = at;
    for delta in deltas {
        packed |= u128::from(delta.wrapping_sub(least) as u64) << bits;
        bits += width;
        if bits >= 64 {
            out[place..place + 8].copy_from_slice(&(packed as u64).to_le_bytes());
            place += 8;
            packed >>= 64;
            bits -= 64;
        }
    }
    let rest = (packed as u64).to_le_bytes();
    let left = (at + bytes - place).min(bits.div_ceil(8) as usize);
    out[place..place + left].copy_from_slice(&rest[..left]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Guarantees: a run of bits is as many bits one by one.
        #[test]
        fn runs_of_bits_are_bits(runs in prop::collection::vec((any::<bool>(), 0_usize..200), 0..20)) {
            let (mut runs_of, mut one_by_one) = (Bits::default(), Bits::default());
            for (bit, count) in runs {
                runs_of.push_run(bit, count);
                (0..count).for_each(|_| one_by_one.push(bit));
            }
            prop_assert_eq!(runs_of.len(), one_by_one.len());
            prop_assert_eq!(runs_of.finish(), one_by_one.finish());
        }
    }
}
