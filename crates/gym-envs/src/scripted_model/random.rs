//! Numbers that follow from a seed and what was asked, so that a run can be repeated.

use gym_server::api::ids;

/// A generator that is made anew for every request.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator for `key`; different salts give independent streams.
    pub fn new(key: u64, salt: u64) -> Self {
        let mut state = key ^ salt.wrapping_mul(0xa24b_aed4_963e_e407);
        ids::mix(&mut state);
        Rng(state)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        ids::mix(&mut self.0)
    }

    /// A number in 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A whole number in `low..=high`.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        let span = high.saturating_sub(low).max(0) as u64;
        let offset = if span == u64::MAX { self.bits() } else { self.bits() % (span + 1) };
        low.saturating_add(offset as i64)
    }

    /// A standard normal number (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// A hash of bytes, the same on every machine.
pub fn hash(seed: u64, bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9fb2_1c65_1e98_df25;
    let fold = |state: u64, word: u64| {
        let product = u128::from(state ^ word) * u128::from(FACTOR);
        (product as u64) ^ ((product >> 64) as u64)
    };
    let mut state = fold(seed ^ FACTOR, bytes.len() as u64);
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        state = fold(state, u64::from_le_bytes(chunk.try_into().unwrap_or_default()));
    }
    let mut last = [0; 8];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    fold(fold(state, u64::from_le_bytes(last)), 1)
}
