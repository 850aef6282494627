//! What a thread keeps for its spans: contexts, generator of ids, recordings to use again, places to write.
//!
//! One block without a destructor, so that reaching it is an addition and not a look at its state. Whoever first lets
//! a thread keep something asks [`Thread::keeps`], which has the block emptied at the thread's end; after that it
//! keeps nothing, and spans still work.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;

use super::current::Contexts;
use super::pipeline::writer::Lane;
use super::recording::Recording;

/// How the names of the threads of this crate and its client begin.
#[cfg(any(feature = "log", feature = "tracing"))]
const OWN_THREADS: &str = "lens-";

#[cfg(any(feature = "log", feature = "tracing"))]
thread_local! {
    static EXPORTS: bool =
        std::thread::current().name().is_some_and(|name| name.starts_with(OWN_THREADS));
}

/// Whether this thread is one of those that export: what it does is not to be told, or exporting would never end.
#[cfg(any(feature = "log", feature = "tracing"))]
pub(super) fn exports() -> bool {
    EXPORTS.try_with(|exports| *exports).unwrap_or(true)
}

/// Recordings that a thread keeps for its next spans.
const IDLE: u32 = 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    /// Nothing is kept yet.
    New,
    /// What is kept is let go at the end.
    Watched,
    /// The end was there.
    Gone,
}

/// In the order of use, so that a span touches two lines of the cache.
#[repr(C, align(64))]
pub(super) struct Thread {
    pub(super) contexts: RefCell<Contexts>,
    /// Zero until it is seeded.
    pub(super) ids: [Cell<u64>; 2],
    /// The recording that was used last, which leads to the others.
    idle: Cell<Option<Box<Recording>>>,
    /// How many more may be kept.
    idle_room: Cell<u32>,
    life: Cell<Life>,
    pub(super) spans: RefCell<Lane>,
    pub(super) logs: RefCell<Lane>,
}

thread_local! {
    static THREAD: ManuallyDrop<Thread> = const {
        ManuallyDrop::new(Thread {
            ids: [const { Cell::new(0) }; 2],
            contexts: RefCell::new(Contexts::NONE),
            spans: RefCell::new(Lane::EMPTY),
            logs: RefCell::new(Lane::EMPTY),
            idle: Cell::new(None),
            idle_room: Cell::new(0),
            life: Cell::new(Life::New),
        })
    };
    static END: End = const { End };
}

/// Lends this thread's block.
#[inline(always)]
pub(super) fn with<R>(use_it: impl FnOnce(&Thread) -> R) -> R {
    THREAD.with(|thread| use_it(thread))
}

impl Thread {
    /// Whether it may keep something, to be let go at the thread's end.
    #[cold]
    pub(super) fn keeps(&self) -> bool {
        if self.life.get() == Life::New {
            let watched = END.try_with(|_| ()).is_ok();
            self.life.set(if watched { Life::Watched } else { Life::Gone });
            self.idle_room.set(if watched { IDLE } else { 0 });
        }
        self.life.get() == Life::Watched
    }

    /// A recording of an ended span.
    #[inline(always)]
    pub(super) fn take_idle(&self) -> Option<Box<Recording>> {
        let mut recording = self.idle.take()?;
        // What is replaced is nothing; the compiler is not asked to drop it.
        std::mem::forget(self.idle.replace(recording.next_idle.take()));
        self.idle_room.set(self.idle_room.get().wrapping_add(1));
        Some(recording)
    }

    /// Keeps a recording, or drops it.
    #[inline(always)]
    pub(super) fn give_idle(&self, mut recording: Box<Recording>) {
        let room = self.idle_room.get();
        if room == 0 {
            return self.give_first(recording);
        }
        self.idle_room.set(room - 1);
        std::mem::forget(std::mem::replace(&mut recording.next_idle, self.idle.take()));
        std::mem::forget(self.idle.replace(Some(recording)));
    }

    #[cold]
    fn give_first(&self, recording: Box<Recording>) {
        if self.life.get() == Life::New && self.keeps() {
            self.give_idle(recording);
        }
    }
}

/// Empties the thread's block when it is dropped.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        with(|thread| {
            thread.life.set(Life::Gone);
            thread.idle_room.set(0);
            // One by one: dropping the first would drop the others inside of one another.
            let mut next = thread.idle.take();
            while let Some(mut recording) = next {
                next = recording.next_idle.take();
            }
            drop(
                (thread.contexts.try_borrow_mut())
                    .map(|mut contexts| std::mem::replace(&mut *contexts, Contexts::NONE)),
            );
            for lane in [&thread.spans, &thread.logs] {
                drop(
                    lane.try_borrow_mut()
                        .map(|mut lane| std::mem::replace(&mut *lane, Lane::EMPTY)),
                );
            }
        });
    }
}
