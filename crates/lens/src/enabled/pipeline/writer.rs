//! The thread's side: an ended span goes into the slot of the thread that ends it.

use lens_otlp::encode::Rare;
use lens_otlp::wire::Cursor;

use super::{Pipeline, PipelineRing, RingRecord, trim};
use crate::enabled::message::{SpanMessage, set_end};
use crate::enabled::process::PROCESS;
use crate::enabled::raw::fork;
use crate::enabled::raw::mapping::Mapping;
use crate::enabled::raw::records::{self, Pages};
use crate::enabled::raw::ring::Writer;
use crate::enabled::thread::{self, Thread};

/// What a thread holds of one pipeline.
#[repr(C)]
pub(in crate::enabled) struct Lane {
    pipeline: Option<&'static Pipeline>,
    writer: Option<Writer<Mapping>>,
    pages: Option<Pages<Mapping>>,
}

impl Lane {
    pub(in crate::enabled) const EMPTY: Self = Self { pipeline: None, writer: None, pages: None };

    /// Whether it belongs to `pipeline`; what belonged to another process is let go untouched.
    #[inline]
    fn serve(&mut self, pipeline: &'static Pipeline) {
        if self.pipeline.is_none_or(|known| !std::ptr::eq(known, pipeline)) {
            self.let_go();
            self.pipeline = Some(pipeline);
        }
    }

    #[cold]
    fn let_go(&mut self) {
        let foreign = self.pipeline.is_some_and(|known| !known.is_ours());
        let (writer, pages) = (self.writer.take(), self.pages.take());
        if foreign {
            std::mem::forget((writer, pages));
        }
    }

    /// Takes a new slot for what does not fit into the one before.
    fn append_to_new(
        &mut self,
        pipeline: &'static Pipeline,
        scope: u16,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        // Sealed first: where the ring has one slot only, that is the one to free.
        self.writer = None;
        let Some(mut writer) = pipeline.ring.claim() else {
            pipeline.wake();
            return false;
        };
        let appended = writer.append(scope, 0, len, fill);
        self.writer = Some(writer);
        if pipeline.ring.free_slots() < pipeline.wake_free_slots {
            pipeline.wake();
        }
        appended
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if self.pipeline.is_some_and(|known| !known.is_ours()) {
            self.let_go();
        }
    }
}

/// A span with what most do not have.
#[derive(Clone, Copy, Debug)]
pub(in crate::enabled) struct Ended<'a> {
    /// Head, name, attributes.
    pub(in crate::enabled) message: &'a [u8],
    /// Bytes of head and name.
    pub(in crate::enabled) head_len: usize,
    pub(in crate::enabled) rare: Rare<'a>,
}

impl Ended<'_> {
    pub(super) fn encoded_len(&self) -> usize {
        self.message.len() + self.rare.encoded_len()
    }

    fn write(&self, out: &mut [u8]) {
        let mut out = Cursor::new(out);
        out.slice(self.message);
        self.rare.write(&mut out);
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.encoded_len()];
        self.write(&mut bytes);
        bytes
    }
}

/// Hands an ended span over that has nothing unusual; never blocks, never fails: what cannot be kept is counted.
#[inline(always)]
pub(in crate::enabled) fn push(
    thread: &Thread,
    scope: u16,
    message: &mut SpanMessage,
    end_nanos: u64,
) {
    let Some(pipeline) = PROCESS.spans.get() else { return };
    if !pipeline.admit() {
        return;
    }
    let bytes = message.usual_bytes();
    // The end is written behind the copy, which need not wait for it.
    if let Ok(mut lane) = thread.spans.try_borrow_mut()
        && lane.pipeline.is_some_and(|known| std::ptr::eq(known, pipeline))
        && let Some(writer) = &mut lane.writer
        && writer.append(scope, 0, bytes.len(), |out| {
            out.copy_from_slice(bytes);
            set_end(out, end_nanos);
        })
    {
        return;
    }
    put_usual(pipeline, thread, scope, message, end_nanos);
}

#[cold]
#[inline(never)]
fn put_usual(
    pipeline: &'static Pipeline,
    thread: &Thread,
    scope: u16,
    message: &mut SpanMessage,
    end_nanos: u64,
) {
    message.set_end(end_nanos);
    let ended =
        Ended { message: message.bytes(), head_len: message.head_len(), rare: Rare::default() };
    put_span(pipeline, thread, scope, &ended);
}

/// Hands over a span of any kind, as [`push`] does.
pub(in crate::enabled) fn push_ended(thread: &Thread, scope: u16, ended: &Ended<'_>) {
    if let Some(pipeline) = PROCESS.spans.get()
        && pipeline.admit()
    {
        put_span(pipeline, thread, scope, ended);
    }
}

#[cold]
#[inline(never)]
fn put_span(pipeline: &'static Pipeline, thread: &Thread, scope: u16, ended: &Ended<'_>) {
    let len = ended.encoded_len();
    if pipeline.ring.fits(len) {
        return put(pipeline, thread, scope, len, |out| ended.write(out));
    }
    match trim::trim(ended, |len| pipeline.ring.fits(len)) {
        Some(bytes) => put(pipeline, thread, scope, bytes.len(), |out| out.copy_from_slice(&bytes)),
        None => pipeline.refuse_admitted(|counters| &counters.too_large),
    }
}

fn put(
    pipeline: &'static Pipeline,
    thread: &Thread,
    scope: u16,
    len: usize,
    mut fill: impl FnMut(&mut [u8]),
) {
    let lane = if pipeline.kind.is_logs() { &thread.logs } else { &thread.spans };
    let appended = match lane.try_borrow_mut() {
        Ok(mut lane) if thread.keeps() => {
            lane.serve(pipeline);
            let appended =
                lane.writer.as_mut().is_some_and(|writer| writer.append(scope, 0, len, &mut fill));
            appended || lane.append_to_new(pipeline, scope, len, fill)
        }
        // The thread is at its end, or inside of this very function: a slot for this one alone.
        _ => Lane { pipeline: Some(pipeline), writer: None, pages: None }
            .append_to_new(pipeline, scope, len, fill),
    };
    if !appended {
        pipeline.refuse_admitted(|counters| &counters.buffer_full);
    }
}

/// Appends an encoded log record.
pub(in crate::enabled) fn push_encoded(pipeline: &'static Pipeline, scope: u16, record: &[u8]) {
    if !pipeline.admit() {
        return;
    }
    if !pipeline.ring.fits(record.len()) {
        return pipeline.refuse_admitted(|counters| &counters.too_large);
    }
    thread::with(|thread| {
        put(pipeline, thread, scope, record.len(), |out| out.copy_from_slice(record));
    });
}

/// What says of an open span that it is open.
pub(in crate::enabled) struct StartRecord {
    ring: &'static PipelineRing,
    generation: u32,
    record: RingRecord,
}

impl StartRecord {
    /// Says that the span's own code ends it; false when somebody else did.
    pub(in crate::enabled) fn begin_end(&self) -> bool {
        self.generation != fork::generation() || self.ring.begin_end(self.record)
    }

    /// The span has ended and is published.
    pub(in crate::enabled) fn close(self) {
        if self.generation == fork::generation() {
            self.ring.close(self.record);
        }
    }
}

/// Notes that a span is open; `None` when there is no room for more.
///
/// `owner` is the number of its scope and that of its group. `started` is the span so far; what is too long for a
/// record goes without its attributes.
pub(in crate::enabled) fn open_record(owner: [u16; 2], started: &Ended<'_>) -> Option<StartRecord> {
    let pipeline = PROCESS.spans.get()?;
    if !pipeline.is_ours() {
        return None;
    }
    let bare = started.message.get(..started.head_len)?;
    let short = Ended { message: bare, ..*started };
    let fits = started.encoded_len() <= records::RECORD_BYTES - records::RECORD_HEAD;
    let started = if fits { started } else { &short };
    let record = thread::with(|thread| {
        let mut lane = thread.spans.try_borrow_mut().ok().filter(|_| thread.keeps())?;
        lane.serve(pipeline);
        let pages = lane.pages.get_or_insert_with(|| Pages::new(pipeline.ring));
        pages.open(owner, started.encoded_len(), |out| started.write(out))
    });
    if record.is_none() {
        pipeline.count_unrecorded();
    }
    Some(StartRecord { ring: pipeline.ring, generation: pipeline.generation, record: record? })
}
