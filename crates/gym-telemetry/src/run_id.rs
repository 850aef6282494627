//! The id that every process of a fleet shares.

use std::{
    collections::hash_map::RandomState,
    fmt,
    hash::{BuildHasher, Hasher},
};

/// Id of a fleet; never blank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunId(String);

impl RunId {
    /// Takes an id that somebody gave; blank is none.
    pub fn new(text: &str) -> Option<RunId> {
        let text = text.trim();
        (!text.is_empty()).then(|| RunId(text.to_owned()))
    }

    /// Makes an id: 12 hex digits.
    pub fn generate() -> RunId {
        // Two independently keyed hashers of the standard library: no seed of the program's own
        // generators can make two fleets share an id.
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        hasher.write_u64(RandomState::new().build_hasher().finish());
        RunId(format!("{:012x}", hasher.finish() & 0xffff_ffff_ffff))
    }

    /// The id's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for RunId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ids_are_twelve_hex_digits_and_differ() {
        let (a, b) = (RunId::generate(), RunId::generate());
        for id in [&a, &b] {
            assert_eq!(id.as_str().len(), 12);
            assert!(id.as_str().bytes().all(|b| b.is_ascii_hexdigit()));
        }
        assert_ne!(a, b);
    }

    #[test]
    fn a_blank_id_is_none() {
        assert_eq!(RunId::new(" \t"), None);
        assert_eq!(RunId::new(" night-7 ").unwrap().as_str(), "night-7");
    }
}
