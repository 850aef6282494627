//! What the receiver counts about itself.
//!
//! Every bound has a gauge of its fill beside it. Counters are relaxed atomics: each is exact, and together they are
//! as of about the same time.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::intake::Signal;

/// How a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// OTLP/gRPC.
    Grpc,
    /// OTLP/HTTP.
    Http,
}

impl Transport {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Grpc, Self::Http];

    /// `grpc` or `http`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
        }
    }
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Nothing is served at its path.
    NoSuchPath,
    /// Another method than POST.
    Method,
    /// No token, or a wrong one.
    Credentials,
    /// Neither protobuf nor JSON.
    ContentType,
    /// Compressed in a way that is not known.
    Compression,
    /// More bytes than one request may have, as received or inflated.
    TooLarge,
    /// Its body did not come in time.
    TooSlow,
    /// Its sender went away.
    CutOff,
    /// Not OTLP.
    Malformed,
    /// Too many bytes in flight, or waiting to be stored.
    Overloaded,
    /// No room on the disk.
    DiskFull,
    /// It could not be kept.
    Failed,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::NoSuchPath,
        Self::Method,
        Self::Credentials,
        Self::ContentType,
        Self::Compression,
        Self::TooLarge,
        Self::TooSlow,
        Self::CutOff,
        Self::Malformed,
        Self::Overloaded,
        Self::DiskFull,
        Self::Failed,
    ];

    /// Its name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSuchPath => "no_such_path",
            Self::Method => "method",
            Self::Credentials => "credentials",
            Self::ContentType => "content_type",
            Self::Compression => "compression",
            Self::TooLarge => "too_large",
            Self::TooSlow => "too_slow",
            Self::CutOff => "cut_off",
            Self::Malformed => "malformed",
            Self::Overloaded => "overloaded",
            Self::DiskFull => "disk_full",
            Self::Failed => "failed",
        }
    }
}

/// What came by one signal and transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Requests that were accepted.
    pub requests: u64,
    /// Spans, metrics or log records in them, less those that were rejected.
    pub items: u64,
    /// Spans, data points or log records that were rejected one by one.
    pub rejected_items: u64,
    /// Bytes of accepted requests as they came.
    pub received_bytes: u64,
    /// The same as protobuf.
    pub request_bytes: u64,
}

/// The receiver's counters at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// By signal and transport.
    pub received: Vec<(Signal, Transport, Received)>,
    /// Requests that were refused, by transport and reason; those with none are left out.
    pub refused: Vec<(Transport, Reason, u64)>,
    /// Connections that were accepted.
    pub connections_total: u64,
    /// Connections that are open.
    pub connections: u64,
    /// As many may be open.
    pub connections_limit: u64,
    /// Connections that were closed, idle, to make room for others.
    pub connections_shed: u64,
    /// Times that no connection could be accepted.
    pub accept_failures: u64,
    /// Bytes of requests that are being received or worked on.
    pub in_flight_bytes: u64,
    /// As many may be.
    pub in_flight_limit_bytes: u64,
}

impl Snapshot {
    /// What was received of a signal, by either transport.
    pub fn of(&self, signal: Signal) -> Received {
        let mut sum = Received::default();
        for (_, _, received) in self.received.iter().filter(|(found, ..)| *found == signal) {
            sum.requests += received.requests;
            sum.items += received.items;
            sum.rejected_items += received.rejected_items;
            sum.received_bytes += received.received_bytes;
            sum.request_bytes += received.request_bytes;
        }
        sum
    }

    /// Requests that were refused for a reason.
    pub fn refused_for(&self, reason: Reason) -> u64 {
        self.refused.iter().filter(|(_, found, _)| *found == reason).map(|(.., count)| count).sum()
    }
}

#[derive(Debug, Default)]
struct Arrivals {
    requests: AtomicU64,
    items: AtomicU64,
    rejected_items: AtomicU64,
    received_bytes: AtomicU64,
    request_bytes: AtomicU64,
}

/// The counters as they run.
#[derive(Debug, Default)]
pub(super) struct Counters {
    arrivals: [[Arrivals; 2]; 3],
    refused: [[AtomicU64; Reason::ALL.len()]; 2],
    pub connections_total: AtomicU64,
    pub connections: AtomicU64,
    pub connections_shed: AtomicU64,
    pub accept_failures: AtomicU64,
}

impl Counters {
    pub(super) fn received(&self, signal: Signal, transport: Transport, received: &Received) {
        let arrivals = &self.arrivals[signal as usize][transport as usize];
        for (counter, more) in [
            (&arrivals.requests, received.requests),
            (&arrivals.items, received.items),
            (&arrivals.rejected_items, received.rejected_items),
            (&arrivals.received_bytes, received.received_bytes),
            (&arrivals.request_bytes, received.request_bytes),
        ] {
            counter.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(super) fn refused(&self, transport: Transport, reason: Reason) {
        self.refused[transport as usize][reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Without the limits and the bytes in flight.
    pub(super) fn snapshot(&self) -> Snapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut snapshot = Snapshot {
            connections_total: load(&self.connections_total),
            connections: load(&self.connections),
            connections_shed: load(&self.connections_shed),
            accept_failures: load(&self.accept_failures),
            ..Snapshot::default()
        };
        for signal in Signal::ALL {
            for transport in Transport::ALL {
                let arrivals = &self.arrivals[signal as usize][transport as usize];
                let received = Received {
                    requests: load(&arrivals.requests),
                    items: load(&arrivals.items),
                    rejected_items: load(&arrivals.rejected_items),
                    received_bytes: load(&arrivals.received_bytes),
                    request_bytes: load(&arrivals.request_bytes),
                };
                snapshot.received.push((signal, transport, received));
            }
        }
        for transport in Transport::ALL {
            for reason in Reason::ALL {
                let count = load(&self.refused[transport as usize][reason as usize]);
                if count > 0 {
                    snapshot.refused.push((transport, reason, count));
                }
            }
        }
        snapshot
    }
}
