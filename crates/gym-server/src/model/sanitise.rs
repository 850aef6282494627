//! Making a streaming client's request acceptable: what such clients send beyond the schema is mapped or dropped.

use serde_json::{Map, Value};

use super::PrepareError;
use crate::api::{Field, Rejection, is_valid_item, is_valid_tool, json};

/// Flat function names and what they were made of, to be split again in the reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespaces(Vec<(String, String, String)>);

impl Namespaces {
    /// Namespace and name of a flattened function.
    pub fn split(&self, flat: &str) -> Option<(&str, &str)> {
        self.0
            .iter()
            .find(|(name, ..)| name == flat)
            .map(|(_, namespace, name)| (namespace.as_str(), name.as_str()))
    }

    /// Whether nothing was flattened.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The body without what the schema does not know.
pub(super) fn responses(body: &[u8]) -> Result<(Vec<u8>, Namespaces), PrepareError> {
    let text = std::str::from_utf8(body).map_err(|_| Rejection::NotUtf8)?;
    json::document(text).map_err(|fault| Rejection::not_json(text, fault))?;
    let Ok(Value::Object(mut object)) = serde_json::from_str(text) else {
        return Err(Rejection::not_an_object(text).into());
    };
    object.remove("stream");
    let mut namespaces = Namespaces::default();
    let mut tools = match object.remove("tools") {
        Some(Value::Array(tools)) => tools,
        _ => Vec::new(),
    };
    if let Some(Value::Array(items)) = object.get_mut("input") {
        tools.extend(hoist_tools(items));
    }
    let tools = keep_tools(tools, &mut namespaces);
    match object.remove("input") {
        Some(Value::Array(items)) => {
            let (items, folded) = fold_leading_instructions(keep_items(items));
            object.insert("input".into(), Value::Array(items));
            add_instructions(&mut object, &folded);
        }
        Some(input) => {
            object.insert("input".into(), input);
        }
        None => {}
    }
    if !tools.is_empty() {
        object.insert("tools".into(), Value::Array(tools));
    }
    object.retain(|key, _| Field::is_known(key));
    let body = serde_json::to_vec(&object)
        .map_err(|error| PrepareError::Unsupported(error.to_string()))?;
    Ok((body, namespaces))
}

/// Takes `additional_tools` items out of the input and returns their function tools.
fn hoist_tools(items: &mut Vec<Value>) -> Vec<Value> {
    let mut tools = Vec::new();
    items.retain_mut(|item| {
        if item.get("type").and_then(Value::as_str) != Some("additional_tools") {
            return true;
        }
        if let Some(Value::Array(more)) = item.get_mut("tools").map(Value::take) {
            tools.extend(more.into_iter().filter(|tool| {
                matches!(tool.get("type").and_then(Value::as_str), Some("function" | "namespace"))
            }));
        }
        false
    });
    tools
}

fn keep_tools(tools: Vec<Value>, namespaces: &mut Namespaces) -> Vec<Value> {
    let mut kept = Vec::with_capacity(tools.len());
    for tool in tools {
        let name = tool.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_namespace = tool.get("type").and_then(Value::as_str) == Some("namespace");
        match tool {
            Value::Object(mut namespace) if is_namespace => {
                let Some(Value::Array(inner)) = namespace.remove("tools") else { continue };
                for mut function in inner {
                    let Some(sub) = function.get("name").and_then(Value::as_str).map(str::to_owned)
                    else {
                        continue;
                    };
                    let flat = format!("{name}__{sub}");
                    function["name"] = Value::String(flat.clone());
                    if is_valid_tool(&function.to_string()) {
                        namespaces.0.push((flat, name.clone(), sub));
                        kept.push(function);
                    }
                }
            }
            tool => {
                if is_valid_tool(&tool.to_string()) {
                    kept.push(tool);
                }
            }
        }
    }
    kept
}

fn keep_items(items: Vec<Value>) -> Vec<Value> {
    let joined = items.into_iter().map(|mut item| {
        if let Some(call) = item.as_object_mut()
            && let Some(Value::String(namespace)) = call.shift_remove("namespace")
        {
            let name = call.get("name").and_then(Value::as_str).unwrap_or_default();
            call["name"] = Value::String(format!("{namespace}__{name}"));
        }
        item
    });
    joined.filter(|item| is_valid_item(&item.to_string())).collect()
}

/// Takes the leading system and developer messages off and returns their texts.
fn fold_leading_instructions(mut items: Vec<Value>) -> (Vec<Value>, Vec<String>) {
    let is_instruction = |item: &Value| {
        matches!(item.get("role").and_then(Value::as_str), Some("system" | "developer"))
            && matches!(item.get("type").and_then(Value::as_str), None | Some("message"))
    };
    let count = items.iter().take_while(|item| is_instruction(item)).count();
    let texts = items.drain(..count).map(|item| text_of(&item["content"])).collect();
    (items, texts)
}

/// A string, or the texts of parts.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => String::new(),
    }
}

fn add_instructions(object: &mut Map<String, Value>, folded: &[String]) {
    let own = object.get("instructions").and_then(Value::as_str).map(str::to_owned);
    let all: Vec<String> =
        own.into_iter().chain(folded.iter().cloned()).filter(|text| !text.is_empty()).collect();
    if !folded.is_empty() && !all.is_empty() {
        object.insert("instructions".into(), Value::String(all.join("\n\n")));
    }
}
