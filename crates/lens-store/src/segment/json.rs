//! Attributes as JSON in columns, and whether they can come back from it as they were.

use lens_otlp::DecodeError;
use lens_otlp::json::{put_plain_value, put_text};
use lens_otlp::view::{AnyValue, Attributes};

/// Whether JSON says the value so that it can be read back: bytes look like text in it, NaN too, and of a repeated
/// key readers see one.
pub(super) fn is_sayable(value: &AnyValue<'_>) -> Result<bool, DecodeError> {
    Ok(match value {
        AnyValue::Bytes(_) => false,
        AnyValue::Double(value) => value.is_finite(),
        AnyValue::Array(array) => {
            for value in array.values() {
                if !is_sayable(&value?)? {
                    return Ok(false);
                }
            }
            true
        }
        AnyValue::KeyValues(pairs) => are_sayable(pairs.entries())?,
        _ => true,
    })
}

fn are_sayable<'a>(
    pairs: impl Iterator<Item = Result<(&'a str, AnyValue<'a>), DecodeError>>,
) -> Result<bool, DecodeError> {
    let mut keys = Vec::new();
    for pair in pairs {
        let (key, value) = pair?;
        if !is_sayable(&value)? {
            return Ok(false);
        }
        keys.push(key);
    }
    let count = keys.len();
    // Few keys are the rule, and then comparing each with each is quickest.
    if count > 16 {
        keys.sort_unstable();
        keys.dedup();
        return Ok(keys.len() == count);
    }
    Ok((1..count).all(|nth| !keys[..nth].contains(&keys[nth])))
}

/// Appends attributes as an object; `false` when it does not say all.
pub(super) fn put_object(
    out: &mut String,
    attributes: Attributes<'_>,
) -> Result<bool, DecodeError> {
    out.push('{');
    let mut is_exact = true;
    let mut keys: [&str; 16] = [""; 16];
    for (at, pair) in attributes.enumerate() {
        let (key, value) = pair?;
        if at > 0 {
            out.push(',');
        }
        // More than this is never met, and then costs no more than its bytes.
        is_exact &= at < keys.len() && !keys[..at].contains(&key);
        if let Some(place) = keys.get_mut(at) {
            *place = key;
        }
        put_text(out, key);
        out.push(':');
        match value {
            AnyValue::Int(value) => put_int(out, value),
            value => {
                is_exact &= is_sayable(&value)?;
                put_plain_value(out, &value)?;
            }
        }
    }
    out.push('}');
    Ok(is_exact)
}

/// Appends an integer without the machinery of formatting, which costs as much as all else.
fn put_int(out: &mut String, value: i64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push('-');
    }
    // Digits are ASCII.
    out.push_str(std::str::from_utf8(&digits[at..]).unwrap_or_default());
}
