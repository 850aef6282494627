//! Load: export requests made beforehand, in the two shapes that a store must bear.
//!
//! A request holds spans of one process, as exporters send them, so the spans of a trace come in as many requests as
//! it has processes. The same options and seed make the same requests.

mod jaeger;
mod random;
mod rollouts;

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use lens_otlp::encode::{Scope, put_request, put_scope_item};

use random::Random;
pub use rollouts::Rollouts;

/// In which order the spans of a trace are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As they end: children before their parents.
    #[default]
    Ended,
    /// As they start: parents before their children.
    Started,
    /// In any order.
    Shuffled,
}

/// How requests are made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Of everything that is random.
    pub seed: u64,
    /// Spans of a full request; the last ones of a process are fewer.
    pub batch_spans: usize,
    /// Start of the first trace, Unix nanoseconds.
    pub base_nanos: u64,
    /// From the start of a trace to that of the next.
    pub spacing_nanos: u64,
    /// Order within a trace.
    pub order: Order,
    /// Spans of a thousand that are sent some requests later.
    pub late_permille: u16,
    /// Requests of a thousand that are sent twice.
    pub repeated_permille: u16,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            batch_spans: 512,
            base_nanos: 1_795_737_600_000_000_000,
            spacing_nanos: 50_000,
            order: Order::Ended,
            late_permille: 0,
            repeated_permille: 0,
        }
    }
}

/// One export request.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Encoded `ExportTraceServiceRequest`.
    pub request: Bytes,
    /// Its spans.
    pub spans: usize,
    /// It was sent before.
    pub is_repeated: bool,
}

/// The dataset that Jaeger's benchmark uses: ten spans a trace in ten services, eleven attributes a span of 97 keys,
/// about 640 bytes.
pub fn jaeger(options: Options, traces: u64) -> impl Iterator<Item = Batch> + Send {
    let source = jaeger::Jaeger::new(&options, traces);
    Batches::new(options, source)
}

/// Rollouts of a run, each a trace of hundreds or thousands of spans in four processes.
pub fn rollouts(options: Options, rollouts: Rollouts) -> impl Iterator<Item = Batch> + Send {
    let source = rollouts::Running::new(&options, rollouts);
    Batches::new(options, source)
}

/// The spans of one trace, encoded.
#[derive(Default)]
struct Trace {
    bytes: Vec<u8>,
    spans: Vec<Made>,
}

struct Made {
    process: usize,
    start_nanos: u64,
    end_nanos: u64,
    message: Range<usize>,
}

trait Traces {
    /// Encoded resources, and the scope of each.
    fn processes(&self) -> &[(Vec<u8>, Scope<'static>)];
    /// Makes the next trace; `false` when there is none.
    fn next(&mut self, trace: &mut Trace) -> bool;
}

/// Requests after which a late span is sent at the latest.
const LATEST: u64 = 40;

#[derive(Clone, Default)]
struct Waiting {
    items: Vec<u8>,
    spans: usize,
}

struct Batches<S> {
    options: Options,
    source: S,
    random: Random,
    trace: Trace,
    waiting: Vec<Waiting>,
    late: VecDeque<(u64, usize, Vec<u8>)>,
    ready: VecDeque<Batch>,
    sent: u64,
    is_done: bool,
}

impl<S: Traces> Batches<S> {
    fn new(options: Options, source: S) -> Self {
        let waiting = vec![Waiting::default(); source.processes().len()];
        let random = Random::new(options.seed ^ 0x5eed);
        Self {
            options,
            source,
            random,
            trace: Trace::default(),
            waiting,
            late: VecDeque::new(),
            ready: VecDeque::new(),
            sent: 0,
            is_done: false,
        }
    }

    fn add_trace(&mut self) {
        let mut trace = std::mem::take(&mut self.trace);
        match self.options.order {
            Order::Ended => trace.spans.sort_by_key(|made| made.end_nanos),
            Order::Started => trace.spans.sort_by_key(|made| made.start_nanos),
            Order::Shuffled => {
                for at in (1..trace.spans.len()).rev() {
                    trace.spans.swap(at, self.random.below(at as u64 + 1) as usize);
                }
            }
        }
        for made in &trace.spans {
            let message = &trace.bytes[made.message.clone()];
            if self.random.permille(self.options.late_permille) {
                let at = self.sent + 1 + self.random.below(LATEST);
                self.late.push_back((at, made.process, message.to_vec()));
            } else {
                self.add(made.process, message);
            }
        }
        self.trace = trace;
    }

    fn add(&mut self, process: usize, message: &[u8]) {
        let waiting = &mut self.waiting[process];
        put_scope_item(&mut waiting.items, message);
        waiting.spans += 1;
        if waiting.spans >= self.options.batch_spans {
            self.send(process);
        }
    }

    fn send(&mut self, process: usize) {
        let waiting = &mut self.waiting[process];
        if waiting.spans == 0 {
            return;
        }
        let (resource, scope) = &self.source.processes()[process];
        let mut request = Vec::new();
        put_request(&mut request, resource, std::iter::once((*scope, waiting.items.as_slice())));
        let batch = Batch { request: request.into(), spans: waiting.spans, is_repeated: false };
        waiting.items.clear();
        waiting.spans = 0;
        self.sent += 1;
        if self.random.permille(self.options.repeated_permille) {
            self.ready.push_back(Batch { is_repeated: true, ..batch.clone() });
        }
        // A repetition comes after what was ready before it, so requests are repeated out of order too.
        self.ready.push_front(batch);
        while self.late.front().is_some_and(|(at, ..)| *at <= self.sent) {
            if let Some((_, process, message)) = self.late.pop_front() {
                self.add(process, &message);
            }
        }
    }

    fn finish(&mut self) {
        self.is_done = true;
        while let Some((_, process, message)) = self.late.pop_front() {
            self.add(process, &message);
        }
        for process in 0..self.waiting.len() {
            self.send(process);
        }
    }
}

impl<S: Traces> Iterator for Batches<S> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        while self.ready.is_empty() && !self.is_done {
            self.trace.bytes.clear();
            self.trace.spans.clear();
            if self.source.next(&mut self.trace) {
                self.add_trace();
            } else {
                self.finish();
            }
        }
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::decode;

    fn read(batches: &[Batch]) -> Vec<crate::CollectedSpan> {
        batches.iter().flat_map(|batch| decode(&batch.request).expect("a valid request")).collect()
    }

    #[test]
    fn the_dataset_of_jaeger_has_its_figures() {
        let batches: Vec<Batch> = jaeger(Options::default(), 1_000).collect();
        let spans = read(&batches);
        assert_eq!(spans.len(), 10_000);
        assert_eq!(batches.iter().map(|batch| batch.spans).sum::<usize>(), 10_000);
        assert!(spans.iter().all(|span| span.attributes.len() == 11));
        let keys: BTreeSet<&String> =
            spans.iter().flat_map(|span| span.attributes.keys()).collect();
        let services: BTreeSet<&str> = spans.iter().map(crate::CollectedSpan::service).collect();
        let traces: BTreeSet<&String> = spans.iter().map(|span| &span.trace_id).collect();
        assert_eq!((keys.len(), services.len(), traces.len()), (97, 10, 1_000));
        let bytes = batches.iter().map(|batch| batch.request.len()).sum::<usize>() / spans.len();
        assert!((600..680).contains(&bytes), "{bytes} bytes a span");
    }

    #[test]
    fn a_rollout_is_one_trace_with_one_root_and_no_orphans() {
        let wanted = Rollouts { tasks: 2, repeats: 3, spans: 306..=900, ..Rollouts::default() };
        let spans = read(&rollouts(Options::default(), wanted).collect::<Vec<_>>());
        let mut traces: BTreeMap<&str, Vec<&crate::CollectedSpan>> = BTreeMap::new();
        for span in &spans {
            traces.entry(&span.trace_id).or_default().push(span);
        }
        assert_eq!(traces.len(), 6);
        for spans in traces.values() {
            assert!((300..=900).contains(&spans.len()), "{} spans", spans.len());
            let ids: BTreeSet<&str> = spans.iter().map(|span| &*span.span_id).collect();
            assert_eq!(ids.len(), spans.len());
            let roots = spans.iter().filter(|span| span.parent_id.is_none()).count();
            assert_eq!(roots, 1);
            for span in spans {
                assert!(span.parent_id.as_deref().is_none_or(|parent| ids.contains(parent)));
                assert!(span.start_nanos <= span.end_nanos, "{}", span.name);
                assert!(!span.text("nemo.gym.rollout.id").is_empty());
            }
            let services: BTreeSet<&str> = spans.iter().map(|span| span.service()).collect();
            assert_eq!(services.len(), 4);
        }
    }

    #[test]
    fn late_and_repeated_spans_are_all_there_and_the_same_seed_says_the_same() {
        let options = Options {
            batch_spans: 7,
            order: Order::Shuffled,
            late_permille: 200,
            repeated_permille: 100,
            ..Options::default()
        };
        let batches: Vec<Batch> = jaeger(options.clone(), 100).collect();
        assert!(batches.iter().any(|batch| batch.is_repeated));
        let first: Vec<Batch> =
            batches.iter().filter(|batch| !batch.is_repeated).cloned().collect();
        let ids: BTreeSet<(String, String)> =
            read(&first).into_iter().map(|span| (span.trace_id, span.span_id)).collect();
        assert_eq!(ids.len(), 1_000);
        let again: Vec<Batch> = jaeger(options, 100).collect();
        assert!(batches.iter().zip(&again).all(|(a, b)| a.request == b.request));
    }
}
