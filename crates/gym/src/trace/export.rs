//! Traces for other software.

use std::io::{self, Write};

use lens_otlp::json::encode_trace_request;
use lens_store::raw::{RawSpan, to_request};
use lens_store::segment::{SpanOptions, write_spans};
use lens_store::trace::{Section, Traces};

use super::perfetto;
use crate::args::ExportFormat;

/// Spans of one line of OTLP JSON, at least: lines stay short enough to be read one by one.
const SPANS_A_LINE: usize = 512;

/// Writes sections of traces; returns how many spans they have.
pub fn export(
    traces: &Traces,
    sections: &[Section],
    format: ExportFormat,
    out: &mut impl Write,
) -> io::Result<usize> {
    match format {
        ExportFormat::OtlpJson => otlp_json(traces, sections, out),
        ExportFormat::Perfetto => perfetto::write(traces, sections, out),
        ExportFormat::Parquet => parquet(traces, sections, out),
    }
}

/// The file is made in memory: it is a tenth of the spans.
fn parquet(traces: &Traces, sections: &[Section], out: &mut impl Write) -> io::Result<usize> {
    let mut spans: Vec<RawSpan> =
        sections.iter().flat_map(|section| traces.raw_of(*section)).cloned().collect();
    spans.sort_by_key(|span| (span.trace_id, span.start_nanos, span.span_id));
    // Rollouts that were asked for may share a trace.
    spans
        .dedup_by_key(|span| (span.trace_id, span.start_nanos, span.span_id, span.message.clone()));
    let mut file = Vec::new();
    write_spans(&mut file, &spans, &SpanOptions { day: None }).map_err(io::Error::other)?;
    out.write_all(&file)?;
    out.flush()?;
    Ok(spans.len())
}

fn otlp_json(traces: &Traces, sections: &[Section], out: &mut impl Write) -> io::Result<usize> {
    let (mut count, mut waiting) = (0, Vec::new());
    let mut flush = |waiting: &mut Vec<&RawSpan>| {
        let request = to_request(waiting.drain(..));
        // What was read can be written: every span was walked when it was read.
        let line = encode_trace_request(&request).map_err(io::Error::other)?;
        out.write_all(line.as_bytes())?;
        out.write_all(b"\n")
    };
    for section in sections {
        let spans = traces.raw_of(*section);
        count += spans.len();
        waiting.extend(spans);
        if waiting.len() >= SPANS_A_LINE {
            flush(&mut waiting)?;
        }
    }
    if !waiting.is_empty() {
        flush(&mut waiting)?;
    }
    out.flush()?;
    Ok(count)
}
