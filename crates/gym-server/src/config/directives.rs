//! `_inherit_from`, `_copy`, `_delete_key`, and `${inherit_from:a.b}` / `${copy:a.b}`.
//!
//! Sources are read from the config as it was before the pass. Inheriting takes the source out of
//! the config, copying leaves it. A mapping's own keys win over what it inherits.

use serde_json::{Map, Value};

use super::closest::closest;
use super::error::ConfigError;
use super::marks::{Marks, Path, segments, select};
use super::merge::{is_missing, merge_values};

const INHERIT: &str = "_inherit_from";
const COPY: &str = "_copy";
const DELETE: &str = "_delete_key";
const MAX_CHAIN: usize = 32;

/// Follows every directive of a config.
pub(super) fn follow_directives(config: &mut Value, marks: &Marks) -> Result<(), ConfigError> {
    let frozen = config.clone();
    let mut pass = Pass { frozen: &frozen, marks, inherited: Vec::new() };
    pass.walk(config, &mut Path::root(), 0)?;
    let mut inherited = pass.inherited;
    inherited.sort();
    inherited.dedup();
    for path in inherited {
        remove(config, &path);
    }
    Ok(())
}

struct Pass<'a> {
    frozen: &'a Value,
    marks: &'a Marks,
    inherited: Vec<String>,
}

impl Pass<'_> {
    fn fail<T>(&self, path: &str, reason: String, hint: Option<String>) -> Result<T, ConfigError> {
        Err(ConfigError::Directive {
            at: self.marks.find(path),
            path: path.to_owned(),
            reason,
            hint,
        })
    }

    fn walk(
        &mut self,
        value: &mut Value,
        path: &mut Path,
        chain: usize,
    ) -> Result<(), ConfigError> {
        if chain > MAX_CHAIN {
            return self.fail(path.as_str(), "inherits from itself".to_owned(), None);
        }
        if let Some((inherit, source)) = value.as_str().and_then(string_form) {
            let source = source.to_owned();
            *value = self.source(&source, inherit, path.as_str())?;
            return self.walk(value, path, chain + 1);
        }
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    path.with_index(index, |path| self.walk(item, path, chain))?;
                }
            }
            Value::Object(map) => {
                if let Some(source) = self.take_source(map, path)? {
                    let own = std::mem::take(map);
                    if !source.is_object() {
                        *value = source;
                        return self.walk(value, path, chain + 1);
                    }
                    *value = source;
                    merge_values(value, Value::Object(own));
                    return self.walk(value, path, chain + 1);
                }
                self.delete(map, path)?;
                for (key, value) in map.iter_mut() {
                    path.with_key(key, |path| self.walk(value, path, chain))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes the directive out of a mapping and returns what it points at.
    fn take_source(
        &mut self,
        map: &mut Map<String, Value>,
        path: &mut Path,
    ) -> Result<Option<Value>, ConfigError> {
        for (directive, inherit) in [(INHERIT, true), (COPY, false)] {
            let Some(target) = map.shift_remove(directive) else { continue };
            return path.with_key(directive, |path| match target.as_str() {
                Some(target) => self.source(target, inherit, path.as_str()).map(Some),
                None => self.fail(
                    path.as_str(),
                    "expected a dotted path".to_owned(),
                    Some(format!("`{directive}: section.key`")),
                ),
            });
        }
        Ok(None)
    }

    fn source(&mut self, target: &str, inherit: bool, at: &str) -> Result<Value, ConfigError> {
        let Some(value) = select(self.frozen, target) else {
            let near = self.near(target);
            return self.fail(
                at,
                format!("{target} does not exist"),
                near.map(|near| format!("did you mean {near}?")),
            );
        };
        if inherit {
            if at.strip_prefix(target).is_some_and(|rest| rest.starts_with(['.', '['])) {
                return self.fail(
                    at,
                    format!("inherits from {target}, which contains it"),
                    Some(format!("use `{COPY}`, which leaves the source in place")),
                );
            }
            self.inherited.push(target.to_owned());
        }
        if is_missing(value) {
            Ok(Value::String(super::merge::MISSING.to_owned()))
        } else {
            Ok(value.clone())
        }
    }

    /// The nearest key where the path leaves the config.
    fn near(&self, target: &str) -> Option<String> {
        let mut at = self.frozen;
        let mut walked = String::new();
        for part in target.split('.') {
            match at.get(part) {
                Some(value) => {
                    at = value;
                    walked = format!("{walked}{part}.");
                }
                None => {
                    let keys = at.as_object()?.keys().map(String::as_str);
                    return closest(part, keys).map(|near| format!("{walked}{near}"));
                }
            }
        }
        None
    }

    fn delete(&self, map: &mut Map<String, Value>, path: &mut Path) -> Result<(), ConfigError> {
        let Some(names) = map.shift_remove(DELETE) else { return Ok(()) };
        let at = path.with_key(DELETE, |path| path.as_str().to_owned());
        let names: Vec<String> = match &names {
            Value::String(names) => names.split(',').map(|name| name.trim().to_owned()).collect(),
            Value::Array(names) => {
                names.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            _ => {
                return self.fail(
                    &at,
                    "expected the names of keys".to_owned(),
                    Some(format!("`{DELETE}: \"one, two\"`")),
                );
            }
        };
        for name in names.iter().filter(|name| !name.is_empty()) {
            if map.shift_remove(name).is_none() {
                let near = closest(name, map.keys().map(String::as_str));
                return self.fail(
                    &at,
                    format!("there is no key {name:?} to delete"),
                    near.map(|near| format!("did you mean {near}?")),
                );
            }
        }
        Ok(())
    }
}

/// `(true, a.b)` for `${inherit_from:a.b}`, `(false, a.b)` for `${copy:a.b}`.
fn string_form(text: &str) -> Option<(bool, &str)> {
    let inner = text.strip_prefix("${")?.strip_suffix('}')?;
    let (name, target) = inner.split_once(':')?;
    match name.trim() {
        "inherit_from" => Some((true, target.trim())),
        "copy" => Some((false, target.trim())),
        _ => None,
    }
}

fn remove(config: &mut Value, path: &str) {
    let Some(steps) = segments(path) else { return };
    let Some((last, parents)) = steps.split_last() else { return };
    let mut at = config;
    for step in parents {
        let next = match (at, step) {
            (Value::Object(map), super::marks::Segment::Key(key)) => map.get_mut(key),
            (Value::Array(items), super::marks::Segment::Index(index)) => items.get_mut(*index),
            _ => None,
        };
        let Some(next) = next else { return };
        at = next;
    }
    if let (Value::Object(map), super::marks::Segment::Key(key)) = (at, last) {
        map.shift_remove(key);
    }
}
