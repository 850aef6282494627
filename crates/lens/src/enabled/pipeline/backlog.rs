//! Requests that wait to be sent before fresh ones, oldest first.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::overflow::{self, Chunk};
use crate::enabled::recover::{Dead, Settled};

/// One request and where it is kept meanwhile.
#[derive(Clone, Debug)]
pub(super) enum Waiting {
    /// A file of the overflow folder.
    File(Chunk),
    /// What a dead process left; its ring goes when the last of its requests is delivered.
    Remains { request: Arc<Vec<u8>>, items: usize, settled: Settled, dead: Arc<Dead> },
}

impl Waiting {
    pub(super) fn items(&self) -> usize {
        match self {
            Self::File(chunk) => chunk.items as usize,
            Self::Remains { items, .. } => *items,
        }
    }

    /// Whether its items ended in another process.
    pub(super) fn is_adopted(&self) -> bool {
        match self {
            Self::File(chunk) => chunk.is_adopted,
            Self::Remains { .. } => true,
        }
    }

    pub(super) fn request(&self) -> io::Result<Arc<Vec<u8>>> {
        match self {
            Self::File(chunk) => overflow::read(chunk).map(Arc::new),
            Self::Remains { request, .. } => Ok(Arc::clone(request)),
        }
    }
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    waiting: VecDeque<Waiting>,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
    }

    /// For what is older than all that waits.
    pub(super) fn push_front(&mut self, waiting: Waiting) {
        self.waiting.push_front(waiting);
    }

    /// What the dead left is older than what this process has.
    pub(super) fn push_dead(&mut self, dead: Dead, max_bytes: usize) {
        let dead = Arc::new(dead);
        let remains = dead.remains(max_bytes);
        if remains.is_empty() {
            dead.remove();
        }
        for remains in remains {
            self.waiting.push_back(Waiting::Remains {
                request: Arc::new(remains.request),
                items: remains.items,
                settled: remains.settled,
                dead: Arc::clone(&dead),
            });
        }
    }

    pub(super) fn front(&self) -> Option<&Waiting> {
        self.waiting.front()
    }

    /// Takes the front out: it is settled. A ring whose last request it was is removed.
    pub(super) fn settle_front(&mut self) -> Option<Waiting> {
        let settled = self.waiting.pop_front()?;
        if let Waiting::Remains { dead, settled, .. } = &settled {
            if Arc::strong_count(dead) == 1 {
                dead.remove();
            } else {
                dead.settle(settled);
            }
        }
        Some(settled)
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Waiting> + '_ {
        self.waiting.drain(..)
    }
}
