//! `${…}`: references to other values, and a few functions.
//!
//! `${a.b}` and `${a[0]}` refer from the top, `${.b}` and `${..b}` from the mapping that holds the
//! value. `${oc.env:VAR,default}` reads the environment that the config was loaded with,
//! `${oc.decode:TEXT}` types a text, `${oc.select:key,default}` refers with a default. A value
//! that is nothing but one `${…}` takes the type of what it refers to; inside a longer text it is
//! written as Python would write it. `\${` stands for itself.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

use serde_json::Value;

use super::closest::closest;
use super::error::ConfigError;
use super::marks::{Marks, Path, Segment, child, segments};
use super::merge::is_missing;
use super::override_value::{parse_value, type_of};
use super::scalar::python_str;

const MAX_DEPTH: usize = 64;

/// Resolves values of one tree against its root and an environment.
pub(super) struct Resolver<'a> {
    pub(super) root: &'a Value,
    pub(super) environment: &'a BTreeMap<String, String>,
    pub(super) marks: &'a Marks,
}

struct Fault {
    reason: String,
    hint: Option<String>,
    /// A default may stand in for a value that does not exist, not for a mistake.
    absent: bool,
}

impl Fault {
    fn new(reason: impl Into<String>, hint: Option<String>) -> Self {
        Self { reason: reason.into(), hint, absent: false }
    }
}

/// Whether a value contains a `${`.
pub(super) fn has_interpolation(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("${"),
        Value::Array(items) => items.iter().any(has_interpolation),
        Value::Object(map) => map.values().any(has_interpolation),
        _ => false,
    }
}

impl Resolver<'_> {
    /// The value at `path` with everything below it resolved.
    pub(super) fn resolve(&self, value: &Value, path: &mut Path) -> Result<Value, ConfigError> {
        match value {
            Value::String(text) if text.contains("${") => {
                self.text(text, path.as_str(), 0).map_err(|fault| ConfigError::Interpolation {
                    at: self.marks.find(path.as_str()),
                    path: path.as_str().to_owned(),
                    reason: fault.reason,
                    hint: fault.hint,
                })
            }
            Value::Array(items) => items
                .iter()
                .enumerate()
                .map(|(index, item)| path.with_index(index, |path| self.resolve(item, path)))
                .collect(),
            Value::Object(map) => {
                let mut resolved = serde_json::Map::with_capacity(map.len());
                for (key, value) in map {
                    let value = path.with_key(key, |path| self.resolve(value, path))?;
                    resolved.insert(key.clone(), value);
                }
                Ok(Value::Object(resolved))
            }
            other => Ok(other.clone()),
        }
    }

    /// A value found while following a reference: it may refer on, from its own place.
    fn follow(&self, value: &Value, path: &str, depth: usize) -> Result<Value, Fault> {
        match value {
            Value::String(text) if text.contains("${") => self.text(text, path, depth + 1),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .map(|(index, item)| self.follow(item, &format!("{path}[{index}]"), depth))
                .collect(),
            Value::Object(map) => map
                .iter()
                .map(|(key, value)| Ok((key.clone(), self.follow(value, &join(path, key), depth)?)))
                .collect::<Result<serde_json::Map<_, _>, Fault>>()
                .map(Value::Object),
            other => Ok(other.clone()),
        }
    }

    fn text(&self, text: &str, path: &str, depth: usize) -> Result<Value, Fault> {
        if depth > MAX_DEPTH {
            let hint = format!("give {path} a plain value: `++{path}=<value>`");
            return Err(Fault::new(format!("`{text}` refers back to itself"), Some(hint)));
        }
        let mut scan =
            Scan { resolver: self, rest: text.chars().peekable(), whole: text, path, depth };
        let mut parts: Vec<Part> = Vec::new();
        let mut literal = String::new();
        let mut backslashes = 0;
        while let Some(c) = scan.rest.next() {
            if c == '\\' {
                backslashes += 1;
                continue;
            }
            let opens = c == '$' && scan.rest.peek() == Some(&'{');
            let kept = if opens { backslashes / 2 } else { backslashes };
            literal.extend(std::iter::repeat_n('\\', kept));
            let escaped = opens && backslashes % 2 == 1;
            backslashes = 0;
            if opens && !escaped {
                scan.rest.next();
                if !literal.is_empty() {
                    parts.push(Part::Literal(std::mem::take(&mut literal)));
                }
                parts.push(Part::Value(scan.inside()?));
            } else {
                literal.push(c);
            }
        }
        literal.extend(std::iter::repeat_n('\\', backslashes));
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Ok(join_parts(parts))
    }

    /// The value that a reference names, resolved.
    fn reference(&self, key: &str, path: &str, depth: usize) -> Result<Value, Fault> {
        let full = absolute(key, path).ok_or_else(|| {
            Fault::new(
                format!("`${{{key}}}` is not a reference"),
                Some("write `${section.key}`".into()),
            )
        })?;
        if depth > MAX_DEPTH {
            return Err(Fault::new(format!("`${{{key}}}` refers back to itself"), None));
        }
        let steps = segments(&full).unwrap_or_default();
        let mut at = self.root;
        let mut walked = String::new();
        for step in &steps {
            if at.as_str().is_some_and(|text| text.contains("${")) {
                let resolved = self.follow(at, &walked, depth + 1)?;
                // What a reference leads to is owned here; walking on borrows from the copy.
                return self.walk_owned(&resolved, &steps, &walked, &full);
            }
            at = child(at, step).ok_or_else(|| absent(at, step, &full))?;
            walked = match step {
                Segment::Key(name) => join(&walked, name),
                Segment::Index(index) => format!("{walked}[{index}]"),
            };
        }
        if is_missing(at) {
            return Err(Fault {
                reason: format!("`${{{key}}}` refers to {full}, which has no value yet (`???`)"),
                hint: Some(format!("set it: `++{full}=<value>`")),
                absent: true,
            });
        }
        self.follow(at, &full, depth)
    }

    fn walk_owned(
        &self,
        value: &Value,
        steps: &[Segment],
        walked: &str,
        full: &str,
    ) -> Result<Value, Fault> {
        let done = segments(walked).map_or(0, |steps| steps.len());
        let mut at = value;
        for step in &steps[done..] {
            at = child(at, step).ok_or_else(|| absent(at, step, full))?;
        }
        Ok(at.clone())
    }
}

fn absent(at: &Value, step: &Segment, full: &str) -> Fault {
    let near = match (at, step) {
        (Value::Object(map), Segment::Key(name)) => closest(name, map.keys().map(String::as_str)),
        _ => None,
    };
    let set = match flag(full) {
        Some(flag) => format!("set it: `{flag} <value>` or `++{full}=<value>`"),
        None => format!("set it: `++{full}=<value>`"),
    };
    Fault {
        reason: format!("`${{{full}}}` refers to {full}, which does not exist"),
        hint: Some(match near {
            Some(near) => format!("{set}; or did you mean {near}?"),
            None => set,
        }),
        absent: true,
    }
}

/// The flag that sets a key.
fn flag(key: &str) -> Option<&'static str> {
    match key {
        "policy_base_url" => Some("--model-url"),
        "policy_api_key" => Some("--model-api-key"),
        "policy_model_name" => Some("--model"),
        _ => None,
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The dotted path from the top that `key` means inside the mapping that holds `path`.
fn absolute(key: &str, path: &str) -> Option<String> {
    let relative = key.trim_start_matches('.');
    let dots = key.len() - relative.len();
    segments(relative)?;
    let mut base = path;
    for _ in 0..dots {
        if base.is_empty() {
            return None;
        }
        base = base.rfind(['.', '[']).map_or("", |end| &base[..end]);
    }
    Some(if dots == 0 { relative.to_owned() } else { join(base, relative) })
}

enum Part {
    Literal(String),
    Value(Value),
}

/// One value alone keeps its type.
fn join_parts(mut parts: Vec<Part>) -> Value {
    if let [Part::Value(_)] = parts.as_slice()
        && let Some(Part::Value(value)) = parts.pop()
    {
        return value;
    }
    let text = parts.iter().map(|part| match part {
        Part::Literal(text) => text.clone(),
        Part::Value(value) => python_str(value),
    });
    Value::String(text.collect())
}

struct Scan<'a, 't> {
    resolver: &'a Resolver<'a>,
    rest: Peekable<Chars<'t>>,
    whole: &'t str,
    path: &'t str,
    depth: usize,
}

impl Scan<'_, '_> {
    fn unclosed(&self) -> Fault {
        Fault::new(
            format!("`{}` has a `${{` without its closing `}}`", self.whole),
            Some("close it, or write `\\${` for the characters themselves".to_owned()),
        )
    }

    /// What stands between `${` and `}`; the opening is consumed.
    fn inside(&mut self) -> Result<Value, Fault> {
        if self.depth > MAX_DEPTH {
            return Err(Fault::new(format!("`{}` is nested too deeply", self.whole), None));
        }
        let mut name = String::new();
        loop {
            match self.rest.next() {
                None => return Err(self.unclosed()),
                Some('}') => return self.resolver.reference(name.trim(), self.path, self.depth),
                Some(':') => {
                    let arguments = self.arguments()?;
                    return self.call(name.trim(), arguments);
                }
                Some('$') if self.rest.peek() == Some(&'{') => {
                    self.rest.next();
                    self.depth += 1;
                    let inner = self.inside()?;
                    self.depth -= 1;
                    name.push_str(&python_str(&inner));
                }
                Some(c) => name.push(c),
            }
        }
    }

    /// Arguments of a function, up to and with the closing `}`.
    fn arguments(&mut self) -> Result<Vec<Argument>, Fault> {
        let mut arguments = Vec::new();
        let mut parts: Vec<Part> = Vec::new();
        let mut literal = String::new();
        let mut quoted = false;
        let mut nested = 0;
        loop {
            let Some(c) = self.rest.next() else { return Err(self.unclosed()) };
            match c {
                '$' if self.rest.peek() == Some(&'{') => {
                    self.rest.next();
                    if !literal.trim().is_empty() {
                        parts.push(Part::Literal(std::mem::take(&mut literal)));
                    }
                    literal.clear();
                    self.depth += 1;
                    parts.push(Part::Value(self.inside()?));
                    self.depth -= 1;
                }
                '\'' | '"' if literal.trim().is_empty() && parts.is_empty() => {
                    literal = self.quoted(c)?;
                    quoted = true;
                }
                '[' | '{' => {
                    nested += 1;
                    literal.push(c);
                }
                ']' | '}' if nested > 0 => {
                    nested -= 1;
                    literal.push(c);
                }
                '\\' => {
                    let escaped = self.rest.next_if(|c| "\\,}{[]:= ".contains(*c));
                    literal.push(escaped.unwrap_or('\\'));
                }
                ',' | '}' if nested == 0 => {
                    let text = std::mem::take(&mut literal);
                    arguments.push(finish(std::mem::take(&mut parts), text, quoted));
                    quoted = false;
                    if c == '}' {
                        return Ok(arguments);
                    }
                }
                c if quoted && c.is_whitespace() => {}
                c => literal.push(c),
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, Fault> {
        let mut text = String::new();
        loop {
            match self.rest.next() {
                None => return Err(self.unclosed()),
                Some(c) if c == quote => return Ok(text),
                Some('\\') => match self.rest.next_if(|c| *c == quote || *c == '\\') {
                    Some(escaped) => text.push(escaped),
                    None => text.push('\\'),
                },
                Some(c) => text.push(c),
            }
        }
    }

    fn call(&self, name: &str, arguments: Vec<Argument>) -> Result<Value, Fault> {
        let mut arguments = arguments.into_iter();
        let first = arguments.next().map(|argument| argument.value).unwrap_or(Value::Null);
        let default = arguments.next().map(|argument| argument.value);
        let first_text = python_str(&first);
        match name {
            "oc.env" => match (self.resolver.environment.get(&first_text), default) {
                (Some(value), _) => Ok(Value::String(value.clone())),
                (None, Some(Value::Null)) => Ok(Value::Null),
                (None, Some(default)) => Ok(Value::String(python_str(&default))),
                (None, None) => Err(Fault {
                    reason: format!("the environment variable {first_text} is not set"),
                    hint: Some(format!(
                        "set it, give a default `${{oc.env:{first_text},<default>}}`, or `++{}=<value>`",
                        self.path
                    )),
                    absent: true,
                }),
            },
            "oc.decode" => match first {
                Value::String(text) => parse_value(&text).map_err(|fault| {
                    Fault::new(format!("cannot decode {text:?}: {}", fault.reason), None)
                }),
                other => Ok(other),
            },
            "oc.select" => match self.resolver.reference(&first_text, self.path, self.depth + 1) {
                Err(fault) if fault.absent => Ok(default.unwrap_or(Value::Null)),
                result => result,
            },
            other => {
                let known = ["oc.env", "oc.decode", "oc.select", "inherit_from", "copy"];
                let hint = match closest(other, known) {
                    Some(near) => format!("did you mean `${{{near}:…}}`?"),
                    None => "known are oc.env, oc.decode and oc.select".to_owned(),
                };
                Err(Fault::new(format!("`${{{other}:…}}` is not a known function"), Some(hint)))
            }
        }
    }
}

struct Argument {
    value: Value,
}

fn finish(mut parts: Vec<Part>, literal: String, quoted: bool) -> Argument {
    if quoted {
        return Argument { value: Value::String(literal) };
    }
    let literal = if parts.is_empty() { literal.trim() } else { literal.trim_end() };
    if parts.is_empty() {
        let value =
            if literal.is_empty() { Value::String(String::new()) } else { type_of(literal) };
        return Argument { value };
    }
    if !literal.is_empty() {
        parts.push(Part::Literal(literal.to_owned()));
    }
    Argument { value: join_parts(parts) }
}
