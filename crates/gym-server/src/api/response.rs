//! A Responses reply: what is required of it, and how it is echoed with every field.

use std::borrow::Cow;

use super::item::{self, Item};
use super::json::{self, Cursor, Kind, kind};
use super::names::Names;
use super::table::{self, Verbatim};
use super::usage::Usage;

/// Why a reply is not a Responses reply.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ResponseError {
    #[error("the reply is not UTF-8")]
    NotUtf8,
    #[error("the reply is not JSON")]
    NotJson(#[source] json::Fault),
    #[error("the reply is not a JSON object")]
    NotAnObject,
    #[error("the reply has no `{0}`")]
    Missing(&'static str),
    #[error("`{0}` of the reply has the wrong type")]
    WrongType(&'static str),
}

macro_rules! response_fields {
    ($($variant:ident $name:literal;)*) => {
        /// The fields of a reply, in the order in which they are written.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum ResponseField { $($variant),* }

        const KEYS: [&str; ResponseField::COUNT] = [$(concat!("\"", $name, "\":")),*];

        impl ResponseField {
            const COUNT: usize = [$($name),*].len();

            fn of(name: &str) -> Option<usize> {
                static NAMES: Names<{ ResponseField::COUNT }> = Names::new([$($name),*]);
                NAMES.find(name)
            }
        }
    };
}

response_fields! {
    Id "id";
    CreatedAt "created_at";
    Error "error";
    IncompleteDetails "incomplete_details";
    Instructions "instructions";
    Metadata "metadata";
    Model "model";
    Object "object";
    Output "output";
    ParallelToolCalls "parallel_tool_calls";
    Temperature "temperature";
    ToolChoice "tool_choice";
    Tools "tools";
    TopP "top_p";
    Background "background";
    Conversation "conversation";
    MaxOutputTokens "max_output_tokens";
    MaxToolCalls "max_tool_calls";
    PreviousResponseId "previous_response_id";
    Prompt "prompt";
    PromptCacheKey "prompt_cache_key";
    Reasoning "reasoning";
    SafetyIdentifier "safety_identifier";
    ServiceTier "service_tier";
    Status "status";
    Text "text";
    TopLogprobs "top_logprobs";
    Truncation "truncation";
    Usage "usage";
    User "user";
}

const REQUIRED: [(ResponseField, &str, Kind); 7] = [
    (ResponseField::Id, "id", Kind::String),
    (ResponseField::CreatedAt, "created_at", Kind::Number),
    (ResponseField::Model, "model", Kind::String),
    (ResponseField::Object, "object", Kind::String),
    (ResponseField::Output, "output", Kind::Array),
    (ResponseField::ParallelToolCalls, "parallel_tool_calls", Kind::Bool),
    (ResponseField::Tools, "tools", Kind::Array),
];

/// A checked reply, as slices of its text. Fields that we do not know are kept.
#[derive(Debug, Clone)]
pub struct Response<'a> {
    values: [Option<&'a str>; ResponseField::COUNT],
    extras: Vec<(Cow<'a, str>, &'a str)>,
    /// The whole text, if that is what [`Response::write_full`] writes.
    verbatim: Option<&'a str>,
}

impl<'a> Response<'a> {
    /// Reads and checks a reply.
    pub fn parse(body: &'a [u8]) -> Result<Self, ResponseError> {
        Self::from_object(std::str::from_utf8(body).map_err(|_| ResponseError::NotUtf8)?)
    }

    /// Reads and checks an object that is part of a body.
    pub fn from_object(text: &'a str) -> Result<Self, ResponseError> {
        let mut cursor = Cursor::new(text);
        let quick = Self::walk(&mut cursor).filter(|_| cursor.end().is_some());
        let response = match quick {
            Some(response) => response,
            None => Self::read_precisely(text)?,
        };
        response.check()?;
        Ok(response)
    }

    /// Takes the object in front of a walk; `None` when it needs the look that [`Response::from_object`] takes.
    pub(super) fn take(cursor: &mut Cursor<'a>) -> Option<Self> {
        Self::walk(cursor).filter(|response| response.check().is_ok())
    }

    fn empty() -> Self {
        Response { values: [None; ResponseField::COUNT], extras: Vec::new(), verbatim: None }
    }

    fn put(&mut self, key: Cow<'a, str>, value: &'a str) {
        match ResponseField::of(&key) {
            Some(at) => self.values[at] = Some(value),
            None => self.extras.push((key, value)),
        }
    }

    fn walk(cursor: &mut Cursor<'a>) -> Option<Self> {
        let mut response = Self::empty();
        let start = cursor.at();
        cursor.enter(b'{')?;
        let mut verbatim = Verbatim::new(cursor);
        let mut first = true;
        loop {
            let next = verbatim.next();
            let expected = KEYS.get(next).filter(|key| cursor.expect(&mut first, key));
            let (key, length, field) = match expected {
                Some(key) => ("", key.len(), Some(next)),
                None => match cursor.member(&mut first)? {
                    Some(key) => (key, key.len() + 3, ResponseField::of(key)),
                    None => break,
                },
            };
            verbatim.member(cursor, length, field, ResponseField::COUNT);
            let value = cursor.value()?;
            verbatim.value(cursor);
            match field {
                Some(at) => response.values[at] = Some(value),
                None => response.extras.push((Cow::Borrowed(key), value)),
            }
        }
        let is_verbatim = verbatim.holds(cursor, ResponseField::COUNT)
            && !response.get(ResponseField::CreatedAt).is_some_and(is_whole_number);
        response.verbatim = is_verbatim.then(|| cursor.since(start));
        Some(response)
    }

    #[cold]
    fn read_precisely(text: &'a str) -> Result<Self, ResponseError> {
        let Some(members) = json::members(text) else {
            json::document(text).map_err(ResponseError::NotJson)?;
            return Err(ResponseError::NotAnObject);
        };
        let mut response = Self::empty();
        for member in members {
            let (key, value) = member.map_err(ResponseError::NotJson)?;
            response.put(key, value);
        }
        Ok(response)
    }

    fn check(&self) -> Result<(), ResponseError> {
        let response = self;
        for (field, name, required) in REQUIRED {
            match response.get(field) {
                None => return Err(ResponseError::Missing(name)),
                Some(raw) if kind(raw) != required => return Err(ResponseError::WrongType(name)),
                Some(_) => {}
            }
        }
        if response.get(ResponseField::ToolChoice).is_none() {
            return Err(ResponseError::Missing("tool_choice"));
        }
        if !matches!(
            response.get(ResponseField::Usage).map(kind),
            None | Some(Kind::Null | Kind::Object)
        ) {
            return Err(ResponseError::WrongType("usage"));
        }
        Ok(())
    }

    /// The JSON text of a field that is there.
    pub fn get(&self, field: ResponseField) -> Option<&'a str> {
        self.values[field as usize]
    }

    /// The JSON text of a field that is there and not null.
    pub fn set(&self, field: ResponseField) -> Option<&'a str> {
        self.get(field).filter(|raw| !json::is_null(raw))
    }

    /// The whole text, if that is what [`Response::write_full`] writes: all fields in order, and no white space between.
    pub fn verbatim(&self) -> Option<&'a str> {
        self.verbatim
    }

    /// The fields that this schema does not know, in order.
    pub fn extras(&self) -> &[(Cow<'a, str>, &'a str)] {
        &self.extras
    }

    /// The JSON text of the `output` list.
    pub fn output(&self) -> &'a str {
        self.get(ResponseField::Output).unwrap_or("[]")
    }

    /// The items of `output`.
    pub fn items(&self) -> impl Iterator<Item = Item<'a>> {
        item::items(self.output())
    }

    /// The inside of the `output` list, to be spliced into another list.
    pub fn output_elements(&self) -> &'a str {
        let output = self.output();
        output.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or_default().trim()
    }

    /// The token counts, when known.
    pub fn usage(&self) -> Option<Usage> {
        self.set(ResponseField::Usage).and_then(Usage::read)
    }

    /// Whether the model was cut off or filtered.
    pub fn is_incomplete(&self) -> bool {
        self.set(ResponseField::IncompleteDetails).is_some()
    }

    /// Writes every field, absent ones as null, extras last; `created_at` as a float.
    pub fn write_full(&self, out: &mut Vec<u8>) {
        self.write(out, None);
    }

    /// The same with another `output` list and another `usage` (JSON texts).
    pub fn write_full_with(&self, out: &mut Vec<u8>, output: &str, usage: &str) {
        self.write(out, Some((output, usage)));
    }

    fn write(&self, out: &mut Vec<u8>, replaced: Option<(&str, &str)>) {
        if let Some(text) = self.verbatim {
            return self.write_verbatim(out, text, replaced);
        }
        out.push(b'{');
        for (at, key) in KEYS.iter().enumerate() {
            let raw = self.values[at].unwrap_or("null");
            let raw = match replaced {
                Some((output, _)) if at == ResponseField::Output as usize => output,
                Some((_, usage)) if at == ResponseField::Usage as usize => usage,
                _ => raw,
            };
            table::write_member(out, key, raw);
            if at == ResponseField::CreatedAt as usize && is_whole_number(raw) {
                out.extend_from_slice(b".0");
            }
        }
        for (key, raw) in &self.extras {
            json::write_member(out, key, raw);
        }
        out.push(b'}');
    }

    fn write_verbatim(&self, out: &mut Vec<u8>, text: &str, replaced: Option<(&str, &str)>) {
        let mut written = 0;
        if let Some((output, usage)) = replaced {
            for (field, new) in [(ResponseField::Output, output), (ResponseField::Usage, usage)] {
                let old = self.get(field).unwrap_or_default();
                let start = old.as_ptr().addr() - text.as_ptr().addr();
                out.extend_from_slice(&text.as_bytes()[written..start]);
                out.extend_from_slice(new.as_bytes());
                written = start + old.len();
            }
        }
        out.extend_from_slice(&text.as_bytes()[written..]);
    }
}

fn is_whole_number(raw: &str) -> bool {
    raw.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: copying a text that is in full already gives what writing its fields gives.
    #[test]
    fn the_quick_way_writes_what_the_precise_way_writes() {
        let sparse = r#"{"id":"r","created_at":1.5,"model":"m","object":"response","output":[],"parallel_tool_calls":true,"tool_choice":"auto","tools":[]}"#;
        let mut full = Vec::new();
        Response::parse(sparse.as_bytes()).expect("reply").write_full(&mut full);
        let full = String::from_utf8(full).expect("text");
        let copied = |text: &str| Response::from_object(text).expect("reply").verbatim().is_some();
        assert!(copied(&full) && copied(&format!(" {full}\n")));
        assert!(copied(&full.replace(r#""user":null}"#, r#""user":null,"x":1}"#)));
        let other = [
            sparse.to_owned(),
            full.replace(",\"model\"", ", \"model\""),
            full.replace("\"model\":", "\"model\" :"),
            full.replace("\"model\":", "\"model\": "),
            full.replace(",\"model\"", " ,\"model\""),
            full.replace("{\"id\"", "{ \"id\""),
            full.replace(r#""user":null}"#, r#""user":null }"#),
            full.replace(r#""user":null}"#, r#""user":null,"user":"u"}"#),
            full.replace(r#""user":null}"#, r#""x":1,"user":null}"#),
            full.replace(r#","user":null}"#, "}"),
            full.replace("1.5", "1"),
            full.replace(
                r#""model":"m","object":"response""#,
                r#""object":"response","model":"m""#,
            ),
            full.replace(r#""model""#, r#""mod\u0065l""#),
        ];
        for text in &other {
            assert!(!copied(text), "{text}");
        }
        let extra = full.replace(r#""user":null}"#, r#""user":null,"x":1}"#);
        for text in other.iter().chain([&full, &extra]) {
            let precise = Response::read_precisely(text).expect("reply");
            let quick = Response::from_object(text).expect("reply");
            for replaced in [None, Some(("[1]", "{}"))] {
                let (mut quickly, mut precisely) = (Vec::new(), Vec::new());
                quick.write(&mut quickly, replaced);
                precise.write(&mut precisely, replaced);
                assert_eq!(String::from_utf8(quickly), String::from_utf8(precisely), "{text}");
            }
        }
    }
}
