//! `docs/reference/api.md` has every public name of the Python telemetry package.

use super::page::Page;

/// Classes with their attributes and methods.
const CLASSES: [(&str, &str); 3] = [
    (
        "TelemetryConfig",
        "enabled exporter export_rank export_strategy instrument_aiohttp logs_enabled \
         memory_profiling metrics_enabled otlp_endpoint otlp_headers otlp_protocol run_id \
         service_name service_name_per_server span_groups traces_enabled",
    ),
    ("MemoryProfilingConfig", "enabled interval_seconds"),
    (
        "GymSpanGroup",
        "AGENT ALL_GROUPS CROSS_PROCESS_SPINE HTTP_CLIENT JOB MODEL_CALL ROLLOUT SANDBOX SERVER \
         VERIFY _PRESETS resolve",
    ),
];
const MODULES: &str = "config connection_pool contrib endpoints gym_metrics memory metrics setup \
                       span_groups spans _fallbacks";
const REST: &str = "configure_telemetry_env get_telemetry init_telemetry is_span_group_enabled \
                    is_telemetry_env_enabled is_telemetry_metrics_enabled managed_span \
                    memory_profiling_config_from_env safe_set_span_attributes shutdown_telemetry \
                    span_cm telemetry_config_from_global_config trace_fn TELEMETRY_KEY_NAME";

#[test]
fn every_name_of_the_python_package_has_a_row() {
    let rows = Page::open("api.md").rows();
    let modules = MODULES.split_whitespace().map(|name| format!("nemo_gym.telemetry.{name}"));
    let members = CLASSES.iter().flat_map(|(class, members)| {
        members.split_whitespace().map(move |member| format!("{class}.{member}"))
    });
    let classes = CLASSES.iter().map(|(class, _)| (*class).to_owned());
    let rest = REST.split_whitespace().map(str::to_owned);
    for name in modules.chain(classes).chain(members).chain(rest) {
        let row = rows.get(&format!("`{name}`"));
        assert!(row.is_some_and(|cells| cells.len() == 2), "{name}: {row:?}");
    }
}
