//! Why a query is refused, and where in its text.

use std::fmt::Write as _;

/// A query that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at character {}", at + 1)]
pub struct QueryError {
    /// Where, in characters from 0.
    pub at: usize,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Something else should be here.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// What could be here.
        expected: &'static str,
        /// What is.
        found: String,
    },
    /// TraceQL has it, this does not.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// A text without an end.
    #[error("the text that begins here has no end")]
    OpenText,
    /// A number that cannot be read.
    #[error("{0} is no number")]
    Number(String),
    /// An escape that texts do not have.
    #[error("\\{0} is no escape")]
    Escape(char),
    /// A pattern that cannot be read.
    #[error("the pattern cannot be read: {0}")]
    Pattern(String),
    /// A value that this field never has.
    #[error("{field} is compared with {wanted}")]
    Type {
        /// The field.
        field: String,
        /// What it can be compared with.
        wanted: &'static str,
    },
    /// `a || b && c`.
    #[error("`&&` behind `||` is read one way here and another way there: put parentheses")]
    Ambiguous,
    /// A bound of queries.
    #[error("a query has at most {0}")]
    TooMuch(&'static str),
}

impl QueryError {
    /// The error with the query's line and a mark below it.
    pub fn render(&self, query: &str) -> String {
        let before: String = query.chars().take(self.at).collect();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let column = before[line_start..].chars().count();
        let rest = &query[before.len().min(query.len())..];
        let line = format!("{}{}", &before[line_start..], rest.split('\n').next().unwrap_or(""));
        let mut text = format!("{self}\n  {line}\n  ");
        let _ = write!(text, "{}^", " ".repeat(column));
        text
    }
}
