//! A file of rollouts: the columns of [`RolloutRow`], one for each band among them.

use std::io::Write;
use std::path::Path;

use arrow_array::{Array, BooleanArray, Int32Array, Int64Array, RecordBatch, StringViewArray};

use super::SegmentError;
use super::column::Stats;
use super::file::{ColumnFile, Texts, column, guarded, next_batch};
use super::rebuild::unhex;
use super::schema::VERSION;
use super::table::{Field, Leaf, Table};
use crate::Band;
use crate::ids::{SpanId, TraceId};
use crate::rollouts::{Kept, RolloutRow};

const BATCH_ROWS: usize = 4_096;

const fn band_column(band: Band) -> &'static str {
    match band {
        Band::Admission => "admission_band_nano",
        Band::Setup => "setup_nano",
        Band::Pool => "pool_nano",
        Band::Retry => "retry_nano",
        Band::Network => "network_nano",
        Band::Queue => "queue_nano",
        Band::Prefill => "prefill_nano",
        Band::Decode => "decode_nano",
        Band::Model => "model_nano",
        Band::Tool => "tool_nano",
        Band::Verify => "verify_nano",
        Band::Sandbox => "sandbox_nano",
        Band::Agent => "agent_nano",
        Band::Other => "other_nano",
    }
}

fn fields() -> Vec<Field> {
    use Field::{Optional, Required};
    let mut fields = vec![
        Required("run", Leaf::Text, Stats::Chunk),
        Optional("task_index".to_owned(), Leaf::Int, Stats::Chunk),
        Optional("rollout_index".to_owned(), Leaf::Int, Stats::Chunk),
        Required("attempt_index", Leaf::Int, Stats::Chunk),
        Required("rollout_id", Leaf::Text, Stats::Chunk),
        Required("agent", Leaf::Text, Stats::Chunk),
        Required("outcome", Leaf::Text, Stats::Chunk),
        Required("error_type", Leaf::Text, Stats::Chunk),
        Required("trace_id", Leaf::PlainText, Stats::Chunk),
        Required("root_span_id", Leaf::PlainText, Stats::None),
        Required("start_unix_nano", Leaf::Deltas, Stats::Chunk),
        Required("wall_nano", Leaf::Deltas, Stats::Chunk),
        Required("admission_nano", Leaf::Deltas, Stats::Chunk),
        Required("span_count", Leaf::Word, Stats::None),
        Required("error_count", Leaf::Word, Stats::None),
        Required("retry_count", Leaf::Word, Stats::None),
        Required("is_truncated", Leaf::Bool, Stats::None),
        Required("timings_scaled", Leaf::Bool, Stats::None),
        Required("clock_corrected", Leaf::Bool, Stats::None),
        Required("time_suspect", Leaf::Bool, Stats::None),
        Required("ingest_seq", Leaf::Deltas, Stats::Chunk),
        Required("kept", Leaf::Key, Stats::Chunk),
    ];
    fields.extend(Band::ALL.map(|band| Required(band_column(band), Leaf::Deltas, Stats::None)));
    fields
}

/// Writes rows in the order in which they come; returns the bytes of the file.
///
/// # Errors
///
/// When the medium fails.
pub fn write_rollouts(out: impl Write + Send, rows: &[RolloutRow]) -> Result<u64, SegmentError> {
    let version = (lens::semconv::FILE_VERSION.to_owned(), VERSION.to_owned());
    let mut table = Table::new(out, "rollouts", &fields(), &[], vec![version])?;
    for row in rows {
        let at = table.rows;
        for (nth, index) in [(1, row.task_index), (2, row.rollout_index)] {
            if let Some(index) = index {
                table.columns[nth].push_int(index);
                table.counts[nth - 1].add(at, 1);
            }
        }
        let columns = &mut table.columns;
        columns[0].push_text(row.run.as_bytes());
        columns[3].push_int(row.attempt_index);
        let texts = [&row.rollout_id, &row.agent, &row.outcome, &row.error_type];
        for (column, text) in columns[4..].iter_mut().zip(texts) {
            column.push_text(text.as_bytes());
        }
        columns[8].push_text(row.trace_id.to_string().as_bytes());
        columns[9].push_text(row.root_span_id.to_string().as_bytes());
        let nanos = [row.start_nanos, row.wall_nanos, row.admission_nanos];
        let counts = [row.spans, row.errors, row.retries].map(u64::from);
        for (column, number) in columns[10..].iter_mut().zip(nanos.into_iter().chain(counts)) {
            column.push_int(number as i64);
        }
        let flags = [row.is_truncated, row.timings_scaled, row.clock_corrected, row.time_suspect];
        for (column, flag) in columns[16..].iter_mut().zip(flags) {
            column.push_bool(flag);
        }
        columns[20].push_int(row.ingest_seq as i64);
        columns[21].push_text(row.kept.name().as_bytes());
        for (column, (_, nanos)) in columns[22..].iter_mut().zip(row.bands.iter()) {
            column.push_int(nanos as i64);
        }
        table.end_row()?;
    }
    table.finish()
}

/// Reads all rows of a file, in its order.
///
/// # Errors
///
/// When the file cannot be read, or is none of rollouts.
pub fn read_rollouts(path: &Path) -> Result<Vec<RolloutRow>, SegmentError> {
    let file = ColumnFile::open(path)?;
    let mut texts = Texts::default();
    let mut rows = Vec::new();
    let mut batches = file.read_all(BATCH_ROWS)?;
    while let Some(batch) = next_batch(&mut batches)? {
        guarded(|| read_batch(&batch, &mut texts, &mut rows))?;
    }
    Ok(rows)
}

/// The traces of a file's rollouts, in order, each once.
///
/// # Errors
///
/// When the file cannot be read, or is none of rollouts.
pub(crate) fn read_rollout_traces(path: &Path) -> Result<Vec<TraceId>, SegmentError> {
    let file = ColumnFile::open(path)?;
    let columns = file.columns(|name| name == "trace_id");
    let row_groups = (0..file.footer().num_row_groups()).collect();
    let mut batches = file.read(columns, row_groups, None, BATCH_ROWS)?;
    let mut traces = Vec::new();
    while let Some(batch) = next_batch(&mut batches)? {
        let ids: &StringViewArray = column(&batch, "trace_id")?;
        for row in 0..ids.len() {
            let id = TraceId::from_bytes(&unhex::<16>(ids.value(row))?);
            traces.push(id.ok_or(SegmentError::Column("trace_id"))?);
        }
    }
    traces.sort_unstable();
    traces.dedup();
    Ok(traces)
}

fn read_batch(
    batch: &RecordBatch,
    texts: &mut Texts,
    rows: &mut Vec<RolloutRow>,
) -> Result<(), SegmentError> {
    let text = |name| column::<StringViewArray>(batch, name);
    let int = |name| column::<Int64Array>(batch, name);
    let word = |name| column::<Int32Array>(batch, name);
    let flag = |name| column::<BooleanArray>(batch, name);
    let (runs, ids, agents) = (text("run")?, text("rollout_id")?, text("agent")?);
    let (outcomes, error_types) = (text("outcome")?, text("error_type")?);
    let (trace_ids, root_ids) = (text("trace_id")?, text("root_span_id")?);
    let (tasks, repeats) = (int("task_index")?, int("rollout_index")?);
    let (attempts, starts) = (int("attempt_index")?, int("start_unix_nano")?);
    let (walls, admissions) = (int("wall_nano")?, int("admission_nano")?);
    let (spans, errors) = (word("span_count")?, word("error_count")?);
    let (retries, seqs) = (word("retry_count")?, int("ingest_seq")?);
    let (truncated, scaled) = (flag("is_truncated")?, flag("timings_scaled")?);
    let (corrected, suspect) = (flag("clock_corrected")?, flag("time_suspect")?);
    let kept = text("kept")?;
    let mut bands = Vec::with_capacity(Band::ALL.len());
    for band in Band::ALL {
        bands.push((band, int(band_column(band))?));
    }
    let optional = |array: &Int64Array, row| array.is_valid(row).then(|| array.value(row));
    for row in 0..batch.num_rows() {
        let mut of_row = crate::Bands::default();
        for (band, nanos) in &bands {
            of_row[*band] = nanos.value(row) as u64;
        }
        rows.push(RolloutRow {
            run: texts.get(runs.value(row)),
            task_index: optional(tasks, row),
            rollout_index: optional(repeats, row),
            attempt_index: attempts.value(row),
            rollout_id: texts.get(ids.value(row)),
            agent: texts.get(agents.value(row)),
            outcome: texts.get(outcomes.value(row)),
            error_type: texts.get(error_types.value(row)),
            trace_id: TraceId::from_bytes(&unhex::<16>(trace_ids.value(row))?)
                .ok_or(SegmentError::Column("trace_id"))?,
            root_span_id: SpanId::from_bytes(&unhex::<8>(root_ids.value(row))?)
                .ok_or(SegmentError::Column("root_span_id"))?,
            start_nanos: starts.value(row) as u64,
            wall_nanos: walls.value(row) as u64,
            admission_nanos: admissions.value(row) as u64,
            spans: spans.value(row) as u32,
            errors: errors.value(row) as u32,
            retries: retries.value(row) as u32,
            is_truncated: truncated.value(row),
            timings_scaled: scaled.value(row),
            clock_corrected: corrected.value(row),
            time_suspect: suspect.value(row),
            bands: of_row,
            ingest_seq: seqs.value(row) as u64,
            kept: Kept::parse(kept.value(row)).unwrap_or_default(),
        });
    }
    Ok(())
}
