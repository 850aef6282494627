//! Which groups a spec switches on.

use gym_telemetry::{GymSpanGroup, env_vars, groups, resolve};
use serde_json::json;

use crate::{block, env};

const DEFAULT: &[&str] = &["http_client", "job", "rollout", "server", "startup"];
const PER_ROLLOUT: &[&str] =
    &["agent", "concurrency", "http_client", "model_call", "rollout", "server", "verify"];
const ALL: &[&str] = &[
    "agent",
    "concurrency",
    "http_client",
    "job",
    "model_call",
    "rollout",
    "sandbox",
    "server",
    "startup",
    "verify",
];

#[test]
fn presets_and_names_mix_in_any_case() {
    for (spec, expected) in [
        ("default", DEFAULT),
        ("per_rollout", PER_ROLLOUT),
        ("all", ALL),
        (" Verify , ,SANDBOX", &["sandbox", "verify"]),
        ("default,rollout,startup", DEFAULT),
        (" , ", &[]),
    ] {
        let set = groups::resolve(spec);
        assert_eq!(set.names(), expected, "{spec}");
        assert!(set.warnings().is_empty(), "{spec}");
    }
    let all: Vec<_> = GymSpanGroup::ALL_GROUPS.iter().map(|group| group.name()).collect();
    assert_eq!(all, ALL);
    let spine: Vec<_> =
        GymSpanGroup::CROSS_PROCESS_SPINE.iter().map(|group| group.name()).collect();
    assert_eq!(spine, ["server", "http_client", "rollout"]);
}

#[test]
fn an_unknown_name_is_a_warning_with_the_closest_and_is_ignored() {
    let set = groups::resolve("rolout,verify");
    assert_eq!(set.names(), ["verify"]);
    assert!(set.contains("verify") && !set.contains("rollout"));
    let [warning] = set.warnings() else { panic!("{:?}", set.warnings()) };
    assert!(warning.contains("rolout") && warning.contains("rollout"), "{warning}");
}

#[test]
fn the_table_shows_the_groups_that_a_spec_means_with_its_origin() {
    let resolved = resolve(
        &env(&[(env_vars::lens::SPAN_GROUPS, "default,verify")]),
        &block(json!({"span_groups": "all"})),
    );
    let row = resolved.rows().into_iter().find(|row| row.name == "span_groups.resolved").unwrap();
    assert_eq!(row.value, "http_client,job,rollout,server,startup,verify");
    assert_eq!(row.origin.to_string(), "NEMO_LENS_SPAN_GROUPS");
}
