//! Reading an object against a table of known fields; what the two request schemas share.

use std::borrow::Cow;

use super::check::{self, Shape};
use super::detail::{Loc, Rejection};
use super::json;

/// One known field.
pub(super) struct Spec {
    pub name: &'static str,
    /// `"name":`
    pub key: &'static str,
    pub shape: Shape,
    /// JSON text of the default; `None` when the field is required.
    pub default: Option<&'static str>,
    pub nullable: bool,
}

/// The texts of the fields that were set.
#[derive(Debug, Clone)]
pub(super) struct Values<'a, const N: usize>(pub [Option<Cow<'a, str>>; N]);

/// Defines the enum of the fields of a schema, its table and its lookup by name.
macro_rules! schema {
    ($field:ident $table:ident; $($variant:ident $name:literal $shape:expr, $default:expr, $nullable:literal;)*) => {
        /// The known keys, in the order in which they are written.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum $field { $($variant),* }

        static $table: [$crate::api::table::Spec; $field::COUNT] = [$($crate::api::table::Spec {
            name: $name,
            key: concat!("\"", $name, "\":"),
            shape: $shape,
            default: $default,
            nullable: $nullable,
        }),*];

        impl $field {
            /// How many there are.
            pub const COUNT: usize = [$($name),*].len();

            const ALL: [$field; $field::COUNT] = [$($field::$variant),*];

            fn of(name: &str) -> Option<usize> {
                match name { $($name => Some($field::$variant as usize),)* _ => None }
            }
        }
    };
}
pub(super) use schema;

impl<'a, const N: usize> Values<'a, N> {
    /// Reads and checks `text`; also tells whether there were unknown keys, when those are allowed.
    pub fn read(
        text: &'a str,
        table: &'static [Spec; N],
        find: fn(&str) -> Option<usize>,
        forbid_unknown: bool,
    ) -> Result<(Self, bool), Rejection> {
        let mut values = Values([const { None }; N]);
        let mut unknown = Vec::new();
        let Some(members) = json::members(text) else {
            return Err(match json::document(text) {
                Ok(raw) => Rejection::not_an_object(raw),
                Err(_) if text.is_empty() => Rejection::empty_body(),
                Err(fault) => Rejection::not_json(text, fault),
            });
        };
        for member in members {
            let (key, value) = member.map_err(|fault| Rejection::not_json(text, fault))?;
            match find(&key) {
                Some(at) => values.0[at] = Some(Cow::Borrowed(value)),
                None => unknown.push((key, value)),
            }
        }
        let has_unknown = !unknown.is_empty();
        let quick = !(has_unknown && forbid_unknown)
            && table.iter().zip(&values.0).all(|(spec, value)| match value.as_deref() {
                None => spec.default.is_some(),
                Some(raw) => spec.shape.holds(raw) || (spec.nullable && json::is_null(raw)),
            });
        if !quick {
            if !forbid_unknown {
                unknown.clear();
            }
            values.coerce(text, table, &unknown)?;
        }
        Ok((values, has_unknown))
    }

    #[cold]
    fn coerce(
        &mut self,
        text: &str,
        table: &[Spec; N],
        unknown: &[(Cow<'_, str>, &str)],
    ) -> Result<(), Rejection> {
        let body = [Loc::from("body")];
        let mut faults = Vec::new();
        for (spec, value) in table.iter().zip(&mut self.0) {
            let loc = check::extend(&body, [spec.name.into()]);
            match value.as_deref() {
                None if spec.default.is_none() => {
                    faults.push(check::fault("missing", &loc, "Field required", text.trim()))
                }
                None => {}
                Some(raw) if spec.nullable && json::is_null(raw) => {}
                Some(raw) => match spec.shape.coerce(raw, &loc) {
                    Ok(coerced) => *value = Some(coerced),
                    Err(more) => faults.extend(more),
                },
            }
        }
        for (key, value) in unknown {
            let loc = check::extend(&body, [key.clone().into_owned().into()]);
            faults.push(check::fault(
                "extra_forbidden",
                &loc,
                "Extra inputs are not permitted",
                value,
            ));
        }
        if faults.is_empty() { Ok(()) } else { Err(Rejection::Unprocessable(faults)) }
    }

    /// Whether a value was coerced, so that the text it came from no longer tells it.
    pub fn is_coerced(&self) -> bool {
        self.0.iter().any(|value| matches!(value, Some(Cow::Owned(_))))
    }
}

/// Writes `key` (quoted, with its colon) and a JSON text, after the comma it needs.
pub(super) fn write_member(out: &mut Vec<u8>, key: &str, raw: &str) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(raw.as_bytes());
}
