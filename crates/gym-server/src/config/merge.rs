//! Layers over layers: mappings merge key by key, everything else replaces.

use serde_json::Value;

use super::error::ConfigError;
use super::marks::{Marks, Path, select};
use super::yaml::Document;

/// A value that has to be given before the config can be used.
pub(super) const MISSING: &str = "???";

pub(super) fn is_missing(value: &Value) -> bool {
    value.as_str() == Some(MISSING)
}

/// The kind of a value in a message.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a number",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

/// Merges without regard to kinds: what is not a mapping on both sides is replaced.
pub(super) fn merge_values(below: &mut Value, over: Value) {
    match (below, over) {
        (Value::Object(below), Value::Object(over)) => {
            for (key, value) in over {
                match below.get_mut(&key) {
                    Some(slot) => merge_values(slot, value),
                    None => {
                        below.insert(key, value);
                    }
                }
            }
        }
        (below, over) => *below = over,
    }
}

/// Merges a later document over an earlier one.
///
/// `???` never replaces a value. A mapping over `${other.mapping}` is merged into a copy of that
/// mapping. A mapping and a list under one key are an error.
pub(super) fn merge_documents(below: &mut Document, over: Document) -> Result<(), ConfigError> {
    let before = below.value.clone();
    let layers = Layers { before: &before, old: &below.marks, new: &over.marks };
    layers.merge(&mut below.value, over.value, &mut Path::root())?;
    below.marks.overlay(over.marks);
    Ok(())
}

struct Layers<'a> {
    before: &'a Value,
    old: &'a Marks,
    new: &'a Marks,
}

impl Layers<'_> {
    fn merge(&self, below: &mut Value, over: Value, path: &mut Path) -> Result<(), ConfigError> {
        if is_missing(&over) {
            return Ok(());
        }
        if over.is_object()
            && let Some(target) = below.as_str().and_then(plain_reference)
            && let Some(mapping @ Value::Object(_)) = select(self.before, target)
        {
            *below = mapping.clone();
        }
        match (below, over) {
            (Value::Object(below), Value::Object(over)) => {
                for (key, value) in over {
                    match below.get_mut(&key) {
                        Some(slot) => path.with_key(&key, |path| self.merge(slot, value, path))?,
                        None => {
                            below.insert(key, value);
                        }
                    }
                }
            }
            (below @ Value::Object(_), over @ Value::Array(_))
            | (below @ Value::Array(_), over @ Value::Object(_)) => {
                return Err(ConfigError::Merge {
                    at: self.new.find(path.as_str()),
                    path: path.as_str().to_owned(),
                    new: kind(&over),
                    old: kind(below),
                    before: self.old.find(path.as_str()),
                });
            }
            (below, over) => *below = over,
        }
        Ok(())
    }
}

/// `a.b` of a string that is exactly `${a.b}`.
fn plain_reference(text: &str) -> Option<&str> {
    let inner = text.strip_prefix("${")?.strip_suffix('}')?;
    (!inner.contains(['$', '{', '}', ':']) && !inner.starts_with('.')).then_some(inner)
}

/// Dotted paths of every leaf that is still `???`.
pub(super) fn missing_keys(value: &Value) -> Vec<String> {
    fn walk(value: &Value, path: &mut Path, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    path.with_key(key, |path| walk(value, path, found));
                }
            }
            Value::Array(items) => {
                for (index, value) in items.iter().enumerate() {
                    path.with_index(index, |path| walk(value, path, found));
                }
            }
            value if is_missing(value) => found.push(path.as_str().to_owned()),
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(value, &mut Path::root(), &mut found);
    found
}
