//! The query of a question: names and values, percent-decoded.

use std::str::FromStr;

/// Names and values in the order in which they came.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Takes a query apart, without its question mark.
    pub(super) fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decoded(name), decoded(value))
                })
                .collect(),
        )
    }

    /// The last value of a name that is not empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let values = self.0.iter().rev().filter(|(known, _)| known == name);
        values.map(|(_, value)| value.as_str()).find(|value| !value.is_empty())
    }

    /// Every value of a name that is not empty.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let values = self.0.iter().filter(move |(known, _)| known == name);
        values.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// A number; nothing when it is not given.
    pub(super) fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>, String> {
        let Some(text) = self.get(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| format!("{name} must be a number, not {text:?}"))
    }

    /// Refuses names that mean nothing: a filter that is misspelt must not filter nothing.
    pub(super) fn allow(&self, names: &[&str]) -> Result<(), String> {
        match self.0.iter().find(|(name, _)| !names.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) if names.is_empty() => {
                Err(format!("no parameter is known here, and {name:?} was given"))
            }
            Some((name, _)) => Err(format!("no parameter {name:?}; there is {}", names.join(", "))),
        }
    }
}

/// Undoes `%xx` and `+`; what is no such escape stays as it is.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escape = bytes.get(at + 1..at + 3).filter(|_| byte == b'%');
        let value = escape
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (value, byte) {
            (Some(value), _) => {
                out.push(value);
                at += 2;
            }
            (None, b'+') => out.push(b' '),
            (None, byte) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_and_the_last_value_counts() {
        let parameters =
            Parameters::parse("q=%7B%20name+%3D+%22a%26b%22%20%7D&limit=1&limit=2&x=%zz%");
        assert_eq!(parameters.get("q"), Some("{ name = \"a&b\" }"));
        assert_eq!(parameters.get("limit"), Some("2"));
        assert_eq!(parameters.get("x"), Some("%zz%"));
        assert_eq!(parameters.get("run"), None);
        assert_eq!(Parameters::parse(""), Parameters::default());
    }

    #[test]
    fn a_name_that_means_nothing_is_refused_with_those_that_do() {
        let parameters = Parameters::parse("rn=1");
        assert_eq!(
            parameters.allow(&["run", "limit"]),
            Err("no parameter \"rn\"; there is run, limit".to_owned())
        );
        assert!(parameters.allow(&["rn"]).is_ok());
    }
}
