//! Files of metrics: one row for each point, sorted by (name, time).
//!
//! A point is kept in the column `otlp` as a metric that has this point only, beside the columns that people ask for.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{BinaryViewArray, Int64Array, RecordBatch};
use bytes::Bytes;
use lens_otlp::DecodeError;
use lens_otlp::json::{put_hex, put_plain_attributes};
use lens_otlp::metrics::{ExponentialBuckets, Number};
use lens_otlp::view::metrics::{Data, ExemplarView, MetricView};
use lens_otlp::view::{Attributes, Repeated};
use lens_otlp::wire::{Content, FIXED32, FIXED64, Fields, VARINT, put_tag, put_varint};

use super::SegmentError;
use super::column::Stats;
use super::file::{ColumnFile, column, guarded, next_batch};
use super::origins::{OriginTexts, fields as origin_fields};
use super::rebuild::Origins;
use super::schema::VERSION;
use super::table::{Field, Leaf, Table};
use crate::raw::{METRIC_DATA, Origin, RawMetric};

fn fields() -> Vec<Field> {
    use Field::{Optional, Required, Values};
    let optional = |name: &str, leaf| Optional(name.to_owned(), leaf, Stats::None);
    let mut fields = vec![
        Required("name", Leaf::Key, Stats::Chunk),
        Required("time_unix_nano", Leaf::Deltas, Stats::Pages),
        Required("start_unix_nano", Leaf::Deltas, Stats::None),
        Required("type", Leaf::Key, Stats::Chunk),
        Required("temporality", Leaf::Key, Stats::None),
        Required("unit", Leaf::Key, Stats::None),
        Required("description", Leaf::Key, Stats::None),
        Required("attributes", Leaf::Text, Stats::None),
        Required("ingest_seq", Leaf::Deltas, Stats::Chunk),
        Required("otlp", Leaf::PlainBytes, Stats::None),
        optional("value_int", Leaf::Int),
        optional("value_f64", Leaf::Double),
        optional("count", Leaf::Int),
        optional("sum", Leaf::Double),
        optional("min", Leaf::Double),
        optional("max", Leaf::Double),
        Values("bounds", Leaf::Double),
        Values("bucket_counts", Leaf::Int),
        optional("scale", Leaf::Int),
        optional("zero_count", Leaf::Int),
        optional("positive_offset", Leaf::Int),
        Values("positive_counts", Leaf::Int),
        optional("negative_offset", Leaf::Int),
        Values("negative_counts", Leaf::Int),
        Values("exemplar_trace_ids", Leaf::Text),
    ];
    fields.extend(origin_fields());
    fields
}

/// The first column that may be without a value, and the first of origins.
const FIRST_OPTIONAL: usize = 10;
const ORIGIN: usize = 25;

/// One point as a metric of its own.
struct Point {
    time_nanos: u64,
    name: Box<str>,
    message: Bytes,
    origin: Arc<Origin>,
    ingest_seq: u64,
}

fn put_field(out: &mut Vec<u8>, number: u32, content: Content<'_>) {
    match content {
        Content::Varint(value) => {
            put_tag(out, number, VARINT);
            put_varint(out, value);
        }
        Content::Fixed64(value) => {
            put_tag(out, number, FIXED64);
            out.extend_from_slice(&value.to_le_bytes());
        }
        Content::Fixed32(value) => {
            put_tag(out, number, FIXED32);
            out.extend_from_slice(&value.to_le_bytes());
        }
        Content::Bytes(bytes) => {
            put_tag(out, number, lens_otlp::wire::BYTES);
            put_varint(out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
    }
}

/// Takes a metric apart.
fn explode(metric: &RawMetric, points: &mut Vec<Point>) -> Result<(), DecodeError> {
    let (mut head, mut data) = (Vec::new(), None);
    let mut name = "";
    for field in Fields::new(&metric.message) {
        let (number, content) = field?;
        match content {
            Content::Bytes(bytes) if METRIC_DATA.contains(&number) => data = Some((number, bytes)),
            content => put_field(&mut head, number, content),
        }
        if number == 1 {
            name = content.text()?;
        }
    }
    let (number, data) = data.unwrap_or_default();
    let count = Repeated::new(data, 1).count();
    // Then it is one of its own already.
    let is_single = count == 1;
    if count == 0 {
        // It measured nothing, and is kept.
        points.push(Point {
            time_nanos: metric.time_nanos,
            name: name.into(),
            message: metric.message.clone(),
            origin: Arc::clone(&metric.origin),
            ingest_seq: metric.ingest_seq,
        });
    }
    let mut rest = Vec::new();
    for field in Fields::new(data) {
        match field? {
            (1, _) => {}
            (number, content) => put_field(&mut rest, number, content),
        }
    }
    for field in Fields::new(data) {
        let (1, content) = field? else { continue };
        let mut time_nanos = 0;
        for field in Fields::new(content.bytes()?) {
            if let (3, Content::Fixed64(nanos)) = field? {
                time_nanos = nanos;
            }
        }
        let mut inner = Vec::new();
        put_field(&mut inner, 1, content);
        inner.extend_from_slice(&rest);
        let message = if is_single {
            metric.message.clone()
        } else {
            let mut message = head.clone();
            put_field(&mut message, number, Content::Bytes(&inner));
            message.into()
        };
        points.push(Point {
            time_nanos,
            name: name.into(),
            message,
            origin: Arc::clone(&metric.origin),
            ingest_seq: metric.ingest_seq,
        });
    }
    Ok(())
}

/// Writes the points of metrics, which may be in any order; returns how many.
///
/// # Errors
///
/// When the medium fails, and when a metric is malformed.
pub fn write_points(out: impl Write + Send, metrics: &[RawMetric]) -> Result<u64, SegmentError> {
    let mut points = Vec::new();
    for metric in metrics {
        explode(metric, &mut points)?;
    }
    points.sort_by(|a, b| (&a.name, a.time_nanos).cmp(&(&b.name, b.time_nanos)));
    let version = (lens::semconv::FILE_VERSION.to_owned(), VERSION.to_owned());
    let mut table = Table::new(out, "points", &fields(), &[0, 1], vec![version])?;
    let mut origins = OriginTexts::default();
    for point in &points {
        Row { table: &mut table, optional: FIRST_OPTIONAL }.put(point)?;
        origins.put(&point.origin, &mut table.columns[ORIGIN..])?;
        table.end_row()?;
    }
    table.finish()?;
    Ok(points.len() as u64)
}

/// Fills the columns of a row, the optional ones in their order.
struct Row<'t, W: Write + Send> {
    table: &'t mut Table<W>,
    optional: usize,
}

/// What the columns of a point hold, whatever its type.
#[derive(Default)]
struct Said<'a> {
    start_nanos: u64,
    attributes: Option<Attributes<'a>>,
    value: Option<Number>,
    count: Option<u64>,
    sum: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    bounds: Vec<f64>,
    buckets: Vec<u64>,
    scale: Option<i32>,
    zero_count: Option<u64>,
    positive: ExponentialBuckets,
    negative: ExponentialBuckets,
    trace_ids: Vec<String>,
}

fn trace_ids<'a>(
    exemplars: impl Iterator<Item = Result<ExemplarView<'a>, DecodeError>>,
) -> Result<Vec<String>, DecodeError> {
    let mut ids = Vec::new();
    for exemplar in exemplars {
        let exemplar = exemplar?;
        if !exemplar.trace_id.is_empty() {
            let mut id = String::new();
            put_hex(&mut id, exemplar.trace_id);
            ids.push(id);
        }
    }
    Ok(ids)
}

fn said<'a>(metric: &MetricView<'a>) -> Result<Said<'a>, DecodeError> {
    if let Some(point) = metric.number_points().next().transpose()? {
        return Ok(Said {
            start_nanos: point.start_nanos,
            attributes: Some(point.attributes()),
            value: point.value,
            trace_ids: trace_ids(point.exemplars())?,
            ..Said::default()
        });
    }
    if let Some(point) = metric.histogram_points().next().transpose()? {
        return Ok(Said {
            start_nanos: point.start_nanos,
            attributes: Some(point.attributes()),
            count: Some(point.count),
            sum: point.sum,
            min: point.min,
            max: point.max,
            bounds: point.bounds().collect(),
            buckets: point.buckets().collect(),
            trace_ids: trace_ids(point.exemplars())?,
            ..Said::default()
        });
    }
    let Some(point) = metric.exponential_points().next().transpose()? else {
        return Ok(Said::default());
    };
    Ok(Said {
        start_nanos: point.start_nanos,
        attributes: Some(point.attributes()),
        count: Some(point.count),
        sum: point.sum,
        min: point.min,
        max: point.max,
        scale: Some(point.scale),
        zero_count: Some(point.zero_count),
        positive: point.positive()?,
        negative: point.negative()?,
        trace_ids: trace_ids(point.exemplars())?,
        ..Said::default()
    })
}

impl<W: Write + Send> Row<'_, W> {
    fn put(mut self, point: &Point) -> Result<(), DecodeError> {
        let metric = MetricView::read(&point.message)?;
        let said = said(&metric)?;
        let (kind, temporality) = match metric.data {
            Data::Gauge => ("gauge", 0),
            Data::Sum { monotonic: true, temporality } => ("counter", temporality),
            Data::Sum { temporality, .. } => ("sum", temporality),
            Data::Histogram { temporality } => ("histogram", temporality),
            Data::Exponential { temporality } => ("exponential_histogram", temporality),
            Data::Unknown => ("other", 0),
        };
        let temporality = match temporality {
            1 => "delta",
            2 => "cumulative",
            _ => "",
        };
        let mut attributes = String::new();
        match said.attributes {
            Some(found) => put_plain_attributes(&mut attributes, found)?,
            None => attributes.push_str("{}"),
        }
        let columns = &mut self.table.columns;
        columns[0].push_text(metric.name.as_bytes());
        columns[1].push_int(point.time_nanos as i64);
        columns[2].push_int(said.start_nanos as i64);
        let texts = [kind, temporality, metric.unit, metric.description, &attributes];
        for (column, text) in columns[3..].iter_mut().zip(texts) {
            column.push_text(text.as_bytes());
        }
        columns[8].push_int(point.ingest_seq as i64);
        columns[9].push_text(&point.message);
        let (int, double) = match said.value {
            Some(Number::Int(value)) => (Some(value), None),
            Some(Number::Double(value)) => (None, Some(value)),
            None => (None, None),
        };
        let exponential = said.scale.is_some();
        let offset =
            |buckets: &ExponentialBuckets| exponential.then_some(i64::from(buckets.offset));
        let counts = |counts: &[u64]| counts.iter().map(|count| *count as i64).collect::<Vec<_>>();
        self.ints(&int.into_iter().collect::<Vec<_>>());
        self.doubles(&double.into_iter().collect::<Vec<_>>());
        self.ints(&counts(said.count.as_slice()));
        self.doubles(said.sum.as_slice());
        self.doubles(said.min.as_slice());
        self.doubles(said.max.as_slice());
        self.doubles(&said.bounds);
        self.ints(&counts(&said.buckets));
        self.ints(said.scale.map(i64::from).as_slice());
        self.ints(&counts(said.zero_count.as_slice()));
        self.ints(offset(&said.positive).as_slice());
        self.ints(&counts(&said.positive.counts));
        self.ints(offset(&said.negative).as_slice());
        self.ints(&counts(&said.negative.counts));
        for id in &said.trace_ids {
            self.table.columns[self.optional].push_text(id.as_bytes());
        }
        self.end(said.trace_ids.len());
        Ok(())
    }

    fn ints(&mut self, values: &[i64]) {
        values.iter().for_each(|value| self.table.columns[self.optional].push_int(*value));
        self.end(values.len());
    }

    fn doubles(&mut self, values: &[f64]) {
        values.iter().for_each(|value| self.table.columns[self.optional].push_double(*value));
        self.end(values.len());
    }

    fn end(&mut self, values: usize) {
        if values > 0 {
            let row = self.table.rows;
            self.table.counts[self.optional - FIRST_OPTIONAL].add(row, values as u32);
        }
        self.optional += 1;
    }
}

/// Reads all points of a file, by name and time, each as a metric of its own.
///
/// # Errors
///
/// When the file cannot be read, or is none of points.
pub fn read_points(path: &Path) -> Result<Vec<RawMetric>, SegmentError> {
    let file = ColumnFile::open(path)?;
    let (mut origins, mut metrics) = (Origins::default(), Vec::new());
    let columns = ["time_unix_nano", "ingest_seq", "otlp", "origin_otlp"];
    let row_groups = (0..file.footer().num_row_groups()).collect();
    let wanted = file.columns(|name| columns.contains(&name));
    let mut batches = file.read(wanted, row_groups, None, 1_024)?;
    while let Some(batch) = next_batch(&mut batches)? {
        guarded(|| read_batch(&batch, &mut origins, &mut metrics))?;
    }
    Ok(metrics)
}

fn read_batch(
    batch: &RecordBatch,
    origins: &mut Origins,
    metrics: &mut Vec<RawMetric>,
) -> Result<(), SegmentError> {
    let times: &Int64Array = column(batch, "time_unix_nano")?;
    let seqs: &Int64Array = column(batch, "ingest_seq")?;
    let messages: &BinaryViewArray = column(batch, "otlp")?;
    let from: &BinaryViewArray = column(batch, "origin_otlp")?;
    for row in 0..batch.num_rows() {
        metrics.push(RawMetric {
            time_nanos: times.value(row) as u64,
            message: Bytes::copy_from_slice(messages.value(row)),
            origin: origins.get(from.value(row))?,
            ingest_seq: seqs.value(row) as u64,
        });
    }
    Ok(())
}
