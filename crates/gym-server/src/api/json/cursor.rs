//! One checking walk through a text in which every value is looked at once, however deep it is read.
//!
//! A walk knows no reasons: at the first thing that is not plain (a fault, an escaped name) it answers `None`, and its
//! caller starts over with the precise scanner.

use super::skip;

/// Where a walk is. Values are taken whole ([`Cursor::value`]) or entered ([`Cursor::enter`]).
#[derive(Debug)]
pub struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Starts before the value that `text` is.
    pub fn new(text: &'a str) -> Self {
        Cursor { text, at: skip::space(text.as_bytes(), 0) }
    }

    /// Index of the next byte; in front of a value that of its first one.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The first byte of the value in front; 0 at the end of the text.
    pub fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    /// Enters the object (`{`) or list (`[`) in front.
    pub fn enter(&mut self, open: u8) -> Option<()> {
        (self.peek() == open).then(|| self.at += 1)
    }

    /// Moves to the next entry of the list that was entered with `[`, or behind the list: `false`.
    /// `first` is true at first, and cleared.
    pub fn element(&mut self, first: &mut bool) -> Option<bool> {
        self.entry(first, b']')
    }

    /// Moves to the value of the next member of the object that was entered, or behind the object: `None` inside.
    #[inline]
    pub fn member(&mut self, first: &mut bool) -> Option<Option<&'a str>> {
        if !self.entry(first, b'}')? {
            return Some(None);
        }
        let bytes = self.text.as_bytes();
        let start = self.at + 1;
        if self.peek() != b'"' {
            return None;
        }
        let end = start + skip::special(bytes.get(start..)?);
        if bytes.get(end) != Some(&b'"') {
            return None;
        }
        self.at = skip::colon(bytes, end + 1)?;
        self.text.get(start..end).map(Some)
    }

    /// Moves to the value of the next member if that is `key`, quotes and colon included; else stays.
    #[inline]
    pub fn expect(&mut self, first: &mut bool, key: &str) -> bool {
        let at = self.at + usize::from(!*first);
        let bytes = self.text.as_bytes();
        let is_next = (*first || self.peek() == b',')
            && bytes.get(at..).is_some_and(|rest| rest.starts_with(key.as_bytes()));
        if is_next {
            *first = false;
            self.at = skip::space(bytes, at + key.len());
        }
        is_next
    }

    #[inline]
    fn entry(&mut self, first: &mut bool, close: u8) -> Option<bool> {
        let bytes = self.text.as_bytes();
        self.at = skip::space(bytes, self.at);
        let byte = self.peek();
        if byte == close {
            self.at += 1;
            return Some(false);
        }
        if !std::mem::take(first) {
            if byte != b',' {
                return None;
            }
            self.at = skip::space(bytes, self.at + 1);
            if self.peek() == close {
                return None;
            }
        }
        Some(true)
    }

    /// Takes the value in front.
    #[inline]
    pub fn value(&mut self) -> Option<&'a str> {
        let start = self.at;
        self.at = skip::checked(self.text.as_bytes(), start)?;
        self.text.get(start..self.at)
    }

    /// The text between an index that was in front of a value and the place behind it.
    pub fn since(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// Checks that nothing follows.
    pub fn end(&self) -> Option<()> {
        (skip::space(self.text.as_bytes(), self.at) == self.text.len()).then_some(())
    }
}
