//! Dotted paths, and where the value at each of them was written.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::error::Origin;

/// A dotted path that grows and shrinks while a tree is walked: `a.b[0].c`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Path(String);

impl Path {
    pub(super) fn root() -> Self {
        Self::default()
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Runs `walk` with `key` appended.
    pub(super) fn with_key<T>(&mut self, key: &str, walk: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.0.len();
        if length > 0 {
            self.0.push('.');
        }
        self.0.push_str(key);
        let result = walk(self);
        self.0.truncate(length);
        result
    }

    /// Runs `walk` with `[index]` appended.
    pub(super) fn with_index<T>(&mut self, index: usize, walk: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.0.len();
        let _ = write!(self.0, "[{index}]");
        let result = walk(self);
        self.0.truncate(length);
        result
    }
}

impl From<&str> for Path {
    fn from(path: &str) -> Self {
        Self(path.to_owned())
    }
}

/// Where values were written, by dotted path. Values that moved keep the place of the nearest
/// enclosing value that is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks(HashMap<String, Origin>);

impl Marks {
    pub(super) fn set(&mut self, path: &Path, origin: Origin) {
        self.0.insert(path.as_str().to_owned(), origin);
    }

    /// Marks of a later layer win.
    pub(super) fn overlay(&mut self, later: Self) {
        // A mapping that is only merged into keeps the place where it began.
        for (path, origin) in later.0 {
            self.0.insert(path, origin);
        }
    }

    /// The place of `path`, else of the nearest enclosing value, never of the whole document.
    pub(super) fn find(&self, path: &str) -> Origin {
        let mut path = path;
        while !path.is_empty() {
            if let Some(origin) = self.0.get(path) {
                return origin.clone();
            }
            path = path.rfind(['.', '[']).map_or("", |end| &path[..end]);
        }
        Origin::Unknown
    }
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// A key, or an index written as `a.0`.
    Key(String),
    /// `[0]`.
    Index(usize),
}

/// Splits `a.b[0].c`; `None` when a part is empty or a bracket is not an index.
pub(super) fn segments(path: &str) -> Option<Vec<Segment>> {
    let mut result = Vec::new();
    for part in path.split('.') {
        let (key, mut rest) = part.split_at(part.find('[').unwrap_or(part.len()));
        if !key.is_empty() {
            result.push(Segment::Key(key.to_owned()));
        } else if rest.is_empty() {
            return None;
        }
        while let Some(inner) = rest.strip_prefix('[') {
            let (index, tail) = inner.split_once(']')?;
            result.push(match index.parse() {
                Ok(index) => Segment::Index(index),
                Err(_) if index.is_empty() => return None,
                Err(_) => Segment::Key(index.to_owned()),
            });
            rest = tail;
        }
        if !rest.is_empty() {
            return None;
        }
    }
    Some(result)
}

/// The direct child that a segment names.
pub(super) fn child<'a>(
    value: &'a serde_json::Value,
    segment: &Segment,
) -> Option<&'a serde_json::Value> {
    match (value, segment) {
        (serde_json::Value::Object(map), Segment::Key(key)) => map.get(key),
        (serde_json::Value::Object(map), Segment::Index(index)) => map.get(&index.to_string()),
        (serde_json::Value::Array(items), Segment::Index(index)) => items.get(*index),
        (serde_json::Value::Array(items), Segment::Key(key)) => {
            items.get(key.parse::<usize>().ok()?)
        }
        _ => None,
    }
}

/// The value at a dotted path, without resolving anything.
pub(super) fn select<'a>(root: &'a serde_json::Value, path: &str) -> Option<&'a serde_json::Value> {
    segments(path)?.iter().try_fold(root, child)
}
