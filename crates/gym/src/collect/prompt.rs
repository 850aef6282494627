//! Prompt configs: `{user, system?}` templates filled from the members of a row, as Python's `str.format_map` does.

use serde_json::Value;

use super::members::{Members, push_json_string};

/// Templates of one prompt config.
#[derive(Debug, Clone)]
pub struct Prompt {
    system: Option<Template>,
    user: Template,
}

impl Prompt {
    /// Reads the parsed YAML of a prompt config. The error says what is wrong with it.
    pub fn from_value(value: &Value) -> Result<Prompt, String> {
        let map =
            value.as_object().ok_or("expected a mapping with `user` and optionally `system`")?;
        let template = |key: &str| match map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => {
                Template::parse(text).map(Some).map_err(|reason| format!("`{key}`: {reason}"))
            }
            Some(_) => Err(format!("`{key}` must be text")),
        };
        let user = template("user")?.ok_or("`user` is missing")?;
        Ok(Prompt { system: template("system")?, user })
    }

    /// The messages for a row, as a JSON array. The error says which field is missing.
    pub fn messages(&self, row: &Members) -> Result<String, String> {
        let mut out = b"[".to_vec();
        let templates = [("system", self.system.as_ref()), ("user", Some(&self.user))];
        for (role, template) in
            templates.into_iter().filter_map(|(role, template)| Some((role, template?)))
        {
            if out.len() > 1 {
                out.push(b',');
            }
            out.extend_from_slice(format!("{{\"role\":\"{role}\",\"content\":").as_bytes());
            push_json_string(&template.fill(row)?, &mut out);
            out.push(b'}');
        }
        out.push(b']');
        Ok(String::from_utf8(out).expect("JSON strings are text"))
    }
}

#[derive(Debug, Clone)]
struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Text(String),
    Field { name: String, path: Vec<String>, repr: bool },
}

impl Template {
    fn parse(text: &str) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            let behind = &rest[at + 1..];
            if behind.starts_with(brace) {
                literal.push_str(brace);
                rest = &behind[1..];
            } else if brace == "}" {
                return Err("a single `}`; write `}}` for a literal brace".to_owned());
            } else {
                let end = behind
                    .find('}')
                    .ok_or("a `{` without its `}`; write `{{` for a literal brace")?;
                if !literal.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut literal)));
                }
                pieces.push(field(&behind[..end])?);
                rest = &behind[end + 1..];
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Ok(Template(pieces))
    }

    fn fill(&self, row: &Members) -> Result<String, String> {
        let mut out = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Field { name, path, repr } => {
                    let text = row.get(name).ok_or_else(|| {
                        let fields: Vec<&str> = row.iter().map(|(name, _)| name).collect();
                        format!(
                            "the prompt refers to `{name}`, the row has only: {}",
                            fields.join(", ")
                        )
                    })?;
                    let mut value: Value =
                        serde_json::from_str(text).map_err(|error| error.to_string())?;
                    for key in path {
                        value = step(&value, key).ok_or_else(|| {
                            format!("the prompt refers to `{name}[{key}]`, which the row lacks")
                        })?;
                    }
                    match value {
                        Value::String(text) if !repr => out.push_str(&text),
                        value => python_repr(&value, &mut out),
                    }
                }
            }
        }
        Ok(out)
    }
}

fn step(value: &Value, key: &str) -> Option<Value> {
    match value {
        Value::Object(map) => map.get(key).cloned(),
        Value::Array(items) => items.get(key.parse::<usize>().ok()?).cloned(),
        _ => None,
    }
}

/// The inside of one replacement field: `name`, `name[key]…`, `!s` or `!r`.
fn field(inside: &str) -> Result<Piece, String> {
    let (reference, repr) = match inside.split_once('!') {
        None => (inside, false),
        Some((reference, "s")) => (reference, false),
        Some((reference, "r")) => (reference, true),
        Some((_, conversion)) => {
            return Err(format!("`{{{inside}}}`: conversion `!{conversion}` is not supported"));
        }
    };
    if reference.contains(':') {
        return Err(format!("`{{{inside}}}`: format specifications are not supported"));
    }
    let (name, indexes) = reference.split_at(reference.find('[').unwrap_or(reference.len()));
    if name.is_empty() || name.contains('.') {
        return Err(format!(
            "`{{{inside}}}` must name a field of the row; write `{{{{` for a literal brace"
        ));
    }
    let mut path = Vec::new();
    let mut rest = indexes;
    while let Some(behind) = rest.strip_prefix('[') {
        let end =
            behind.find(']').ok_or_else(|| format!("`{{{inside}}}`: a `[` without its `]`"))?;
        path.push(behind[..end].to_owned());
        rest = &behind[end + 1..];
    }
    if !rest.is_empty() {
        return Err(format!("`{{{inside}}}`: unexpected `{rest}`"));
    }
    Ok(Piece::Field { name: name.to_owned(), path, repr })
}

/// A value as Python prints it inside a container.
fn python_repr(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Number(number) => out.push_str(&number.to_string()),
        Value::String(text) => python_string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                python_repr(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (index, (key, item)) in map.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                python_string(key, out);
                out.push_str(": ");
                python_repr(item, out);
            }
            out.push('}');
        }
    }
}

fn python_string(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push(quote);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fill(template: &str, row: &str) -> Result<String, String> {
        Template::parse(template)?.fill(&Members::parse(row).unwrap())
    }

    #[test]
    fn fields_are_filled_from_the_row_and_doubled_braces_are_literal() {
        assert_eq!(fill("Q: {q} {{x}}", r#"{"q":"why?"}"#).unwrap(), "Q: why? {x}");
        assert_eq!(fill("{o[A]}/{l[1]}", r#"{"o":{"A":"one"},"l":[0,"two"]}"#).unwrap(), "one/two");
    }

    #[test]
    fn other_values_look_as_in_python() {
        let row = r#"{"v":[1,true,null,"it's",{"a":1.5}]}"#;
        assert_eq!(fill("{v}", row).unwrap(), r#"[1, True, None, "it's", {'a': 1.5}]"#);
        assert_eq!(fill("{v!r}", r#"{"v":"a\nb"}"#).unwrap(), r"'a\nb'");
    }

    #[test]
    fn a_missing_field_is_named_with_those_that_exist() {
        assert_eq!(
            fill("{answer}", r#"{"q":1,"id":2}"#).unwrap_err(),
            "the prompt refers to `answer`, the row has only: q, id"
        );
    }

    #[test]
    fn bad_templates_are_refused() {
        for template in ["{", "}", "{}", "{a:>3}", "{a!x}", "{a.b}", "{a[b}"] {
            assert!(Template::parse(template).is_err(), "{template}");
        }
    }

    #[test]
    fn the_messages_are_system_then_user() {
        let prompt = Prompt::from_value(&json!({"user": "{q}", "system": "be brief"})).unwrap();
        let row = Members::parse(r#"{"q":"say \"hi\""}"#).unwrap();
        assert_eq!(
            prompt.messages(&row).unwrap(),
            r#"[{"role":"system","content":"be brief"},{"role":"user","content":"say \"hi\""}]"#
        );
        assert_eq!(Prompt::from_value(&json!({"system": "x"})).unwrap_err(), "`user` is missing");
    }
}
