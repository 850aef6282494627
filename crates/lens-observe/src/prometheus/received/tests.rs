use lens_otlp::encode::{RESOURCE_ATTRIBUTES, Scope, put_key_value, put_request};
use lens_otlp::metrics::{
    EXPONENTIAL_POINT_ATTRIBUTES, Exemplar, ExponentialBuckets, ExponentialPoint, HistogramPoint,
    Identity, Interval, Number, NumberPoint, POINT_ATTRIBUTES, Temporality,
    put_exponential_histogram, put_gauge, put_histogram, put_sum,
};

use super::super::page::Format;
use super::*;

const CUMULATIVE: Temporality = Temporality::Cumulative;

fn request(instance: &str, items: &[u8]) -> Vec<u8> {
    let mut resource = Vec::new();
    for (key, value) in
        [("service.name", "gym"), ("service.instance.id", instance), ("host.name", "h")]
    {
        put_key_value(&mut resource, RESOURCE_ATTRIBUTES, key, value);
    }
    let mut out = Vec::new();
    put_request(&mut out, &resource, std::iter::once((Scope::default(), items)));
    out
}

fn identity(name: &'static str, unit: &'static str) -> Identity<'static> {
    Identity { name, unit, description: "What it is." }
}

fn during(start_nanos: u64, end_nanos: u64) -> Interval {
    Interval { start_nanos, end_nanos }
}

fn sum(value: i64, temporality: Temporality, interval: Interval) -> Vec<u8> {
    let mut attributes = Vec::new();
    put_key_value(&mut attributes, POINT_ATTRIBUTES, "k", "v");
    let points =
        [NumberPoint { attributes: &attributes, value: Number::Int(value), exemplars: &[] }];
    let mut items = Vec::new();
    put_sum(
        &mut items,
        &identity("jobs", "{job}"),
        interval,
        temporality,
        true,
        points.into_iter(),
    );
    items
}

fn page(metrics: &ReceivedMetrics, format: Format) -> String {
    let mut page = Page::new(format);
    metrics.put(&mut page);
    page.finish().replace("# EOF\n", "")
}

fn new() -> ReceivedMetrics {
    ReceivedMetrics::new(1000, Duration::from_secs(300))
}

#[test]
fn cumulative_values_are_shown_as_they_came_and_deltas_are_added_up() {
    let (mut cumulative, mut delta, now) = (new(), new(), Instant::now());
    for (at, value) in [(1, 5), (2, 7)] {
        let items = sum(value, CUMULATIVE, during(0, at));
        cumulative.take(&request("a", &items), now).unwrap();
        let items = sum(value, Temporality::Delta, during(at - 1, at));
        delta.take(&request("a", &items), now).unwrap();
    }
    let line = |value| format!("jobs_total{{job=\"gym\",instance=\"a\",k=\"v\"}} {value}\n");
    assert!(page(&cumulative, Format::Text).contains(&line(7)));
    let text = page(&delta, Format::Text);
    assert!(text.contains(&line(12)), "{text}");
    assert!(text.contains("target_info{job=\"gym\",instance=\"a\",host_name=\"h\"} 1\n"), "{text}");
}

#[test]
fn what_is_sent_twice_or_late_is_counted_once() {
    let (mut metrics, now) = (new(), Instant::now());
    for interval in [during(0, 10), during(10, 20), during(10, 20), during(0, 10)] {
        let items = sum(1, Temporality::Delta, interval);
        metrics.take(&request("a", &items), now).unwrap();
    }
    assert!(page(&metrics, Format::Text).contains("k=\"v\"} 2\n"));
    assert_eq!(metrics.refused(), Refused { outdated: 2, ..Refused::default() });
}

#[test]
fn a_process_that_is_silent_goes_with_its_series() {
    let (mut metrics, now) = (new(), Instant::now());
    metrics.take(&request("a", &sum(1, CUMULATIVE, during(0, 1))), now).unwrap();
    let later = now + Duration::from_secs(200);
    metrics.take(&request("b", &sum(1, CUMULATIVE, during(0, 1))), later).unwrap();
    assert_eq!((metrics.processes(), metrics.fill().0), (2, 4));
    metrics.forget_silent(now + Duration::from_secs(299));
    assert_eq!(metrics.processes(), 2);
    metrics.forget_silent(now + Duration::from_secs(300));
    assert_eq!((metrics.processes(), metrics.fill().0), (1, 2));
    let text = page(&metrics, Format::Text);
    assert!(!text.contains("instance=\"a\"") && text.contains("instance=\"b\""), "{text}");
    metrics.forget_silent(later + Duration::from_secs(300));
    assert_eq!((page(&metrics, Format::Text).as_str(), metrics.fill().0), ("", 0));
}

#[test]
fn samples_are_bounded_and_refused_ones_counted() {
    let mut metrics = ReceivedMetrics::new(5, Duration::from_secs(300));
    let now = Instant::now();
    for at in 0..10 {
        let items = sum(1, CUMULATIVE, during(0, 1));
        metrics.take(&request(&at.to_string(), &items), now).unwrap();
    }
    assert!(metrics.fill().0 <= 5, "{:?}", metrics.fill());
    assert_eq!(metrics.refused().full, 8);
    // Those that are there go on.
    metrics.take(&request("0", &sum(9, CUMULATIVE, during(0, 2))), now).unwrap();
    assert!(page(&metrics, Format::Text).contains("instance=\"0\",k=\"v\"} 9\n"));
}

#[test]
fn histograms_come_in_base_units_with_the_trace_of_each_bucket() {
    let (mut metrics, now) = (new(), Instant::now());
    let exemplars =
        [Exemplar { value: Number::Double(70.0), time_nanos: 9, span: Some(([1; 16], [2; 8])) }];
    for at in 1..=2 {
        let points = [HistogramPoint {
            attributes: &[],
            count: 3,
            sum: 120.0,
            buckets: &[1, 2, 0],
            min_max: None,
            exemplars: &exemplars,
        }];
        let mut items = Vec::new();
        put_histogram(
            &mut items,
            &identity("took", "ms"),
            during(at - 1, at),
            Temporality::Delta,
            &[50.0, 100.0],
            points.into_iter(),
        );
        metrics.take(&request("a", &items), now).unwrap();
    }
    let text = page(&metrics, Format::OpenMetrics);
    let labels = "job=\"gym\",instance=\"a\"";
    let trace = "01".repeat(16);
    for line in [
        "# TYPE took_seconds histogram\n".to_owned(),
        format!("took_seconds_bucket{{{labels},le=\"0.05\"}} 2\n"),
        format!("took_seconds_bucket{{{labels},le=\"0.1\"}} 6 # {{trace_id=\"{trace}\","),
        format!("took_seconds_bucket{{{labels},le=\"+Inf\"}} 6\n"),
        format!("took_seconds_sum{{{labels}}} 0.24\n"),
        format!("took_seconds_count{{{labels}}} 6\n"),
    ] {
        assert!(text.contains(&line), "{line}{text}");
    }
}

#[test]
fn exponential_histograms_become_powers_of_two_exactly() {
    let (mut metrics, now) = (new(), Instant::now());
    // Scale 1: bounds are powers of the root of 2. Bucket 0 is (1, 1.41], 1 is (1.41, 2], 2 is (2, 2.83].
    for (at, positive) in [
        (1, ExponentialBuckets { offset: 0, counts: vec![1, 2, 4] }),
        (2, ExponentialBuckets { offset: -2, counts: vec![8] }),
    ] {
        let mut attributes = Vec::new();
        put_key_value(&mut attributes, EXPONENTIAL_POINT_ATTRIBUTES, "k", "v");
        let points = [ExponentialPoint {
            attributes: &attributes,
            count: 0,
            sum: 1.0,
            scale: 1,
            zero_count: 3,
            positive: &positive,
            negative: &ExponentialBuckets { offset: 0, counts: vec![1] },
            min_max: None,
            exemplars: &[],
        }];
        let mut items = Vec::new();
        put_exponential_histogram(
            &mut items,
            &identity("x", ""),
            during(at - 1, at),
            Temporality::Delta,
            points.into_iter(),
        );
        metrics.take(&request("a", &items), now).unwrap();
    }
    let text = page(&metrics, Format::Text);
    let buckets: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("le=")).map(|(_, rest)| rest).collect();
    assert_eq!(
        buckets,
        ["\"0.5\"} 8", "\"1.0\"} 16", "\"2.0\"} 19", "\"4.0\"} 23", "\"+Inf\"} 23"],
        "{text}"
    );
    assert!(text.contains("x_sum{job=\"gym\",instance=\"a\",k=\"v\"} 2\n"), "{text}");
}

#[test]
fn one_name_has_one_kind_and_what_has_ended_is_gone() {
    let (mut metrics, now) = (new(), Instant::now());
    metrics.take(&request("a", &sum(1, CUMULATIVE, during(0, 1))), now).unwrap();
    let points = [NumberPoint { attributes: &[], value: Number::Double(f64::NAN), exemplars: &[] }];
    let mut items = Vec::new();
    put_gauge(&mut items, &identity("jobs", "{job}"), during(0, 2), points.into_iter());
    metrics.take(&request("a", &items), now).unwrap();
    assert_eq!(metrics.refused().conflicting, 1);
    // A point without a value.
    let json = br#"{"resourceMetrics":[{"resource":{"attributes":[
        {"key":"service.name","value":{"stringValue":"gym"}},
        {"key":"service.instance.id","value":{"stringValue":"a"}}]},"scopeMetrics":[{"metrics":[
        {"name":"jobs","unit":"{job}","sum":{"isMonotonic":true,"aggregationTemporality":2,"dataPoints":[
        {"attributes":[{"key":"k","value":{"stringValue":"v"}}],"timeUnixNano":"3","flags":1}]}}]}]}]}"#;
    let ended = lens_otlp::json::decode_metrics_request(json).unwrap();
    metrics.take(&ended, now).unwrap();
    assert_eq!(metrics.fill().0, 1);
}

#[test]
fn keys_that_become_one_label_are_joined() {
    let mut attributes = Vec::new();
    for (key, value) in [("a.b", "x"), ("a_b", "y")] {
        put_key_value(&mut attributes, POINT_ATTRIBUTES, key, value);
    }
    put_key_value(&mut attributes, POINT_ATTRIBUTES, "flag", &true);
    let attributes = Attributes::new(&attributes, u32::from(POINT_ATTRIBUTES));
    assert_eq!(labels(attributes).unwrap(), "a_b=\"x;y\",flag=\"true\"");
}

#[test]
fn names_and_labels_are_bounded_too() {
    let (mut metrics, now) = (new(), Instant::now());
    let mut items = Vec::new();
    let name = "n".repeat(300);
    let long = Identity { name: &name, unit: "", description: "" };
    let point = NumberPoint { attributes: &[], value: Number::Int(1), exemplars: &[] };
    put_gauge(&mut items, &long, during(0, 1), std::iter::once(point));
    let mut attributes = Vec::new();
    for at in 0..20 {
        let (key, value) = (format!("k{at}"), "v".repeat(1000));
        put_key_value(&mut attributes, POINT_ATTRIBUTES, &key, value.as_str());
    }
    let point = NumberPoint { attributes: &attributes, value: Number::Int(1), exemplars: &[] };
    put_gauge(&mut items, &identity("x", ""), during(0, 1), std::iter::once(point));
    metrics.take(&request("a", &items), now).unwrap();
    assert_eq!(metrics.refused(), Refused { full: 1, unsupported: 1, ..Refused::default() });
    assert!(metrics.families.is_empty());
}
