//! The items of `input` and `output`: what an agent or a converter needs of each, and whether it is well formed.

use std::borrow::Cow;

use super::check::{self, Shape};
use super::detail::{Detail, Loc};
use super::json::{self, Cursor, Kind, kind, trusted};

/// The union of item types in the words of a 422 reply.
pub(super) const UNION: &str = "list[union[EasyInputMessage,Message,ResponseOutputMessage,ResponseFunctionToolCall,\
                                FunctionCallOutput,ResponseReasoningItem]]";

const ROLES: &[&str] = &["user", "assistant", "system", "developer"];

/// Item types that are carried through unread.
const HOSTED: &[&str] = &[
    "mcp_call",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
    "file_search_call",
    "web_search_call",
    "computer_call",
    "computer_call_output",
    "image_generation_call",
    "code_interpreter_call",
    "local_shell_call",
    "local_shell_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "item_reference",
];

/// What an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemKind {
    /// A message; `type` may be absent when there is a `role`.
    Message,
    /// A call of a tool by the model.
    FunctionCall,
    /// The result of such a call.
    FunctionCallOutput,
    /// Reasoning of the model.
    Reasoning,
    /// Anything else.
    Other,
}

/// One item, as slices of the body it came in. Strings are decoded, the rest is JSON text.
#[derive(Debug, Clone)]
pub struct Item<'a> {
    /// What it is.
    pub kind: ItemKind,
    /// The whole item.
    pub raw: &'a str,
    /// `type`, empty when absent.
    pub item_type: Cow<'a, str>,
    /// `role`, empty when absent.
    pub role: Cow<'a, str>,
    /// `name` of a function call, empty when absent.
    pub name: Cow<'a, str>,
    /// `call_id`, empty when absent.
    pub call_id: Cow<'a, str>,
    /// `arguments` of a function call: JSON text as the model wrote it, empty when absent.
    pub arguments: Cow<'a, str>,
    /// `content`, `output` or `summary`, as JSON text.
    pub content: Option<&'a str>,
    /// `tool_calls` of a chat-shaped assistant message, as JSON text.
    pub tool_calls: Option<&'a str>,
    /// `tool_call_id` of a chat-shaped tool message.
    pub tool_call_id: Option<&'a str>,
}

impl<'a> Item<'a> {
    /// Reads an item of a body that was checked; `None` when it is not an object.
    pub fn parse(raw: &'a str) -> Option<Self> {
        trusted::members(raw).map(|mut members| Item { raw, ..Self::read(&mut members) })
    }

    /// Reads all but `raw`.
    fn read(members: &mut trusted::Members<'a>) -> Self {
        let mut item = Item {
            kind: ItemKind::Other,
            raw: "",
            item_type: Cow::Borrowed(""),
            role: Cow::Borrowed(""),
            name: Cow::Borrowed(""),
            call_id: Cow::Borrowed(""),
            arguments: Cow::Borrowed(""),
            content: None,
            tool_calls: None,
            tool_call_id: None,
        };
        for (key, value) in members {
            let text = || json::string(value).unwrap_or_default();
            match &*key {
                "type" => item.item_type = text(),
                "role" => item.role = text(),
                "name" => item.name = text(),
                "call_id" => item.call_id = text(),
                "arguments" => item.arguments = text(),
                "output" | "summary" => item.content = Some(value),
                // A reasoning item has both `summary` and, mostly null, `content`: the summary counts.
                "content" => item.content = item.content.or(Some(value)),
                "tool_calls" => item.tool_calls = Some(value),
                "tool_call_id" => item.tool_call_id = Some(value),
                _ => {}
            }
        }
        item.kind = match &*item.item_type {
            "message" => ItemKind::Message,
            "" if !item.role.is_empty() => ItemKind::Message,
            "function_call" => ItemKind::FunctionCall,
            "function_call_output" => ItemKind::FunctionCallOutput,
            "reasoning" => ItemKind::Reasoning,
            _ => ItemKind::Other,
        };
        item
    }

    /// Whether this is a message of the assistant.
    pub fn is_assistant_message(&self) -> bool {
        self.kind == ItemKind::Message && self.role == "assistant"
    }
}

/// The items of an `input` or `output` list of a body that was checked (nothing for a string or anything else).
pub fn items(list: &str) -> impl Iterator<Item = Item<'_>> {
    trusted::objects(list, Item::read).map(|(raw, item)| Item { raw, ..item })
}

/// The text of all `output_text` parts of all messages of an `output` list.
pub fn output_text(list: &str) -> String {
    let mut text = String::new();
    for item in items(list).filter(|item| item.kind == ItemKind::Message) {
        for part in item.content.and_then(trusted::elements).into_iter().flatten() {
            if trusted::member(part, "type") == Some("\"output_text\"") {
                text.push_str(
                    &trusted::member(part, "text").and_then(json::string).unwrap_or_default(),
                );
            }
        }
    }
    text
}

/// Takes an item, and tells whether [`is_valid`]; `None` when a precise look is needed.
pub(super) fn take(cursor: &mut Cursor<'_>) -> Option<bool> {
    cursor.enter(b'{')?;
    let (mut item_type, mut role, mut has_content) = (None, "", false);
    let (mut texts, mut lists) = (0u8, 0u8);
    let mut first = true;
    while let Some(key) = cursor.member(&mut first)? {
        if key == "content" {
            let (value, is_map_list) = Shape::MapList.take(cursor)?;
            has_content = is_map_list || kind(value) == Kind::String;
            continue;
        }
        let value = cursor.value()?;
        let is_text = kind(value) == Kind::String;
        match key {
            "type" => item_type = Some(value),
            "role" => role = value,
            "arguments" => texts |= u8::from(is_text),
            "call_id" => texts |= u8::from(is_text) << 1,
            "name" => texts |= u8::from(is_text) << 2,
            "id" => texts |= u8::from(is_text) << 3,
            "output" => lists |= u8::from(is_text || kind(value) == Kind::Array),
            "summary" => lists |= u8::from(kind(value) == Kind::Array) << 1,
            _ => {}
        }
    }
    // What these do not know is left to the precise look.
    match item_type {
        None => Some(true),
        Some("\"message\"") => Some(
            has_content
                && matches!(role, "\"user\"" | "\"assistant\"" | "\"system\"" | "\"developer\""),
        ),
        Some("\"function_call\"") => Some(texts & 7 == 7),
        Some("\"function_call_output\"") => Some(texts & 2 == 2 && lists & 1 == 1),
        Some("\"reasoning\"") => Some(texts & 8 == 8 && lists & 2 == 2),
        Some(_) => None,
    }
}

/// Whether an item has the fields its type requires. An object without `type` always has, as in the reference.
pub(super) fn is_valid(raw: &str) -> bool {
    let Some(entries) = json::members(raw) else { return false };
    let (mut item_type, mut role) = (None, None);
    let (mut content, mut texts, mut lists) = (None, 0u8, 0u8);
    for (key, value) in entries.flatten() {
        let is_text = kind(value) == Kind::String;
        match &*key {
            "type" => item_type = Some(value),
            "role" => role = Some(value),
            "content" => content = Some(value),
            "arguments" => texts |= u8::from(is_text),
            "call_id" => texts |= u8::from(is_text) << 1,
            "name" => texts |= u8::from(is_text) << 2,
            "id" => texts |= u8::from(is_text) << 3,
            "output" => lists |= u8::from(is_text || kind(value) == Kind::Array),
            "summary" => lists |= u8::from(kind(value) == Kind::Array) << 1,
            _ => {}
        }
    }
    match item_type.map(|raw| json::string(raw).unwrap_or_default()).as_deref() {
        None => true,
        Some("message") => {
            role.is_some_and(|role| Shape::OneOf(ROLES).holds(role))
                && content.is_some_and(is_content)
        }
        Some("function_call") => texts & 7 == 7,
        Some("function_call_output") => texts & 2 == 2 && lists & 1 == 1,
        Some("reasoning") => texts & 8 == 8 && lists & 2 == 2,
        Some(other) => HOSTED.contains(&other),
    }
}

fn is_content(raw: &str) -> bool {
    kind(raw) == Kind::String || Shape::MapList.holds(raw)
}

/// One entry or more for each arm of the union that a wrong item does not fit.
pub(super) fn faults(raw: &str, loc: &[Loc]) -> Vec<Detail> {
    if is_valid(raw) {
        return Vec::new();
    }
    let arms: [(&'static str, &[(&'static str, Shape)]); 6] = [
        (
            "EasyInputMessage",
            &[
                ("content", Shape::MapList),
                ("role", Shape::OneOf(ROLES)),
                ("type", Shape::OneOf(&["message"])),
            ],
        ),
        (
            "Message",
            &[
                ("content", Shape::MapList),
                ("role", Shape::OneOf(&["user", "system", "developer"])),
            ],
        ),
        (
            "ResponseOutputMessage",
            &[
                ("id", Shape::Text),
                ("content", Shape::MapList),
                ("role", Shape::OneOf(&["assistant"])),
                ("type", Shape::OneOf(&["message"])),
            ],
        ),
        (
            "ResponseFunctionToolCall",
            &[
                ("arguments", Shape::Text),
                ("call_id", Shape::Text),
                ("name", Shape::Text),
                ("type", Shape::OneOf(&["function_call"])),
            ],
        ),
        (
            "FunctionCallOutput",
            &[
                ("call_id", Shape::Text),
                ("output", Shape::Text),
                ("type", Shape::OneOf(&["function_call_output"])),
            ],
        ),
        (
            "ResponseReasoningItem",
            &[
                ("id", Shape::Text),
                ("summary", Shape::MapList),
                ("type", Shape::OneOf(&["reasoning"])),
            ],
        ),
    ];
    let mut faults = Vec::new();
    for (arm, fields) in arms {
        let loc = check::extend(loc, [arm.into()]);
        if kind(raw) != Kind::Object {
            let msg = "Input should be a valid dictionary or object to extract fields from";
            faults.push(check::fault("model_attributes_type", &loc, msg, raw));
            continue;
        }
        for (name, shape) in fields {
            check::require(&mut faults, raw, name, *shape, &loc);
        }
    }
    faults
}
