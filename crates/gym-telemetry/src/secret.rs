//! Values that are used and never shown.
//!
//! A [`Secret`] has no way out but [`Secret::expose`]: `Debug`, `Display` and serde write
//! [`MASK`]. [`masked_url`], [`masked_pairs`] and [`is_secret_key`] are for text that holds a
//! credential somewhere inside.

use std::fmt;

use serde::{Serialize, Serializer};

/// What is written in place of a secret.
pub const MASK: &str = "****";

/// A string that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Secret {
        Secret(value.into())
    }

    /// The value itself, for whoever sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

/// A URL that may carry credentials: shown without them.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// Wraps a URL.
    pub fn new(url: impl Into<String>) -> SecretUrl {
        SecretUrl(url.into())
    }

    /// The URL itself, for whoever connects to it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The URL as somebody else may have it: no credentials before the host, no query.
    pub fn without_credentials(&self) -> String {
        let base = self.0.split('?').next().unwrap_or_default();
        let (scheme, rest) = base.split_once("://").unwrap_or(("", base));
        let authority_len = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(authority_len);
        let host = authority.rsplit('@').next().unwrap_or_default();
        let separator = if scheme.is_empty() { "" } else { "://" };
        format!("{scheme}{separator}{host}{path}")
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&masked_url(&self.0), f)
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&masked_url(&self.0))
    }
}

impl Serialize for SecretUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&masked_url(&self.0))
    }
}

/// Whether a value under this key must not be shown.
pub fn is_secret_key(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["token", "key", "secret", "password", "headers", "authorization"]
        .iter()
        .any(|part| key.contains(part))
}

/// Header names stay, values go: `a=1,b=2` becomes `a=****,b=****`.
pub fn masked_headers(headers: &str) -> String {
    pairs(headers, |_| true)
}

/// Values under secret keys go: `team=a,api_key=b` becomes `team=a,api_key=****`.
pub fn masked_pairs(text: &str) -> String {
    pairs(text, is_secret_key)
}

fn pairs(text: &str, is_secret: impl Fn(&str) -> bool) -> String {
    let mut shown = Vec::new();
    for pair in text.split(',') {
        match pair.split_once('=') {
            Some((key, _)) if is_secret(key) => shown.push(format!("{}={MASK}", key.trim())),
            Some(_) => shown.push(pair.trim().to_owned()),
            // Without `=` nobody can tell a name from a value.
            None if pair.trim().is_empty() => {}
            None => shown.push(MASK.to_owned()),
        }
    }
    shown.join(",")
}

/// Credentials before the host and the whole query go.
pub fn masked_url(url: &str) -> String {
    let (base, query) = match url.split_once('?') {
        Some((base, _)) => (base, "?****"),
        None => (url, ""),
    };
    let (scheme, rest) = match base.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, base),
    };
    let authority_len = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(authority_len);
    let host = match authority.rsplit_once('@') {
        Some((_, host)) => format!("{MASK}@{host}"),
        None => authority.to_owned(),
    };
    match scheme {
        Some(scheme) => format!("{scheme}://{host}{path}{query}"),
        None => format!("{host}{path}{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_shown_by_nothing_but_expose() {
        let secret = Secret::new("x-team=s3cr3t");
        assert_eq!(format!("{secret} {secret:?}"), "**** ****");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"****\"");
        assert_eq!(secret.expose(), "x-team=s3cr3t");
    }

    #[test]
    fn credentials_in_a_url_are_masked() {
        assert_eq!(masked_url("https://u:p@h:4317/x"), "https://****@h:4317/x");
        assert_eq!(masked_url("http://h/x?api_key=1"), "http://h/x?****");
        assert_eq!(masked_url("u:p@h:4317"), "****@h:4317");
        let url = SecretUrl::new("https://u:p@h:4317/x?k=1");
        assert_eq!(url.without_credentials(), "https://h:4317/x");
        assert_eq!(
            format!("{url} {url:?}"),
            "https://****@h:4317/x?**** \"https://****@h:4317/x?****\""
        );
        assert_eq!(masked_url("http://localhost:4317"), "http://localhost:4317");
    }

    #[test]
    fn pairs_keep_their_names() {
        assert_eq!(masked_headers("a=1, b=2=3"), "a=****,b=****");
        assert_eq!(masked_headers("bare-credential"), "****");
        assert_eq!(masked_pairs("team=a,api_key=b"), "team=a,api_key=****");
    }
}
