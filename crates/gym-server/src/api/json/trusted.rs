//! Walks through values that were checked as parts of their bodies, without checking them again.
//!
//! Other text yields other slices of itself, and no panic.

use std::borrow::Cow;

use super::{kind, skip, string};
use crate::api::json::Kind;

/// The members of an object, as (name, value text).
#[derive(Debug)]
pub struct Members<'a> {
    text: &'a str,
    at: usize,
}

/// The elements of a list, as value texts.
#[derive(Debug)]
pub struct Elements<'a> {
    text: &'a str,
    at: usize,
}

/// Starts walking an object; `None` when the value is not one.
pub fn members(raw: &str) -> Option<Members<'_>> {
    let raw = raw.trim_ascii_start();
    (kind(raw) == Kind::Object).then_some(Members { text: raw, at: 1 })
}

/// Starts walking a list; `None` when the value is not one.
pub fn elements(raw: &str) -> Option<Elements<'_>> {
    let raw = raw.trim_ascii_start();
    (kind(raw) == Kind::Array).then_some(Elements { text: raw, at: 1 })
}

/// The value of the member `name` of an object, if there is one (the last one wins, as in Python).
pub fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    members(object)?.filter(|(key, _)| key == name).last().map(|(_, value)| value)
}

/// The values of several members of an object, found in one walk; all `None` when the value is not one.
pub fn pick<'a, const N: usize>(object: &'a str, names: [&str; N]) -> [Option<&'a str>; N] {
    members(object).map_or([None; N], |mut all| all.pick(names))
}

/// Reads the objects of a list, each in one walk: its text, and what `read` makes of its members. Others are passed over.
pub fn objects<'a, T>(
    list: &'a str,
    mut read: impl FnMut(&mut Members<'a>) -> T,
) -> impl Iterator<Item = (&'a str, T)> {
    let mut elements = elements(list);
    std::iter::from_fn(move || {
        let Elements { text, at } = elements.as_mut()?;
        while entry(text.as_bytes(), at)? != b'{' {
            *at = skip::trusted(text.as_bytes(), *at);
        }
        let start = *at;
        let mut members = Members { text, at: start + 1 };
        let made = read(&mut members);
        members.by_ref().for_each(drop);
        *at = members.at + 1;
        Some((text.get(start..*at)?, made))
    })
}

impl<'a> Members<'a> {
    /// The values of several of the members that follow, found in one walk.
    pub fn pick<const N: usize>(&mut self, names: [&str; N]) -> [Option<&'a str>; N] {
        let mut values = [None; N];
        for (key, value) in self {
            if let Some(at) = names.iter().position(|name| *name == key) {
                values[at] = Some(value);
            }
        }
        values
    }
}

/// Moves `at` to the next entry.
fn entry(bytes: &[u8], at: &mut usize) -> Option<u8> {
    while let Some(&byte) = bytes.get(*at) {
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' | b',' => *at += 1,
            b'}' | b']' => return None,
            byte => return Some(byte),
        }
    }
    None
}

impl<'a> Iterator for Members<'a> {
    type Item = (Cow<'a, str>, &'a str);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.text.as_bytes();
        if entry(bytes, &mut self.at)? != b'"' {
            return None;
        }
        let start = self.at + 1;
        let plain = start + skip::special(bytes.get(start..)?);
        let (key, end) = if bytes.get(plain) == Some(&b'"') {
            (Cow::Borrowed(self.text.get(start..plain)?), plain + 1)
        } else {
            let end = skip::trusted_string(bytes, self.at);
            (string(self.text.get(self.at..end)?)?, end)
        };
        let start = skip::colon(bytes, end)?;
        self.at = skip::trusted(bytes, start);
        Some((key, self.text.get(start..self.at)?))
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a str;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.text.as_bytes();
        entry(bytes, &mut self.at)?;
        let start = self.at;
        self.at = skip::trusted(bytes, start);
        self.text.get(start..self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::json;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_checked_is_walked_alike(text in "\\[(\\{(\"a\":1|\"b\":\\[\\{\\}\\])?\\}|1|\"\\{\"|, ?){0,6}\\]|[\\[\\]{}:,\"a\\\\u01 .eEé+\\- tnfrulsue]{0,16}") {
            if json::document(&text).is_ok() {
                let checked: Option<Vec<_>> = json::members(&text).map(|all| all.map(Result::unwrap).collect());
                prop_assert_eq!(members(&text).map(Iterator::collect), checked);
                let checked: Option<Vec<_>> = json::elements(&text).map(|all| all.map(Result::unwrap).collect());
                prop_assert_eq!(elements(&text).map(Iterator::collect), checked);
                let parts: Vec<_> = elements(&text).into_iter().flatten().filter_map(|raw| Some((raw, members(raw)?.count()))).collect();
                prop_assert_eq!(objects(&text, |all| all.count()).collect::<Vec<_>>(), parts);
            }
        }

        #[test]
        fn any_text_is_walked_to_an_end(text in "[{\\[]\\PC{0,16}|[\\[\\]{}:,\"\\\\é ]{0,16}") {
            let length = text.len();
            prop_assert!(members(&text).into_iter().flatten().count() <= length);
            prop_assert!(elements(&text).into_iter().flatten().count() <= length);
            prop_assert!(objects(&text, |all| all.count()).count() <= length);
        }
    }
}
