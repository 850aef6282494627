//! Reading an object against a table of known fields; what the two request schemas share.

use std::borrow::Cow;
use std::ops::Range;

use super::check::{self, Shape};
use super::detail::{Loc, Rejection};
use super::json::{self, Cursor};

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

/// The texts of the fields that were set, and the text of the whole object if that is what [`Values::write_full`]
/// writes.
#[derive(Debug, Clone)]
pub(super) struct Values<'a, const N: usize>(pub [Option<Cow<'a, str>>; N], pub Option<&'a str>);

/// An object of all fields with their defaults, to be cut up.
pub(super) struct Defaults<const N: usize> {
    text: Vec<u8>,
    /// Where the values are.
    values: [Range<usize>; N],
}

impl<const N: usize> Defaults<N> {
    /// The defaults of a table; null for a field that has none.
    pub fn of(table: &[Spec; N]) -> Self {
        let mut text = vec![b'{'];
        let values = std::array::from_fn(|at| {
            let raw = table[at].default.unwrap_or("null");
            write_member(&mut text, table[at].key, raw);
            text.len() - raw.len()..text.len()
        });
        text.push(b'}');
        Defaults { text, values }
    }
}

/// Tells while an object is walked whether it has all fields in order and no white space between them.
pub(super) struct Verbatim {
    fields: usize,
    end: usize,
    holds: bool,
}

impl Verbatim {
    /// Starts behind the brace.
    pub fn new(cursor: &Cursor<'_>) -> Self {
        Verbatim { fields: 0, end: cursor.at(), holds: true }
    }

    /// The field that comes next if it holds.
    #[inline]
    pub fn next(&self) -> usize {
        if self.holds { self.fields } else { usize::MAX }
    }

    /// In front of the value of a member, whose key has this length with quotes and colon.
    #[inline]
    pub fn member(&mut self, cursor: &Cursor<'_>, key: usize, field: Option<usize>, count: usize) {
        let comma = usize::from(self.fields > 0);
        self.holds &= cursor.at() == self.end + comma + key
            && field.unwrap_or(count) == self.fields.min(count);
        self.fields += 1;
    }

    /// Behind the value of a member.
    #[inline]
    pub fn value(&mut self, cursor: &Cursor<'_>) {
        self.end = cursor.at();
    }

    /// Behind the object.
    pub fn holds(&self, cursor: &Cursor<'_>, count: usize) -> bool {
        self.holds && self.fields >= count && cursor.at() == self.end + 1
    }
}

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
                static NAMES: $crate::api::names::Names<{ $field::COUNT }> =
                    $crate::api::names::Names::new([$($name),*]);
                NAMES.find(name)
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
        let mut cursor = Cursor::new(text);
        let quick = Self::take(&mut cursor, table, find, forbid_unknown);
        match quick.filter(|_| cursor.end().is_some()) {
            Some(quick) => Ok(quick),
            None => Self::read_precisely(text, table, find, forbid_unknown),
        }
    }

    /// Takes the object in front, in one walk; `None` when it needs a precise look.
    pub fn take(
        cursor: &mut Cursor<'a>,
        table: &'static [Spec; N],
        find: impl Fn(&str) -> Option<usize>,
        forbid_unknown: bool,
    ) -> Option<(Self, bool)> {
        let mut values = Values([const { None }; N], None);
        let mut has_unknown = false;
        let start = cursor.at();
        cursor.enter(b'{')?;
        let mut verbatim = Verbatim::new(cursor);
        let mut first = true;
        loop {
            let next = verbatim.next();
            let (key, found) = match table.get(next) {
                Some(spec) if cursor.expect(&mut first, spec.key) => (spec.key.len(), Some(next)),
                _ => match cursor.member(&mut first)? {
                    Some(key) => (key.len() + 3, find(key)),
                    None => break,
                },
            };
            verbatim.member(cursor, key, found, N);
            match found {
                Some(at) => {
                    let spec = table.get(at)?;
                    let (value, holds) = spec.shape.take(cursor)?;
                    if !(holds || (spec.nullable && json::is_null(value))) {
                        return None;
                    }
                    values.0[at] = Some(Cow::Borrowed(value));
                }
                None if forbid_unknown => return None,
                None => {
                    cursor.value()?;
                    has_unknown = true;
                }
            }
            verbatim.value(cursor);
        }
        if !has_unknown && verbatim.holds(cursor, N) {
            values.1 = Some(cursor.since(start));
        }
        let is_whole = table
            .iter()
            .zip(&values.0)
            .all(|(spec, value)| value.is_some() || spec.default.is_some());
        is_whole.then_some((values, has_unknown))
    }

    /// Takes the object that `text` is, of text that was checked and whose values had their types.
    pub fn trust(text: &'a str, find: impl Fn(&str) -> Option<usize>) -> Self {
        let mut values = Values([const { None }; N], None);
        for (key, value) in json::trusted::members(text).into_iter().flatten() {
            if let Some(at) = find(&key) {
                values.0[at] = Some(Cow::Borrowed(value));
            }
        }
        values
    }

    #[cold]
    fn read_precisely(
        text: &'a str,
        table: &'static [Spec; N],
        find: fn(&str) -> Option<usize>,
        forbid_unknown: bool,
    ) -> Result<(Self, bool), Rejection> {
        let mut values = Values([const { None }; N], None);
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

    /// Writes every field, with the default of those that were not set.
    pub fn write_full(&self, defaults: &Defaults<N>, out: &mut Vec<u8>) {
        if let Some(text) = self.1 {
            return out.extend_from_slice(text.as_bytes());
        }
        let mut written = 0;
        for (value, default) in self.0.iter().zip(&defaults.values) {
            if let Some(raw) = value {
                out.extend_from_slice(&defaults.text[written..default.start]);
                out.extend_from_slice(raw.as_bytes());
                written = default.end;
            }
        }
        out.extend_from_slice(&defaults.text[written..]);
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
