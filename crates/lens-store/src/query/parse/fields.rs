//! Fields, and what they can be compared with.

use lens_otlp::encode::StatusCode;
use regex_lite::RegexBuilder;

use super::{Operand, Parser, Result};
use crate::ids::{SpanId, TraceId};
use crate::query::ast::{AttributeScope, Field, Op, Test};
use crate::query::error::Problem;
use crate::query::value::{KINDS, Literal};

/// Memory of a pattern.
const MAX_PATTERN_BYTES: usize = 1 << 20;

impl Parser {
    pub(super) fn field_named(&self, word: &str) -> Result<Field> {
        let scopes = [
            (".", AttributeScope::Any),
            ("span.", AttributeScope::Span),
            ("resource.", AttributeScope::Resource),
            ("event.", AttributeScope::Event),
            ("instrumentation.", AttributeScope::Instrumentation),
        ];
        for (prefix, scope) in scopes {
            if let Some(key) = word.strip_prefix(prefix)
                && !key.is_empty()
            {
                return Ok(Field::Attribute(scope, key.into()));
            }
        }
        Ok(match word {
            "name" | "span:name" => Field::Name,
            "kind" | "span:kind" => Field::Kind,
            "status" | "span:status" => Field::Status,
            "statusMessage" | "span:statusMessage" => Field::StatusMessage,
            "duration" | "span:duration" => Field::Duration,
            "rootName" | "trace:rootName" => Field::RootName,
            "rootServiceName" | "trace:rootService" => Field::RootServiceName,
            "traceDuration" | "trace:duration" => Field::TraceDuration,
            "trace:id" => Field::TraceId,
            "span:id" => Field::SpanId,
            "span:parentID" => Field::ParentId,
            "event:name" => Field::EventName,
            "instrumentation:name" => Field::ScopeName,
            "instrumentation:version" => Field::ScopeVersion,
            "childCount" | "parent" | "nestedSetLeft" | "nestedSetRight" | "nestedSetParent" => {
                return self.unsupported(format!("`{word}`"));
            }
            _ if word.starts_with("parent.") => return self.unsupported("`parent.`"),
            _ if word.starts_with("link.") => return self.unsupported("`link.`"),
            _ if word.contains(':') => return self.unsupported(format!("`{word}`")),
            _ => return self.expected("a field (an attribute is `.key` or `span.key`)"),
        })
    }
}

/// A value that is written as a word.
pub(super) fn constant(word: &str) -> Option<Operand> {
    let literal = match word {
        "true" => Literal::Bool(true),
        "false" => Literal::Bool(false),
        "nil" => return Some(Operand::Nil),
        "ok" => Literal::Status(StatusCode::Ok),
        "error" => Literal::Status(StatusCode::Error),
        "unset" => Literal::Status(StatusCode::Unset),
        _ => Literal::Kind(u8::try_from(KINDS.iter().position(|kind| *kind == word)?).ok()?),
    };
    Some(Operand::Literal(literal))
}

/// What compares a field with a value.
pub(super) fn test(
    field: &Field,
    operator: &'static str,
    literal: Literal,
) -> std::result::Result<Test, Problem> {
    let op = Op::from_symbol(operator);
    let is_equality = matches!(op, Some(Op::Equal | Op::NotEqual));
    let wanted = match field {
        Field::Kind if matches!(literal, Literal::Kind(_)) && is_equality => None,
        Field::Kind => Some("`=` or `!=` with server, client, internal, producer or consumer"),
        Field::Status if matches!(literal, Literal::Status(_)) && is_equality => None,
        Field::Status => Some("`=` or `!=` with ok, error or unset"),
        Field::Duration | Field::TraceDuration => match literal {
            Literal::Int(_) | Literal::Float(_) if op.is_some() => None,
            _ => Some("a duration, as 250ms"),
        },
        Field::TraceId | Field::SpanId | Field::ParentId => match &literal {
            Literal::Text(text) if is_equality => match id_test(field, operator == "=", text) {
                Some(test) => return Ok(test),
                None => Some("an id in hex digits"),
            },
            _ => Some("`=` or `!=` with a text"),
        },
        Field::Attribute(..) => match literal {
            Literal::Kind(_) | Literal::Status(_) => Some("a text, number or boolean"),
            Literal::Text(_) => None,
            _ if op.is_some() => None,
            _ => Some("a pattern in quotes"),
        },
        _ if matches!(literal, Literal::Text(_)) => None,
        _ => Some("a text"),
    };
    if let Some(wanted) = wanted {
        return Err(Problem::Type { field: field.name(), wanted });
    }
    match (op, literal) {
        (Some(op), literal) => Ok(Test::Value(op, literal)),
        (None, Literal::Text(text)) => {
            // All of the text has to match, as in TraceQL.
            let pattern = RegexBuilder::new(&format!("^(?:{text})$"))
                .size_limit(MAX_PATTERN_BYTES)
                .build()
                .map_err(|error| Problem::Pattern(error.to_string()))?;
            Ok(Test::Pattern(operator == "=~", Box::new(pattern)))
        }
        (None, _) => Err(Problem::Type { field: field.name(), wanted: "a pattern in quotes" }),
    }
}

/// Leading zeros may be left out.
fn id_test(field: &Field, is_equal: bool, text: &str) -> Option<Test> {
    if *field == Field::TraceId {
        return Some(Test::Trace(is_equal, TraceId::parse(&format!("{text:0>32}"))?));
    }
    Some(Test::Span(is_equal, SpanId::parse(&format!("{text:0>16}"))?))
}
