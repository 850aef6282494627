//! Sessions and the cookies that carry them.
//!
//! A session is 128 random bits in a cookie named `<implementation>___<instance>`. The bits
//! cannot be guessed, so the cookie needs no signature; only the server that issued it reads it.
//! Callers replace the cookies of a server with those of its last reply.

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use http::{HeaderMap, HeaderValue, header};

const ID_LEN: usize = 32;

/// Identity of one session, 32 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId([u8; ID_LEN]);

impl SessionId {
    /// A new session.
    #[must_use]
    pub fn random() -> Self {
        thread_local! {
            static SEED: (RandomState, RandomState) = (RandomState::new(), RandomState::new());
            static COUNT: Cell<u64> = const { Cell::new(0) };
        }
        let count = COUNT.with(|count| count.replace(count.get().wrapping_add(1)));
        let (high, low) = SEED.with(|(high, low)| (high.hash_one(count), low.hash_one(count)));
        let mut text = [0; ID_LEN];
        write_hex(high, &mut text[..16]);
        write_hex(low, &mut text[16..]);
        Self(text)
    }

    /// Reads a session id; anything that this server cannot have issued is `None`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; ID_LEN] = text.as_bytes().try_into().ok()?;
        bytes.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')).then_some(Self(bytes))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn write_hex(value: u64, out: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (index, digit) in out.iter_mut().enumerate() {
        *digit = DIGITS[(value >> (60 - 4 * index)) as usize & 0xf];
    }
}

/// Names and values of cookies, in the order in which they were set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CookieJar(Vec<(String, String)>);

impl CookieJar {
    /// Reads the `Cookie` headers of a request.
    #[must_use]
    pub fn from_request(headers: &HeaderMap) -> Self {
        let mut jar = Self::default();
        for value in headers.get_all(header::COOKIE) {
            for pair in value.to_str().unwrap_or_default().split(';') {
                if let Some((name, value)) = pair.split_once('=') {
                    jar.insert(name.trim(), value.trim());
                }
            }
        }
        jar
    }

    /// Reads the `Set-Cookie` headers of a reply; attributes are dropped.
    #[must_use]
    pub fn from_set_cookie(headers: &HeaderMap) -> Self {
        let mut jar = Self::default();
        for value in headers.get_all(header::SET_COOKIE) {
            let pair = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
            if let Some((name, value)) = pair.split_once('=') {
                jar.insert(name.trim(), value.trim());
            }
        }
        jar
    }

    /// Value of the cookie `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Sets a cookie, replacing one of the same name.
    pub fn insert(&mut self, name: &str, value: &str) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => value.clone_into(old),
            None => self.0.push((name.to_owned(), value.to_owned())),
        }
    }

    /// Every cookie, in insertion order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there is no cookie.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The `Cookie` header that sends these cookies; `None` when there are none.
    #[must_use]
    pub fn header_value(&self) -> Option<HeaderValue> {
        if self.0.is_empty() {
            return None;
        }
        let mut text = String::with_capacity(64 * self.0.len());
        for (name, value) in &self.0 {
            if !text.is_empty() {
                text.push_str("; ");
            }
            text.push_str(name);
            text.push('=');
            text.push_str(value);
        }
        HeaderValue::try_from(text).ok()
    }
}

/// The `Set-Cookie` header that gives a cookie to the caller with the attributes of a session.
#[must_use]
pub fn set_cookie_value(name: &str, value: &str) -> Option<HeaderValue> {
    const ATTRIBUTES: &str = "; path=/; Max-Age=1209600; httponly; samesite=lax";
    let mut text = String::with_capacity(name.len() + value.len() + ATTRIBUTES.len() + 1);
    text.push_str(name);
    text.push('=');
    text.push_str(value);
    text.push_str(ATTRIBUTES);
    HeaderValue::try_from(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_ids_differ_and_survive_a_round_trip() {
        let first = SessionId::random();
        let second = SessionId::random();
        assert_ne!(first, second);
        assert_eq!(SessionId::parse(first.as_str()), Some(first));
    }

    #[test]
    fn a_foreign_session_value_is_no_session() {
        for text in ["", "abc", "eyJzZXNzaW9uX2lkIjogIjEifQ==.aaaa.bbbb", &"G".repeat(32)] {
            assert_eq!(SessionId::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_last_value_of_a_cookie_wins_and_keeps_its_place() {
        let mut headers = HeaderMap::new();
        headers.append(header::SET_COOKIE, HeaderValue::from_static("a=1; path=/; httponly"));
        headers.append(header::SET_COOKIE, HeaderValue::from_static("b=2"));
        headers.append(header::SET_COOKIE, HeaderValue::from_static("a=3; Max-Age=9"));
        let jar = CookieJar::from_set_cookie(&headers);
        assert_eq!(jar.header_value().expect("cookies"), "a=3; b=2");
    }
}
