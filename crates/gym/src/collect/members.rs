//! The top-level members of one JSON object, as slices of its text.
//!
//! Rows and replies travel as the bytes they came in: numbers keep their spelling and unknown members their order,
//! and no tree is built. Changing a row is splicing: known values are replaced in place, new ones are appended.

use std::borrow::Cow;
use std::fmt;

use gym_server::api::json;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// One object and where its members are; the text is valid JSON when this exists.
#[derive(Debug)]
pub struct Members<'a> {
    text: &'a str,
    entries: Vec<(Cow<'a, str>, &'a str)>,
}

impl<'a> Members<'a> {
    /// Reads the members of the object that `text` is.
    pub fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        let entries = match quick_entries(text) {
            Some(entries) => entries,
            None => serde_json::from_str::<Entries>(text)?.0,
        };
        Ok(Members { text: text.trim_matches(JSON_BLANKS), entries })
    }

    /// The text of a member's value; of a repeated key the last one counts.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.entries.iter().rev().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    /// Names and value texts in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.entries.iter().map(|(name, value)| (name.as_ref(), *value))
    }

    /// Whether a line holds the text as it is: no blanks between the members and no line break anywhere.
    pub fn is_compact(&self) -> bool {
        let bytes = self.text.as_bytes();
        let mut expected = 1; // behind the brace
        for (_, value) in &self.entries {
            let start = self.offset_of(value);
            let between = &bytes[expected..start];
            if between.first() != Some(&b'"')
                || between.last() != Some(&b':')
                || between.contains(&b'\n')
            {
                return false;
            }
            if between.ends_with(b" :") {
                return false;
            }
            expected = start + value.len() + 1; // behind the comma or the brace
        }
        expected.max(2) == bytes.len() && memchr_line_break(bytes).is_none()
    }

    /// Appends the object to `out` with `changes` made: values of present keys replaced, others appended in order.
    /// The texts of the changes must be JSON values.
    pub fn splice_into(&self, changes: &[(&str, &str)], out: &mut Vec<u8>) {
        let bytes = self.text.as_bytes();
        out.reserve(
            bytes.len()
                + changes.iter().map(|(key, value)| key.len() + value.len() + 4).sum::<usize>(),
        );
        let mut copied = 0;
        if changes.iter().any(|(key, _)| self.get(key).is_some()) {
            for (name, value) in &self.entries {
                if let Some((_, new)) = changes.iter().find(|(key, _)| key == name) {
                    let start = self.offset_of(value);
                    out.extend_from_slice(&bytes[copied..start]);
                    out.extend_from_slice(new.as_bytes());
                    copied = start + value.len();
                }
            }
        }
        let mut end = bytes.len() - 1;
        while end > copied && is_json_blank(bytes[end - 1]) {
            end -= 1;
        }
        out.extend_from_slice(&bytes[copied..end]);
        let mut first = self.entries.is_empty();
        for (key, value) in changes {
            if self.get(key).is_some() {
                continue;
            }
            if !first {
                out.push(b',');
            }
            first = false;
            push_json_string(key, out);
            out.push(b':');
            out.extend_from_slice(value.as_bytes());
        }
        out.push(b'}');
    }

    /// [`Members::splice_into`] as text.
    pub fn spliced(&self, changes: &[(&str, &str)]) -> String {
        let mut out = Vec::new();
        self.splice_into(changes, &mut out);
        String::from_utf8(out).expect("text spliced into text is text")
    }

    fn offset_of(&self, value: &str) -> usize {
        value.as_ptr() as usize - self.text.as_ptr() as usize
    }
}

/// JSON's blanks; `str::trim` would take more.
const JSON_BLANKS: [char; 4] = [' ', '\t', '\n', '\r'];

fn is_json_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn memchr_line_break(bytes: &[u8]) -> Option<usize> {
    memchr::memchr2(b'\n', b'\r', bytes)
}

/// Appends `text` as a JSON string.
pub fn push_json_string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a string always serialises");
}

/// The JSON string of `text`.
pub fn json_string(text: &str) -> String {
    serde_json::to_string(text).expect("a string always serialises")
}

/// Valid JSON without the blanks between its tokens, so that it fits on a line.
pub fn compacted(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                let end = string_end(bytes, at);
                out.extend_from_slice(&bytes[at..end]);
                at = end;
            }
            byte if is_json_blank(byte) => at += 1,
            byte => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).expect("blanks outside strings are whole characters")
}

/// The index behind the string that starts at `start`.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

/// What [`Entries`] reads, unless there is something to complain about.
fn quick_entries(text: &str) -> Option<Vec<(Cow<'_, str>, &str)>> {
    let mut entries = Vec::with_capacity(12);
    for member in json::members(text)? {
        entries.push(member.ok()?);
    }
    Some(entries)
}

struct Entries<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Entries<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::with_capacity(12);
                while let Some(Key(key)) = map.next_key()? {
                    entries.push((key, map.next_value::<&'de RawValue>()?.get()));
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Key<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splice(text: &str, changes: &[(&str, &str)]) -> String {
        Members::parse(text).unwrap().spliced(changes)
    }

    #[test]
    fn new_members_are_appended_before_the_closing_brace() {
        assert_eq!(splice(r#"{"a":1}"#, &[("b", "2"), ("c", "[3]")]), r#"{"a":1,"b":2,"c":[3]}"#);
        assert_eq!(splice("{}", &[("b", "2"), ("c", "3")]), r#"{"b":2,"c":3}"#);
        assert_eq!(splice("{ \"a\" : 1 \n}", &[("b", "2")]), r#"{ "a" : 1,"b":2}"#);
    }

    #[test]
    fn present_members_are_replaced_where_they_stand() {
        assert_eq!(
            splice(r#"{"a":1,"b":{"x":[1]},"c":3}"#, &[("b", "0")]),
            r#"{"a":1,"b":0,"c":3}"#
        );
        assert_eq!(splice(r#"{"a":1,"a":2}"#, &[("a", "9")]), r#"{"a":9,"a":9}"#);
    }

    #[test]
    fn an_escaped_key_is_the_key_it_spells() {
        assert_eq!(splice(r#"{"\u0061":1}"#, &[("a", "2")]), r#"{"\u0061":2}"#);
        assert_eq!(Members::parse(r#"{"\u0061":1}"#).unwrap().get("a"), Some("1"));
    }

    #[test]
    fn numbers_keep_their_spelling() {
        let text = r#"{"big":123456789012345678901234567890,"f":1.50,"e":1E3}"#;
        assert_eq!(splice(text, &[]), text);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in ["[1]", "1", "", "{\"a\":}", "{\"a\":1} x"] {
            assert!(Members::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn compacting_touches_only_blanks_outside_strings() {
        assert_eq!(
            compacted("{ \"a b\" : \"x \\\" y\",\n\t\"c\": [1, 2] }"),
            r#"{"a b":"x \" y","c":[1,2]}"#
        );
    }

    #[test]
    fn compact_objects_are_told_from_spread_ones() {
        for text in ["{}", r#"{"a":1}"#, r#"{"a":{"b":1},"c":" x "}"#, r#"{"a:":1,"b ":2}"#] {
            assert!(Members::parse(text).unwrap().is_compact(), "{text}");
        }
        for text in
            ["{ }", "{\"a\": 1}", "{\"a\":1, \"b\":2}", "{\"a\":1 }", "{\"a\":[\n1]}", "{\"a\" :1}"]
        {
            assert!(!Members::parse(text).unwrap().is_compact(), "{text}");
        }
    }
}
