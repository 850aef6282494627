//! A Responses request as a chat request.

use std::borrow::Cow;

use gym_server::api::{CreateParams, Field, Item, ItemKind, Object, items, json};

/// Why a request has no chat form.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ToChatError {
    #[error("items of type {0:?} are not supported by chat completions")]
    Item(String),
    #[error("content parts of type {0:?} are not supported by chat completions")]
    Part(String),
    #[error("the output of a tool may only hold input_text parts, not {0:?}")]
    OutputPart(String),
    #[error("tools of type {0:?} are not supported by chat completions")]
    Tool(String),
    #[error("the description of tool {0:?} is null")]
    NullDescription(String),
    #[error("tool_choice is `required`, but there are no tools")]
    RequiredWithoutTools,
    #[error("tool_choice must be a string for chat completions")]
    ToolChoiceObject,
}

/// Parameters that keep their name.
const SAME_NAME: [(Field, &str); 8] = [
    (Field::Temperature, "temperature"),
    (Field::TopP, "top_p"),
    (Field::Metadata, "metadata"),
    (Field::Store, "store"),
    (Field::User, "user"),
    (Field::ServiceTier, "service_tier"),
    (Field::TopLogprobs, "top_logprobs"),
    (Field::Model, "model"),
];

/// Converts a request.
pub fn to_chat<'a>(params: &'a CreateParams<'_>) -> Result<Object<'a>, ToChatError> {
    let mut body = Object::default();
    body.set("messages", text(messages(params)?));
    for (field, name) in SAME_NAME {
        if let Some(raw) = params.get(field) {
            body.set(name, raw);
        }
    }
    if let Some(raw) = params.get(Field::MaxOutputTokens) {
        body.set("max_tokens", raw);
    }
    if let Some(effort) = params
        .set(Field::Reasoning)
        .and_then(|raw| json::member(raw, "effort"))
        .filter(|raw| !json::is_null(raw))
    {
        body.set("reasoning_effort", effort);
    }
    let tools = tools(params.or_default(Field::Tools))?;
    let choice = params.get(Field::ToolChoice);
    if tools.len() <= 2 {
        if choice == Some("\"required\"") {
            return Err(ToChatError::RequiredWithoutTools);
        }
    } else {
        body.set("tools", text(tools));
        if let Some(choice) = choice {
            if json::kind(choice) != json::Kind::String {
                return Err(ToChatError::ToolChoiceObject);
            }
            body.set("tool_choice", choice);
        }
        if let Some(raw) = params.get(Field::ParallelToolCalls) {
            body.set("parallel_tool_calls", raw);
        }
    }
    Ok(body)
}

fn text(bytes: Vec<u8>) -> String {
    // What is put together here comes from checked text.
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn tools(raw: &str) -> Result<Vec<u8>, ToChatError> {
    let mut out = vec![b'['];
    for tool in json::elements(raw).into_iter().flatten().flatten() {
        let kind = json::member(tool, "type").and_then(json::string).unwrap_or_default();
        if kind != "function" {
            return Err(ToChatError::Tool(kind.into_owned()));
        }
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"type\":\"function\",\"function\":{");
        for (key, value) in json::members(tool).into_iter().flatten().flatten() {
            match &*key {
                "type" | "strict" => {}
                "description" if json::is_null(value) => {
                    let name =
                        json::member(tool, "name").and_then(json::string).unwrap_or_default();
                    return Err(ToChatError::NullDescription(name.into_owned()));
                }
                _ => json::write_member(&mut out, &key, value),
            }
        }
        out.extend_from_slice(b"}}");
    }
    out.push(b']');
    Ok(out)
}

/// Messages so far, and the assistant message that is still growing.
#[derive(Default)]
struct Conversation {
    out: Vec<u8>,
    content: String,
    calls: Vec<u8>,
    is_open: bool,
}

fn messages(params: &CreateParams<'_>) -> Result<Vec<u8>, ToChatError> {
    let input = params.or_default(Field::Input);
    let mut conversation = Conversation { out: vec![b'['], ..Conversation::default() };
    let instructions =
        params.set(Field::Instructions).and_then(json::string).filter(|text| !text.is_empty());
    let mut leading = 0;
    if let Some(instructions) = instructions {
        let texts: Vec<String> =
            items(input).take_while(is_instruction).map(|item| joined_text(&item)).collect();
        leading = texts.len();
        let all: Vec<&str> =
            std::iter::once(&*instructions).chain(texts.iter().map(String::as_str)).collect();
        conversation.open_message("system");
        json::write_string(&mut conversation.out, &all.join("\n\n"));
        conversation.out.push(b'}');
    }
    if json::kind(input) == json::Kind::String {
        conversation.open_message("user");
        conversation.out.extend_from_slice(b"[{\"type\":\"text\",\"text\":");
        conversation.out.extend_from_slice(input.as_bytes());
        conversation.out.extend_from_slice(b"}]}");
    }
    for item in items(input).skip(leading) {
        conversation.add(&item)?;
    }
    conversation.flush();
    conversation.out.push(b']');
    Ok(conversation.out)
}

fn is_instruction(item: &Item<'_>) -> bool {
    item.kind == ItemKind::Message && matches!(&*item.role, "system" | "developer")
}

fn joined_text(item: &Item<'_>) -> String {
    let content = item.content.unwrap_or("\"\"");
    match json::string(content) {
        Some(text) => text.into_owned(),
        None => parts(content)
            .filter_map(|part| json::member(part, "text").and_then(json::string))
            .collect(),
    }
}

fn parts(content: &str) -> impl Iterator<Item = &str> {
    json::elements(content).into_iter().flatten().flatten()
}

fn part_type(part: &str) -> Cow<'_, str> {
    json::member(part, "type").and_then(json::string).unwrap_or_default()
}

impl Conversation {
    fn add(&mut self, item: &Item<'_>) -> Result<(), ToChatError> {
        match (item.kind, &*item.role) {
            (ItemKind::Message, "assistant") => self.add_assistant(item),
            (ItemKind::Message, "tool") => {
                self.flush();
                self.open_message("tool");
                self.out.extend_from_slice(item.content.unwrap_or("\"\"").as_bytes());
                self.out.extend_from_slice(b",\"tool_call_id\":");
                self.out.extend_from_slice(item.tool_call_id.unwrap_or("\"\"").as_bytes());
                self.out.push(b'}');
                Ok(())
            }
            (ItemKind::Message, _) => self.add_message(item),
            (ItemKind::Reasoning, _) => {
                for summary in item.content.into_iter().flat_map(parts) {
                    let text =
                        json::member(summary, "text").and_then(json::string).unwrap_or_default();
                    if !text.is_empty() {
                        self.is_open = true;
                        self.content.push_str("<think>");
                        self.content.push_str(&text);
                        self.content.push_str("</think>");
                    }
                }
                Ok(())
            }
            (ItemKind::FunctionCall, _) => {
                self.add_call(item);
                Ok(())
            }
            (ItemKind::FunctionCallOutput, _) => self.add_output(item),
            (ItemKind::Other, _) => Err(ToChatError::Item(item.item_type.to_string())),
        }
    }

    fn open_message(&mut self, role: &str) {
        if self.out.len() > 1 {
            self.out.push(b',');
        }
        self.out.extend_from_slice(b"{\"role\":");
        json::write_string(&mut self.out, role);
        self.out.extend_from_slice(b",\"content\":");
    }

    fn add_message(&mut self, item: &Item<'_>) -> Result<(), ToChatError> {
        self.flush();
        self.open_message(&item.role);
        let content = item.content.unwrap_or("\"\"");
        if json::kind(content) != json::Kind::Array {
            self.out.extend_from_slice(content.as_bytes());
            self.out.push(b'}');
            return Ok(());
        }
        self.out.push(b'[');
        for (at, part) in parts(content).enumerate() {
            if at > 0 {
                self.out.push(b',');
            }
            self.add_part(part)?;
        }
        self.out.extend_from_slice(b"]}");
        Ok(())
    }

    fn add_part(&mut self, part: &str) -> Result<(), ToChatError> {
        let member = |name| json::member(part, name).filter(|raw| !json::is_null(raw));
        let out = &mut self.out;
        match &*part_type(part) {
            "input_text" => {
                out.extend_from_slice(b"{\"type\":\"text\",\"text\":");
                out.extend_from_slice(member("text").unwrap_or("\"\"").as_bytes());
                out.push(b'}');
            }
            "input_image" => {
                out.extend_from_slice(b"{\"type\":\"image_url\",\"image_url\":{\"url\":");
                out.extend_from_slice(member("image_url").unwrap_or("null").as_bytes());
                out.extend_from_slice(b",\"detail\":");
                out.extend_from_slice(member("detail").unwrap_or("\"auto\"").as_bytes());
                out.extend_from_slice(b"}}");
            }
            "input_video" => {
                let video = member("video_url").or(member("video")).unwrap_or("null");
                let url = if json::kind(video) == json::Kind::Object {
                    json::member(video, "url").unwrap_or("null")
                } else {
                    video
                };
                out.extend_from_slice(b"{\"type\":\"video_url\",\"video_url\":{\"url\":");
                out.extend_from_slice(url.as_bytes());
                out.extend_from_slice(b"}}");
            }
            other => return Err(ToChatError::Part(other.to_owned())),
        }
        Ok(())
    }

    fn add_assistant(&mut self, item: &Item<'_>) -> Result<(), ToChatError> {
        self.is_open = true;
        if let Some(text) = item.content.and_then(json::string) {
            self.content.push_str(&text);
        }
        for part in item.content.into_iter().flat_map(parts) {
            let name = match &*part_type(part) {
                "output_text" | "input_text" | "text" => "text",
                "refusal" => "refusal",
                other => return Err(ToChatError::Part(other.to_owned())),
            };
            self.content
                .push_str(&json::member(part, name).and_then(json::string).unwrap_or_default());
        }
        for call in item.tool_calls.into_iter().flat_map(parts) {
            self.separate_call();
            self.calls.extend_from_slice(call.as_bytes());
        }
        Ok(())
    }

    fn separate_call(&mut self) {
        if !self.calls.is_empty() {
            self.calls.push(b',');
        }
    }

    fn add_call(&mut self, item: &Item<'_>) {
        self.is_open = true;
        self.separate_call();
        let out = &mut self.calls;
        out.extend_from_slice(b"{\"id\":");
        json::write_string(out, &item.call_id);
        out.extend_from_slice(b",\"type\":\"function\",\"function\":{\"name\":");
        json::write_string(out, &item.name);
        out.extend_from_slice(b",\"arguments\":");
        json::write_string(out, &item.arguments);
        out.extend_from_slice(b"}}");
    }

    fn add_output(&mut self, item: &Item<'_>) -> Result<(), ToChatError> {
        self.flush();
        self.open_message("tool");
        let output = item.content.unwrap_or("\"\"");
        if json::kind(output) == json::Kind::Array {
            if let Some(part) = parts(output).find(|part| part_type(part) != "input_text") {
                return Err(ToChatError::OutputPart(part_type(part).into_owned()));
            }
            self.out.push(b'[');
            for (at, part) in parts(output).enumerate() {
                if at > 0 {
                    self.out.push(b',');
                }
                self.add_part(part)?;
            }
            self.out.push(b']');
        } else {
            self.out.extend_from_slice(output.as_bytes());
        }
        self.out.extend_from_slice(b",\"tool_call_id\":");
        json::write_string(&mut self.out, &item.call_id);
        self.out.push(b'}');
        Ok(())
    }

    /// Ends the assistant message.
    fn flush(&mut self) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        self.open_message("assistant");
        let content = std::mem::take(&mut self.content);
        match content.as_str() {
            "" => self.out.extend_from_slice(b"null"),
            text => json::write_string(&mut self.out, text),
        }
        let calls = std::mem::take(&mut self.calls);
        if !calls.is_empty() {
            self.out.extend_from_slice(b",\"tool_calls\":[");
            self.out.extend_from_slice(&calls);
            self.out.push(b']');
        }
        self.out.push(b'}');
    }
}
