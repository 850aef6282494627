//! The GPUs that this process may use, asked for in the background.
//!
//! A host without `nvidia-smi` has no thread and says nothing; while it fails there are no points rather than old ones.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Mutex, Once, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    time::Duration,
};

use lens::{
    Value,
    detect::gpu::{self, Sample, Visible},
    metrics::{Gauge, Observations},
};

use crate::semconv::{self, sampled, unit};

/// How long one sample may take.
const LIMIT: Duration = Duration::from_secs(5);

static LATEST: Mutex<Vec<Sample>> = Mutex::new(Vec::new());

/// A thread that ends soon after this is dropped.
pub(super) struct Sampler {
    _stop: Sender<()>,
}

impl Sampler {
    pub(super) fn start(env: &BTreeMap<String, String>, interval: Duration) -> Option<Self> {
        let program = gpu::program(env)?;
        let visible = Visible::from_env(env);
        if visible == Visible::Listed(Vec::new()) {
            return None;
        }
        let (stop, stopped) = mpsc::channel();
        let run = move || sample_until(&program, &visible, interval, &stopped);
        std::thread::Builder::new().name("gym-gpu".to_owned()).spawn(run).ok()?;
        observe();
        Some(Self { _stop: stop })
    }
}

fn sample_until(
    program: &Path,
    visible: &Visible,
    interval: Duration,
    stopped: &mpsc::Receiver<()>,
) {
    loop {
        let samples = gpu::sample(program, visible, LIMIT).unwrap_or_default();
        *LATEST.lock().unwrap_or_else(PoisonError::into_inner) = samples;
        if stopped.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

fn observe() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let gauge = |name, unit, about, number: fn(&Sample) -> Option<f64>| {
            Gauge::observable(name, unit, about, move || points(number));
        };
        gauge(
            sampled::GPU_UTILIZATION,
            unit::PERCENT,
            "Share of the time in which the GPU computed",
            |gpu| gpu.utilization_percent,
        );
        gauge(sampled::GPU_MEMORY_USED, unit::MEBIBYTES, "Memory of the GPU in use", |gpu| {
            gpu.memory_used_mib
        });
        gauge(sampled::GPU_MEMORY_TOTAL, unit::MEBIBYTES, "Memory of the GPU", |gpu| {
            gpu.memory_total_mib
        });
    });
}

fn points(number: fn(&Sample) -> Option<f64>) -> Observations<f64> {
    let latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
    let point = |gpu: &Sample| {
        let index: Value = gpu.index.parse::<i64>().unwrap_or_default().into();
        let uuid: Value = gpu.uuid.as_str().into();
        Some((vec![(semconv::GPU_INDEX, index), (semconv::GPU_UUID, uuid)], number(gpu)?))
    };
    latest.iter().filter_map(point).collect()
}
