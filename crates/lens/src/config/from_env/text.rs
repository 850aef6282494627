//! Texts of variables, read: booleans, pairs, headers.

/// A boolean in any of the accepted spellings: `1 true yes on` and `0 false no off`, any case.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// What [`parse_resource_attributes`] takes.
pub const RESOURCE_ATTRIBUTES_EXPECTED: &str =
    "key=value,… with both percent-encoded; one pair that is not discards all";

/// `key=value,…` with percent-encoded keys and values, as in `OTEL_RESOURCE_ATTRIBUTES`; later pairs of a key win.
///
/// `None` when any part is malformed: the specification discards the variable then.
pub fn parse_resource_attributes(text: &str) -> Option<Vec<(String, String)>> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=')?;
        let (key, value) = (strictly_decoded(key.trim())?, strictly_decoded(value.trim())?);
        if key.is_empty() {
            return None;
        }
        pairs.retain(|(known, _)| *known != key);
        pairs.push((key, value));
    }
    Some(pairs)
}

/// The decoded text; `None` when an escape is none, or when it is no UTF-8.
fn strictly_decoded(text: &str) -> Option<String> {
    let is_escape = |rest: &str| {
        rest.as_bytes().get(..2).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(is_escape) {
        return None;
    }
    let decoded = percent_decode(text);
    // What is no UTF-8 comes back as it was.
    (decoded != text || !text.contains('%')).then_some(decoded)
}

/// `key=value,…` with percent-encoded values; malformed pairs are skipped.
fn parse_key_values(text: &str) -> Vec<(String, String)> {
    text.split(',')
        .filter_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            let key = key.trim();
            (!key.is_empty()).then(|| (key.to_owned(), percent_decode(value.trim())))
        })
        .collect()
}

/// `key=value,…` as in `OTEL_EXPORTER_OTLP_HEADERS`; names in lower case.
pub fn parse_headers(text: &str) -> Vec<(String, String)> {
    let mut headers = parse_key_values(text);
    for (name, _) in &mut headers {
        name.make_ascii_lowercase();
    }
    headers
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| bytes.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .filter(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match escaped {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}
