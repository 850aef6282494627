//! What every span asks of its process, in one line of the cache: after other work a span misses it once.
//!
//! Only whether the pipeline is open is elsewhere: there are two pipelines, and each has its own answer.
//!
//! Each word belongs to the module that writes it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};

use super::clock::Clock;
use super::message::SpanMessage;
use super::pipeline::Pipeline;
use super::raw::published::Published;
use super::raw::{counter, fork};
use crate::config::SpanLimits;

#[repr(C, align(64))]
pub(super) struct Process {
    /// Of `clock`.
    pub(super) clock: Clock,
    /// Of `raw::fork`.
    pub(super) generation: AtomicU32,
    /// Of `raw::counter`.
    pub(super) counter: AtomicU8,
    /// Of `handle`: whether limits never matter to a small attribute.
    pub(super) limits_are_generous: AtomicBool,
    /// Of `span_end`.
    pub(super) has_hook: AtomicBool,
    /// Of `sampling`.
    pub(super) is_parent_based: AtomicBool,
    /// Of `sampling`: traces whose low eight bytes are below it are recorded.
    pub(super) sampling_bound: AtomicU64,
    /// Of `pipeline`: where ended spans go.
    pub(super) spans: Published<Pipeline>,
}

const _: () = assert!(size_of::<Process>() == 64);

pub(super) static PROCESS: Process = Process {
    clock: Clock::unset(),
    generation: AtomicU32::new(fork::FIRST),
    counter: AtomicU8::new(counter::UNKNOWN),
    limits_are_generous: AtomicBool::new(SpanMessage::are_generous(&SpanLimits::DEFAULT)),
    has_hook: AtomicBool::new(false),
    is_parent_based: AtomicBool::new(true),
    sampling_bound: AtomicU64::new(u64::MAX),
    spans: Published::nothing(),
};
