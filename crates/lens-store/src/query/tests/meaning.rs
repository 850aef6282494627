use lens_otlp::encode::StatusCode;

use super::fixture::{Described, MILLI, Parts, SECOND, START};
use crate::query::{Method, Metrics, Owned, Query, Search, SearchOptions, Window};
use crate::raw::RawSpan;

/// A rollout of an agent that calls a model twice and a tool that fails.
pub fn rollout(trace: u128, start: u64) -> Vec<Described> {
    let span = |id: u64, parent: u64, name, service, from: u64, duration: u64| Described {
        trace,
        id,
        parent,
        name,
        service,
        start: start + from * MILLI,
        duration: duration * MILLI,
        ..Described::default()
    };
    let mut spans = vec![
        span(1, 0, "gym.rollout.attempt", "driver", 0, 1000),
        span(2, 1, "POST /run", "agent", 10, 900),
        span(3, 2, "model", "policy_model", 20, 300),
        span(4, 2, "model", "policy_model", 330, 100),
        span(5, 2, "tool", "weather", 450, 50),
    ];
    spans[1].kind = 2;
    for (at, tokens) in [(2, 100), (3, 40)] {
        spans[at].number = Some(tokens);
        spans[at].text = Some("gpt");
        spans[at].double = Some(0.5);
    }
    spans[4].status = StatusCode::Error;
    spans[4].flag = Some(true);
    spans[4].list = &[7, 9];
    spans[4].event = Some("exception");
    spans
}

fn parts(spans: &[Described]) -> Parts {
    Parts(vec![spans.iter().map(Described::raw).collect()])
}

fn search(query: &str, parts: &Parts) -> Search {
    Query::parse(query).unwrap().search(parts, &SearchOptions::default()).unwrap()
}

/// Ids of the spans found in one trace, and how many sets they are in.
fn ids(query: &str) -> Vec<u64> {
    let found = search(query, &parts(&rollout(1, START)));
    let options = SearchOptions { spans_of_set: 100, ..SearchOptions::default() };
    let all = Query::parse(query).unwrap();
    let all = all.search(&parts(&rollout(1, START)), &options).unwrap();
    assert_eq!(found.traces.len(), all.traces.len());
    let sets = all.traces.into_iter().flat_map(|found| found.sets);
    sets.flat_map(|set| set.spans)
        .map(|span| u64::from_str_radix(&span.span_id, 16).unwrap())
        .collect()
}

/// Conditions, and the spans of [`rollout`] that they hold for.
pub const CONDITIONS: &[(&str, &[u64])] = &[
    ("{}", &[1, 2, 3, 4, 5]),
    ("{ true }", &[1, 2, 3, 4, 5]),
    ("{ false }", &[]),
    ("{ name = \"model\" }", &[3, 4]),
    ("{ name != \"model\" }", &[1, 2, 5]),
    ("{ name =~ \"mod.*\" }", &[3, 4]),
    ("{ name =~ \"mod\" }", &[]),
    ("{ name !~ `m.*|gym.*` }", &[2, 5]),
    ("{ kind = server }", &[2]),
    ("{ status = error }", &[5]),
    ("{ status != error && name = \"tool\" }", &[]),
    ("{ duration > 100ms }", &[1, 2, 3]),
    ("{ duration >= 0.1s && duration < 500ms }", &[3, 4]),
    ("{ 100ms >= duration }", &[4, 5]),
    ("{ .number > 50 }", &[3]),
    ("{ span.number = 40 || span.number = 100 }", &[3, 4]),
    ("{ span.double = 0.5 }", &[3, 4]),
    ("{ span.number = 40.0 }", &[4]),
    // What is missing, or of another type, is neither equal nor unequal.
    ("{ .number != 40 }", &[3]),
    ("{ .text != 40 }", &[]),
    ("{ .number = nil }", &[1, 2, 5]),
    ("{ span.number != nil }", &[3, 4]),
    ("{ !(.number = 40) }", &[1, 2, 3, 5]),
    ("{ .flag }", &[5]),
    ("{ !.flag }", &[1, 2, 3, 4]),
    ("{ .flag = false }", &[]),
    ("{ .list = 9 }", &[5]),
    ("{ .list > 9 }", &[]),
    ("{ event:name = \"exception\" && event.why =~ \"ex.*\" }", &[5]),
    ("{ resource.service.name = \"agent\" }", &[2]),
    ("{ .service.name = \"agent\" }", &[2]),
    ("{ span.service.name = \"agent\" }", &[]),
    ("{ .where = \"resource\" && name = \"tool\" }", &[5]),
    ("{ instrumentation:name = \"scope\" && instrumentation:version = \"2\" }", &[]),
    ("{ rootName = \"gym.rollout.attempt\" && rootServiceName = \"driver\" }", &[1, 2, 3, 4, 5]),
    ("{ traceDuration > 2s || name = \"tool\" }", &[5]),
    ("{ !(traceDuration > 2s) && name = \"tool\" }", &[5]),
    ("{ trace:id = \"1\" && span:id = \"0000000000000003\" }", &[3]),
    ("{ span:parentID = \"2\" }", &[3, 4, 5]),
    ("{ span:parentID != \"2\" }", &[2]),
    ("{ name = \"model\" && .number > 50 || status = error }", &[3, 5]),
    ("{ (name = \"model\" || name = \"tool\") && (.flag || .number > 50) }", &[3, 5]),
    ("{ span.\"text\" = \"gpt\" }", &[3, 4]),
];

/// Sets of spans and steps, likewise.
pub const SETS: &[(&str, &[u64])] = &[
    ("{ name = \"tool\" } && { kind = server }", &[2, 5]),
    ("{ name = \"tool\" } && { name = \"none\" }", &[]),
    ("{ name = \"tool\" } || { name = \"none\" }", &[5]),
    ("{ kind = server } > { name = \"model\" }", &[3, 4]),
    ("{ name =~ \"gym.*\" } > { name = \"model\" }", &[]),
    ("{ name =~ \"gym.*\" } >> { name = \"model\" }", &[3, 4]),
    ("{ name = \"model\" } < {}", &[2]),
    ("{ name = \"model\" } << {}", &[1, 2]),
    ("{ status = error } ~ { name = \"model\" }", &[3, 4]),
    ("{ status = error } ~ { status = error }", &[]),
    ("{ name = \"model\" } ~ { name = \"model\" }", &[3, 4]),
    ("{ kind = server } > { status = error } || { .number = 40 }", &[4, 5]),
    ("({ .flag } || { .number = 40 }) && { kind = server }", &[2, 4, 5]),
    ("{} | { duration < 60ms }", &[5]),
    ("{ name = \"model\" } | count() > 1", &[3, 4]),
    ("{ name = \"model\" } | count() > 2", &[]),
    ("{ name = \"model\" } | avg(duration) = 200ms", &[3, 4]),
    ("{ name = \"model\" } | sum(.number) >= 140 | max(.number) < 101", &[3, 4]),
    ("{ name = \"model\" } | min(.missing) < 101", &[]),
    ("{} | by(name) | count() = 2", &[3, 4]),
];

#[test]
fn conditions_mean_what_traceql_means_by_them() {
    for (query, wanted) in CONDITIONS {
        assert_eq!(ids(query), *wanted, "{query}");
    }
}

#[test]
fn sets_of_spans_are_put_together() {
    for (query, wanted) in SETS {
        assert_eq!(ids(query), *wanted, "{query}");
    }
}

#[test]
fn groups_and_selected_fields_are_shown() {
    let query = "{ name != \"tool\" } | by(.text) | select(.number, span.double, .missing)";
    let found = search(query, &parts(&rollout(1, START)));
    let sets = &found.traces[0].sets;
    let by: Vec<_> = sets.iter().map(|set| (set.by[0].1.clone(), set.matched)).collect();
    assert_eq!(by, [(Owned::Nil, 2), (Owned::Text("gpt".to_owned()), 2)]);
    let fields = &sets[1].spans[0].fields;
    let wanted = [(".number", Owned::Int(100)), ("span.double", Owned::Float(0.5))];
    assert_eq!(*fields, wanted.map(|(name, value)| (name.to_owned(), value)));
    let found = &found.traces[0];
    assert_eq!((found.spans, found.duration_nanos), (5, SECOND));
    assert_eq!(found.root_service.as_deref(), Some("driver"));
}

#[test]
fn the_newest_traces_come_first_and_no_more_is_looked_at_than_they_take() {
    let part = |from: u128| -> Vec<RawSpan> {
        let traces = from..from + 10;
        traces
            .flat_map(|at| rollout(at, START + u64::try_from(at).unwrap() * SECOND))
            .map(|span| span.raw())
            .collect()
    };
    let parts = Parts((0..10).map(|at| part(1 + at * 10)).collect());
    let query = Query::parse("{ name = \"tool\" }").unwrap();
    let options = SearchOptions { limit: 3, ..SearchOptions::default() };
    let found = query.search(&parts, &options).unwrap();
    let ids: Vec<_> = found
        .traces
        .iter()
        .map(|found| u128::from_str_radix(&found.trace_id, 16).unwrap())
        .collect();
    assert_eq!(ids, [100, 99, 98]);
    assert!(found.has_more);
    assert_eq!((found.looked.parts, found.looked.parts_skipped), (1, 9));
    assert_eq!(found.looked.traces, 3);
    // A range of time leaves out parts that have none of it.
    let starts = START + 15 * SECOND..START + 18 * SECOND;
    let found = query.search(&parts, &SearchOptions { starts, ..options }).unwrap();
    assert_eq!((found.traces.len(), found.has_more), (3, false));
    assert_eq!((found.looked.parts, found.looked.parts_skipped), (1, 9));
}

fn measure(query: &str, parts: &Parts, window: &Window) -> Metrics {
    Query::parse(query).unwrap().measure(parts, window).unwrap().unwrap().metrics
}

#[test]
fn rates_counts_and_quantiles_are_taken_for_each_step_and_group() {
    let spans: Vec<_> =
        (0..10_u64).flat_map(|at| rollout(u128::from(at) + 1, START + at * SECOND)).collect();
    let parts = parts(&spans);
    let window = Window { range: START..START + 10 * SECOND, step_nanos: 5 * SECOND };
    let rate = measure("{ name = \"model\" } | rate() by (resource.service.name)", &parts, &window);
    assert_eq!((rate.series.len(), rate.spans), (1, 20));
    assert_eq!(rate.series[0].by[0].1, Owned::Text("policy_model".to_owned()));
    let points: Vec<_> = rate.series[0].points.iter().map(|point| point.value).collect();
    assert_eq!(points, [2.0, 2.0]);
    let all = Window::default();
    let quantiles = "{} | quantile_over_time(duration, .5, 1) by (name)";
    let found = measure(quantiles, &parts, &all);
    let of_model: Vec<_> = found
        .series
        .iter()
        .filter(|series| series.by[0].1 == Owned::Text("model".to_owned()))
        .map(|series| (series.quantile, series.method, series.points[0].value))
        .collect();
    let (half, most) = (100.0 * MILLI as f64, 300.0 * MILLI as f64);
    let exact = Some(Method::Exact);
    assert_eq!(of_model, [(Some(0.5), exact, half), (Some(1.0), exact, most)]);
    for (query, wanted) in [
        ("{ .number > 0 } | count_over_time()", 20.0),
        ("{ .number > 0 } | sum_over_time(.number)", 1400.0),
        ("{ .number > 0 } | avg_over_time(.number)", 70.0),
        ("{ .number > 0 } | min_over_time(.number)", 40.0),
        ("{ .number > 0 } | max_over_time(.number)", 100.0),
        // Structure is judged in the whole trace.
        ("{ kind = server } > { name = \"model\" } | count_over_time()", 20.0),
        ("{ rootName =~ \"gym.*\" && name = \"tool\" } | count_over_time()", 10.0),
        ("{ name = \"model\" } | count() > 1 | count_over_time()", 20.0),
    ] {
        let found = measure(query, &parts, &all);
        assert_eq!(found.series[0].points[0].value, wanted, "{query}");
    }
    let found = measure("{} | sum_over_time(.number)", &parts, &all);
    assert_eq!((found.spans, found.without_number), (20, 30));
}

/// Guarantees: times that cannot be believed move no percentile, and are counted.
#[test]
fn suspect_times_are_in_no_percentile_and_no_rate() {
    let mut spans = rollout(1, START);
    let good =
        measure("{} | quantile_over_time(duration, .99)", &parts(&spans), &Window::default());
    let bad = |id: u64, start: u64, duration: u64| Described {
        id,
        start,
        duration,
        ..Described::default()
    };
    spans.push(bad(20, START + 400 * 86_400 * SECOND, 99 * SECOND));
    spans.push(bad(21, 1, 99 * SECOND));
    let mut parts = parts(&spans);
    // One that ends before it starts.
    let negative = bad(22, START, 0).raw();
    let mut message = negative.message.to_vec();
    let end = (START - SECOND).to_le_bytes();
    let at = message.windows(8).rposition(|bytes| bytes == START.to_le_bytes()).unwrap();
    message[at..at + 8].copy_from_slice(&end);
    parts.0[0].push(RawSpan { message: message.into(), ..negative });
    let found = measure("{} | quantile_over_time(duration, .99)", &parts, &Window::default());
    assert_eq!(found.suspect, 3);
    assert_eq!(found.series, good.series);
    let rate = measure("{} | rate()", &parts, &Window::default());
    assert_eq!((rate.suspect, rate.spans), (3, 5));
}

#[test]
fn cycles_and_missing_parents_end_every_walk() {
    let span = |id: u64, parent: u64| Described { id, parent, name: "n", ..Described::default() };
    let spans = [span(1, 2), span(2, 3), span(3, 1), span(4, 4), span(5, 99), span(6, 99)];
    for query in ["{} >> {}", "{} << {}", "{} > {}", "{} ~ {}"] {
        assert!(!search(query, &parts(&spans)).traces.is_empty(), "{query}");
    }
    assert!(search("{ .none } >> {}", &parts(&spans)).traces.is_empty());
}

/// Guarantees: a span is found right after it arrived, by its id and by what it says.
#[test]
fn what_was_just_written_is_found() {
    let mut parts = parts(&rollout(1, START));
    assert!(search("{ .text = \"new\" }", &parts).traces.is_empty());
    let new = Described { trace: 2, text: Some("new"), ..Described::default() };
    parts.0[0].push(new.raw());
    let found = search("{ .text = \"new\" }", &parts);
    assert_eq!((found.traces.len(), found.has_more), (1, false));
    assert_eq!(search("{ trace:id = \"2\" }", &parts).traces[0].spans, 1);
}
