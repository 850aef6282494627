//! `lens`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lens::config::{ExporterKind, LensConfig, OtlpSettings, Protocol, Signal, signal_url};
use lens::{
    Context, ExportOutcome, Group, SpanBatch, SpanExporter, SpanGuard, TelemetryHandle,
    managed_span,
};

use super::Delivered;
use crate::Outcome;
use crate::workload::*;

pub static ON: Group = Group::new("on");
pub static OFF: Group = Group::new("off");
static GROUPS: &[&Group] = &[&ON, &OFF];
const PATIENCE: Duration = Duration::from_secs(30);

/// Where spans wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ring {
    /// In memory of this process.
    Private,
    /// In a file in memory, which outlives the process.
    Shared,
}

pub struct Lens {
    handle: TelemetryHandle,
    counted: Option<Arc<Delivered>>,
    /// Removed at the end.
    folder: Option<PathBuf>,
}

impl Drop for Lens {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            // A measurement does not fail over what it leaves behind.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

struct Counting(Arc<Delivered>);

impl SpanExporter for Counting {
    fn export(&mut self, batch: &SpanBatch) -> ExportOutcome {
        self.0.add(batch.spans());
        ExportOutcome::Exported { rejected: 0 }
    }
}

impl Lens {
    pub fn start(destination: &Destination, ring: Ring) -> Outcome<Self> {
        lens::register("bench", GROUPS, &[]);
        lens::promote_baggage_keys(&[
            ROLLOUT_ID,
            TASK_INDEX,
            ROLLOUT_INDEX,
            ATTEMPT_INDEX,
            COLLECTION_ID,
        ]);
        let mut config = LensConfig {
            enabled: true,
            service_name: "bench".to_owned(),
            span_groups: "on".to_owned(),
            traces_exporter: ExporterKind::None,
            metrics_exporter: ExporterKind::None,
            ..LensConfig::default()
        };
        let mut exporters: Vec<Box<dyn SpanExporter>> = Vec::new();
        let mut counted = None;
        match destination {
            Destination::Counted => {
                let delivered = Arc::<Delivered>::default();
                exporters.push(Box::new(Counting(Arc::clone(&delivered))));
                counted = Some(delivered);
            }
            Destination::Wire { transport, endpoint } => {
                let protocol = match transport {
                    Transport::Http => Protocol::HttpProtobuf,
                    Transport::Grpc => Protocol::Grpc,
                };
                config.traces_exporter = ExporterKind::Otlp;
                config.traces_otlp = OtlpSettings {
                    endpoint: signal_url(endpoint, protocol, Signal::Traces),
                    protocol,
                    ..OtlpSettings::for_signal(Signal::Traces)
                };
            }
        }
        let mut folder = None;
        if ring == Ring::Shared {
            let shared = PathBuf::from(format!("/dev/shm/spans-bench-{}", std::process::id()));
            config.spool.ring_folder = Some(shared.clone());
            config.spool.run_id = "bench".to_owned();
            folder = Some(shared);
        }
        let handle = lens::setup_telemetry_with(config, exporters)?;
        // A ring that could not be had as asked would be measured as something else.
        match handle.warnings().first() {
            Some(warning) => Err(warning.clone().into()),
            None => Ok(Self { handle, counted, folder }),
        }
    }
}

#[inline(always)]
pub fn site<const N: usize>(group: &'static Group, name: &'static str, data: &Data) -> SpanGuard {
    match N {
        0 => managed_span!(*group, name),
        // The ids of a rollout come from the context.
        4 | WITH_CONTEXT => managed_span!(
            *group,
            name,
            FIXED_KEY = FIXED,
            TEXT_KEY = data.text.as_str(),
            NUMBER_KEY = data.number,
            FLAG_KEY = data.flag
        ),
        _ => managed_span!(
            *group,
            name,
            FIXED_KEY = FIXED,
            TEXT_KEY = data.text.as_str(),
            NUMBER_KEY = data.number,
            FLAG_KEY = data.flag,
            FIXED_KEY_2 = FIXED,
            TEXT_KEY_2 = data.text.as_str(),
            NUMBER_KEY_2 = data.number,
            FLAG_KEY_2 = data.flag
        ),
    }
}

impl Subject for Lens {
    #[inline]
    fn group<const N: usize>(&self, data: &Data, between: &mut impl FnMut()) {
        between();
        let root = site::<N>(&ON, "root", data);
        for _ in 1..SPANS {
            between();
            drop(site::<N>(&ON, "child", data));
        }
        between();
        drop(root);
    }

    fn in_rollout(&self, data: &Data, run: &mut dyn FnMut()) {
        let _rollout = Context::empty()
            .with_baggage(&[
                (ROLLOUT_ID, data.rollout_id.clone()),
                (TASK_INDEX, data.task_index.to_string()),
                (ROLLOUT_INDEX, data.rollout_index.to_string()),
                (ATTEMPT_INDEX, data.attempt_index.to_string()),
                (COLLECTION_ID, data.collection_id.clone()),
            ])
            .attach();
        run();
    }

    fn flush(&self) {
        self.handle.force_flush(PATIENCE);
    }

    fn delivered(&self) -> u64 {
        match &self.counted {
            Some(counted) => counted.get(),
            None => self.handle.snapshot().exported,
        }
    }

    fn said_lost(&self) -> Option<u64> {
        let snapshot = self.handle.snapshot();
        Some(snapshot.dropped_total() + snapshot.rejected)
    }

    fn waiting(&self) -> Option<u64> {
        let snapshot = self.handle.snapshot();
        // What is safe in a file waits for a later start.
        Some(snapshot.queued + snapshot.spooled)
    }

    fn fill(&self) -> Option<f64> {
        Some(self.handle.snapshot().buffer_fill)
    }

    fn shut_down(&self) {
        self.handle.shutdown(Duration::from_secs(5));
    }
}
