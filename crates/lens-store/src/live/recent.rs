//! What ended a short while ago: log records travel by another way than spans, and some come after the end of what
//! they tell of.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, Hash, RandomState};

/// The last of them, as hashes.
#[derive(Debug)]
pub(super) struct Recent {
    hasher: RandomState,
    order: VecDeque<u64>,
    known: HashSet<u64>,
    max: usize,
}

impl Recent {
    pub(super) fn new(max: usize) -> Self {
        Self { hasher: RandomState::new(), order: VecDeque::new(), known: HashSet::new(), max }
    }

    pub(super) fn insert(&mut self, ended: impl Hash) {
        let hash = self.hasher.hash_one(ended);
        if !self.known.insert(hash) {
            return;
        }
        self.order.push_back(hash);
        if self.order.len() > self.max
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, ended: impl Hash) -> bool {
        self.known.contains(&self.hasher.hash_one(ended))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }
}
