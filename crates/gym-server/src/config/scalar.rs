//! What an unquoted YAML scalar means.
//!
//! The rules are those of YAML 1.1 as the Python reference's loader applies them, because the
//! same file has to mean the same to both: `yes` is true, `010` is eight, `1e-3` is a number,
//! `22:22` is 1342, and a date is a string.

use serde_json::{Number, Value};

/// The typed value of a plain scalar.
pub(super) fn resolve_plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Value::Bool(true);
        }
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Value::Bool(false);
        }
        _ => {}
    }
    integer(text).or_else(|| float(text)).unwrap_or_else(|| Value::String(text.to_owned()))
}

/// The value of a scalar with an explicit `!!int`, `!!float`, `!!bool`, `!!null` or `!!str`.
pub(super) fn resolve_tagged(tag: &str, text: &str) -> Option<Value> {
    let plain = resolve_plain(text);
    match tag {
        "str" => Some(Value::String(text.to_owned())),
        "null" => Some(Value::Null),
        "bool" => plain.is_boolean().then_some(plain),
        "int" => (plain.is_i64() || plain.is_u64()).then_some(plain),
        "float" => plain.as_f64().and_then(Number::from_f64).map(Value::Number),
        _ => None,
    }
}

fn split_sign(text: &str) -> (bool, &str) {
    match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    }
}

fn all(text: &str, allowed: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(allowed)
}

fn is_digit_or_underscore(byte: u8) -> bool {
    byte.is_ascii_digit() || byte == b'_'
}

fn integer(text: &str) -> Option<Value> {
    let (negative, digits) = split_sign(text);
    let (radix, body) = if let Some(body) = digits.strip_prefix("0b") {
        all(body, |b| matches!(b, b'0' | b'1' | b'_')).then_some((2, body))?
    } else if let Some(body) = digits.strip_prefix("0x") {
        all(body, |b| b.is_ascii_hexdigit() || b == b'_').then_some((16, body))?
    } else if digits == "0" {
        (10, digits)
    } else if let Some(body) = digits.strip_prefix('0') {
        all(body, |b| matches!(b, b'0'..=b'7' | b'_')).then_some((8, body))?
    } else if digits.contains(':') {
        return sexagesimal(negative, digits);
    } else {
        let first = digits.as_bytes().first()?;
        let fits = first.is_ascii_digit() && all(digits, is_digit_or_underscore);
        fits.then_some((10, digits))?
    };
    let body: String = body.chars().filter(|c| *c != '_').collect();
    if body.is_empty() {
        return (radix == 8).then(|| Value::from(0));
    }
    match i128::from_str_radix(&body, radix) {
        Ok(magnitude) => Some(number(if negative { -magnitude } else { magnitude })),
        Err(_) if radix == 10 => float_value(&format!("{}{body}", if negative { "-" } else { "" })),
        Err(_) => None,
    }
}

fn number(value: i128) -> Value {
    if let Ok(value) = i64::try_from(value) {
        value.into()
    } else if let Ok(value) = u64::try_from(value) {
        value.into()
    } else {
        #[allow(clippy::cast_precision_loss, reason = "JSON has no larger integer")]
        Value::from(value as f64)
    }
}

fn sexagesimal(negative: bool, digits: &str) -> Option<Value> {
    let mut parts = digits.split(':');
    let first = parts.next()?;
    let fits = matches!(first.as_bytes().first(), Some(b'1'..=b'9'));
    (fits && all(first, is_digit_or_underscore)).then_some(())?;
    let mut total: i128 = first.replace('_', "").parse().ok()?;
    for part in parts {
        is_sixty(part).then_some(())?;
        total = total.checked_mul(60)?.checked_add(part.parse().ok()?)?;
    }
    Some(number(if negative { -total } else { total }))
}

fn is_sixty(part: &str) -> bool {
    match part.as_bytes() {
        [unit] => unit.is_ascii_digit(),
        [ten, unit] => matches!(ten, b'0'..=b'5') && unit.is_ascii_digit(),
        _ => false,
    }
}

fn float(text: &str) -> Option<Value> {
    let (negative, body) = split_sign(text);
    if body.contains(':') {
        return sexagesimal_float(negative, body);
    }
    let (mantissa, exponent) = match body.find(['e', 'E']) {
        Some(at) => (&body[..at], Some(&body[at + 1..])),
        None => (body, None),
    };
    let exponent_signed = exponent.is_some_and(|e| e.starts_with(['+', '-']));
    if let Some(exponent) = exponent {
        all(split_sign(exponent).1, |b| b.is_ascii_digit()).then_some(())?;
    }
    match mantissa.split_once('.') {
        // `.5` takes no sign, and its exponent needs one.
        Some(("", fraction)) => {
            let unsigned = body.len() == text.len();
            let exponent_fits = exponent.is_none() || exponent_signed;
            (unsigned && exponent_fits && loose(fraction)).then_some(())?;
        }
        Some((whole, fraction)) => {
            let whole_fits =
                grouped(whole) || (loose(whole) && (exponent.is_none() || exponent_signed));
            let fraction_fits = fraction.is_empty() || all(fraction, is_digit_or_underscore);
            (whole_fits && fraction_fits).then_some(())?;
        }
        None => {
            (exponent.is_some() && grouped(mantissa)).then_some(())?;
        }
    }
    float_value(&text.replace('_', ""))
}

/// A digit, then digits and underscores.
fn loose(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && all(text, is_digit_or_underscore)
}

/// Digits, in groups that single underscores part.
fn grouped(text: &str) -> bool {
    text.split('_').all(|group| all(group, |b| b.is_ascii_digit()))
}

fn sexagesimal_float(negative: bool, body: &str) -> Option<Value> {
    let (whole, fraction) = body.split_once('.')?;
    (fraction.is_empty() || all(fraction, is_digit_or_underscore)).then_some(())?;
    let mut parts = whole.split(':');
    let first = parts.next()?;
    loose(first).then_some(())?;
    let mut total: f64 = first.replace('_', "").parse().ok()?;
    for part in parts {
        is_sixty(part).then_some(())?;
        total = total * 60.0 + part.parse::<f64>().ok()?;
    }
    total += format!("0.{}", fraction.replace('_', "")).parse::<f64>().unwrap_or(0.0);
    Number::from_f64(if negative { -total } else { total }).map(Value::Number)
}

/// `None` for what JSON cannot hold.
fn float_value(text: &str) -> Option<Value> {
    text.parse().ok().and_then(Number::from_f64).map(Value::Number)
}

/// Python's `str()` of a value, as it appears when a `${…}` is part of a longer string.
pub(super) fn python_str(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => python_number(number),
        Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// Python's `repr()` of a number: exponents from 1e16 and below 1e-4.
pub(super) fn python_number(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        return number.to_string();
    };
    let scientific = format!("{float:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{float}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Guarantees: every row was checked against the reference's loader.
    #[test]
    fn a_plain_scalar_means_what_the_reference_reads() {
        let rows = [
            ("12:30:45", json!(45045)),
            ("22:22", json!(1342)),
            ("1:2.5", json!(62.5)),
            ("127.0.0.1:8000", json!("127.0.0.1:8000")),
            ("010", json!(8)),
            ("0o10", json!("0o10")),
            ("09", json!("09")),
            ("1_000", json!(1000)),
            ("1e3", json!(1000.0)),
            ("1.e3", json!(1000.0)),
            ("1e-3", json!(0.001)),
            ("1.5e3", json!(1500.0)),
            (".5", json!(0.5)),
            (".1__9", json!(0.19)),
            ("6_.4", json!(6.4)),
            ("6_.4e1", json!("6_.4e1")),
            ("-.5", json!("-.5")),
            ("1.", json!(1.0)),
            ("1_0.5", json!(10.5)),
            ("+1", json!(1)),
            ("-7", json!(-7)),
            ("0x1F", json!(31)),
            ("0b11", json!(3)),
            ("y", json!("y")),
            ("NO", json!(false)),
            ("on", json!(true)),
            ("nO", json!("nO")),
            ("2020-01-01", json!("2020-01-01")),
            ("~", json!(null)),
            ("Null", json!(null)),
            (".", json!(".")),
            ("-", json!("-")),
            ("e5", json!("e5")),
            ("_1", json!("_1")),
            ("1.2.3", json!("1.2.3")),
            ("18446744073709551615", json!(u64::MAX)),
        ];
        for (text, expected) in rows {
            assert_eq!(resolve_plain(text), expected, "{text}");
        }
    }

    #[test]
    fn numbers_are_written_as_python_writes_them() {
        let rows = [
            (1e-5, "1e-05"),
            (0.001, "0.001"),
            (1e20, "1e+20"),
            (1.0, "1.0"),
            (1.5e300, "1.5e+300"),
        ];
        for (number, expected) in rows {
            assert_eq!(python_str(&json!(number)), expected);
        }
        assert_eq!(python_str(&json!(7)), "7");
    }
}
