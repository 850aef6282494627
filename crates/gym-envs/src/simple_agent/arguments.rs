//! The JSON text a model wrote as tool arguments.
//!
//! Valid text is sent to the tool as it is. What is not JSON becomes a tool output that quotes
//! the error; models were trained on the wording of Python's `json` module (3.13), so errors carry
//! its messages and its positions in characters. Unlike that module, `NaN` and the infinities are
//! refused: no server of JSON could read them.

use std::borrow::Cow;

use gym_server::api::json;

/// Why a text is not JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}: line {line} column {column} (char {position})")]
pub struct Malformed {
    message: &'static str,
    line: usize,
    column: usize,
    position: usize,
}

impl Malformed {
    fn new(text: &str, fault: json::Fault) -> Self {
        let before = text.get(..fault.at).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Malformed {
            message: fault.message,
            line: before.bytes().filter(|&byte| byte == b'\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            position: before.chars().count(),
        }
    }

    /// The tool output that tells the model.
    pub fn output(&self) -> String {
        let text = self.to_string();
        // Python quotes a string with an apostrophe in double quotes and escapes backslashes.
        let quote = if text.contains('\'') { '"' } else { '\'' };
        let text = text.replace('\\', "\\\\");
        let message = format!("Invalid tool call arguments: JSONDecodeError({quote}{text}{quote})");
        let mut output = b"{\"error\": ".to_vec();
        json::write_string(&mut output, &message);
        output.push(b'}');
        String::from_utf8(output).expect("escaped text stays UTF-8")
    }
}

/// The request body for a tool: `arguments` without the blanks around it.
pub fn body<'a>(arguments: Cow<'a, str>) -> Result<Cow<'a, str>, Malformed> {
    match arguments {
        Cow::Borrowed(text) => match json::document(text) {
            Ok(value) => Ok(Cow::Borrowed(value)),
            Err(fault) => Err(Malformed::new(text, fault)),
        },
        Cow::Owned(text) => match json::document(&text) {
            Ok(value) if value.len() == text.len() => Ok(Cow::Owned(text)),
            Ok(value) => Ok(Cow::Owned(value.to_owned())),
            Err(fault) => Err(Malformed::new(&text, fault)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn malformed(arguments: &str) -> Malformed {
        match body(Cow::Borrowed(arguments)) {
            Err(error) => error,
            Ok(body) => panic!("{arguments:?} was read as {body:?}"),
        }
    }

    #[test]
    fn valid_text_is_sent_as_it_is() {
        let text = " {\"a\": [1, 2.5e3]}\n";
        assert_eq!(body(text.into()).expect("valid"), "{\"a\": [1, 2.5e3]}");
        assert_eq!(body(text.to_owned().into()).expect("valid"), "{\"a\": [1, 2.5e3]}");
        assert_eq!(body("null".into()).expect("valid"), "null");
    }

    /// Guarantees: messages and positions are those of Python 3.13's `json.loads`.
    #[test]
    fn errors_read_as_in_python() {
        for (arguments, expected) in [
            ("", "Expecting value: line 1 column 1 (char 0)"),
            ("nope", "Expecting value: line 1 column 1 (char 0)"),
            ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
            (
                "{'a': 1}",
                "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
            ),
            ("{\"a\" 1}", "Expecting ':' delimiter: line 1 column 6 (char 5)"),
            ("{\"a\": }", "Expecting value: line 1 column 7 (char 6)"),
            ("{\"a\": 1", "Expecting ',' delimiter: line 1 column 8 (char 7)"),
            (
                "{\"a\": 1,}",
                "Illegal trailing comma before end of object: line 1 column 8 (char 7)",
            ),
            ("[1, ]", "Illegal trailing comma before end of array: line 1 column 3 (char 2)"),
            ("[1 2]", "Expecting ',' delimiter: line 1 column 4 (char 3)"),
            ("{} {}", "Extra data: line 1 column 4 (char 3)"),
            ("01", "Extra data: line 1 column 2 (char 1)"),
            ("\"abc", "Unterminated string starting at: line 1 column 1 (char 0)"),
            ("\"a\\q\"", "Invalid \\escape: line 1 column 3 (char 2)"),
            ("\"a\\u12\"", "Invalid \\uXXXX escape: line 1 column 4 (char 3)"),
            ("\"a\nb\"", "Invalid control character at: line 1 column 3 (char 2)"),
            ("{\n \"é\": x}", "Expecting value: line 2 column 7 (char 8)"),
        ] {
            assert_eq!(malformed(arguments).to_string(), expected, "{arguments:?}");
        }
    }

    #[test]
    fn output_quotes_the_error_as_python_prints_it() {
        assert_eq!(
            malformed("").output(),
            r#"{"error": "Invalid tool call arguments: JSONDecodeError('Expecting value: line 1 column 1 (char 0)')"}"#
        );
        assert_eq!(
            malformed("[1 2]").output(),
            r#"{"error": "Invalid tool call arguments: JSONDecodeError(\"Expecting ',' delimiter: line 1 column 4 (char 3)\")"}"#
        );
        assert_eq!(
            malformed(r#""\q""#).output(),
            r#"{"error": "Invalid tool call arguments: JSONDecodeError('Invalid \\\\escape: line 1 column 2 (char 1)')"}"#
        );
    }
}
