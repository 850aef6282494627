//! The processes that tell of open spans: who they are, when they were last heard, how their clocks stand.

use std::collections::HashMap;
use std::sync::Arc;

use gym_telemetry::semconv;
use lens::semconv::{HOST_NAME, SERVICE_INSTANCE_ID};
use lens_otlp::view::{AnyValue, Attributes};

use super::names;
use super::told::text;

/// Clocks that differ by less are taken for the same: what is seen then is the delay of delivery.
const SAME_CLOCK_NANOS: u64 = 2_000_000_000;

/// Number of a process; [`UNKNOWN`] is nobody.
pub(super) type ProcessId = u32;
/// A process that there was no room for.
pub(super) const UNKNOWN: ProcessId = 0;

/// One process.
#[derive(Clone, Debug)]
pub(super) struct Process {
    key: Box<str>,
    /// Name of its instance, else of its service.
    pub(super) server: Arc<str>,
    /// `resources_servers` and so on, or empty.
    pub(super) server_type: Arc<str>,
    /// Id of its fleet, or empty.
    pub(super) fleet: Arc<str>,
    /// When anything came from it, by the receiver's clock.
    pub(super) heard_nanos: u64,
    /// The receiver's clock less its own, at least; the delay of delivery is in it.
    ahead_nanos: Option<i64>,
}

impl Process {
    /// A time of its clock on the receiver's, never later than `now_nanos`.
    pub(super) fn at(&self, nanos: u64, now_nanos: u64) -> u64 {
        let ahead_nanos = self
            .ahead_nanos
            .filter(|ahead| ahead.unsigned_abs() >= SAME_CLOCK_NANOS)
            .unwrap_or_default();
        nanos.saturating_add_signed(ahead_nanos).min(now_nanos)
    }
}

/// All of them, up to a bound.
#[derive(Debug)]
pub(super) struct Processes {
    by_key: HashMap<Box<str>, ProcessId>,
    by_id: HashMap<ProcessId, Process>,
    next: ProcessId,
    max: usize,
    nobody: Process,
}

impl Processes {
    pub(super) fn new(max: usize) -> Self {
        let empty: Arc<str> = Arc::from("");
        let nobody = Process {
            key: "".into(),
            server: Arc::from("unknown process"),
            server_type: Arc::clone(&empty),
            fleet: empty,
            heard_nanos: 0,
            ahead_nanos: None,
        };
        Self { by_key: HashMap::new(), by_id: HashMap::new(), next: UNKNOWN, max, nobody }
    }

    /// The process that these attributes of a resource describe; something came from it.
    pub(super) fn heard(&mut self, attributes: Attributes<'_>, now_nanos: u64) -> ProcessId {
        let described = Described::read(attributes);
        let key = described.key();
        let id = match self.by_key.get(key.as_str()) {
            Some(id) => *id,
            None if self.by_id.len() >= self.max => return UNKNOWN,
            None => self.add(key.into_boxed_str(), &described),
        };
        if let Some(process) = self.by_id.get_mut(&id) {
            process.heard_nanos = process.heard_nanos.max(now_nanos);
        }
        id
    }

    fn add(&mut self, key: Box<str>, described: &Described<'_>) -> ProcessId {
        // After four billion processes numbers begin anew; those of that time are long gone.
        self.next = self.next.checked_add(1).unwrap_or(1);
        let process = Process {
            key: key.clone(),
            server: Arc::from(described.server()),
            server_type: Arc::from(described.server_type),
            fleet: Arc::from(described.fleet),
            heard_nanos: 0,
            ahead_nanos: None,
        };
        self.by_key.insert(key, self.next);
        self.by_id.insert(self.next, process);
        self.next
    }

    pub(super) fn get(&self, id: ProcessId) -> &Process {
        self.by_id.get(&id).unwrap_or(&self.nobody)
    }

    /// It said something at `said_nanos` of its clock that came at `now_nanos`.
    pub(super) fn compare_clocks(&mut self, id: ProcessId, said_nanos: u64, now_nanos: u64) {
        if let Some(process) = self.by_id.get_mut(&id) {
            let ahead = i64::try_from(i128::from(now_nanos) - i128::from(said_nanos));
            let ahead = ahead.unwrap_or(0);
            process.ahead_nanos = Some(process.ahead_nanos.map_or(ahead, |least| least.min(ahead)));
        }
    }

    /// When anything came from anybody.
    pub(super) fn last_heard_nanos(&self) -> u64 {
        self.by_id.values().map(|process| process.heard_nanos).max().unwrap_or(0)
    }

    /// Forgets those that were not heard since and that nobody needs.
    pub(super) fn forget(&mut self, since_nanos: u64, is_needed: impl Fn(ProcessId) -> bool) {
        let by_key = &mut self.by_key;
        self.by_id.retain(|id, process| {
            let stays = process.heard_nanos >= since_nanos || is_needed(*id);
            if !stays {
                by_key.remove(&process.key);
            }
            stays
        });
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }
}

/// What a resource says of its process.
#[derive(Default)]
struct Described<'a> {
    host: &'a str,
    pid: i64,
    instance_id: &'a str,
    service: &'a str,
    server_name: &'a str,
    server_type: &'a str,
    fleet: &'a str,
}

impl<'a> Described<'a> {
    fn read(attributes: Attributes<'a>) -> Self {
        let mut described = Self::default();
        for (key, value) in attributes.flatten() {
            let place = match key {
                HOST_NAME => &mut described.host,
                SERVICE_INSTANCE_ID => &mut described.instance_id,
                semconv::SERVICE_NAME => &mut described.service,
                semconv::SERVER_NAME => &mut described.server_name,
                semconv::SERVER_TYPE => &mut described.server_type,
                semconv::RUN_ID => &mut described.fleet,
                semconv::PROCESS_PID => {
                    if let AnyValue::Int(pid) = value {
                        described.pid = pid;
                    }
                    continue;
                }
                _ => continue,
            };
            *place = names::cut(text(value).unwrap_or_default());
        }
        described
    }

    fn server(&self) -> &'a str {
        if !self.server_name.is_empty() {
            return self.server_name;
        }
        match self.service.rsplit('/').next() {
            Some(name) if !name.is_empty() => name,
            _ => "unknown process",
        }
    }

    fn key(&self) -> String {
        format!(
            "{}\u{1f}{}\u{1f}{}\u{1f}{}\u{1f}{}",
            self.host, self.pid, self.instance_id, self.service, self.server_name
        )
    }
}
