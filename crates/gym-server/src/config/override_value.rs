//! The value of an override: what stands after the `=`.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::{Map, Number, Value};

use super::scalar::python_str;

/// Why a value does not parse. `{key}` in the hint stands for the key; without a hint the fix is
/// to quote the value.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) reason: String,
    pub(super) hint: Option<String>,
}

impl Fault {
    fn quote(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), hint: None }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Top,
    List,
    Dict,
    Call,
}

impl Place {
    fn ends_at(self, c: char) -> bool {
        match self {
            Self::Top => false,
            Self::List => matches!(c, ',' | ']'),
            Self::Dict => matches!(c, ',' | '}'),
            Self::Call => matches!(c, ',' | ')'),
        }
    }
}

const MAX_DEPTH: usize = 64;

/// Parses and types a value; nothing at all is the empty string.
pub(super) fn parse_value(text: &str) -> Result<Value, Fault> {
    if text.is_empty() {
        return Ok(Value::String(String::new()));
    }
    let mut parser = Parser { rest: text.chars().peekable(), depth: 0 };
    let value = parser.element(Place::Top)?;
    parser.skip_blanks();
    match parser.rest.next() {
        None => Ok(value),
        Some(',') => Err(comma(text)),
        Some(c) => Err(Fault::quote(format!("unexpected `{c}` after the value"))),
    }
}

fn comma(text: &str) -> Fault {
    Fault {
        reason: "an unquoted comma in the value".to_owned(),
        hint: Some(format!(
            "write `++{{key}}=[{text}]` for a list, or \"++{{key}}='{text}'\" for text"
        )),
    }
}

struct Parser<'t> {
    rest: Peekable<Chars<'t>>,
    depth: usize,
}

impl Parser<'_> {
    fn skip_blanks(&mut self) {
        while self.rest.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
    }

    fn element(&mut self, place: Place) -> Result<Value, Fault> {
        self.skip_blanks();
        match self.rest.peek() {
            Some('[') => self.nested(Self::list),
            Some('{') => self.nested(Self::dict),
            Some('\'' | '"') => self.quoted().map(Value::String),
            _ => self.primitive(place),
        }
    }

    fn nested(&mut self, parse: fn(&mut Self) -> Result<Value, Fault>) -> Result<Value, Fault> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Fault::quote(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.rest.next();
        let value = parse(self);
        self.depth -= 1;
        value
    }

    fn list(&mut self) -> Result<Value, Fault> {
        let mut items = Vec::new();
        self.skip_blanks();
        if self.rest.next_if_eq(&']').is_some() {
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.element(Place::List)?);
            self.skip_blanks();
            match self.rest.next() {
                Some(',') => {}
                Some(']') => return Ok(Value::Array(items)),
                Some(c) => return Err(Fault::quote(format!("unexpected `{c}` in a list"))),
                None => return Err(Fault::quote("a list without its closing `]`")),
            }
        }
    }

    fn dict(&mut self) -> Result<Value, Fault> {
        let mut entries = Map::new();
        self.skip_blanks();
        if self.rest.next_if_eq(&'}').is_some() {
            return Ok(Value::Object(entries));
        }
        loop {
            let key = self.dict_key()?;
            let value = self.element(Place::Dict)?;
            entries.insert(key, value);
            self.skip_blanks();
            match self.rest.next() {
                Some(',') => {}
                Some('}') => return Ok(Value::Object(entries)),
                Some(c) => return Err(Fault::quote(format!("unexpected `{c}` in a mapping"))),
                None => return Err(Fault::quote("a mapping without its closing `}`")),
            }
        }
    }

    fn dict_key(&mut self) -> Result<String, Fault> {
        self.skip_blanks();
        let mut key = String::new();
        if matches!(self.rest.peek(), Some('\'' | '"')) {
            key = self.quoted()?;
            self.skip_blanks();
        }
        loop {
            match self.rest.next() {
                Some(':') => break,
                Some(c) if is_bare(c) || matches!(c, ' ' | '\t') => key.push(c),
                Some(c) => {
                    return Err(Fault::quote(format!("unexpected `{c}` in the key of a mapping")));
                }
                None => return Err(Fault::quote("a mapping without its closing `}`")),
            }
        }
        let key = key.trim();
        if key.is_empty() {
            return Err(Fault::quote("a mapping entry without a key"));
        }
        Ok(key.to_owned())
    }

    /// Backslashes escape only the quote itself, and themselves right before it.
    fn quoted(&mut self) -> Result<String, Fault> {
        let quote = self.rest.next().unwrap_or('\'');
        let mut text = String::new();
        let mut backslashes = 0;
        for c in self.rest.by_ref() {
            if c == '\\' {
                backslashes += 1;
                continue;
            }
            let ends = c == quote && backslashes % 2 == 0;
            let kept = if c == quote { backslashes / 2 } else { backslashes };
            text.extend(std::iter::repeat_n('\\', kept));
            backslashes = 0;
            if ends {
                return Ok(text);
            }
            text.push(c);
        }
        Err(Fault::quote(format!("a quoted text without its closing {quote}")))
    }

    fn primitive(&mut self, place: Place) -> Result<Value, Fault> {
        let mut text = String::new();
        // Up to here the text is kept as it is: escapes end a run that may be trimmed.
        let mut kept = 0;
        let mut typed = true;
        while let Some(&c) = self.rest.peek() {
            if place.ends_at(c) {
                break;
            }
            match c {
                ',' => break,
                '\\' => {
                    self.rest.next();
                    match self.rest.next_if(|c| r"\()[]{}:=, 	".contains(*c)) {
                        Some(escaped) => {
                            text.push(escaped);
                            kept = text.len();
                            typed = false;
                        }
                        None => text.push('\\'),
                    }
                }
                '$' => {
                    self.rest.next();
                    text.push('$');
                    if self.rest.peek() == Some(&'{') {
                        self.interpolation(&mut text)?;
                        typed = false;
                    }
                }
                '(' if is_name(text.trim()) => return self.call(text.trim()),
                c if is_bare(c) || matches!(c, ':' | ' ' | '\t') => {
                    self.rest.next();
                    text.push(c);
                }
                c => return Err(Fault::quote(format!("unexpected `{c}` in an unquoted value"))),
            }
        }
        let end = kept.max(text.trim_end_matches([' ', '\t']).len());
        text.truncate(end);
        if text.is_empty() && (place != Place::Top || self.rest.peek() == Some(&',')) {
            return Err(Fault::quote("an empty value"));
        }
        Ok(if typed { type_of(&text) } else { Value::String(text) })
    }

    fn interpolation(&mut self, text: &mut String) -> Result<(), Fault> {
        let mut depth = 0;
        let mut quote = None;
        for c in self.rest.by_ref() {
            text.push(c);
            match (quote, c) {
                (Some(open), c) if open == c => quote = None,
                (Some(_), _) => {}
                (None, '\'' | '"') => quote = Some(c),
                (None, '{') => depth += 1,
                (None, '}') => {
                    depth -= 1;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                (None, _) => {}
            }
        }
        Err(Fault {
            reason: "`${` without its closing `}`".to_owned(),
            hint: Some("close it: `++{key}=${other.key}`".to_owned()),
        })
    }

    fn call(&mut self, name: &str) -> Result<Value, Fault> {
        if !matches!(name, "int" | "float" | "bool" | "str") {
            return Err(Fault::quote(format!(
                "{name}(…) is not supported, expected int(…), float(…), bool(…) or str(…)"
            )));
        }
        self.rest.next();
        let argument = self.element(Place::Call)?;
        self.skip_blanks();
        if self.rest.next() != Some(')') {
            return Err(Fault::quote(format!("expected one value in {name}(…)")));
        }
        let text = python_str(&argument);
        let cast = match name {
            "str" => Some(Value::String(match argument {
                Value::Bool(flag) => flag.to_string(),
                Value::Null => "null".to_owned(),
                _ => text.clone(),
            })),
            "int" => match type_of(&text) {
                #[allow(clippy::cast_possible_truncation, reason = "int() truncates")]
                Value::Number(n) if n.is_f64() => n.as_f64().map(|f| Value::from(f as i64)),
                Value::Number(n) => Some(Value::Number(n)),
                Value::Bool(flag) => Some(Value::from(i64::from(flag))),
                _ => None,
            },
            "float" => type_of(&text).as_f64().and_then(Number::from_f64).map(Value::Number),
            _ => match type_of(&text) {
                Value::Bool(flag) => Some(Value::Bool(flag)),
                Value::Number(n) => Some(Value::Bool(n.as_f64() != Some(0.0))),
                _ => None,
            },
        };
        cast.ok_or_else(|| Fault::quote(format!("{text:?} does not fit {name}(…)")))
    }
}

fn is_bare(c: char) -> bool {
    c.is_ascii_alphanumeric()
        || r"_/-\+.$%*@?|".contains(c)
        || (!c.is_ascii() && c.is_alphanumeric())
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Types a bare word: `null`, booleans, integers, floats, else a string.
pub(super) fn type_of(text: &str) -> Value {
    let lower = text.to_ascii_lowercase();
    match lower.as_str() {
        "null" => return Value::Null,
        "true" => return Value::Bool(true),
        "false" => return Value::Bool(false),
        _ => {}
    }
    number(text).unwrap_or_else(|| Value::String(text.to_owned()))
}

/// Digits with single underscores inside, and no leading zero unless `zeros`.
fn digits(text: &str, zeros: bool) -> bool {
    let grouped = text.split('_').all(|g| !g.is_empty() && g.bytes().all(|b| b.is_ascii_digit()));
    grouped && (zeros || text == "0" || !text.starts_with('0'))
}

fn number(text: &str) -> Option<Value> {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    let clean = text.replace('_', "");
    if digits(body, false) {
        if let Ok(integer) = clean.parse::<i64>() {
            return Some(integer.into());
        }
        if let Ok(integer) = clean.parse::<u64>() {
            return Some(integer.into());
        }
        return clean.parse().ok().and_then(Number::from_f64).map(Value::Number);
    }
    let (mantissa, exponent) = match body.find(['e', 'E']) {
        Some(at) => (&body[..at], Some(&body[at + 1..])),
        None => (body, None),
    };
    let exponent_fits =
        exponent.is_none_or(|e| digits(e.strip_prefix(['+', '-']).unwrap_or(e), true));
    let mantissa_fits = match mantissa.split_once('.') {
        Some(("", fraction)) => digits(fraction, true),
        Some((whole, "")) => digits(whole, false),
        Some((whole, fraction)) => digits(whole, false) && digits(fraction, true),
        None => exponent.is_some() && digits(mantissa, false),
    };
    (exponent_fits && mantissa_fits).then_some(())?;
    clean.parse().ok().and_then(Number::from_f64).map(Value::Number)
}
