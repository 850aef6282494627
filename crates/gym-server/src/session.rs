//! Sessions and the cookies that carry them.
//!
//! A session is 128 random bits in a cookie named `<implementation>___<instance>`. The bits
//! cannot be guessed, so the cookie needs no signature; only the server that issued it reads it.
//! Callers replace the cookies of a server with those of its last reply.

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// What spans tell of a session: enough to tell two apart, too little to take one over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionMark(u32);

/// Eight lower-case hex digits.
pub(crate) struct MarkText([u8; 8]);

impl SessionMark {
    pub(crate) fn of(session: &SessionId) -> Self {
        Self((fnv(&session.0) >> 32) as u32)
    }

    pub(crate) fn hex(self) -> MarkText {
        let mut digits = [0; 16];
        write_hex(u64::from(self.0), &mut digits);
        let mut text = [0; 8];
        text.copy_from_slice(&digits[8..]);
        MarkText(text)
    }
}

impl MarkText {
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// FNV-1a: the same in every process, so that marks can be compared.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The session that each rollout was last seen with, of as many rollouts as there are slots.
///
/// Lock-free, so that shards do not wait for each other: a slot is one number, half of it the
/// rollout's and half of it the session's mark. A rollout whose slot another one took is seen as
/// new, so what is told as a change was one.
#[derive(Default)]
pub(crate) struct RolloutSessions(OnceLock<Box<[AtomicU64]>>);

const SLOTS: usize = 1 << 14;

impl RolloutSessions {
    /// The rollout's session begins.
    pub(crate) fn begins(&self, rollout: &str, session: SessionMark) {
        self.put(rollout, session);
    }

    /// Whether the rollout was seen with another session before; it is seen with this one now.
    pub(crate) fn changes(&self, rollout: &str, session: SessionMark) -> bool {
        let (before, now) = self.put(rollout, session);
        before >> 32 == now >> 32 && before != now
    }

    fn put(&self, rollout: &str, session: SessionMark) -> (u64, u64) {
        let hash = fnv(rollout.as_bytes());
        // No slot that is in use holds 0.
        let now = (hash & 0xffff_ffff_0000_0000) | 1 << 32 | u64::from(session.0);
        let slots = self.0.get_or_init(|| (0..SLOTS).map(|_| AtomicU64::new(0)).collect());
        let before = slots[hash as usize % SLOTS].swap(now, Ordering::Relaxed);
        (before, now)
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
    fn the_mark_of_a_session_is_short_and_not_a_part_of_it() {
        let session = SessionId::parse(&"0123456789abcdef".repeat(2)).expect("an id");
        let mark = SessionMark::of(&session);
        assert_eq!(mark, SessionMark::of(&session));
        assert_eq!(mark.hex().as_str().len(), 8);
        assert!(!session.as_str().contains(mark.hex().as_str()));
        assert_ne!(mark, SessionMark::of(&SessionId::random()));
    }

    #[test]
    fn a_rollout_that_is_seen_with_another_session_has_changed_it() {
        let sessions = RolloutSessions::default();
        let [one, two] = [1, 2].map(SessionMark);
        assert!(!sessions.changes("7-0", one), "the first is no change");
        assert!(!sessions.changes("8-0", two), "another rollout has another");
        assert!(!sessions.changes("7-0", one));
        assert!(sessions.changes("7-0", two));
        assert!(!sessions.changes("7-0", two), "told once");
        sessions.begins("7-0", one);
        assert!(!sessions.changes("7-0", one), "a rollout may begin anew");
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
