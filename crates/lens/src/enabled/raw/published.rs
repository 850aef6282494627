//! A value that lives for ever once it is published, and may be replaced.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Reading costs one load. What was published before is leaked: there is one per initialisation of a process.
#[derive(Debug)]
pub(crate) struct Published<T: Sync + 'static>(AtomicPtr<T>);

impl<T: Sync + 'static> Published<T> {
    pub(crate) const fn nothing() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    pub(crate) fn set(&self, value: &'static T) {
        self.0.store(ptr::from_ref(value).cast_mut(), Ordering::Release);
    }

    pub(crate) fn clear(&self) {
        self.0.store(ptr::null_mut(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null or came from a `&'static T`, and `T` is `Sync`; nothing ever writes through it.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }
}
