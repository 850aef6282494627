//! The thread's side: an ended span goes into the slot of the thread that ends it.

use std::cell::RefCell;

use lens_otlp::encode::SpanTail;
use lens_otlp::wire::Cursor;

use super::{Pipeline, PipelineRing, RingRecord, SPANS, trim};
use crate::enabled::raw::fork;
use crate::enabled::raw::mapping::Mapping;
use crate::enabled::raw::records::{self, Pages};
use crate::enabled::raw::ring::Writer;

/// What a thread holds of one pipeline.
struct Local {
    pipeline: Option<&'static Pipeline>,
    writer: Option<Writer<Mapping>>,
    pages: Option<Pages<Mapping>>,
}

thread_local! {
    static SPAN_WRITER: RefCell<Local> = const { RefCell::new(Local::EMPTY) };
    static LOG_WRITER: RefCell<Local> = const { RefCell::new(Local::EMPTY) };
}

impl Local {
    const EMPTY: Self = Self { pipeline: None, writer: None, pages: None };

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

    /// Appends to the thread's slot, or to a new one when that is full.
    #[inline]
    fn append(
        &mut self,
        pipeline: &'static Pipeline,
        scope: u16,
        len: usize,
        mut fill: impl FnMut(&mut [u8]),
    ) -> bool {
        if let Some(writer) = &mut self.writer
            && writer.append(scope, 0, len, &mut fill)
        {
            return true;
        }
        self.append_to_new(pipeline, scope, len, fill)
    }

    #[cold]
    fn append_to_new(
        &mut self,
        pipeline: &'static Pipeline,
        scope: u16,
        len: usize,
        fill: impl FnMut(&mut [u8]),
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

impl Drop for Local {
    fn drop(&mut self) {
        if self.pipeline.is_some_and(|known| !known.is_ours()) {
            self.let_go();
        }
    }
}

/// A span that has ended, as far as it is encoded.
#[derive(Clone, Copy, Debug)]
pub(in crate::enabled) struct Ended<'a> {
    pub(in crate::enabled) head_and_attributes: &'a [u8],
    pub(in crate::enabled) head_len: usize,
    pub(in crate::enabled) tail: &'a SpanTail<'a>,
}

impl Ended<'_> {
    #[inline]
    pub(super) fn encoded_len(&self) -> usize {
        self.head_and_attributes.len() + self.tail.encoded_len()
    }

    #[inline]
    fn write(&self, out: &mut [u8]) {
        let mut out = Cursor::new(out);
        out.slice(self.head_and_attributes);
        self.tail.write(&mut out);
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.encoded_len()];
        self.write(&mut bytes);
        bytes
    }
}

/// Hands an ended span over; never blocks, never fails: what cannot be kept is counted.
#[inline]
pub(in crate::enabled) fn push(scope: u16, ended: &Ended<'_>) {
    let Some(pipeline) = SPANS.get() else { return };
    if !pipeline.admit() {
        return;
    }
    let len = ended.encoded_len();
    if !pipeline.ring.fits(len) {
        return push_trimmed(pipeline, scope, ended);
    }
    put(pipeline, scope, len, |out| ended.write(out));
}

#[cold]
fn push_trimmed(pipeline: &'static Pipeline, scope: u16, ended: &Ended<'_>) {
    match trim::trim(ended, |len| pipeline.ring.fits(len)) {
        Some(bytes) => put(pipeline, scope, bytes.len(), |out| out.copy_from_slice(&bytes)),
        None => pipeline.refuse(|counters| &counters.too_large),
    }
}

#[inline]
fn put(pipeline: &'static Pipeline, scope: u16, len: usize, mut fill: impl FnMut(&mut [u8])) {
    let local = if pipeline.kind.is_logs() { &LOG_WRITER } else { &SPAN_WRITER };
    let appended = local.try_with(|local| {
        let mut local = local.try_borrow_mut().ok()?;
        local.serve(pipeline);
        Some(local.append(pipeline, scope, len, &mut fill))
    });
    let appended = match appended {
        Ok(Some(appended)) => appended,
        // The thread is at its end, or inside of this very function: a slot for this one alone.
        _ => Local { pipeline: Some(pipeline), writer: None, pages: None }
            .append_to_new(pipeline, scope, len, fill),
    };
    if !appended {
        pipeline.refuse(|counters| &counters.buffer_full);
    }
}

/// Appends an encoded log record.
pub(in crate::enabled) fn push_encoded(pipeline: &'static Pipeline, scope: u16, record: &[u8]) {
    if !pipeline.admit() {
        return;
    }
    if !pipeline.ring.fits(record.len()) {
        return pipeline.refuse(|counters| &counters.too_large);
    }
    put(pipeline, scope, record.len(), |out| out.copy_from_slice(record));
}

/// What says of an open span that it is open.
pub(in crate::enabled) struct StartRecord {
    ring: &'static PipelineRing,
    generation: u64,
    record: RingRecord,
}

impl StartRecord {
    /// The span has ended and is published.
    pub(in crate::enabled) fn close(self) {
        if self.generation == fork::generation() {
            self.ring.close(self.record);
        }
    }
}

/// Notes that a span is open; `None` when nobody could find the note, or there is no room for more.
///
/// `started` is the span so far; what is too long for a record goes without its attributes.
pub(in crate::enabled) fn open_record(scope: u16, started: &Ended<'_>) -> Option<StartRecord> {
    let pipeline = SPANS.get()?;
    if !pipeline.outlives_process || !pipeline.is_ours() {
        return None;
    }
    let bare = started.head_and_attributes.get(..started.head_len)?;
    let short = Ended { head_and_attributes: bare, ..*started };
    let fits = started.encoded_len() <= records::RECORD_BYTES - records::RECORD_HEAD;
    let started = if fits { started } else { &short };
    let record = SPAN_WRITER
        .try_with(|local| {
            let mut local = local.try_borrow_mut().ok()?;
            local.serve(pipeline);
            let pages = local.pages.get_or_insert_with(|| Pages::new(pipeline.ring));
            pages.open(scope, started.encoded_len(), |out| started.write(out))
        })
        .ok()
        .flatten();
    if record.is_none() {
        pipeline.count_unrecorded();
    }
    Some(StartRecord { ring: pipeline.ring, generation: pipeline.generation, record: record? })
}
