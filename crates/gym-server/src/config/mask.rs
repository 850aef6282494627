//! What is never printed.

use serde_json::Value;

const MASK: &str = "****";
const SECRET_WORDS: [&str; 6] = ["token", "key", "secret", "password", "authorization", "headers"];

/// The value with every secret replaced by `****`.
///
/// A secret is every leaf under a key that contains `token`, `key`, `secret`, `password`,
/// `authorization` or `headers`, and the password in a URL. Null, booleans and the empty string
/// stay: they show that a secret is missing and give nothing away.
#[must_use]
pub fn masked(value: &Value) -> Value {
    mask(value, false)
}

fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| key.contains(word))
}

fn mask(value: &Value, secret: bool) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), mask(value, secret || is_secret(key))))
            .collect(),
        Value::Array(items) => items.iter().map(|item| mask(item, secret)).collect(),
        Value::String(text) if text.is_empty() => value.clone(),
        Value::String(_) | Value::Number(_) if secret => MASK.into(),
        Value::String(text) => mask_url(text).map_or_else(|| value.clone(), Value::String),
        other => other.clone(),
    }
}

/// The text with the password of `scheme://user:password@host` masked.
fn mask_url(text: &str) -> Option<String> {
    let start = text.find("://")? + 3;
    let authority = text[start..].split(['/', '?', '#']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    let (name, _) = user.split_once(':')?;
    let rest = &text[start + user.len()..];
    Some(format!("{}{name}:{MASK}{rest}", &text[..start]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn no_secret_is_left_and_nothing_else_is_hidden() {
        let shown = masked(&json!({
            "policy_api_key": "k", "hf_token": "t", "API_KEY": 1234, "unset_key": null, "empty_key": "",
            "token_id_capture": {"enabled": true, "dir": "/tmp"},
            "list_of_keys": ["a"], "otlp_headers": "x-auth=1", "openai_default_headers": {"a": "b"},
            "policy_base_url": "http://u:pw@h:1/v1", "url": "http://h/a@b:c", "name": "plain", "port": 1,
        }));
        assert_eq!(
            shown,
            json!({
                "policy_api_key": "****", "hf_token": "****", "API_KEY": "****", "unset_key": null, "empty_key": "",
                "token_id_capture": {"enabled": true, "dir": "****"},
                "list_of_keys": ["****"], "otlp_headers": "****", "openai_default_headers": {"a": "****"},
                "policy_base_url": "http://u:****@h:1/v1", "url": "http://h/a@b:c", "name": "plain", "port": 1,
            })
        );
    }
}
