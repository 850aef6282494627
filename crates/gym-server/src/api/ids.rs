//! Ids of replies and items: 32 hex digits.

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};

const HEX: &[u8; 16] = b"0123456789abcdef";

/// 32 random hex digits.
pub fn random_hex() -> String {
    thread_local! {
        static STATE: Cell<[u64; 2]> = Cell::new([RandomState::new().hash_one(0u8), RandomState::new().hash_one(1u8)]);
    }
    STATE.with(|state| {
        let [mut a, mut b] = state.get();
        let digits = hex(mix(&mut a), mix(&mut b));
        state.set([a, b]);
        digits
    })
}

/// 32 hex digits of two numbers.
pub fn hex(high: u64, low: u64) -> String {
    let mut digits = String::with_capacity(32);
    for number in [high, low] {
        for byte in number.to_be_bytes() {
            digits.push(char::from(HEX[usize::from(byte >> 4)]));
            digits.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    digits
}

/// One step of a splitmix64 generator.
pub fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_32_digits_and_differ() {
        let ids: std::collections::HashSet<String> = (0..1000).map(|_| random_hex()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(
            ids.iter().all(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
        );
    }
}
