//! What every setting does, for the reference page and for whoever shows the table.

/// One clause about a setting, by its name in the table; empty for a name that is none.
pub(super) fn about(name: &str) -> &'static str {
    if let Some(about) = own(name) {
        return about;
    }
    let shared = name
        .strip_prefix("traces.")
        .or_else(|| name.strip_prefix("metrics."))
        .or_else(|| name.strip_prefix("logs."))
        .unwrap_or(name);
    of_signal(shared).or_else(|| of_pipeline(name)).unwrap_or_default()
}

fn own(name: &str) -> Option<&'static str> {
    Some(match name {
        "enabled" => "master switch",
        "service_name" => "base of `service.name`",
        "service_name_per_server" => "append `/<instance>` to `service.name`",
        "span_groups" => "which spans exist: presets and groups, comma-separated",
        "span_groups.resolved" => "the groups that `span_groups` switches on",
        "exporter" => "where all signals go: `otlp` or `console`",
        "traces_enabled" => "record spans",
        "metrics_enabled" => "record metrics",
        "logs_enabled" => "bridge log records",
        "instrument_aiohttp" => {
            "make CLIENT spans (alias `instrument_http_client`); trace context is sent either way"
        }
        "export_strategy" => {
            "which processes export: `all_ranks`, `single_rank`, `sampled`, `first_rank_per_node` or \
             one that the program registered"
        }
        "export_rank" => {
            "for `single_rank`: the rank that exports; negative ones count from the last, -1"
        }
        "export_sample_rate" => {
            "for `sampled`: the share of processes that export, drawn by run id, service name and rank"
        }
        "sampler_enabled" => {
            "a process that does not export records nothing that it begins, and still takes part in \
             traces that others began"
        }
        "run_id" => "id shared by every process of a fleet; else that of the Slurm job, else new",
        "user_id" => "`nemo.user.id` on the resource",
        "live_events" => "announce long-lived spans in log records: `auto`, `on` or `off`",
        "propagate_to_models" => "send trace context to model endpoints",
        "propagate_to" => "hosts outside of the fleet that get trace context",
        "memory_profiling.enabled" => "sample the memory of the host and of every server",
        "memory_profiling.interval_seconds" => "seconds between two memory samples",
        "cpu_sampling_enabled" => "sample the process's CPU at span ends",
        "cpu_min_resample_interval_s" => "seconds between two CPU samples at least",
        "memory_sampling_enabled" => "sample the host's memory at span ends",
        "memory_min_resample_interval_s" => "seconds between two memory samples at least",
        "gpu_sampling_enabled" => "sample GPUs in the background",
        "gpu_sample_interval_s" => "seconds between two GPU samples",
        "wandb.entity" => "`wandb.entity` on the resource",
        "wandb.project" => "`wandb.project` on the resource",
        "deployment_environment" => {
            "`deployment.environment` on the resource; else from `ENVIRONMENT`"
        }
        "spool_dir" => {
            "folder on a memory file system for spans that wait, so that they outlive a killed \
             process; else `$XDG_RUNTIME_DIR`, else `/dev/shm`"
        }
        "buffer_bytes" => "bytes of spans that may wait in a process; a quarter for log records",
        "spool_bytes" => {
            "bytes of files below `<cache_dir>/spool` for what a process cannot deliver; a \
             quarter for log records"
        }
        _ => return None,
    })
}

fn of_signal(name: &str) -> Option<&'static str> {
    Some(match name {
        "exporter" => "where this signal goes, unless `NEMO_GYM_OTEL_EXPORTER` says; `none` is off",
        "otlp_endpoint" => "URL as it is used: over HTTP a base gets the signal's path",
        "otlp_protocol" => "`grpc`, `http/protobuf` or `http/json`",
        "otlp_headers" => "`name=value,…` sent with every export; never shown",
        "otlp_timeout_millis" => "milliseconds that an export may take",
        "otlp_compression" => "`gzip` or `none`",
        "otlp_insecure" => "no TLS when the endpoint has no scheme",
        "otlp_certificate" => "PEM file of trusted certificates",
        "otlp_client_key" => "PEM file of the client's key",
        "otlp_client_certificate" => "PEM file of the client's certificates",
        _ => return None,
    })
}

fn of_pipeline(name: &str) -> Option<&'static str> {
    Some(match name {
        "resource_attributes" => "`key=value,…` added to the resource",
        "traces.sampler" => "which traces are recorded",
        "traces.sampler_arg" => "for `traceidratio`: the share of traces, from 0 to 1",
        "propagators" => "what crosses process boundaries: `tracecontext`, `baggage`",
        "bsp_schedule_delay" => "milliseconds that an ended span waits at most",
        "bsp_export_timeout" => "milliseconds that an export of spans may take",
        "bsp_max_queue_size" => "spans that may wait",
        "bsp_max_export_batch_size" => "spans of one export at most",
        "blrp_schedule_delay" => "milliseconds that a log record waits at most",
        "blrp_export_timeout" => "milliseconds that an export of log records may take",
        "blrp_max_queue_size" => "log records that may wait",
        "blrp_max_export_batch_size" => "log records of one export at most",
        "metrics.temporality_preference" => {
            "`cumulative`: since the start; `delta`: counters and histograms since the last \
             export; `lowmemory`: the same but for counters that are observed"
        }
        "metrics.default_histogram_aggregation" => {
            "`explicit_bucket_histogram` or `base2_exponential_bucket_histogram`"
        }
        "metrics.exemplar_filter" => {
            "which measurements may be told with their trace: `trace_based` (inside of a recorded \
             span), `always_on`, `always_off`"
        }
        "metric_export_interval" => "milliseconds between two exports of metrics",
        "metric_export_timeout" => "milliseconds that an export of metrics may take",
        "span_attribute_count_limit" => "attributes of a span at most",
        "span_attribute_value_length_limit" => {
            "characters of a text among attributes at most, also of those of events and links"
        }
        "span_event_count_limit" => "events of a span at most",
        "span_link_count_limit" => "links of a span at most",
        "event_attribute_count_limit" => "attributes of an event at most",
        "link_attribute_count_limit" => "attributes of a link at most",
        _ => return None,
    })
}
