//! A validating JSON scanner that yields slices, and the few writers that splicing needs.
//!
//! One pass checks the grammar and finds the members; nothing is decoded before somebody asks.
//! Faults carry the wording and the place that Python's `json` module gives (3.13), since 422 replies quote them.
//! Lone surrogate escapes pass the scanner and decode to U+FFFD.

mod cursor;
mod skip;
mod text;
pub mod trusted;

use std::borrow::Cow;

pub use cursor::Cursor;
pub use text::{
    string, write_compact, write_key, write_member, write_python, write_string, write_string_inner,
};

/// Deepest nesting that is accepted.
pub const MAX_DEPTH: u16 = 256;

/// Why a text is not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{message} (byte {at})")]
pub struct Fault {
    /// Python's wording.
    pub message: &'static str,
    /// Byte offset into the scanned text.
    pub at: usize,
}

/// The JSON type of a value, told by its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

/// The type of a scanned value.
pub fn kind(raw: &str) -> Kind {
    match raw.as_bytes().first() {
        Some(b'"') => Kind::String,
        Some(b'{') => Kind::Object,
        Some(b'[') => Kind::Array,
        Some(b't' | b'f') => Kind::Bool,
        Some(b'n') | None => Kind::Null,
        Some(_) => Kind::Number,
    }
}

/// Whether a scanned value is `null`.
pub fn is_null(raw: &str) -> bool {
    kind(raw) == Kind::Null
}

/// The members of an object, as (name, value text).
pub struct Members<'a> {
    scanner: Scanner<'a>,
    state: State,
}

/// The elements of an array, as value texts.
pub struct Elements<'a> {
    scanner: Scanner<'a>,
    state: State,
}

#[derive(PartialEq)]
enum State {
    First,
    Next,
    Done,
}

/// Starts walking an object; `None` when the text is not one.
pub fn members(text: &str) -> Option<Members<'_>> {
    let mut scanner = Scanner { text, at: 0 };
    scanner.space();
    (scanner.byte() == b'{').then(|| {
        scanner.at += 1;
        Members { scanner, state: State::First }
    })
}

/// Starts walking an array; `None` when the text is not one.
pub fn elements(text: &str) -> Option<Elements<'_>> {
    let mut scanner = Scanner { text, at: 0 };
    scanner.space();
    (scanner.byte() == b'[').then(|| {
        scanner.at += 1;
        Elements { scanner, state: State::First }
    })
}

/// Checks that `text` is one JSON value and returns it without the white space around it.
pub fn document(text: &str) -> Result<&str, Fault> {
    let mut scanner = Scanner { text, at: 0 };
    let value = scanner.value()?;
    scanner.end()?;
    Ok(value)
}

/// The value of the member `name` of an object, if there is one (the last one wins, as in Python).
pub fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let mut found = None;
    for (key, value) in members(object)?.flatten() {
        if key == name {
            found = Some(value);
        }
    }
    found
}

impl<'a> Iterator for Members<'a> {
    type Item = Result<(Cow<'a, str>, &'a str), Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == State::Done {
            return None;
        }
        let step = self.step();
        if !matches!(step, Ok(Some(_))) {
            self.state = State::Done;
        }
        step.transpose()
    }
}

impl<'a> Members<'a> {
    #[allow(clippy::type_complexity)]
    fn step(&mut self) -> Result<Option<(Cow<'a, str>, &'a str)>, Fault> {
        let scanner = &mut self.scanner;
        if !scanner.open_entry(self.state == State::First, b'}', TRAILING_IN_OBJECT)? {
            scanner.end()?;
            return Ok(None);
        }
        self.state = State::Next;
        let key = scanner.key()?;
        let value = scanner.value()?;
        Ok(Some((string(key).unwrap_or_default(), value)))
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<&'a str, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == State::Done {
            return None;
        }
        let step = self.step();
        if !matches!(step, Ok(Some(_))) {
            self.state = State::Done;
        }
        step.transpose()
    }
}

impl<'a> Elements<'a> {
    fn step(&mut self) -> Result<Option<&'a str>, Fault> {
        let scanner = &mut self.scanner;
        if !scanner.open_entry(self.state == State::First, b']', TRAILING_IN_ARRAY)? {
            scanner.end()?;
            return Ok(None);
        }
        self.state = State::Next;
        scanner.value().map(Some)
    }
}

const TRAILING_IN_OBJECT: &str = "Illegal trailing comma before end of object";
const TRAILING_IN_ARRAY: &str = "Illegal trailing comma before end of array";
const EXPECTED_VALUE: &str = "Expecting value";
const EXPECTED_COMMA: &str = "Expecting ',' delimiter";
const EXPECTED_COLON: &str = "Expecting ':' delimiter";
const EXPECTED_NAME: &str = "Expecting property name enclosed in double quotes";

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn byte(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    fn fault<T>(&self, message: &'static str) -> Result<T, Fault> {
        Err(Fault { message, at: self.at })
    }

    fn space(&mut self) {
        while matches!(self.byte(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
    }

    fn end(&mut self) -> Result<(), Fault> {
        self.space();
        if self.at == self.text.len() { Ok(()) } else { self.fault("Extra data") }
    }

    /// Moves to the next entry of a container; `false` when the container was closed.
    fn open_entry(
        &mut self,
        first: bool,
        close: u8,
        trailing: &'static str,
    ) -> Result<bool, Fault> {
        self.space();
        let byte = self.byte();
        if byte == close {
            self.at += 1;
            return Ok(false);
        }
        if first {
            return Ok(true);
        }
        if byte != b',' {
            return self.fault(EXPECTED_COMMA);
        }
        let comma = self.at;
        self.at += 1;
        self.space();
        if self.byte() == close {
            return Err(Fault { message: trailing, at: comma });
        }
        Ok(true)
    }

    fn key(&mut self) -> Result<&'a str, Fault> {
        if self.byte() != b'"' {
            return self.fault(EXPECTED_NAME);
        }
        let start = self.at;
        match skip::string(self.text.as_bytes(), start) {
            Some(end) => self.at = end,
            None => self.skip_string()?,
        }
        let key = &self.text[start..self.at];
        self.space();
        if self.byte() != b':' {
            return self.fault(EXPECTED_COLON);
        }
        self.at += 1;
        Ok(key)
    }

    fn value(&mut self) -> Result<&'a str, Fault> {
        self.space();
        let start = self.at;
        match skip::checked(self.text.as_bytes(), start) {
            Some(end) => self.at = end,
            None => self.skip(MAX_DEPTH)?,
        }
        Ok(&self.text[start..self.at])
    }

    /// The precise way, which says what is wrong.
    #[cold]
    fn skip(&mut self, depth: u16) -> Result<(), Fault> {
        match self.byte() {
            b'"' => self.skip_string(),
            b'{' | b'[' if depth == 0 => self.fault("Nesting too deep"),
            b'{' => {
                self.at += 1;
                let mut first = true;
                while self.open_entry(first, b'}', TRAILING_IN_OBJECT)? {
                    first = false;
                    self.key()?;
                    self.space();
                    self.skip(depth - 1)?;
                }
                Ok(())
            }
            b'[' => {
                self.at += 1;
                let mut first = true;
                while self.open_entry(first, b']', TRAILING_IN_ARRAY)? {
                    first = false;
                    self.skip(depth - 1)?;
                }
                Ok(())
            }
            b't' => self.skip_word("true"),
            b'f' => self.skip_word("false"),
            b'n' => self.skip_word("null"),
            _ => self.skip_number(),
        }
    }

    fn skip_word(&mut self, word: &str) -> Result<(), Fault> {
        if self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(())
        } else {
            self.fault(EXPECTED_VALUE)
        }
    }

    fn skip_number(&mut self) -> Result<(), Fault> {
        match skip::number(self.text.as_bytes(), self.at) {
            Some(end) => {
                self.at = end;
                Ok(())
            }
            None => self.fault(EXPECTED_VALUE),
        }
    }

    #[cold]
    fn skip_string(&mut self) -> Result<(), Fault> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut at = start + 1;
        loop {
            at += skip::special(&bytes[at..]);
            match bytes.get(at) {
                Some(b'"') => {
                    self.at = at + 1;
                    return Ok(());
                }
                Some(b'\\') => match bytes.get(at + 1) {
                    Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => at += 2,
                    Some(b'u') => {
                        let hex = bytes.get(at + 2..at + 6);
                        if !hex.is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) {
                            return Err(Fault { message: "Invalid \\uXXXX escape", at: at + 1 });
                        }
                        at += 6;
                    }
                    Some(_) => return Err(Fault { message: "Invalid \\escape", at }),
                    None => {
                        return Err(Fault {
                            message: "Unterminated string starting at",
                            at: start,
                        });
                    }
                },
                Some(_) => return Err(Fault { message: "Invalid control character at", at }),
                None => {
                    return Err(Fault { message: "Unterminated string starting at", at: start });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fault(text: &str) -> (&'static str, usize) {
        let fault = document(text).expect_err(text);
        (fault.message, fault.at)
    }

    #[test]
    fn faults_have_the_words_and_places_of_python() {
        assert_eq!(fault("{"), (EXPECTED_NAME, 1));
        assert_eq!(fault("[1"), (EXPECTED_COMMA, 2));
        assert_eq!(fault("nul"), (EXPECTED_VALUE, 0));
        assert_eq!(fault(r#"{"a" 1}"#), (EXPECTED_COLON, 5));
        assert_eq!(fault("\"abc"), ("Unterminated string starting at", 0));
        assert_eq!(fault("{\"a\":\"\u{1}\"}"), ("Invalid control character at", 6));
        assert_eq!(fault(r#"{"input":"x"} z"#), ("Extra data", 14));
        assert_eq!(fault(r#"{"a":1,}"#), (TRAILING_IN_OBJECT, 6));
        assert_eq!(fault("[1,]"), (TRAILING_IN_ARRAY, 2));
        assert_eq!(fault("01"), ("Extra data", 1));
        assert_eq!(fault("-"), (EXPECTED_VALUE, 0));
        assert_eq!(fault(r#""\x""#), ("Invalid \\escape", 1));
        assert_eq!(fault(&"[".repeat(400)).0, "Nesting too deep");
    }

    #[test]
    fn members_come_as_slices_with_decoded_names() {
        let found: Vec<_> = members(r#" {"a\n": [1, {"b":2}] , "c":"é"} "#)
            .expect("object")
            .map(Result::unwrap)
            .collect();
        assert_eq!(found, [(Cow::from("a\n"), r#"[1, {"b":2}]"#), (Cow::from("c"), "\"é\"")]);
        assert_eq!(member(r#"{"a":1,"a":2}"#, "a"), Some("2"));
    }

    #[test]
    fn python_style_has_spaces_and_ascii_escapes() {
        let mut out = Vec::new();
        write_python(&mut out, "{\"a\" :[1,2] ,\"b\":\"é😀\\/\u{7f}, :\"}");
        assert_eq!(
            String::from_utf8(out).expect("ascii"),
            r#"{"a": [1, 2], "b": "\u00e9\ud83d\ude00/\u007f, :"}"#
        );
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_and_agrees_with_serde_json(text in "\\PC*|[\\x00-\\x7f]*") {
            let mut out = Vec::new();
            write_string(&mut out, &text);
            let raw = String::from_utf8(out).expect("utf-8");
            prop_assert_eq!(document(&raw).expect("valid"), raw.as_str());
            prop_assert_eq!(string(&raw).expect("string"), text.as_str());
            prop_assert_eq!(serde_json::from_str::<String>(&raw).expect("serde"), text.clone());
            let mut ascii = Vec::new();
            write_python(&mut ascii, &raw);
            prop_assert_eq!(serde_json::from_slice::<String>(&ascii).expect("serde"), text);
        }

        #[test]
        fn the_scanner_accepts_what_serde_json_accepts(text in "[\\[\\]{}:,\"a\\\\u01.eE+\\- tnfrulsue]{0,12}") {
            let theirs = serde_json::from_str::<serde_json::Value>(&text);
            // serde_json refuses numbers beyond f64 and lone surrogates, which Python reads.
            if theirs.is_ok() {
                prop_assert!(document(&text).is_ok());
            } else if document(&text).is_ok() {
                let message = theirs.expect_err("checked").to_string();
                prop_assert!(message.contains("out of range") || message.contains("surrogate") || message.contains("hex escape"), "{}", message);
            }
        }
    }
}
