//! Values of fields, and what they are compared with.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use lens_otlp::encode::StatusCode;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ast::{Op, Test};

/// A value of a field of one span.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// Text.
    Text(&'a str),
    /// An integer; nanoseconds, where it is a time.
    Int(i64),
    /// A double.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// A status.
    Status(StatusCode),
    /// OTLP's number of a kind.
    Kind(u8),
    /// Bytes, or keys with values: nothing is compared with them.
    Other,
}

/// What a query compares a field with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Text(Box<str>),
    Int(i64),
    Float(f64),
    Bool(bool),
    Status(StatusCode),
    Kind(u8),
}

/// Names of kinds in queries, by OTLP's numbers.
pub(crate) const KINDS: [&str; 6] =
    ["unspecified", "internal", "server", "client", "producer", "consumer"];

impl Value<'_> {
    /// The value as a number, when it is one.
    pub fn number(self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(number as f64),
            Self::Float(number) => Some(number),
            _ => None,
        }
    }

    /// A copy.
    pub fn to_owned(self) -> Owned {
        match self {
            Self::Text(text) => Owned::Text(text.to_owned()),
            Self::Int(number) => Owned::Int(number),
            Self::Float(number) => Owned::Float(number),
            Self::Bool(bool) => Owned::Bool(bool),
            Self::Status(status) => Owned::Text(status_name(status).to_owned()),
            Self::Kind(kind) => Owned::Text(kind_name(kind).to_owned()),
            Self::Other => Owned::Nil,
        }
    }
}

pub(crate) fn status_name(status: StatusCode) -> &'static str {
    match status {
        StatusCode::Ok => "ok",
        StatusCode::Error => "error",
        StatusCode::Unset => "unset",
    }
}

pub(crate) fn kind_name(kind: u8) -> &'static str {
    KINDS.get(usize::from(kind)).copied().unwrap_or(KINDS[0])
}

/// A value that results show and group by. Values order by kind, then by value.
#[derive(Clone, Debug)]
pub enum Owned {
    /// None.
    Nil,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A double.
    Float(f64),
    /// Text.
    Text(String),
}

impl Owned {
    fn rank(&self) -> u8 {
        match self {
            Self::Nil => 0,
            Self::Bool(_) => 1,
            Self::Int(_) => 2,
            Self::Float(_) => 3,
            Self::Text(_) => 4,
        }
    }
}

impl Ord for Owned {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Owned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Owned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Owned {}

impl Hash for Owned {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Nil => {}
            Self::Bool(bool) => bool.hash(state),
            Self::Int(number) => number.hash(state),
            Self::Float(number) => number.to_bits().hash(state),
            Self::Text(text) => text.hash(state),
        }
    }
}

impl Serialize for Owned {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nil => serializer.serialize_none(),
            Self::Bool(bool) => serializer.serialize_bool(*bool),
            Self::Int(number) => serializer.serialize_i64(*number),
            Self::Float(number) => serializer.serialize_f64(*number),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for Owned {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde_json::Value as Json;
        Ok(match Json::deserialize(deserializer)? {
            Json::Bool(bool) => Self::Bool(bool),
            Json::Number(number) => match number.as_i64() {
                Some(number) => Self::Int(number),
                None => number.as_f64().map_or(Self::Nil, Self::Float),
            },
            Json::String(text) => Self::Text(text),
            _ => Self::Nil,
        })
    }
}

impl std::fmt::Display for Owned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nil => f.write_str("nil"),
            Self::Bool(bool) => write!(f, "{bool}"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Op {
    pub(crate) fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::AtLeast => order.is_ge(),
        }
    }
}

impl Test {
    /// Whether it holds for a value; never for one of another type.
    pub(crate) fn holds(&self, value: Value<'_>) -> bool {
        match (self, value) {
            (Self::Value(op, literal), value) => {
                literal.compare(value).is_some_and(|order| op.holds(order))
            }
            (Self::Pattern(wanted, pattern), Value::Text(text)) => {
                pattern.is_match(text) == *wanted
            }
            _ => false,
        }
    }
}

impl Literal {
    /// How a value stands to it; `None` where they are of different types.
    pub(crate) fn compare(&self, value: Value<'_>) -> Option<Ordering> {
        match (value, self) {
            (Value::Text(value), Self::Text(literal)) => Some(value.cmp(literal)),
            (Value::Int(value), Self::Int(literal)) => Some(value.cmp(literal)),
            (Value::Bool(value), Self::Bool(literal)) => Some(value.cmp(literal)),
            (Value::Status(value), Self::Status(literal)) => {
                Some((value as u8).cmp(&(*literal as u8)))
            }
            (Value::Kind(value), Self::Kind(literal)) => Some(value.cmp(literal)),
            (value, literal) => value.number()?.partial_cmp(&literal.number()?),
        }
    }

    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            _ => None,
        }
    }
}
