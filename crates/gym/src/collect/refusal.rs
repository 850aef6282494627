//! What the body of a failed reply says, without its wrappings.
//!
//! A server that fails because a server behind it failed quotes the whole inner body as Python shows bytes, and so does
//! every server before it. People want the innermost message and the server that met it.

use super::reply::quoted;

const BEFORE_SERVER: &str = "Hit an exception in ";
const AFTER_SERVER: &str = " calling an inner server: ";
/// No chain of servers is as long; a body that says so is quoted as it is from there.
const DEEPEST: usize = 16;

/// The innermost message of a failed reply, and who met it.
pub fn told(body: &[u8]) -> String {
    let mut inner = body.to_vec();
    let mut server = None;
    for _ in 0..DEEPEST {
        let Ok(text) = serde_json::from_slice::<String>(&inner) else { break };
        let Some((name, bytes)) = wrapped(&text) else {
            inner = text.into_bytes();
            break;
        };
        server = Some(name.to_owned());
        inner = bytes;
    }
    match server {
        None => quoted(&inner),
        Some(server) if inner.trim_ascii().is_empty() => {
            format!("a call by {server} failed without a message")
        }
        Some(server) => format!("a call by {server} failed: {}", quoted(&inner)),
    }
}

/// The server that wraps, and the body that it wraps.
fn wrapped(text: &str) -> Option<(&str, Vec<u8>)> {
    let (server, literal) = text.strip_prefix(BEFORE_SERVER)?.split_once(AFTER_SERVER)?;
    Some((server, unquoted(literal)?))
}

/// The bytes that a Python literal `b'…'` stands for.
fn unquoted(literal: &str) -> Option<Vec<u8>> {
    let literal = literal.strip_prefix('b')?;
    let quote = literal.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
    let mut rest = literal.strip_prefix(quote)?.strip_suffix(quote)?.bytes();
    let mut bytes = Vec::with_capacity(literal.len());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'x' => {
                    let digits = [rest.next()?, rest.next()?];
                    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
                }
                escaped => escaped,
            },
            plain => plain,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_found_below_the_quotes_of_every_server_before_it() {
        let body = br#""Hit an exception in agent___a calling an inner server: b'\"Hit an exception in vllm_model___policy_model calling an inner server: b\\'{\\\\\"error\\\\\":{\\\\\"message\\\\\":\\\\\"it\\\\\\\\\\'s busy \\\\\\\\xc3\\\\\\\\xa9\\\\\"}}\\'\"'""#;
        insta::assert_snapshot!(told(body), @r#"a call by vllm_model___policy_model failed: {"error":{"message":"it's busy é"}}"#);
    }

    #[test]
    fn what_is_not_wrapped_is_quoted_as_it_is() {
        assert_eq!(told(br#"{"detail":"Not Found"}"#), r#"{"detail":"Not Found"}"#);
        assert_eq!(told(br#""ValueError('no')""#), "ValueError('no')");
        assert_eq!(told(b"<html>"), "<html>");
        let broken = br#""Hit an exception in a calling an inner server: b'\\""#;
        assert_eq!(told(broken), r"Hit an exception in a calling an inner server: b'\");
    }

    #[test]
    fn an_empty_inner_body_is_said_to_be_empty() {
        let body = br#""Hit an exception in a calling an inner server: b''""#;
        assert_eq!(told(body), "a call by a failed without a message");
    }
}
