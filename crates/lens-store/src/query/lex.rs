//! Cuts a query into tokens.

use super::error::{Problem, QueryError};

/// A piece of a query.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A word, a name with dots and colons: `span.http.route`, `trace:id`, `count_over_time`.
    Word(String),
    /// `.name`, an attribute of any scope; the name is without the dot.
    Text(String),
    Int(i64),
    Float(f64),
    /// Nanoseconds.
    Duration(i64),
    Symbol(&'static str),
    End,
}

impl Token {
    /// As an error shows it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Word(word) => format!("`{word}`"),
            Self::Text(_) => "a text".to_owned(),
            Self::Int(_) | Self::Float(_) => "a number".to_owned(),
            Self::Duration(_) => "a duration".to_owned(),
            Self::Symbol(symbol) => format!("`{symbol}`"),
            Self::End => "the end".to_owned(),
        }
    }
}

/// Longer ones first.
const SYMBOLS: [&str; 33] = [
    "!>>", "!<<", "&>>", "&<<", "!>", "!<", "!~", "&>", "&<", "&~", "&&", "||", ">>", "<<", ">=",
    "<=", "=~", "!=", "{", "}", "(", ")", "|", "=", ">", "<", "~", "!", ",", "+", "-", "*", "/",
];
/// TraceQL has them between numbers.
const OTHER: [char; 2] = ['%', '^'];

/// The tokens of a query with their places, in characters.
pub(super) fn tokens(query: &str) -> Result<Vec<(usize, Token)>, QueryError> {
    let mut lexer = Lexer { chars: query.chars().collect(), at: 0 };
    let mut tokens = Vec::new();
    while let Some((at, token)) = lexer.next()? {
        tokens.push((at, token));
    }
    tokens.push((lexer.at, Token::End));
    Ok(tokens)
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
}

impl Lexer {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Result<Option<(usize, Token)>, QueryError> {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
        let at = self.at;
        let Some(first) = self.peek() else { return Ok(None) };
        let second = self.chars.get(at + 1).copied();
        let token = match first {
            '"' => self.quoted()?,
            '`' => self.raw()?,
            '0'..='9' => self.number()?,
            '.' if second.is_some_and(|c| c.is_ascii_digit()) && !self.dotted_word() => {
                self.number()?
            }
            '.' => self.word()?,
            c if c.is_alphabetic() || c == '_' => self.word()?,
            _ => self.symbol()?,
        };
        Ok(Some((at, token)))
    }

    /// `.5` is a number, `.5xx` an attribute.
    fn dotted_word(&self) -> bool {
        let rest = &self.chars[self.at + 1..];
        let end = rest.iter().position(|c| !c.is_ascii_digit());
        end.is_some_and(|end| is_name(rest[end]))
    }

    fn error<T>(at: usize, problem: Problem) -> Result<T, QueryError> {
        Err(QueryError { at, problem })
    }

    fn symbol(&mut self) -> Result<Token, QueryError> {
        let rest: String = self.chars[self.at..].iter().take(3).collect();
        if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            self.at += symbol.len();
            return Ok(Token::Symbol(symbol));
        }
        let found = self.chars[self.at];
        if OTHER.contains(&found) {
            return Self::error(self.at, Problem::Unsupported(format!("arithmetic (`{found}`)")));
        }
        let found = format!("`{}`", found.escape_debug());
        Self::error(self.at, Problem::Unexpected { expected: "a query", found })
    }

    fn quoted(&mut self) -> Result<Token, QueryError> {
        let begin = self.at;
        self.at += 1;
        let mut text = String::new();
        loop {
            let Some(c) = self.peek() else { return Self::error(begin, Problem::OpenText) };
            self.at += 1;
            match c {
                '"' => return Ok(Token::Text(text)),
                '\\' => {
                    let Some(escaped) = self.peek() else {
                        return Self::error(begin, Problem::OpenText);
                    };
                    text.push(match escaped {
                        'n' => '\n',
                        't' => '\t',
                        'r' => '\r',
                        '"' | '\\' | '\'' => escaped,
                        _ => return Self::error(self.at - 1, Problem::Escape(escaped)),
                    });
                    self.at += 1;
                }
                c => text.push(c),
            }
        }
    }

    fn raw(&mut self) -> Result<Token, QueryError> {
        let begin = self.at + 1;
        let Some(length) = self.chars[begin..].iter().position(|c| *c == '`') else {
            return Self::error(self.at, Problem::OpenText);
        };
        self.at = begin + length + 1;
        Ok(Token::Text(self.chars[begin..begin + length].iter().collect()))
    }

    /// Names end before what TraceQL has signs for; a part of them may be quoted.
    fn word(&mut self) -> Result<Token, QueryError> {
        let mut word = String::new();
        while let Some(c) = self.peek() {
            if c == '"' && (word.ends_with('.') || word.ends_with(':')) {
                match self.quoted()? {
                    Token::Text(text) => word.push_str(&text),
                    _ => break,
                }
            } else if is_name(c) {
                word.push(c);
                self.at += 1;
            } else {
                break;
            }
        }
        Ok(Token::Word(word))
    }

    /// `12`, `1.5`, `1h30m`, `250ms`.
    fn number(&mut self) -> Result<Token, QueryError> {
        let begin = self.at;
        while self.peek().is_some_and(|c| c.is_alphanumeric() || c == '.' || c == 'µ') {
            self.at += 1;
            let exponent = matches!(self.chars[self.at - 1], 'e' | 'E');
            if exponent && self.peek().is_some_and(|c| matches!(c, '+' | '-')) {
                self.at += 1;
            }
        }
        let text: String = self.chars[begin..self.at].iter().collect();
        let token = match text.parse::<i64>() {
            Ok(number) => Some(Token::Int(number)),
            Err(_) => match duration(&text) {
                Some(nanos) => Some(Token::Duration(nanos)),
                None if text.ends_with(|c: char| c.is_ascii_digit() || c == '.') => {
                    text.parse().ok().filter(|n: &f64| n.is_finite()).map(Token::Float)
                }
                None => None,
            },
        };
        match token {
            Some(token) => Ok(token),
            None => Self::error(begin, Problem::Number(text)),
        }
    }
}

/// Whether a character can be in a name.
fn is_name(c: char) -> bool {
    let is_sign = matches!(
        c,
        '{' | '}' | '(' | ')' | '=' | '~' | '!' | '<' | '>' | '&' | '|' | '^' | ',' | '"' | '`'
    );
    !c.is_whitespace() && !is_sign
}

/// Nanoseconds of `1h30m`, `1.5s`, `250us`.
pub fn duration(text: &str) -> Option<i64> {
    let mut rest = text;
    let mut total = 0_f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        total += number
            * match &rest[..unit_end] {
                "ns" => 1.0,
                "us" | "µs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "m" => 60e9,
                "h" => 3600e9,
                "d" => 86_400e9,
                _ => return None,
            };
        rest = &rest[unit_end..];
    }
    (total.is_finite() && total <= i64::MAX as f64 / 2.0).then_some(total.round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_may_have_several() {
        assert_eq!(duration("1h30m"), Some(5_400_000_000_000));
        assert_eq!(duration("1.5ms"), Some(1_500_000));
        assert_eq!(duration("250µs"), duration("250us"));
        assert_eq!(duration("5"), None);
        assert_eq!(duration("s"), None);
        assert_eq!(duration("1x"), None);
        assert_eq!(duration("99999999999999h"), None);
    }
}
