//! What variables mean.

use super::*;

const PREFIXES: &[&str] = &[vars::NEMO_GYM_OTEL, vars::NEMO_LENS];

fn read(pairs: &[(&str, &str)]) -> (LensConfig, Vec<ConfigWarning>) {
    let map = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    LensConfig::from_env_map(&map, PREFIXES)
}

fn config(pairs: &[(&str, &str)]) -> LensConfig {
    let (config, warnings) = read(pairs);
    assert_eq!(warnings, []);
    config
}

#[test]
fn earlier_prefix_wins_and_a_blank_variable_is_unset() {
    assert!(!config(&[]).enabled);
    assert!(config(&[("NEMO_LENS_ENABLED", " On ")]).enabled);
    assert!(!config(&[("NEMO_LENS_ENABLED", "1"), ("NEMO_GYM_OTEL_ENABLED", "no")]).enabled);
    assert!(config(&[("NEMO_LENS_ENABLED", "1"), ("NEMO_GYM_OTEL_ENABLED", "  ")]).enabled);
}

#[test]
fn kill_switches_win_over_everything() {
    let on = ("NEMO_GYM_OTEL_ENABLED", "1");
    assert!(!config(&[on, ("OTEL_SDK_DISABLED", "true")]).enabled);
    assert!(!config(&[on, ("OTEL_SDK_DISABLED", "1")]).enabled);
    let killed = [on, ("OTEL_TRACES_EXPORTER", "none"), ("NEMO_GYM_OTEL_EXPORTER", "console")];
    let config = config(&killed);
    assert_eq!(config.traces_exporter, ExporterKind::None);
    assert_eq!(config.metrics_exporter, ExporterKind::Console);
    assert_eq!(config.logs_exporter, ExporterKind::None);
}

#[test]
fn unreadable_value_is_reported_and_leaves_its_default() {
    let (config, warnings) = read(&[
        ("NEMO_GYM_OTEL_ENABLED", "maybe"),
        ("OTEL_BSP_SCHEDULE_DELAY", "soon"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
    ]);
    assert!(!config.enabled);
    assert_eq!(config.batch, BatchSettings::default());
    let variables: Vec<_> = warnings.iter().map(|warning| warning.variable.as_str()).collect();
    let expected = ["NEMO_GYM_OTEL_ENABLED", "OTEL_TRACES_SAMPLER", "OTEL_BSP_SCHEDULE_DELAY"];
    assert_eq!(variables, expected);
}

#[test]
fn endpoints_follow_the_specification() {
    let endpoint = |pairs: &[(&str, &str)]| config(pairs).traces_otlp.endpoint;
    let http = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
    assert_eq!(endpoint(&[]), "http://localhost:4317");
    assert_eq!(endpoint(&[http]), "http://localhost:4318/v1/traces");
    let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h:1/base/");
    assert_eq!(endpoint(&[http, base]), "http://h:1/base/v1/traces");
    assert_eq!(endpoint(&[base]), "http://h:1/base/");
    let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:2/as/it/is");
    assert_eq!(endpoint(&[http, base, own]), "http://t:2/as/it/is");
    assert_eq!(config(&[http, base, own]).metrics_otlp.endpoint, "http://h:1/base/v1/metrics");
    let bare = ("OTEL_EXPORTER_OTLP_ENDPOINT", "h:4317");
    assert_eq!(endpoint(&[bare]), "https://h:4317");
    assert_eq!(endpoint(&[bare, ("OTEL_EXPORTER_OTLP_INSECURE", "true")]), "http://h:4317");
}

#[test]
fn signal_settings_win_over_general_ones() {
    let config = config(&[
        ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer%20a,bad"),
        ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "x=y"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
    ]);
    let (traces, metrics) = (&config.traces_otlp, &config.metrics_otlp);
    assert_eq!(traces.headers, [("authorization".to_owned(), "Bearer a".to_owned())]);
    assert_eq!(metrics.headers, [("x".to_owned(), "y".to_owned())]);
    assert_eq!((traces.gzip, metrics.gzip), (true, false));
    assert_eq!((traces.protocol, metrics.protocol), (Protocol::HttpJson, Protocol::Grpc));
    assert_eq!(metrics.timeout, Duration::from_millis(1500));
    let shown = format!("{traces:?}");
    assert!(shown.contains("authorization") && !shown.contains("Bearer"), "{shown}");
}

#[test]
fn service_name_wins_over_resource_attributes() {
    let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,team=x%2Cy");
    assert_eq!(config(&[attributes]).service_name, "a");
    let both = config(&[attributes, ("OTEL_SERVICE_NAME", "b")]);
    assert_eq!(both.service_name, "b");
    assert_eq!(both.resource_attributes.len(), 1);
    assert_eq!(both.resource_attributes[0].0, "team");
}

#[test]
fn resource_attributes_are_decoded_and_one_bad_pair_discards_all() {
    let read = |text| {
        let map = [("OTEL_RESOURCE_ATTRIBUTES".to_owned(), String::from(text))].into();
        let (config, warnings) = LensConfig::from_env_map(&map, &[]);
        let attributes = config.resource_attributes.into_iter();
        let pairs: Vec<String> =
            attributes.map(|(key, value)| format!("{key}={value:?}")).collect();
        (pairs, warnings.len())
    };
    let decoded = [r#"team x=String("a,b")"#, r#"b=String("ü")"#].map(str::to_owned).to_vec();
    assert_eq!(read("team%20x=a%2Cb, b=%C3%BC ,"), (decoded, 0));
    for text in ["x=%ZZ,y=1", "x=%4", "x,y=1", "=1,y=1", "y=1,x=%FF"] {
        assert_eq!(read(text), (Vec::new(), 1), "{text}");
    }
}

#[test]
fn settings_of_which_half_is_missing_or_that_cannot_be_are_told_once() {
    let said = |variables: &[(&str, &str)]| {
        let map = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let (_, warnings) = LensConfig::from_env_map(&map.collect(), &[]);
        warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let half = said(&[("OTEL_EXPORTER_OTLP_CLIENT_KEY", "k.pem")]);
    assert_eq!(
        half,
        [
            "OTEL_EXPORTER_OTLP_CLIENT_KEY is ignored: expected OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE beside it"
        ]
    );
    let bare =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", "h:4317"), ("OTEL_EXPORTER_OTLP_INSECURE", "perhaps")];
    assert!(
        said(&bare)[0].starts_with("OTEL_EXPORTER_OTLP_INSECURE is ignored"),
        "{:?}",
        said(&bare)
    );
    assert_eq!(said(&[("OTEL_EXPORTER_OTLP_COMPRESSION", "GZIP")]), Vec::<String>::new());
    assert_eq!(said(&[("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "zstd")]).len(), 1);
    let doubled = [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h:4318/v1/traces/"),
    ];
    let said_of_it = said(&doubled);
    assert_eq!(said_of_it.len(), 1, "{said_of_it:?}");
    assert!(
        said_of_it[0].contains("OTEL_EXPORTER_OTLP_ENDPOINT ends in /v1/traces"),
        "{said_of_it:?}"
    );
    assert_eq!(said(&doubled[1..]), Vec::<String>::new(), "gRPC adds no path");
}

#[test]
fn samplers_and_propagators_are_read_by_name() {
    let config = config(&[
        ("OTEL_TRACES_SAMPLER", "traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ("OTEL_PROPAGATORS", "baggage"),
    ]);
    assert_eq!(config.sampler, Sampler { parent_based: false, ratio: 0.25 });
    assert_eq!(config.propagators, Propagators { trace_context: false, baggage: true });
    let off = Sampler::from_name("parentbased_always_off", None);
    assert_eq!(off, Some(Sampler { parent_based: true, ratio: 0.0 }));
}

#[test]
fn every_standard_sampler_is_known_and_an_unknown_one_is_as_good_as_none() {
    let of = |name, ratio| {
        let argument = ("OTEL_TRACES_SAMPLER_ARG", ratio);
        let (config, warnings) = read(&[("OTEL_TRACES_SAMPLER", name), argument]);
        (config.sampler.parent_based, config.sampler.ratio, warnings.len())
    };
    assert_eq!(of("always_on", ""), (false, 1.0, 0));
    assert_eq!(of("always_off", ""), (false, 0.0, 0));
    assert_eq!(of("TraceIdRatio", "0.25"), (false, 0.25, 0));
    assert_eq!(of("parentbased_always_on", ""), (true, 1.0, 0));
    assert_eq!(of("parentbased_always_off", ""), (true, 0.0, 0));
    assert_eq!(of("parentbased_traceidratio", "0.25"), (true, 0.25, 0));
    assert_eq!(of("jaeger_remote", "0.25"), (true, 1.0, 1));
    assert_eq!(of("always_off", "nonsense that it does not read"), (false, 0.0, 0));
}

#[test]
fn ratio_that_is_none_is_reported_and_as_good_as_not_given() {
    for ratio in ["NaN", "inf", "-inf", "-0.1", "1.5", "abc", "0.5x"] {
        let (config, warnings) = read(&[
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", ratio),
        ]);
        assert_eq!(config.sampler, Sampler { parent_based: true, ratio: 1.0 }, "{ratio}");
        assert_eq!(warnings.len(), 1, "{ratio}");
        assert_eq!(warnings[0].variable, "OTEL_TRACES_SAMPLER_ARG");
    }
    for unset in ["", "  "] {
        let sampler = ("OTEL_TRACES_SAMPLER", "traceidratio");
        let config = config(&[sampler, ("OTEL_TRACES_SAMPLER_ARG", unset)]);
        assert_eq!(config.sampler.ratio, 1.0);
    }
}

#[test]
fn ranks_and_strategy_are_read() {
    let config = config(&[
        ("NEMO_LENS_EXPORT_STRATEGY", "single_rank"),
        ("NEMO_LENS_EXPORT_RANK", "-2"),
        ("NEMO_GYM_OTEL_EXPORT_SAMPLE_RATE", "0.5"),
        ("NEMO_LENS_SAMPLER_ENABLED", "yes"),
        ("RANK", "3"),
        ("SLURM_PROCID", "9"),
        ("SLURM_NTASKS", "8"),
        ("LOCAL_RANK", "1"),
    ]);
    let expected = ExportSettings {
        strategy: "single_rank".to_owned(),
        rank: -2,
        sample_rate: 0.5,
        sampler: true,
    };
    assert_eq!(config.export, expected);
    assert_eq!((config.rank, config.world_size, config.local_rank), (3, 8, 1));
}

#[test]
fn settings_of_metrics_are_read_by_name_in_any_case() {
    let metrics = config(&[
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "DELTA"),
        (
            "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
            "base2_exponential_bucket_histogram",
        ),
        ("OTEL_METRICS_EXEMPLAR_FILTER", "Always_Off"),
    ])
    .metrics;
    let expected = MetricSettings {
        temporality: TemporalityPreference::Delta,
        histogram: HistogramAggregation::Exponential,
        exemplars: ExemplarFilter::AlwaysOff,
    };
    assert_eq!(metrics, expected);
    let (config, warnings) = read(&[("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "junk")]);
    assert_eq!(config.metrics, MetricSettings::default());
    assert_eq!(warnings.len(), 1);
}

#[test]
fn limits_fall_back_to_the_general_ones() {
    let config = config(&[
        ("OTEL_ATTRIBUTE_COUNT_LIMIT", "5"),
        ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "9"),
        ("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "2"),
    ]);
    let limits = config.limits;
    assert_eq!((limits.attributes, limits.attribute_value_chars), (5, 9));
    assert_eq!((limits.events, limits.event_attributes), (128, 2));
    assert_eq!((limits.links, limits.link_attributes), (128, 5));
}
