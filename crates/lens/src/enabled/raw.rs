//! The one module with `unsafe`: shared memory, its single-writer protocol, small fields, the counter of the
//! processor, `fork`.
//!
//! Everything that leaves it is safe to use in any order; the protocol that makes it so is in [`ring`].

#![allow(unsafe_code)]

pub(crate) mod counter;
pub(crate) mod fork;
pub(crate) mod mapping;
pub(crate) mod published;
pub(crate) mod records;
pub(crate) mod ring;
pub(crate) mod small;

/// What the ring synchronises with; an exhaustive checker of interleavings brings its own.
pub(crate) mod sync {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}
