//! Command-line overrides: `+key=value` adds, `++key=value` adds or replaces.
//!
//! The grammar is that of Hydra 1.3 against an empty base config, which is how the Python
//! reference uses it: overrides form a tree of their own, and that tree is merged over the
//! files. So `+key=value` collides with an earlier override, never with a key of a file.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::error::{ConfigError, Origin};
use super::marks::{Marks, Path, select};
use super::merge::{kind, merge_values};
use super::override_value::{Fault, parse_value};
use super::yaml::Document;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Add,
    Set,
}

/// One parsed override.
#[derive(Debug)]
pub(super) struct Override<'a> {
    token: &'a str,
    action: Action,
    key: &'a str,
    value: Value,
}

fn fail<T>(token: &str, reason: impl Into<String>, hint: Option<String>) -> Result<T, ConfigError> {
    Err(ConfigError::Override { token: token.to_owned(), reason: reason.into(), hint })
}

impl<'a> Override<'a> {
    /// Parses one token.
    pub(super) fn parse(token: &'a str) -> Result<Self, ConfigError> {
        let (action, rest) = if let Some(rest) = token.strip_prefix("++") {
            (Some(Action::Set), rest)
        } else if let Some(rest) = token.strip_prefix('+') {
            (Some(Action::Add), rest)
        } else {
            (None, token)
        };
        if let Some(key) = rest.strip_prefix('~') {
            let key = key.split('=').next().unwrap_or_default();
            return fail(
                token,
                "`~` deletes an earlier override, and there is none",
                Some(format!("to remove a key that a file sets, use `_delete_key: {key}` there")),
            );
        }
        let Some((key, text)) = rest.split_once('=') else {
            return fail(token, "expected `+key=value`", Some(format!("`+{rest}=<value>`")));
        };
        check_key(token, key)?;
        let Some(action) = action else {
            return fail(
                token,
                format!("{key} does not exist yet, so it cannot be changed"),
                Some(format!("`++{token}` adds or replaces")),
            );
        };
        match parse_value(text) {
            Ok(value) => Ok(Self { token, action, key, value }),
            Err(Fault { reason, hint }) => {
                let hint = match hint {
                    Some(hint) => hint.replace("{key}", key),
                    None => format!(
                        "quote the value: \"{}={}\"",
                        prefix(token, key),
                        single_quoted(text)
                    ),
                };
                fail(token, reason, Some(hint))
            }
        }
    }

    /// The paths of a `+config_paths=[…]`, which add up instead of colliding.
    pub(super) fn config_paths(&self) -> Option<&Vec<Value>> {
        (self.action == Action::Add && self.key == "config_paths").then(|| self.value.as_array())?
    }

    /// Writes the override into the tree.
    fn apply(self, tree: &mut Document) -> Result<(), ConfigError> {
        let container = matches!(self.value, Value::Object(_) | Value::Array(_));
        let taken = select(&tree.value, self.key).is_some_and(|value| !value.is_null());
        if self.action == Action::Add && taken && !container {
            return fail(
                self.token,
                format!("{} already has a value from an earlier override", self.key),
                Some(format!("`+{}` replaces it", self.token)),
            );
        }
        let origin = Origin::Override(Arc::from(self.token));
        mark_leaves(&mut Path::from(self.key), &self.value, &origin, &mut tree.marks);
        let (parents, last) = match self.key.rsplit_once('.') {
            Some((parents, last)) => (Some(parents), last),
            None => (None, self.key),
        };
        let mut at = &mut tree.value;
        for part in parents.into_iter().flat_map(|parents| parents.split('.')) {
            at = descend(at, part).ok_or_else(|| self.out_of_range(part))?;
            if !matches!(at, Value::Object(_) | Value::Array(_)) {
                *at = Value::Object(Map::new());
            }
        }
        let slot = descend(at, last).ok_or_else(|| self.out_of_range(last))?;
        match (&*slot, &self.value) {
            (Value::Object(_), Value::Array(_)) | (Value::Array(_), Value::Object(_)) => {
                let (new, old) = (kind(&self.value), kind(slot));
                let hint = format!("{} is {old} in an earlier override", self.key);
                return fail(self.token, format!("cannot put {new} over {old}"), Some(hint));
            }
            _ => merge_values(slot, self.value),
        }
        Ok(())
    }

    fn out_of_range(&self, part: &str) -> ConfigError {
        ConfigError::Override {
            token: self.token.to_owned(),
            reason: format!("{part} is no index of the list in {}", self.key),
            hint: Some("give the whole list: `++key=[a,b]`".to_owned()),
        }
    }
}

fn descend<'v>(value: &'v mut Value, part: &str) -> Option<&'v mut Value> {
    match value {
        Value::Array(items) => items.get_mut(part.parse::<usize>().ok()?),
        Value::Object(map) => Some(map.entry(part).or_insert(Value::Null)),
        _ => None,
    }
}

fn mark_leaves(path: &mut Path, value: &Value, origin: &Origin, marks: &mut Marks) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                path.with_key(key, |path| mark_leaves(path, value, origin, marks));
            }
        }
        _ => marks.set(path, origin.clone()),
    }
}

fn prefix<'t>(token: &'t str, key: &str) -> &'t str {
    &token[..token.find(key).unwrap_or(0) + key.len()]
}

fn single_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "\\'"))
}

fn check_key(token: &str, key: &str) -> Result<(), ConfigError> {
    if key.contains('@') {
        return fail(
            token,
            "`@` selects a config group, and there are none",
            Some("name files with `--config FILE`".to_owned()),
        );
    }
    let starts_well =
        |part: &str| part.starts_with(|c: char| c.is_alphanumeric() || "_$".contains(c));
    let continues_well = |c: char| c.is_alphanumeric() || "_-$/".contains(c);
    let first_is_name = key.starts_with(|c: char| c.is_alphabetic() || "_$".contains(c));
    if first_is_name
        && key.split('.').all(|part| starts_well(part) && part.chars().all(continues_well))
    {
        return Ok(());
    }
    let hint = if key.contains('[') {
        "give the whole list: `++key=[a,b]`"
    } else {
        "a key is names joined by dots: `++section.key=value`"
    };
    fail(token, format!("{key:?} is not a key"), Some(hint.to_owned()))
}

/// Applies overrides in order to an empty tree.
pub(super) fn apply_all(overrides: Vec<Override<'_>>) -> Result<Document, ConfigError> {
    let mut tree = Document { value: Value::Object(Map::new()), marks: Marks::default() };
    for one in overrides {
        one.apply(&mut tree)?;
    }
    Ok(tree)
}

/// An override that sets `key` to exactly this text, whatever it contains.
///
/// Flags that stand for overrides use it, so that a key like `123` or `a,b` stays a string.
#[must_use]
pub fn string_override(key: &str, text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    let mut backslashes = 0;
    for c in text.chars() {
        if c == '\'' {
            // Backslashes before a quote count double.
            quoted.extend(std::iter::repeat_n('\\', backslashes + 1));
        }
        backslashes = if c == '\\' { backslashes + 1 } else { 0 };
        quoted.push(c);
    }
    quoted.extend(std::iter::repeat_n('\\', backslashes));
    format!("++{key}='{quoted}'")
}
