//! Attribute values that outlive their site.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use lens_otlp::encode::{ArrayValue, EncodeValue};
use lens_otlp::wire::Cursor;

/// An attribute's value.
///
/// Sites that must compile without telemetry make values with `From` or [`Value::from_static`] and do not match
/// on them.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text.
    String(Cow<'static, str>),
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A double.
    Double(f64),
    /// Values, of one type by convention.
    Array(Vec<Value>),
}

impl Value {
    /// A string that is not copied.
    pub const fn from_static(text: &'static str) -> Self {
        Self::String(Cow::Borrowed(text))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::String(text) => formatter.write_str(text),
            Self::Bool(value) => value.fmt(formatter),
            Self::Int(value) => value.fmt(formatter),
            Self::Double(value) => value.fmt(formatter),
            Self::Array(values) => {
                formatter.write_str("[")?;
                for (at, value) in values.iter().enumerate() {
                    if at > 0 {
                        formatter.write_str(",")?;
                    }
                    value.fmt(formatter)?;
                }
                formatter.write_str("]")
            }
        }
    }
}

impl EncodeValue for Value {
    fn value_len(&self) -> usize {
        match self {
            Self::String(text) => text.value_len(),
            Self::Bool(value) => value.value_len(),
            Self::Int(value) => value.value_len(),
            Self::Double(value) => value.value_len(),
            Self::Array(values) => ArrayValue(values).value_len(),
        }
    }

    fn write_value(&self, out: &mut Cursor<'_>) {
        match self {
            Self::String(text) => text.write_value(out),
            Self::Bool(value) => value.write_value(out),
            Self::Int(value) => value.write_value(out),
            Self::Double(value) => value.write_value(out),
            Self::Array(values) => ArrayValue(values).write_value(out),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(Cow::Owned(text.to_owned()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(Cow::Owned(text))
    }
}

impl From<Cow<'static, str>> for Value {
    fn from(text: Cow<'static, str>) -> Self {
        Self::String(text)
    }
}

impl From<Arc<str>> for Value {
    fn from(text: Arc<str>) -> Self {
        Self::from(&*text)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Double(value)
    }
}

impl From<f32> for Value {
    fn from(value: f32) -> Self {
        Self::Double(value.into())
    }
}

/// An integer as OTLP can hold it; what does not fit becomes the largest or smallest.
pub(super) trait ToInt: Copy {
    fn to_int(self) -> i64;
}

macro_rules! integers {
    ($($type:ty),*) => {
        $(
            impl ToInt for $type {
                #[inline]
                fn to_int(self) -> i64 {
                    // Only unsigned types can exceed the range.
                    i64::try_from(self).unwrap_or(i64::MAX)
                }
            }

            impl From<$type> for Value {
                fn from(value: $type) -> Self {
                    Self::Int(value.to_int())
                }
            }
        )*
    };
}

integers!(i64, u64, i32, u32, i16, u16, i8, u8, isize, usize);

macro_rules! arrays {
    ($($type:ty),*) => {
        $(impl From<Vec<$type>> for Value {
            fn from(values: Vec<$type>) -> Self {
                Self::Array(values.into_iter().map(Self::from).collect())
            }
        })*
    };
}

arrays!(String, &str, i64, f64, bool);

impl From<Vec<Value>> for Value {
    fn from(values: Vec<Value>) -> Self {
        Self::Array(values)
    }
}
