//! What is known about this process.

use lens_otlp::encode::{RESOURCE_ATTRIBUTES, put_key_value};

use super::ids;
use super::value::Value;
use crate::config::LensConfig;
use crate::semconv;

/// The resource's attributes: detected ones, then those of the config, which win.
pub(super) fn attributes(config: &LensConfig) -> Vec<(String, Value)> {
    let mut attributes: Vec<(String, Value)> = Vec::new();
    let detected = [
        (semconv::SERVICE_NAME, Value::from(config.service_name.as_str())),
        (semconv::SERVICE_INSTANCE_ID, Value::from(instance_id())),
        (semconv::TELEMETRY_SDK_LANGUAGE, Value::from_static("rust")),
        (semconv::TELEMETRY_SDK_NAME, Value::from_static("lens")),
        (semconv::TELEMETRY_SDK_VERSION, Value::from_static(env!("CARGO_PKG_VERSION"))),
        (semconv::PROCESS_PID, Value::from(std::process::id())),
        (semconv::DL_RANK, Value::from(config.rank)),
        (semconv::DL_WORLD_SIZE, Value::from(config.world_size)),
    ];
    let host = host_name().map(|name| (semconv::HOST_NAME.to_owned(), Value::from(name)));
    let detected = detected.into_iter().map(|(key, value)| (key.to_owned(), value)).chain(host);
    for (key, value) in detected.chain(config.resource_attributes.iter().cloned()) {
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

fn host_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::fs::read_to_string("/etc/hostname"))
        .ok()?;
    let name = text.trim();
    (!name.is_empty()).then(|| name.to_owned())
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
        let attributes = attributes(&config);
        let get =
            |key: &str| attributes.iter().filter(|(known, _)| known == key).collect::<Vec<_>>();
        assert_eq!(get("host.name"), [&("host.name".to_owned(), Value::from("elsewhere"))]);
        assert_eq!(get("service.name")[0].1, Value::from("nemo-gym/x"));
        assert_eq!(get("a.b")[0].1, Value::Int(3));
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
