//! The text of a `${…}`: names, functions, arguments, nesting.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::Value;

use super::closest::closest;
use super::interpolate::{Fault, MAX_DEPTH, Resolver};
use super::override_value::{parse_value, type_of};
use super::scalar::python_str;

/// The value of a text that contains `${`.
pub(super) fn expand(
    resolver: &Resolver<'_>,
    text: &str,
    path: &str,
    depth: usize,
) -> Result<Value, Fault> {
    if depth > MAX_DEPTH {
        let hint = format!("give {path} a plain value: `++{path}=<value>`");
        return Err(Fault::new(format!("`{text}` refers back to itself"), Some(hint)));
    }
    let mut scan = Scan { resolver, rest: text.chars().peekable(), whole: text, path, depth };
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
    fn arguments(&mut self) -> Result<Vec<Value>, Fault> {
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

    fn call(&self, name: &str, arguments: Vec<Value>) -> Result<Value, Fault> {
        let mut arguments = arguments.into_iter();
        let first = arguments.next().unwrap_or(Value::Null);
        let default = arguments.next();
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

fn finish(mut parts: Vec<Part>, literal: String, quoted: bool) -> Value {
    if quoted {
        return Value::String(literal);
    }
    let literal = if parts.is_empty() { literal.trim() } else { literal.trim_end() };
    if parts.is_empty() {
        let value =
            if literal.is_empty() { Value::String(String::new()) } else { type_of(literal) };
        return value;
    }
    if !literal.is_empty() {
        parts.push(Part::Literal(literal.to_owned()));
    }
    join_parts(parts)
}
