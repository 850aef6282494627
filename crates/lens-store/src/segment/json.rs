//! Attributes as JSON in columns, and whether they can come back from it as they were.

use lens_otlp::DecodeError;
use lens_otlp::json::{is_plain_byte, put_plain_value, put_text};
use lens_otlp::view::{AnyValue, Plain, key_value, plain_parts};
use lens_otlp::wire::Fields;

use super::intern::{Chain, MAX_KEYS};

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

/// Writes attributes as objects. Those of one kind have the same keys in the same order, so a key is looked at and
/// escaped once.
#[derive(Default)]
pub(super) struct Objects {
    chain: Chain,
    keys: Vec<Key>,
    /// Keys as they stand in an object, with their colons.
    names: String,
    objects: u32,
    out: Vec<u8>,
    /// What is not written byte by byte.
    text: String,
}

#[derive(Clone, Copy)]
struct Key {
    /// Where its name is.
    name: (u32, u32),
    /// The last object that had it.
    object: u32,
}

impl Objects {
    /// The object that was made last.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.out
    }

    /// Forgets the keys.
    pub(super) fn clear(&mut self) {
        self.chain.clear();
        self.keys.clear();
        self.names.clear();
        self.objects = 0;
    }

    /// Makes an object of the attributes that are field `number` of a message; `false` when it does not say all.
    pub(super) fn put(&mut self, message: &[u8], number: u8) -> Result<bool, DecodeError> {
        if self.keys.len() > MAX_KEYS {
            self.clear();
        }
        self.objects += 1;
        self.chain.start();
        self.out.clear();
        self.out.push(b'{');
        let mut is_exact = true;
        let mut fields = Fields::new(message);
        loop {
            while let Some(pair) = fields.next_short(number) {
                is_exact &= self.pair(pair)?;
            }
            let Some(field) = fields.next() else { break };
            let (found, content) = field?;
            if found == u32::from(number) {
                is_exact &= self.pair(content.bytes()?)?;
            }
        }
        self.out.push(b'}');
        Ok(is_exact)
    }

    fn pair(&mut self, pair: &[u8]) -> Result<bool, DecodeError> {
        let Some((key, value)) = plain_parts(pair) else {
            let (key, value) = key_value(pair)?;
            let is_new = self.key(key.as_bytes())?;
            return Ok(self.any(&value.unwrap_or(AnyValue::Empty))? && is_new);
        };
        let is_new = self.key(key)?;
        match value {
            Plain::Text(text) if is_plain(text) => {
                self.out.push(b'"');
                self.out.extend_from_slice(text);
                self.out.push(b'"');
            }
            Plain::Text(text) => {
                let text = std::str::from_utf8(text).map_err(|_| DecodeError::Utf8)?;
                self.any(&AnyValue::String(text))?;
            }
            Plain::Int(value) => put_int(&mut self.out, value),
            Plain::Bool(value) => {
                self.out.extend_from_slice(if value { b"true" } else { b"false" })
            }
            Plain::Double(value) => return Ok(self.any(&AnyValue::Double(value))? && is_new),
        }
        Ok(is_new)
    }

    /// Appends a key; `false` when the object has it already.
    fn key(&mut self, key: &[u8]) -> Result<bool, DecodeError> {
        let code = self.chain.next(key) as usize;
        if code == self.keys.len() {
            let from = self.names.len();
            put_text(&mut self.names, std::str::from_utf8(key).map_err(|_| DecodeError::Utf8)?);
            self.names.push(':');
            let name = (from as u32, self.names.len() as u32);
            self.keys.push(Key { name, object: 0 });
        }
        if self.out.len() > 1 {
            self.out.push(b',');
        }
        let Key { name: (from, to), object } = &mut self.keys[code];
        self.out.extend_from_slice(&self.names.as_bytes()[*from as usize..*to as usize]);
        Ok(std::mem::replace(object, self.objects) != self.objects)
    }

    /// Appends a value of any type.
    fn any(&mut self, value: &AnyValue<'_>) -> Result<bool, DecodeError> {
        self.text.clear();
        put_plain_value(&mut self.text, value)?;
        self.out.extend_from_slice(self.text.as_bytes());
        is_sayable(value)
    }
}

/// Whether text is the same in JSON.
fn is_plain(text: &[u8]) -> bool {
    text.iter().fold(true, |is_plain, byte| is_plain & is_plain_byte(*byte))
}

/// Appends an integer without the machinery of formatting, which costs as much as all else.
fn put_int(out: &mut Vec<u8>, value: i64) {
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
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use lens_otlp::encode::put_key_value;
    use lens_otlp::json::put_plain_attributes;
    use lens_otlp::view::Attributes;
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Value {
        Text(String),
        Int(i64),
        Bool(bool),
        Double(f64),
    }

    fn any_value() -> impl Strategy<Value = Value> {
        prop_oneof![
            ".{0,5}".prop_map(Value::Text),
            "x{0,300}".prop_map(Value::Text),
            any::<i64>().prop_map(Value::Int),
            (-2_i64..300).prop_map(Value::Int),
            any::<bool>().prop_map(Value::Bool),
            any::<f64>().prop_map(Value::Double),
        ]
    }

    proptest! {
        /// Guarantees: an object is what the general writer makes of the attributes, whatever was written before, and it
        /// says all unless a key is repeated or a number is none.
        #[test]
        fn objects_are_those_of_the_general_writer(
            objects in prop::collection::vec(
                prop::collection::vec(("[ab\"é]{0,2}", any_value()), 0..20), 1..8,
            ),
        ) {
            let mut made = Objects::default();
            for (nth, object) in objects.iter().enumerate() {
                if nth == 4 {
                    made.clear();
                }
                let mut message = Vec::new();
                for (key, value) in object {
                    match value {
                        Value::Text(text) => put_key_value(&mut message, 3, key, text.as_str()),
                        Value::Int(value) => put_key_value(&mut message, 3, key, value),
                        Value::Bool(value) => put_key_value(&mut message, 3, key, value),
                        Value::Double(value) => put_key_value(&mut message, 3, key, value),
                    }
                }
                let mut keys: Vec<&str> = object.iter().map(|(key, _)| &**key).collect();
                keys.sort_unstable();
                keys.dedup();
                let is_number = |value: &Value| !matches!(value, Value::Double(value) if !value.is_finite());
                let says_all =
                    keys.len() == object.len() && object.iter().all(|(_, value)| is_number(value));
                prop_assert_eq!(made.put(&message, 3).unwrap(), says_all);
                let mut general = String::new();
                put_plain_attributes(&mut general, Attributes::new(&message, 3)).unwrap();
                prop_assert_eq!(std::str::from_utf8(made.bytes()).unwrap(), general);
            }
        }
    }
}
