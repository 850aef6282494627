//! Names that many rows share.

use std::collections::HashSet;
use std::sync::Arc;

/// Longer names are cut.
const MAX_BYTES: usize = 128;
/// What comes after as many different names is not shared.
const MAX_SHARED: usize = 4096;

/// Shares equal names.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: HashSet<Arc<str>>,
}

impl Names {
    pub(super) fn share(&mut self, name: &str) -> Arc<str> {
        let name = cut(name);
        if let Some(known) = self.known.get(name) {
            return Arc::clone(known);
        }
        let new: Arc<str> = Arc::from(name);
        if self.known.len() < MAX_SHARED {
            self.known.insert(Arc::clone(&new));
        }
        new
    }

    /// Forgets what no row has any longer.
    pub(super) fn forget_unused(&mut self) {
        if self.known.len() == MAX_SHARED {
            self.known.retain(|name| Arc::strong_count(name) > 1);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}

/// The name, or as much of it as is kept.
pub(super) fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_BYTES)]
}
