//! Export requests of metrics, as series of the page that Prometheus scrapes. Twice, so that deltas are added up.
#![no_main]

use std::time::{Duration, Instant};

use bytes::Bytes;
use lens_observe::Signal;
use lens_observe::prometheus::{Format, Metrics, MetricsLimits};
use lens_observe::receiver::Snapshot;
use lens_otlp::json;
use lens_store::raw;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let request = Bytes::copy_from_slice(data);
    let decoded = raw::decode_metrics(&request, 1);
    let _ = json::encode_metrics_request(data)
        .map(|text| json::decode_metrics_request(text.as_bytes()));
    // The page must stand what a store would refuse too.
    let _ = decoded;
    let limits = MetricsLimits { samples: 200, ..MetricsLimits::default() };
    let page = Metrics::new(limits, Vec::new());
    let now = Instant::now();
    page.take(Signal::Metrics, &request, 0, now);
    page.take(Signal::Metrics, &request, 0, now);
    page.take(Signal::Traces, &request, 0, now);
    let later = now + Duration::from_secs(1000);
    for (format, now) in [(Format::Text, now), (Format::OpenMetrics, now), (Format::Text, later)] {
        let text = page.page(format, &Snapshot::default(), now);
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let sample = line.split(" # ").next().unwrap_or(line);
            let value = sample.rsplit(' ').next().unwrap_or_default();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
});
