//! Attributes as labels, and who a process is.

use std::collections::BTreeMap;

use gym_telemetry::semconv;
use lens_otlp::DecodeError;
use lens_otlp::json::put_plain_value;
use lens_otlp::view::{AnyValue, Attributes, ResourceView, ScopeView};

use super::super::names;
use super::super::page::put_label;
use super::{MAX_LABELS_BYTES, MAX_TEXT_CHARS};

pub(super) fn join(a: &str, b: &str) -> String {
    match (a.is_empty(), b.is_empty()) {
        (true, _) => b.to_owned(),
        (_, true) => a.to_owned(),
        _ => format!("{a},{b}"),
    }
}

/// `job` and `instance` of a resource, and the rest of it.
pub(super) fn identity(resource: &ResourceView<'_>) -> Result<(String, String), DecodeError> {
    let mut attributes = BTreeMap::new();
    for pair in resource.attributes() {
        let (key, value) = pair?;
        attributes.insert(key, text(value)?);
    }
    let mut take = |key: &str| attributes.remove(key).unwrap_or_default();
    let (namespace, name) = (take("service.namespace"), take("service.name"));
    let mut instance = take("service.instance.id");
    if instance.is_empty() {
        // Without it processes of one host would be taken for one.
        let of = |key: &str| attributes.get(key).cloned().unwrap_or_default();
        let (host, pid) = (of(lens::semconv::HOST_NAME), of(semconv::PROCESS_PID));
        instance = if pid.is_empty() { host } else { format!("{host}:{pid}") };
    }
    let job = match (namespace.is_empty(), name.is_empty()) {
        (true, true) => "unknown_service".to_owned(),
        (true, false) => name,
        _ => format!("{namespace}/{name}"),
    };
    let mut identity = String::new();
    put_label(&mut identity, "job", &job);
    if !instance.is_empty() {
        put_label(&mut identity, "instance", &instance);
    }
    let mut info = render(attributes.into_iter());
    if info.len() > MAX_LABELS_BYTES {
        info.clear();
    }
    Ok((identity, info))
}

/// Attributes of a point as labels, sorted by name; those whose names agree are joined.
pub(super) fn labels(attributes: Attributes<'_>) -> Result<String, DecodeError> {
    let mut sorted = BTreeMap::new();
    for pair in attributes {
        let (key, value) = pair?;
        sorted.insert(key, text(value)?);
    }
    Ok(render(sorted.into_iter()))
}

fn render<'a>(attributes: impl Iterator<Item = (&'a str, String)>) -> String {
    let mut named: BTreeMap<String, String> = BTreeMap::new();
    for (key, value) in attributes {
        match named.entry(names::label(key)) {
            std::collections::btree_map::Entry::Vacant(new) => {
                new.insert(value);
            }
            std::collections::btree_map::Entry::Occupied(mut taken) => {
                let joined = taken.get_mut();
                joined.push(';');
                joined.push_str(&value);
            }
        }
    }
    let mut out = String::new();
    for (name, value) in named {
        put_label(&mut out, &name, &value);
    }
    out
}

pub(super) fn scope_labels(scope: &ScopeView<'_>) -> String {
    let mut out = String::new();
    for (label, value) in [("otel_scope_name", scope.name), ("otel_scope_version", scope.version)] {
        if !value.is_empty() {
            put_label(&mut out, label, value);
        }
    }
    out
}

fn text(value: AnyValue<'_>) -> Result<String, DecodeError> {
    let mut out = match value {
        AnyValue::String(text) => text.to_owned(),
        value => {
            let mut out = String::new();
            put_plain_value(&mut out, &value)?;
            out
        }
    };
    if let Some((at, _)) = out.char_indices().nth(MAX_TEXT_CHARS) {
        out.truncate(at);
    }
    Ok(out)
}
