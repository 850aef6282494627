//! Arguments for a tool, made from its JSON schema.

use gym_server::api::json::trusted::{self, member, pick};
use gym_server::api::json::{self, Kind};

use super::random::Rng;

const WORDS: &[&str] = &["Oslo", "Lima", "Cairo", "Osaka", "Quito", "Tunis", "Perth", "Turin"];

const MAX_DEPTH: u8 = 8;

/// An arguments object that fits `schema`, a part of a checked body, as far as types, enums, bounds and required members go.
pub fn from_schema(schema: &str, rng: &mut Rng) -> String {
    let mut out = Vec::with_capacity(64);
    match member(schema, "properties") {
        Some(_) => value(&mut out, schema, schema, rng, 0),
        None => out.extend_from_slice(b"{}"),
    }
    String::from_utf8(out).unwrap_or_else(|_| "{}".to_owned())
}

fn value(out: &mut Vec<u8>, schema: &str, root: &str, rng: &mut Rng, depth: u8) {
    if depth > MAX_DEPTH {
        out.extend_from_slice(b"null");
        return;
    }
    let [
        constant,
        default,
        options,
        examples,
        reference,
        any_of,
        one_of,
        all_of,
        declared,
        properties,
    ] = pick(
        schema,
        [
            "const",
            "default",
            "enum",
            "examples",
            "$ref",
            "anyOf",
            "oneOf",
            "allOf",
            "type",
            "properties",
        ],
    );
    if let Some(raw) = constant.or(default) {
        return json::write_compact(out, raw);
    }
    for list in [options, examples] {
        if let Some(raw) = list.and_then(|all| one_of_list(all, rng)) {
            return json::write_compact(out, raw);
        }
    }
    if let Some(target) = reference.and_then(json::string) {
        return match resolve(root, &target) {
            Some(target) => value(out, target, root, rng, depth + 1),
            None => out.extend_from_slice(b"null"),
        };
    }
    for union in [any_of, one_of, all_of] {
        if let Some(first) = union.and_then(first_not_null) {
            return value(out, first, root, rng, depth + 1);
        }
    }
    let declared = declared.map(|raw| match json::kind(raw) {
        Kind::Array => trusted::elements(raw)
            .into_iter()
            .flatten()
            .find(|raw| *raw != "\"null\"")
            .unwrap_or("\"null\""),
        _ => raw,
    });
    match declared.and_then(json::string).as_deref() {
        Some("integer") => out.extend_from_slice(integer(schema, rng).to_string().as_bytes()),
        Some("number") => {
            out.extend_from_slice(format!("{:?}", integer(schema, rng) as f64).as_bytes())
        }
        Some("boolean") => {
            out.extend_from_slice(if rng.bits() & 1 == 0 { b"false" } else { b"true" })
        }
        Some("array") => array(out, schema, root, rng, depth),
        Some("null") => out.extend_from_slice(b"null"),
        Some("string") => {
            json::write_string(out, WORDS[rng.between(0, WORDS.len() as i64 - 1) as usize])
        }
        Some("object") => object(out, properties, root, rng, depth),
        _ if properties.is_some() => object(out, properties, root, rng, depth),
        _ => json::write_string(out, WORDS[rng.between(0, WORDS.len() as i64 - 1) as usize]),
    }
}

fn one_of_list<'a>(list: &'a str, rng: &mut Rng) -> Option<&'a str> {
    let count = trusted::elements(list)?.count() as i64;
    if count == 0 {
        return None;
    }
    trusted::elements(list)?.nth(rng.between(0, count - 1) as usize)
}

fn first_not_null(list: &str) -> Option<&str> {
    trusted::elements(list)?.find(|schema| member(schema, "type") != Some("\"null\""))
}

fn resolve<'a>(root: &'a str, target: &str) -> Option<&'a str> {
    target.strip_prefix("#/")?.split('/').try_fold(root, member)
}

fn integer(schema: &str, rng: &mut Rng) -> i64 {
    let [low, above, high, below] =
        pick(schema, ["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"])
            .map(|raw| Some(raw?.parse::<f64>().ok()? as i64));
    let low = low.or_else(|| above.map(|low| low.saturating_add(1)));
    let high = high.or_else(|| below.map(|high| high.saturating_sub(1)));
    let low = low.unwrap_or_else(|| high.map_or(1, |high| high.min(1)));
    rng.between(low, high.unwrap_or_else(|| low.saturating_add(99)))
}

fn array(out: &mut Vec<u8>, schema: &str, root: &str, rng: &mut Rng, depth: u8) {
    let [least, most, items] = pick(schema, ["minItems", "maxItems", "items"]);
    let bound = |raw: Option<&str>| raw.and_then(|raw| raw.parse::<usize>().ok());
    let count = bound(least).unwrap_or(2).min(bound(most).unwrap_or(64)).min(64);
    out.push(b'[');
    for at in 0..count {
        if at > 0 {
            out.push(b',');
        }
        value(out, items.unwrap_or("{}"), root, rng, depth + 1);
    }
    out.push(b']');
}

fn object(out: &mut Vec<u8>, properties: Option<&str>, root: &str, rng: &mut Rng, depth: u8) {
    out.push(b'{');
    for (name, property) in properties.and_then(trusted::members).into_iter().flatten() {
        json::write_key(out, &name);
        value(out, property, root, rng, depth + 1);
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(schema: &str, key: u64) -> serde_json::Value {
        serde_json::from_str(&from_schema(schema, &mut Rng::new(key, 3))).expect("json")
    }

    #[test]
    fn arguments_have_the_types_of_the_schema() {
        let schema = r##"{"type":"object","$defs":{"p":{"type":"object","properties":{"x":{"type":"number"}}}},"properties":{
            "city":{"type":"string"},"days":{"type":"integer","minimum":3,"maximum":5},"unit":{"enum":["c","f"]},"raw":{"type":["null","boolean"]},
            "many":{"type":"array","items":{"type":"integer"},"minItems":3},"point":{"$ref":"#/$defs/p"},"maybe":{"anyOf":[{"type":"null"},{"const":7}]}}}"##;
        for key in 0..50 {
            let made = made(schema, key);
            assert!(
                made["city"].is_string() && made["raw"].is_boolean() && made["point"]["x"].is_f64(),
                "{made}"
            );
            assert!((3..=5).contains(&made["days"].as_i64().expect("days")));
            assert!(made["unit"] == "c" || made["unit"] == "f");
            assert!(
                made["many"].as_array().is_some_and(
                    |many| many.len() == 3 && many.iter().all(serde_json::Value::is_i64)
                )
            );
            assert_eq!(made["maybe"], 7);
        }
    }

    #[test]
    fn the_same_key_gives_the_same_arguments() {
        let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}}}"#;
        assert_eq!(made(schema, 1), made(schema, 1));
        assert!((0..20).any(|key| made(schema, key) != made(schema, 1)));
    }

    #[test]
    fn a_schema_without_properties_or_one_that_contains_itself_ends() {
        assert_eq!(made("null", 0), serde_json::json!({}));
        assert_eq!(made(r#"{"type":"object"}"#, 0), serde_json::json!({}));
        made(r##"{"type":"object","properties":{"next":{"$ref":"#"}}}"##, 0);
    }
}
