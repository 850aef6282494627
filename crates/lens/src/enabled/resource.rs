//! What is known about this process.

use std::path::Path;

use lens_otlp::encode::{RESOURCE_ATTRIBUTES, put_key_value};

use super::detect::{self, Detected, Environment};
use super::ids;
use super::value::Value;
use crate::config::LensConfig;
use crate::semconv;

/// The resource's attributes: detected ones, then those of the config, which win.
pub(super) fn attributes(config: &LensConfig) -> Vec<(String, Value)> {
    // What is not Unicode tells nobody anything.
    let variable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let env: Environment = std::env::vars_os().filter_map(variable).collect();
    merged(config, detect::all(&env, Path::new("/")))
}

fn merged(config: &LensConfig, detected: Detected) -> Vec<(String, Value)> {
    let mut attributes: Vec<(String, Value)> = Vec::new();
    let of_lens = [
        (semconv::SERVICE_NAME, Value::from(config.service_name.as_str())),
        (semconv::SERVICE_INSTANCE_ID, Value::from(instance_id())),
        (semconv::TELEMETRY_SDK_LANGUAGE, Value::from_static("rust")),
        (semconv::TELEMETRY_SDK_NAME, Value::from_static("lens")),
        (semconv::TELEMETRY_SDK_VERSION, Value::from_static(env!("CARGO_PKG_VERSION"))),
        (semconv::DL_RANK, Value::from(config.rank)),
        (semconv::DL_WORLD_SIZE, Value::from(config.world_size)),
    ];
    let known = of_lens.into_iter().chain(detected).map(|(key, value)| (key.to_owned(), value));
    for (key, value) in known.chain(config.resource_attributes.iter().cloned()) {
        match attributes.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => attributes.push((key, value)),
        }
    }
    attributes
}

/// An encoded `Resource`.
pub(super) fn encode(attributes: &[(String, Value)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in attributes {
        put_key_value(&mut out, RESOURCE_ATTRIBUTES, key, value);
    }
    out
}

/// A random UUID (version 4): unique per process, as the convention asks.
fn instance_id() -> String {
    let (high, low) = (ids::random(), ids::random());
    let (time_high, low_field) = (high >> 16 & 0xffff, high & 0x0fff);
    let (clock, node) = (low >> 48 & 0x3fff | 0x8000, low & 0xffff_ffff_ffff);
    format!("{:08x}-{time_high:04x}-4{low_field:03x}-{clock:04x}-{node:012x}", high >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_attribute_wins_over_a_detected_one() {
        let config = LensConfig {
            service_name: "nemo-gym/x".to_owned(),
            resource_attributes: vec![
                ("host.name".to_owned(), "elsewhere".into()),
                ("a.b".to_owned(), 3.into()),
            ],
            ..LensConfig::default()
        };
        let attributes = merged(&config, vec![("host.name", "here".into()), ("c.d", 4.into())]);
        let get =
            |key: &str| attributes.iter().filter(|(known, _)| known == key).collect::<Vec<_>>();
        assert_eq!(get("host.name"), [&("host.name".to_owned(), Value::from("elsewhere"))]);
        assert_eq!(get("service.name")[0].1, Value::from("nemo-gym/x"));
        assert_eq!(get("a.b")[0].1, Value::Int(3));
        assert_eq!(get("c.d")[0].1, Value::Int(4));
        assert_eq!(get("telemetry.sdk.name")[0].1, Value::from("lens"));
        assert_eq!(get("telemetry.sdk.version")[0].1, Value::from(env!("CARGO_PKG_VERSION")));
        assert_eq!(get("dl.rank")[0].1, Value::Int(0));
    }

    #[test]
    fn instance_id_is_a_version_4_uuid_and_never_the_same() {
        let id = instance_id();
        assert_eq!(id.len(), 36, "{id}");
        assert_eq!(&id[14..15], "4", "{id}");
        assert!(matches!(&id[19..20], "8" | "9" | "a" | "b"), "{id}");
        assert_ne!(id, instance_id());
    }
}
