//! A value as YAML in block style, as the Python reference writes it.
//!
//! Two spaces, lists not indented, one line a scalar. What the reference's loader would read as
//! something else than a string is quoted, so both loaders read back what was written.

use std::fmt::Write as _;

use serde_json::Value;

use super::scalar::{python_number, resolve_plain};

const LONGEST_SIMPLE_KEY: usize = 120;

/// Writes a value as a YAML document.
#[must_use]
pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => block(&mut out, value, 0),
        Value::Array(items) if !items.is_empty() => block(&mut out, value, 0),
        scalar => {
            inline(&mut out, scalar);
            out.push('\n');
        }
    }
    out
}

fn indent(out: &mut String, depth: usize) {
    out.extend(std::iter::repeat_n("  ", depth));
}

/// Writes the lines of a mapping or list; the first line's indent too.
fn block(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(map) => {
            for (index, (key, value)) in map.iter().enumerate() {
                if index > 0 || !out.ends_with("- ") {
                    indent(out, depth);
                }
                entry(out, key, value, depth);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 || !out.ends_with("- ") {
                    indent(out, depth);
                }
                out.push_str("- ");
                if is_block(item) {
                    block(out, item, depth + 1);
                } else {
                    inline(out, item);
                    out.push('\n');
                }
            }
        }
        _ => {}
    }
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    }
}

fn entry(out: &mut String, key: &str, value: &Value, depth: usize) {
    if key.len() > LONGEST_SIMPLE_KEY {
        out.push_str("? ");
        string(out, key);
        out.push('\n');
        indent(out, depth);
    } else {
        string(out, key);
    }
    out.push(':');
    match value {
        Value::Object(_) if is_block(value) => {
            out.push('\n');
            block(out, value, depth + 1);
        }
        Value::Array(_) if is_block(value) => {
            out.push('\n');
            block(out, value, depth);
        }
        value => {
            out.push(' ');
            inline(out, value);
            out.push('\n');
        }
    }
}

fn inline(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => {
            let text = python_number(number);
            // A float with an exponent needs a point to be one.
            match text.split_once('e') {
                Some((mantissa, exponent)) if !mantissa.contains('.') => {
                    let _ = write!(out, "{mantissa}.0e{exponent}");
                }
                _ => out.push_str(&text),
            }
        }
        Value::String(text) => string(out, text),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
    }
}

fn string(out: &mut String, text: &str) {
    if !text.chars().all(is_printable) {
        double_quoted(out, text);
    } else if is_plain(text) {
        out.push_str(text);
    } else {
        let _ = write!(out, "'{}'", text.replace('\'', "''"));
    }
}

fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
}

/// Whether the text reads back as itself without quotes.
fn is_plain(text: &str) -> bool {
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return false };
    let second = chars.next();
    let starts_well = match first {
        '-' | '?' | ':' => second.is_some_and(|c| c != ' '),
        c => !"#,[]{}&*!|>'\"%@`".contains(c) && !c.is_whitespace(),
    };
    starts_well
        && !text.ends_with(|c: char| c.is_whitespace() || c == ':')
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.starts_with("---")
        && !text.starts_with("...")
        && !reads_as_something_else(text)
}

fn reads_as_something_else(text: &str) -> bool {
    let timestamp = text.len() >= 8
        && text.as_bytes()[..4].iter().all(u8::is_ascii_digit)
        && text.as_bytes()[4] == b'-';
    let special = matches!(text, "=" | "<<" | "y" | "Y" | "n" | "N");
    let unsigned = text.trim_start_matches(['-', '+']).to_ascii_lowercase();
    let float_word = matches!(unsigned.as_str(), ".inf" | ".nan");
    // `0x_` alone makes the reference's loader fail.
    let prefixed = unsigned.starts_with("0x") || unsigned.starts_with("0b");
    timestamp || special || float_word || prefixed || !resolve_plain(text).is_string()
}

fn double_quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_printable(c) => out.push(c),
            c => {
                let code = u32::from(c);
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push('"');
}
