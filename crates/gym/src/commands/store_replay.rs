//! `gym store replay`: what a store holds, sent on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use gym_telemetry::semconv::event;
use http::header::AUTHORIZATION;
use lens::semconv::live;
use lens_otlp::client::{
    Client, MAX_REQUEST_BYTES, Outcome, Protocol, Sender, Signal, Target, Trouble,
};
use lens_otlp::view::logs::LogView;
use lens_store::raw::{Item, RawLog, RawMetric, to_request};
use lens_store::segment::SegmentError;
use lens_store::store::{Segment, Snapshot, StoreError};

use super::store::open;
use crate::args::{ReplayProtocol, ReplaySignal, StoreReplayArgs};
use crate::exit::ExitStatus;
use crate::observe::credentials_for;
use crate::printer::Printer;
use crate::render::{self, Advise as _};
use crate::trace::counted;

/// A request that takes longer is spoken of.
const SLOW: Duration = Duration::from_secs(1);
/// Items of a request.
const BATCH_ITEMS: usize = 512;

/// Sends what the store holds, one signal after the other. One that the receiver does not take keeps it from no other;
/// neither does a segment, which counts as empty from where it cannot be read.
pub fn run(args: &StoreReplayArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    let store = open(&args.dir)?;
    let snapshot = store.snapshot();
    let client = Client::start().context("no thread for sending")?;
    let mut status = ExitStatus::Done;
    for signal in &args.signals {
        let mut sending = Sending::new(args, *signal, &client, printer)?;
        let read = sending.send_all(&snapshot);
        let mut said = format!("sent {} to {}", sending.named(sending.sent), args.to);
        if sending.live_events > 0 {
            let live = counted(sending.live_events, "live event", "live events");
            said.push_str(&format!("; {live} of what was under way then stay here"));
        }
        printer.say(&said);
        if sending.refused > 0 {
            printer.warn(&format!("it refused {}", sending.named(sending.refused)));
            status = ExitStatus::Negative;
        }
        read?;
        let cannot = || format!("cannot send {} to {}", signal.name(), args.to);
        match sending.stopped {
            None => continue,
            Some(Stop::Refused(error)) => {
                status = ExitStatus::Negative;
                let advised = Err::<(), _>(error.context(cannot())).advise(|| {
                    "--signals chooses what is sent, for a backend that does not take everything"
                        .to_owned()
                });
                if let Err(error) = advised {
                    render::error(printer, &error);
                }
            }
            Some(Stop::Away(error)) => {
                render::error(printer, &error.context(cannot()));
                status = ExitStatus::Negative;
                break;
            }
        }
    }
    for damage in store.damage() {
        printer.warn(&damage.to_string());
        status = ExitStatus::Negative;
    }
    Ok(status)
}

/// The header that spans are sent with to where these go, if the environment says so.
fn credentials_of(url: &str) -> Option<(String, String)> {
    let uri: http::Uri = url.parse().ok()?;
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    let value = credentials_for(host)?;
    Some((AUTHORIZATION.as_str().to_owned(), value.to_str().ok()?.to_owned()))
}

/// Why there is no going on.
enum Stop {
    /// The receiver does not take this signal, or not what it holds.
    Refused(anyhow::Error),
    /// It is not there.
    Away(anyhow::Error),
}

/// Requests of one signal, and what became of what they held.
struct Sending<'a> {
    signal: ReplaySignal,
    args: &'a StoreReplayArgs,
    printer: &'a Printer,
    sender: Sender,
    sent: u64,
    refused: u64,
    stopped: Option<Stop>,
    /// Log records that are not sent, since they say what was under way.
    live_events: usize,
    /// What delayed the request that is on its way, as far as it was asked for.
    known: Option<Trouble>,
    /// Why requests take long, as it was told last; nothing once one does not.
    told: Option<String>,
}

impl<'a> Sending<'a> {
    fn new(
        args: &'a StoreReplayArgs,
        signal: ReplaySignal,
        client: &Client,
        printer: &'a Printer,
    ) -> Result<Self, anyhow::Error> {
        let base = args.to.trim_end_matches('/');
        let path = || format!("{base}/v1/{}", signal.name());
        let (protocol, endpoint) = match args.protocol {
            ReplayProtocol::Grpc => (Protocol::Grpc, base.to_owned()),
            ReplayProtocol::HttpProtobuf => (Protocol::HttpProtobuf, path()),
            ReplayProtocol::HttpJson => (Protocol::HttpJson, path()),
        };
        let target = Target {
            signal: match signal {
                ReplaySignal::Traces => Signal::Traces,
                ReplaySignal::Logs => Signal::Logs,
                ReplaySignal::Metrics => Signal::Metrics,
            },
            endpoint,
            protocol,
            headers: credentials_of(&args.to).into_iter().collect(),
            timeout: Duration::from_secs(args.timeout),
            gzip: args.gzip,
            certificate: None,
            client_identity: None,
            max_request_bytes: MAX_REQUEST_BYTES,
        };
        let sender = client.open(target)?;
        let (stopped, known, told) = (None, None, None);
        let (sent, refused, live_events) = (0, 0, 0);
        Ok(Self { signal, args, printer, sender, sent, refused, stopped, live_events, known, told })
    }

    /// `12 spans`.
    fn named(&self, count: u64) -> String {
        let (one, many) = match self.signal {
            ReplaySignal::Traces => ("span", "spans"),
            ReplaySignal::Logs => ("log record", "log records"),
            ReplaySignal::Metrics => ("metric point", "metric points"),
        };
        counted(usize::try_from(count).unwrap_or(usize::MAX), one, many)
    }

    fn send_all(&mut self, snapshot: &Snapshot) -> Result<(), StoreError> {
        for segment in snapshot.segments() {
            if self.stopped.is_some() {
                break;
            }
            let sent = self.send_segment(segment);
            snapshot.unless_damaged(segment, sent)?;
        }
        let metrics = snapshot.memory_metrics();
        // Nothing of these can be broken.
        let _ = match self.signal {
            ReplaySignal::Traces => self.send_each(snapshot.memory_spans().map(Ok), |_| 1),
            ReplaySignal::Logs => self.send_logs(snapshot.memory_logs()),
            ReplaySignal::Metrics => self.send_each(metrics.into_iter().map(Ok), RawMetric::points),
        };
        Ok(())
    }

    fn send_segment(&mut self, segment: &Segment) -> Result<(), SegmentError> {
        match self.signal {
            ReplaySignal::Traces => match segment.spans()? {
                Some(spans) => self.send_each(spans.spans()?, |_| 1),
                None => Ok(()),
            },
            ReplaySignal::Logs => self.send_logs(segment.logs()?),
            ReplaySignal::Metrics => {
                self.send_each(segment.metrics()?.into_iter().map(Ok), RawMetric::points)
            }
        }
    }

    /// Sends log records but for those that say what was under way: a receiver would show it as if it still were.
    fn send_logs(&mut self, logs: Vec<RawLog>) -> Result<(), SegmentError> {
        let is_live = |log: &RawLog| {
            let live = [live::OPEN_EVENT, live::HEARTBEAT_EVENT, event::RETRY];
            LogView::read(&log.message).is_ok_and(|view| live.contains(&view.event_name))
        };
        let (live, lasting): (Vec<RawLog>, Vec<RawLog>) = logs.into_iter().partition(is_live);
        self.live_events += live.len();
        self.send_each(lasting.into_iter().map(Ok), |_| 1)
    }

    /// Sends items in requests of a bounded size. `weight` says for how many each counts.
    fn send_each<T: Item>(
        &mut self,
        items: impl Iterator<Item = Result<T, SegmentError>>,
        weight: impl Fn(&T) -> usize,
    ) -> Result<(), SegmentError> {
        let mut batch = Vec::with_capacity(BATCH_ITEMS);
        let mut read = Ok(());
        for item in items {
            match item {
                Ok(item) => batch.push(item),
                // What came before it is sent, too.
                Err(error) => {
                    read = Err(error);
                    break;
                }
            }
            if batch.len() == BATCH_ITEMS {
                self.send(&batch, &weight);
                batch.clear();
            }
            if self.stopped.is_some() {
                break;
            }
        }
        self.send(&batch, &weight);
        read
    }

    fn send<T: Item>(&mut self, items: &[T], weight: impl Fn(&T) -> usize) {
        if items.is_empty() || self.stopped.is_some() {
            return;
        }
        let count: usize = items.iter().map(weight).sum();
        let mut known = None;
        let mut told = self.told.take();
        let begun = Instant::now();
        let outcome = self.sender.send_or_tell(Arc::new(to_request(items)), SLOW, || {
            known = self.sender.take_trouble();
            let why = known.as_ref().map_or_else(|| "no answer yet".to_owned(), Trouble::to_string);
            if told.as_ref() != Some(&why) {
                self.tell_of_waiting(&why);
            }
            told = Some(why);
        });
        (self.known, self.told) = (known, told);
        match outcome {
            Outcome::Accepted { rejected } => {
                self.sent += (count as u64).saturating_sub(rejected);
                self.refused += rejected;
                // It is over, and no reason for what comes later.
                let _ = self.sender.take_trouble();
                self.known = None;
                if begun.elapsed() < SLOW {
                    self.told = None;
                }
            }
            Outcome::Refused => {
                self.stopped = Some(Stop::Refused(self.trouble("refuses what it is sent")));
            }
            Outcome::Failed { .. } => {
                self.stopped = Some(Stop::Away(self.trouble("cannot be reached")));
            }
        }
    }

    fn tell_of_waiting(&self, why: &str) {
        let StoreReplayArgs { to, timeout, .. } = self.args;
        let text = format!("waiting for {to}: {why}; a request is given up after {timeout} s");
        self.printer.say(&text);
    }

    fn trouble(&self, otherwise: &str) -> anyhow::Error {
        match self.sender.take_trouble().as_ref().or(self.known.as_ref()) {
            Some(trouble) => anyhow::anyhow!("{trouble}"),
            None => anyhow::anyhow!("the receiver {otherwise}"),
        }
    }
}
