//! Which processes of a distributed job record: export strategies and the rank-aware sampler.
//!
//! Telemetry is set up once per process, so each test runs itself again in processes of their own.

#[allow(dead_code)]
#[path = "collector/child.rs"]
mod child;

use std::time::Duration;

use lens::config::{ExportSettings, ExporterKind, LensConfig, Sampler};
use lens::{Context, Group, Span, TelemetryHandle};
use lens_testing::decode;

const PATIENCE: Duration = Duration::from_secs(60);

static WORK: Group = Group::new("work");
static GROUPS: &[&Group] = &[&WORK];

fn setup(rank: u32, export: ExportSettings) -> TelemetryHandle {
    lens::register("test", GROUPS, &[]);
    let config = LensConfig {
        enabled: true,
        span_groups: "work".to_owned(),
        traces_exporter: ExporterKind::Memory,
        metrics_exporter: ExporterKind::Memory,
        // The rank-aware sampler follows the parent whatever the other one does.
        sampler: Sampler { parent_based: false, ratio: 1.0 },
        rank,
        world_size: 4,
        export,
        ..LensConfig::default()
    };
    lens::setup_telemetry(config).expect("starts")
}

fn only_rank_2(sampler: bool) -> ExportSettings {
    ExportSettings { strategy: "single_rank".to_owned(), rank: 2, sampler, ..Default::default() }
}

fn below(flags: &'static str) -> Context {
    let header = format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
    Context::extract(|name| (name == "traceparent").then_some(header.as_str()))
}

/// Names of the spans that were recorded of a root and of one span below a sampled and an unsampled parent each.
fn recorded(handle: &TelemetryHandle) -> Vec<String> {
    Span::start(&WORK, "root").end();
    Span::build(&WORK, "below sampled").parent(&below("01")).start().end();
    Span::build(&WORK, "below unsampled").parent(&below("00")).start().end();
    assert!(handle.force_flush(PATIENCE));
    let batches = handle.memory().take();
    let spans = batches.iter().flat_map(|batch| decode(batch.request()).expect("valid"));
    spans.map(|span| span.name).collect()
}

#[test]
fn process_that_its_strategy_does_not_name_exports_nothing() {
    child::in_child("process_that_its_strategy_does_not_name_exports_nothing", || {
        let handle = setup(1, only_rank_2(false));
        assert!(!handle.is_exporting());
        assert_eq!(recorded(&handle), [""; 0]);
        assert!(!lens::metrics::is_enabled());
    });
}

#[test]
fn process_that_its_strategy_names_exports_all() {
    child::in_child("process_that_its_strategy_names_exports_all", || {
        let handle = setup(2, only_rank_2(false));
        assert!(handle.is_exporting() && lens::metrics::is_enabled());
        assert_eq!(recorded(&handle), ["root", "below sampled", "below unsampled"]);
    });
}

#[test]
fn rank_aware_sampler_decides_at_the_root_and_takes_part_in_traces_of_others() {
    child::in_child(
        "rank_aware_sampler_decides_at_the_root_and_takes_part_in_traces_of_others",
        || {
            let handle = setup(1, only_rank_2(true));
            assert_eq!(recorded(&handle), ["below sampled"]);
            assert!(!lens::metrics::is_enabled(), "metrics belong to no trace");
            let root = Span::start(&WORK, "root");
            let mut header = String::new();
            Context::current().with_span(&root).inject(|_, value| header = value.to_owned());
            assert!(header.ends_with("-02"), "others must not record it either: {header}");
        },
    );
}

#[test]
fn rank_aware_sampler_records_the_roots_of_a_named_rank() {
    child::in_child("rank_aware_sampler_records_the_roots_of_a_named_rank", || {
        let handle = setup(2, only_rank_2(true));
        assert_eq!(recorded(&handle), ["root", "below sampled"]);
    });
}

#[test]
fn strategy_of_the_program_decides() {
    child::in_child("strategy_of_the_program_decides", || {
        lens::register_export_strategy("odd_ranks", |candidate| candidate.rank % 2 == 1);
        let export = ExportSettings { strategy: "odd_ranks".to_owned(), ..Default::default() };
        let handle = setup(2, export);
        assert!(!handle.is_exporting() && handle.warnings().is_empty());
    });
}

#[test]
fn unknown_strategy_exports_with_a_warning() {
    child::in_child("unknown_strategy_exports_with_a_warning", || {
        let export = ExportSettings { strategy: "some_ranks".to_owned(), ..Default::default() };
        let handle = setup(1, export);
        assert!(handle.is_exporting());
        let warnings = handle.warnings();
        assert!(warnings.iter().any(|warning| warning.contains("some_ranks")), "{warnings:?}");
    });
}
