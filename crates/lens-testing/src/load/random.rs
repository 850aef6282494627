//! A small generator of numbers that look random: SplitMix64.

#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`, which is not zero.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    pub(super) fn permille(&mut self, share: u16) -> bool {
        share > 0 && self.below(1_000) < u64::from(share)
    }

    /// Nanoseconds with a heavy tail: from `least_nanos` on, twice as long half as often, at most 512 times.
    pub(super) fn tail(&mut self, least_nanos: u64) -> u64 {
        let octave = self.next().trailing_zeros().min(8);
        (least_nanos << octave) + self.below((least_nanos << octave).max(1))
    }

    pub(super) fn trace_id(&mut self) -> [u8; 16] {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.next().to_be_bytes());
        id[8..].copy_from_slice(&(self.next() | 1).to_be_bytes());
        id
    }

    pub(super) fn span_id(&mut self) -> [u8; 8] {
        (self.next() | 1).to_be_bytes()
    }
}
