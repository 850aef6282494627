//! Pages in the text format of Prometheus and in OpenMetrics.

use std::fmt::Write as _;

use super::names::Kind;

/// In which format a page is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' own, version 0.0.4.
    Text,
    /// OpenMetrics 1.0.0, with exemplars.
    OpenMetrics,
}

impl Format {
    /// What a scraper that sends this `Accept` wants.
    pub fn of_accept(accept: &str) -> Self {
        let is_wanted = accept.split(',').any(|kind| {
            let mut parts = kind.split(';').map(str::trim);
            let is_open = parts
                .next()
                .is_some_and(|kind| kind.eq_ignore_ascii_case("application/openmetrics-text"));
            // Version 0.0.1 differs where it matters.
            is_open && parts.all(|part| part != "version=0.0.1" && part != "q=0")
        });
        if is_wanted { Self::OpenMetrics } else { Self::Text }
    }

    /// The content type of a page.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// A measured value with the trace in which it was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Exemplar {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub value: f64,
    pub time_nanos: u64,
}

/// A page as it is written. Families come one after another, each with its samples.
#[derive(Debug)]
pub struct Page {
    format: Format,
    out: String,
    family: String,
    kind: Kind,
}

impl Page {
    pub(super) fn new(format: Format) -> Self {
        Self { format, out: String::new(), family: String::new(), kind: Kind::Gauge }
    }

    /// Begins a family; counters are named without `_total`.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        name.clone_into(&mut self.family);
        self.kind = kind;
        let shown = match (self.format, kind) {
            (Format::Text, Kind::Counter) => format!("{name}_total"),
            _ => name.to_owned(),
        };
        // A family without a help text is what linters complain of.
        let help = if help.is_empty() { "No description." } else { help };
        let _ = write!(self.out, "# HELP {shown} ");
        put_escaped(&mut self.out, help, self.format == Format::OpenMetrics);
        let _ = writeln!(self.out, "\n# TYPE {shown} {}", kind.as_str());
    }

    /// A sample of the counter or gauge that was begun.
    pub fn value(&mut self, labels: &[(&str, &str)], value: f64) {
        let labels = labels_of(labels);
        self.sample(&labels, value, None);
    }

    /// As [`Page::value`], with labels already written, which counters may have an exemplar for.
    pub(super) fn sample(&mut self, labels: &str, value: f64, exemplar: Option<&Exemplar>) {
        let suffix = if self.kind == Kind::Counter { "_total" } else { "" };
        self.put(suffix, labels, None, value);
        self.end_sample(exemplar.filter(|_| self.kind == Kind::Counter));
    }

    /// A histogram: counts of each bucket alone, the last one without a bound.
    pub(super) fn histogram(
        &mut self,
        labels: &str,
        bounds: &[f64],
        counts: &[u64],
        sum: Option<f64>,
        exemplar: impl Fn(usize) -> Option<Exemplar>,
    ) {
        let mut so_far = 0_u64;
        for (at, count) in counts.iter().enumerate() {
            so_far = so_far.saturating_add(*count);
            let bound = bounds.get(at).copied().unwrap_or(f64::INFINITY);
            self.put("_bucket", labels, Some(bound), so_far as f64);
            self.end_sample(exemplar(at).as_ref());
        }
        if let Some(sum) = sum {
            self.put("_sum", labels, None, sum);
            self.end_sample(None);
        }
        self.put("_count", labels, None, so_far as f64);
        self.end_sample(None);
    }

    /// A family that says what processes are: always 1.
    pub(super) fn info(&mut self, name: &str, help: &str, labels: impl Iterator<Item = String>) {
        match self.format {
            Format::Text => {
                let _ = writeln!(self.out, "# HELP {name}_info {help}\n# TYPE {name}_info gauge");
            }
            Format::OpenMetrics => {
                let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} info");
            }
        }
        for labels in labels {
            let _ = writeln!(self.out, "{name}_info{{{labels}}} 1");
        }
    }

    fn put(&mut self, suffix: &str, labels: &str, bound: Option<f64>, value: f64) {
        self.out.push_str(&self.family);
        self.out.push_str(suffix);
        if !labels.is_empty() || bound.is_some() {
            self.out.push('{');
            self.out.push_str(labels);
            if let Some(bound) = bound {
                self.out.push_str(if labels.is_empty() { "le=\"" } else { ",le=\"" });
                put_number(&mut self.out, bound, true);
                self.out.push('"');
            }
            self.out.push('}');
        }
        self.out.push(' ');
        put_number(&mut self.out, value, false);
    }

    fn end_sample(&mut self, exemplar: Option<&Exemplar>) {
        if let (Some(exemplar), Format::OpenMetrics) = (exemplar, self.format) {
            self.out.push_str(" # {trace_id=\"");
            lens_otlp::json::put_hex(&mut self.out, &exemplar.trace_id);
            self.out.push_str("\",span_id=\"");
            lens_otlp::json::put_hex(&mut self.out, &exemplar.span_id);
            self.out.push_str("\"} ");
            put_number(&mut self.out, exemplar.value, false);
            if exemplar.time_nanos > 0 {
                let millis = exemplar.time_nanos / 1_000_000;
                let _ = write!(self.out, " {}.{:03}", millis / 1000, millis % 1000);
            }
        }
        self.out.push('\n');
    }

    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }
}

/// Labels as they are written between braces.
pub(super) fn labels_of(labels: &[(&str, &str)]) -> String {
    let mut out = String::new();
    for (name, value) in labels {
        put_label(&mut out, name, value);
    }
    out
}

/// Appends a label whose name is valid.
pub(super) fn put_label(out: &mut String, name: &str, value: &str) {
    if !out.is_empty() {
        out.push(',');
    }
    out.push_str(name);
    out.push_str("=\"");
    put_escaped(out, value, true);
    out.push('"');
}

fn put_escaped(out: &mut String, text: &str, quotes: bool) {
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            _ => out.push(character),
        }
    }
}

/// A number; bounds always have a point, so that both formats name the same series.
fn put_number(out: &mut String, value: f64, is_bound: bool) {
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else {
        let from = out.len();
        let size = value.abs();
        let _ = if size != 0.0 && !(1e-5..1e21).contains(&size) {
            write!(out, "{value:e}")
        } else {
            write!(out, "{value}")
        };
        if is_bound && !out[from..].contains(['.', 'e']) {
            out.push_str(".0");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(format: Format) -> String {
        let mut page = Page::new(format);
        page.family("jobs", Kind::Counter, "Jobs,\nall \"of\" them.");
        page.value(&[("a", "x\"\\\n")], 3.0);
        page.family("took_seconds", Kind::Histogram, "");
        let exemplar = Exemplar {
            trace_id: [0xab; 16],
            span_id: [1; 8],
            value: 0.7,
            time_nanos: 1_700_000_000_123_000_000,
        };
        page.histogram("a=\"b\"", &[0.5, 1.0], &[1, 2, 0], Some(2.25), |at| {
            (at == 1).then_some(exemplar)
        });
        page.info("target", "Processes.", ["job=\"x\"".to_owned()].into_iter());
        page.finish()
    }

    #[test]
    fn text_is_what_prometheus_reads() {
        let expected = "\
# HELP jobs_total Jobs,\\nall \"of\" them.
# TYPE jobs_total counter
jobs_total{a=\"x\\\"\\\\\\n\"} 3
# HELP took_seconds No description.
# TYPE took_seconds histogram
took_seconds_bucket{a=\"b\",le=\"0.5\"} 1
took_seconds_bucket{a=\"b\",le=\"1.0\"} 3
took_seconds_bucket{a=\"b\",le=\"+Inf\"} 3
took_seconds_sum{a=\"b\"} 2.25
took_seconds_count{a=\"b\"} 3
# HELP target_info Processes.
# TYPE target_info gauge
target_info{job=\"x\"} 1
";
        assert_eq!(page(Format::Text), expected);
    }

    #[test]
    fn openmetrics_has_exemplars_and_an_end() {
        let page = page(Format::OpenMetrics);
        assert!(page.starts_with(
            "# HELP jobs Jobs,\\nall \\\"of\\\" them.\n# TYPE jobs counter\njobs_total{"
        ));
        let exemplar = format!(
            "took_seconds_bucket{{a=\"b\",le=\"1.0\"}} 3 # {{trace_id=\"{}\",span_id=\"{}\"}} 0.7 1700000000.123\n",
            "ab".repeat(16),
            "01".repeat(8)
        );
        assert!(page.contains(&exemplar), "{page}");
        assert!(page.contains("# TYPE target info\ntarget_info{job=\"x\"} 1\n"), "{page}");
        assert!(page.ends_with("# EOF\n"));
    }

    #[test]
    fn the_format_is_what_the_scraper_accepts() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert_eq!(Format::of_accept(prometheus), Format::OpenMetrics);
        for other in ["", "*/*", "text/plain", "application/openmetrics-text;version=0.0.1"] {
            assert_eq!(Format::of_accept(other), Format::Text, "{other}");
        }
    }

    #[test]
    fn numbers_are_read_back_as_they_were() {
        for value in [0.0, 1.0, -0.1, 1e-9, 123_456_789.0, 1e300, f64::MIN_POSITIVE] {
            let mut text = String::new();
            put_number(&mut text, value, false);
            assert_eq!(text.parse(), Ok(value), "{text}");
        }
        let mut bound = String::new();
        put_number(&mut bound, 10.0, true);
        assert_eq!(bound, "10.0");
    }
}
