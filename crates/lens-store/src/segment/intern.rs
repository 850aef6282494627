//! Distinct values of a column, numbered in the order in which they came.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// Differs between processes, so that nobody can choose values that collide.
static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0) | 1);

fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// A hash for tables in memory.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let len = bytes.len();
    let mut state = *SEED ^ (len as u64).wrapping_mul(FACTOR);
    if len >= 8 {
        let mut rest = bytes;
        while rest.len() > 16 {
            state = folded(state ^ word(rest), FACTOR ^ word(&rest[8..]));
            rest = &rest[16..];
        }
        // The last 16 bytes, some of them for the second time.
        state = folded(
            state ^ word(&bytes[len.saturating_sub(16)..]),
            FACTOR ^ word(&bytes[len - 8..]),
        );
    } else {
        let mut short = [0; 8];
        short[..len].copy_from_slice(bytes);
        state ^= u64::from_le_bytes(short);
    }
    folded(state, FACTOR)
}

/// The values, encoded as a dictionary page has them (`PLAIN`: each with its length in front).
#[derive(Default)]
pub(super) struct Interner {
    /// Number of a value plus one, or zero; a power of two of them.
    table: Vec<u32>,
    hashes: Vec<u32>,
    pub(super) plain: Vec<u8>,
    /// Where each value begins and ends.
    places: Vec<(u32, u32)>,
}

impl Interner {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn clear(&mut self) {
        self.table.fill(0);
        self.hashes.clear();
        self.plain.clear();
        self.places.clear();
    }

    #[inline]
    pub(super) fn get(&self, code: u32) -> &[u8] {
        let (from, to) = self.places[code as usize];
        &self.plain[from as usize..to as usize]
    }

    /// The number of a value, if it is the one that was guessed.
    #[inline(always)]
    pub(super) fn guessed(&self, guess: &Guess, bytes: &[u8]) -> Option<u32> {
        let (from, to) = *self.places.get(guess.code as usize)?;
        let is_it = guess.is_steady && self.plain.get(from as usize..to as usize)? == bytes;
        is_it.then_some(guess.code)
    }

    /// As [`intern`](Self::intern), of a value that is likely the one that was guessed: then it is not hashed.
    #[inline]
    pub(super) fn intern_like(&mut self, guess: &mut Guess, bytes: &[u8]) -> u32 {
        if let Some(code) = self.guessed(guess, bytes) {
            return code;
        }
        let code = self.intern(bytes);
        *guess = Guess { code, is_steady: code == guess.code };
        code
    }

    /// Bytes that it holds, used or not.
    pub(super) fn capacity_bytes(&self) -> usize {
        (self.table.capacity() + self.hashes.capacity()) * size_of::<u32>()
            + self.plain.capacity()
            + self.places.capacity() * size_of::<(u32, u32)>()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len() as u32).map(|code| self.get(code))
    }

    pub(super) fn intern(&mut self, bytes: &[u8]) -> u32 {
        if self.len() * 2 >= self.table.len() {
            self.grow();
        }
        let hash = hash(bytes);
        let short = (hash >> 32) as u32;
        let mask = self.table.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            match self.table[at] {
                0 => break,
                found => {
                    let code = found - 1;
                    if self.hashes[code as usize] == short && self.get(code) == bytes {
                        return code;
                    }
                }
            }
            at = (at + 1) & mask;
        }
        let code = self.len() as u32;
        self.table[at] = code + 1;
        self.hashes.push(short);
        put_plain(&mut self.plain, bytes);
        let end = self.plain.len();
        self.places.push(((end - bytes.len()) as u32, end as u32));
        code
    }

    fn grow(&mut self) {
        let size = (self.table.len() * 2).max(64);
        self.table.clear();
        self.table.resize(size, 0);
        for code in 0..self.len() as u32 {
            let mut at = hash(self.get(code)) as usize & (size - 1);
            while self.table[at] != 0 {
                at = (at + 1) & (size - 1);
            }
            self.table[at] = code + 1;
        }
    }
}

/// The value that comes next in some place, if it is the last one again: worth a look once it came twice in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Guess {
    code: u32,
    is_steady: bool,
}

/// Keys that are remembered, more or less: there is no end to those that somebody makes up.
pub(super) const MAX_KEYS: usize = 4_096;

/// Numbers of keys that mostly follow each other in the same order.
#[derive(Default)]
pub(super) struct Chain {
    names: Interner,
    /// The key that came first the last time, then the one that came after each.
    steps: Vec<Step>,
    /// Where the next key is guessed.
    at: usize,
}

/// A key, and where its name is.
#[derive(Clone, Copy)]
struct Step {
    code: u32,
    from: u32,
    to: u32,
}

impl Step {
    /// No key: not even the empty one is there.
    const NONE: Self = Self { code: 0, from: 1, to: 0 };
}

impl Chain {
    /// Forgets the keys.
    pub(super) fn clear(&mut self) {
        self.names.clear();
        self.steps.clear();
        self.at = 0;
    }

    /// How many keys it knows.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// Begins with the first key.
    #[inline]
    pub(super) fn start(&mut self) {
        self.at = 0;
    }

    /// A key's name.
    pub(super) fn name(&self, code: u32) -> &[u8] {
        self.names.get(code)
    }

    /// The number of the key that comes next; one more than any before when it is new.
    #[inline(always)]
    pub(super) fn next(&mut self, key: &[u8]) -> u32 {
        if let Some(Step { code, from, to }) = self.steps.get(self.at)
            && self.names.plain.get(*from as usize..*to as usize) == Some(key)
        {
            self.at = *code as usize + 1;
            return *code;
        }
        self.next_unlike(key)
    }

    fn next_unlike(&mut self, key: &[u8]) -> u32 {
        let code = self.names.intern(key);
        let (from, to) = self.names.places[code as usize];
        self.steps.resize(self.names.len() + 1, Step::NONE);
        self.steps[self.at] = Step { code, from, to };
        self.at = code as usize + 1;
        code
    }
}

/// Appends a value with its length in front.
pub(super) fn put_plain(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Guarantees: a guess saves work and changes no number.
        #[test]
        fn a_guess_changes_nothing(values in prop::collection::vec("[ab]{0,2}", 0..50)) {
            let (mut guessing, mut plain) = (Interner::default(), Interner::default());
            let mut guess = Guess::default();
            for (nth, value) in values.iter().enumerate() {
                if nth == 25 {
                    guessing.clear();
                    plain.clear();
                }
                let code = guessing.intern_like(&mut guess, value.as_bytes());
                prop_assert_eq!(code, plain.intern(value.as_bytes()));
                prop_assert_eq!(guessing.get(code), value.as_bytes());
            }
        }

        /// Guarantees: the order in which keys come changes none of their numbers.
        #[test]
        fn a_chain_numbers_keys_as_they_come(
            rows in prop::collection::vec(prop::collection::vec("[ab]{0,2}", 0..5), 0..20),
        ) {
            let (mut chain, mut plain) = (Chain::default(), Interner::default());
            for (nth, row) in rows.iter().enumerate() {
                if nth == 10 {
                    chain.clear();
                    plain.clear();
                }
                chain.start();
                for key in row {
                    let code = chain.next(key.as_bytes());
                    prop_assert_eq!(code, plain.intern(key.as_bytes()));
                    prop_assert_eq!(chain.name(code), key.as_bytes());
                }
            }
        }
    }
}
