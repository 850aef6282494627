//! Where rollouts and traces come from, as commands ask for them.

use std::path::PathBuf;
use std::sync::Arc;

use lens_store::ids::TraceId;
use lens_store::rollouts::{Filter, RolloutRow, rows_of};
use lens_store::trace::Traces;
use serde_json::Value;

use super::json::report_value;
use super::read::{ReadError, ReadReport, Reading, read};
use super::select::{NotFound, nothing_found};

/// Spans to ask.
pub struct Source {
    paths: Vec<PathBuf>,
    traces: Arc<Traces>,
    /// In order of time.
    rows: Vec<RolloutRow>,
    report: ReadReport,
}

impl Source {
    /// Opens what was named.
    pub fn open(paths: &[PathBuf]) -> Result<Self, ReadError> {
        Ok(Self::of(read(paths)?, paths.to_vec()))
    }

    /// Of what was read.
    pub fn of(Reading { spans, report }: Reading, paths: Vec<PathBuf>) -> Self {
        let traces = Traces::assemble(spans);
        let mut rows = rows_of(&traces, None);
        rows.sort_by_key(|row| (row.start_nanos, row.trace_id, row.root_span_id));
        Self { paths, traces: Arc::new(traces), rows, report }
    }

    /// The rollouts that are meant, in order of time.
    pub fn rows(&self, filter: &Filter) -> Vec<RolloutRow> {
        self.rows.iter().filter(|row| filter.matches(row)).cloned().collect()
    }

    /// Traces, these among them, whole.
    pub fn traces(&self, _ids: impl Iterator<Item = TraceId>) -> Arc<Traces> {
        Arc::clone(&self.traces)
    }

    /// All traces.
    pub fn all(&self) -> Arc<Traces> {
        Arc::clone(&self.traces)
    }

    /// What to answer when there is no span.
    pub fn is_empty(&self) -> Option<NotFound> {
        self.traces.traces.is_empty().then(|| nothing_found(&self.paths, &self.report))
    }

    /// What was read, as a sentence.
    pub fn sentence(&self) -> String {
        self.report.sentence()
    }

    /// What was read, as JSON.
    pub fn read_value(&self) -> Value {
        report_value(&self.report)
    }
}
