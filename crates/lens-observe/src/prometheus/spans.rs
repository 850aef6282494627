//! Durations of spans as histograms, by service, span name, kind and status.
//!
//! The names are those of the collector's span metrics, so that dashboards made for these work.

use std::collections::HashMap;

use lens_otlp::DecodeError;
use lens_otlp::encode::{SPAN_ATTRIBUTES, SPAN_EVENTS, StatusCode};
use lens_otlp::view::{AnyValue, resources};
use lens_otlp::wire::Fields;

use super::names::Kind;
use super::page::{Exemplar, Page, labels_of};

const DURATION: &str = "traces_span_metrics_duration_seconds";
const CALLS: &str = "traces_span_metrics_calls";
const SERVICE_NAME: &str = "service.name";
/// Upper bounds, from a millisecond to an hour.
const BOUNDS_SECONDS: [f64; 20] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    120.0, 300.0, 600.0, 1800.0, 3600.0,
];
const BUCKETS: usize = BOUNDS_SECONDS.len() + 1;
/// Longer than any rollout: times that cannot be believed.
const MAX_NANOS: u64 = 30 * 86_400 * 1_000_000_000;
/// Where spans go for which there is no series left.
const OVERFLOW: &str = "otel.metric.overflow";
/// Longer names are cut, so that the bound of series is one of memory too.
const MAX_NAME_BYTES: usize = 256;

/// Series that were found last, by a few bits of what they are of.
const RECENT: usize = 128;

/// What its series and its duration are made of: a walk past everything else.
#[derive(Default)]
pub(super) struct Head<'a> {
    trace_id: &'a [u8],
    span_id: &'a [u8],
    /// Was checked when the request was taken apart.
    name: &'a [u8],
    kind: u64,
    start_nanos: u64,
    end_nanos: u64,
    status: u64,
}

impl<'a> Head<'a> {
    /// Reads an encoded `Span`.
    pub(super) fn read(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut head = Self::default();
        let mut fields = Fields::new(message);
        loop {
            fields.skip_short(SPAN_ATTRIBUTES);
            fields.skip_short(SPAN_EVENTS);
            let Some(field) = fields.next() else { return Ok(head) };
            match field? {
                (1, content) => head.trace_id = content.bytes()?,
                (2, content) => head.span_id = content.bytes()?,
                (5, content) => head.name = content.bytes()?,
                (6, content) => head.kind = content.varint()?,
                (7, content) => head.start_nanos = content.fixed64()?,
                (8, content) => head.end_nanos = content.fixed64()?,
                (15, content) => {
                    for field in Fields::new(content.bytes()?) {
                        if let (3, content) = field? {
                            head.status = content.varint()?;
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

#[derive(Debug)]
struct Series {
    service: Box<str>,
    name: Box<str>,
    /// OTLP's number; what it does not know counts as unspecified.
    kind: u8,
    status: StatusCode,
    counts: [u64; BUCKETS],
    sum_nanos: u128,
    exemplars: [Option<Exemplar>; BUCKETS],
}

impl Series {
    #[inline]
    fn is_of(&self, service: &str, name: &[u8], kind: u8, status: StatusCode) -> bool {
        self.kind == kind
            && self.status == status
            && self.name.as_bytes() == name
            && *self.service == *service
    }
}

/// The histograms.
#[derive(Debug)]
pub(super) struct SpanDurations {
    /// Series by service and span name.
    services: HashMap<Box<str>, HashMap<Box<str>, Vec<usize>>>,
    series: Vec<Series>,
    /// Where to look first.
    recent: [usize; RECENT],
    bounds_nanos: [u64; BOUNDS_SECONDS.len()],
    max_series: usize,
    overflowed: u64,
}

impl SpanDurations {
    pub(super) fn new(max_series: usize) -> Self {
        Self {
            services: HashMap::new(),
            bounds_nanos: BOUNDS_SECONDS.map(|bound| (bound * 1e9) as u64),
            series: Vec::new(),
            recent: [usize::MAX; RECENT],
            max_series,
            overflowed: 0,
        }
    }

    /// Series, and spans that found none left.
    pub(super) fn fill(&self) -> (usize, usize, u64) {
        (self.series.len(), self.max_series, self.overflowed)
    }

    /// Takes the spans of a request that was accepted.
    pub(super) fn take(&mut self, request: &[u8]) -> Result<(), DecodeError> {
        for resource in resources(request) {
            let resource = resource?;
            let service = service(resource.attributes())?;
            for scope in resource.scopes() {
                for span in scope?.items() {
                    self.span(service, &Head::read(span?)?);
                }
            }
        }
        Ok(())
    }

    /// Takes one span of a service.
    pub(super) fn span(&mut self, service: &str, span: &Head<'_>) {
        let Some(nanos) = span.end_nanos.checked_sub(span.start_nanos) else { return };
        let (Ok(trace_id), Ok(span_id)) = (span.trace_id.try_into(), span.span_id.try_into())
        else {
            return;
        };
        if nanos > MAX_NANOS {
            return;
        }
        let bucket = self.bounds_nanos.partition_point(|bound| *bound < nanos);
        let kind = u8::try_from(span.kind).ok().filter(|kind| *kind <= 5).unwrap_or(0);
        let series = self.series(service, span.name, kind, StatusCode::from_number(span.status));
        series.counts[bucket] += 1;
        series.sum_nanos += u128::from(nanos);
        let value = nanos as f64 / 1e9;
        series.exemplars[bucket] =
            Some(Exemplar { trace_id, span_id, value, time_nanos: span.end_nanos });
    }

    /// The series of a span. Only the first span of one allocates.
    fn series(&mut self, service: &str, name: &[u8], kind: u8, status: StatusCode) -> &mut Series {
        let (service, name) = (cut(service), cut_name(name));
        let last = name.last().copied().unwrap_or(0);
        let slot = (name.len() * 7
            + usize::from(last) * 5
            + service.len() * 3
            + usize::from(kind) * 11
            + status as usize)
            % RECENT;
        let recent = self.recent[slot];
        if self.series.get(recent).is_some_and(|one| one.is_of(service, name, kind, status)) {
            return &mut self.series[recent];
        }
        let name = String::from_utf8_lossy(name);
        if let Some(at) = self.find(service, &name, kind, status) {
            self.recent[slot] = at;
            return &mut self.series[at];
        }
        let overflow = (OVERFLOW, OVERFLOW, 0, StatusCode::Unset);
        let mut key = (service, &*name, kind, status);
        if self.series.len() >= self.max_series {
            self.overflowed += 1;
            key = overflow;
        }
        let (service, name, kind, status) = key;
        let at = self.find(service, name, kind, status).unwrap_or_else(|| {
            self.series.push(Series {
                service: service.into(),
                name: name.into(),
                kind,
                status,
                counts: [0; BUCKETS],
                sum_nanos: 0,
                exemplars: [None; BUCKETS],
            });
            let names = self.services.entry(service.into()).or_default();
            names.entry(name.into()).or_default().push(self.series.len() - 1);
            self.series.len() - 1
        });
        &mut self.series[at]
    }

    fn find(&self, service: &str, name: &str, kind: u8, status: StatusCode) -> Option<usize> {
        let of_name = self.services.get(service)?.get(name)?;
        let is_it = |at: &usize| {
            self.series.get(*at).is_some_and(|one| one.kind == kind && one.status == status)
        };
        of_name.iter().copied().find(is_it)
    }

    pub(super) fn put(&self, page: &mut Page) {
        let mut rows: Vec<(String, &Series)> = self
            .services
            .iter()
            .flat_map(|(service, names)| {
                names.iter().map(move |(name, found)| (service, name, found))
            })
            .flat_map(|(service, name, found)| {
                found.iter().filter_map(|at| self.series.get(*at)).map(move |series| {
                    let labels = labels_of(&[
                        ("service_name", service),
                        ("span_name", name),
                        ("span_kind", kind_label(series.kind)),
                        ("status_code", status_label(series.status)),
                    ]);
                    (labels, series)
                })
            })
            .collect();
        rows.sort_by(|(a, _), (b, _)| a.cmp(b));
        page.family(DURATION, Kind::Histogram, "Durations of the spans that were received.");
        for (labels, series) in &rows {
            let sum = series.sum_nanos as f64 / 1e9;
            page.histogram(labels, &BOUNDS_SECONDS, &series.counts, Some(sum), |at| {
                series.exemplars[at]
            });
        }
        page.family(CALLS, Kind::Counter, "Spans that were received.");
        for (labels, series) in &rows {
            page.sample(labels, series.counts.iter().sum::<u64>() as f64, None);
        }
    }
}

/// The begin of a name that is too long.
fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_NAME_BYTES)]
}

/// The same of a name that is not decoded.
fn cut_name(name: &[u8]) -> &[u8] {
    if name.len() <= MAX_NAME_BYTES {
        return name;
    }
    std::str::from_utf8(name).map_or(&name[..MAX_NAME_BYTES], |name| cut(name).as_bytes())
}

/// `service.name`, or what the specification says in its place.
pub(super) fn service<'a>(
    mut attributes: lens_otlp::view::Attributes<'a>,
) -> Result<&'a str, DecodeError> {
    let found = attributes.find_map(|pair| match pair {
        Ok((SERVICE_NAME, AnyValue::String(name))) => Some(Ok(name)),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    });
    found.unwrap_or(Ok("unknown_service"))
}

const fn kind_label(kind: u8) -> &'static str {
    match kind {
        1 => "SPAN_KIND_INTERNAL",
        2 => "SPAN_KIND_SERVER",
        3 => "SPAN_KIND_CLIENT",
        4 => "SPAN_KIND_PRODUCER",
        5 => "SPAN_KIND_CONSUMER",
        _ => "SPAN_KIND_UNSPECIFIED",
    }
}

fn status_label(status: StatusCode) -> &'static str {
    match status {
        StatusCode::Unset => "STATUS_CODE_UNSET",
        StatusCode::Ok => "STATUS_CODE_OK",
        StatusCode::Error => "STATUS_CODE_ERROR",
    }
}

#[cfg(test)]
mod tests {
    use lens_otlp::encode::{SpanParts, StatusCode};

    use super::super::page::Format;
    use super::*;

    fn take(durations: &mut SpanDurations, service: &str, name: &str, nanos: u64) {
        let parts = SpanParts {
            trace_id: [3; 16],
            span_id: [4; 8],
            name,
            kind: 2,
            start_nanos: 1000,
            end_nanos: 1000 + nanos,
            status: StatusCode::Error,
            ..SpanParts::default()
        };
        let mut message = Vec::new();
        parts.put(&mut message);
        durations.span(service, &Head::read(&message).unwrap());
    }

    fn page(durations: &SpanDurations, format: Format) -> String {
        let mut page = Page::new(format);
        durations.put(&mut page);
        page.finish()
    }

    #[test]
    fn durations_are_counted_by_service_name_kind_and_status() {
        let mut durations = SpanDurations::new(100);
        // A bound belongs to its bucket.
        take(&mut durations, "a", "x", 1_000_000);
        take(&mut durations, "a", "x", 1_000_001);
        take(&mut durations, "b", "x", 7_200_000_000_000);
        let text = page(&durations, Format::Text);
        let labels = "service_name=\"a\",span_name=\"x\",span_kind=\"SPAN_KIND_SERVER\",status_code=\"STATUS_CODE_ERROR\"";
        for line in [
            format!("{DURATION}_bucket{{{labels},le=\"0.001\"}} 1\n"),
            format!("{DURATION}_bucket{{{labels},le=\"0.0025\"}} 2\n"),
            format!("{DURATION}_count{{{labels}}} 2\n"),
            format!("{DURATION}_sum{{{labels}}} 0.002000001\n"),
            format!("{CALLS}_total{{{labels}}} 2\n"),
        ] {
            assert!(text.contains(&line), "{line}{text}");
        }
        assert!(text.contains("le=\"3600.0\"} 0\n") && text.contains("le=\"+Inf\"} 1\n"), "{text}");
    }

    #[test]
    fn the_bucket_of_a_slow_span_names_its_trace() {
        let mut durations = SpanDurations::new(100);
        take(&mut durations, "a", "x", 2_000_000_000);
        let text = page(&durations, Format::OpenMetrics);
        let exemplar = format!("le=\"2.5\"}} 1 # {{trace_id=\"{}\"", "03".repeat(16));
        assert!(text.contains(&exemplar), "{text}");
    }

    #[test]
    fn series_are_bounded_and_the_rest_is_counted_together() {
        let mut durations = SpanDurations::new(3);
        for at in 0..10 {
            take(&mut durations, "a", &format!("name {at}"), 5);
        }
        take(&mut durations, "a", "name 1", 5);
        assert_eq!(durations.fill(), (4, 3, 7));
        let text = page(&durations, Format::Text);
        assert!(text.contains("span_name=\"otel.metric.overflow\""), "{text}");
        assert!(text.contains("_calls_total{service_name=\"a\",span_name=\"name 1\",span_kind=\"SPAN_KIND_SERVER\",status_code=\"STATUS_CODE_ERROR\"} 2"), "{text}");
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let mut durations = SpanDurations::new(10);
        for end in ["one", "other"] {
            take(&mut durations, "a", &format!("{}{end}", "ä".repeat(128)), 5);
        }
        assert_eq!(durations.fill().0, 1);
        take(&mut durations, "a", &format!("x{}", "ä".repeat(128)), 5);
        assert!(page(&durations, Format::Text).contains(&format!("\"x{}\"", "ä".repeat(127))));
    }

    #[test]
    fn times_that_cannot_be_believed_are_left_out() {
        let mut durations = SpanDurations::new(3);
        take(&mut durations, "a", "x", MAX_NANOS + 1);
        let parts = SpanParts { start_nanos: 9, end_nanos: 8, ..SpanParts::default() };
        let mut message = Vec::new();
        parts.put(&mut message);
        durations.span("a", &Head::read(&message).unwrap());
        assert_eq!(durations.fill().0, 0);
    }
}
