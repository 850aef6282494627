//! The ring of `lens` under an exhaustive checker of interleavings.
//!
//! The very files of the product are compiled here against loom's atomics and a heap-backed memory whose bytes tell
//! when two threads touch them without an order between them.

#![allow(dead_code)]

/// The product's modules, and what they find above them.
#[path = "../../../crates/lens/src/enabled/raw"]
pub(crate) mod raw {
    pub(crate) mod records;
    pub(crate) mod ring;
    pub(crate) mod sync {
        pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    }
}

pub(crate) mod heap;

#[cfg(test)]
mod tests;
