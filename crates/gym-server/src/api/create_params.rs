//! The body of `POST /v1/responses`: which keys there are, what they hold, and the two forms in which it is sent on.
//!
//! *Sparse* is what the caller set; *full* has every known key in the reference's order, defaults filled in.
//! Unknown keys are refused, null counts as set.

use std::borrow::Cow;
use std::sync::LazyLock;

use super::check::{INCLUDE, Shape};
use super::detail::Rejection;
use super::json::{self, Cursor};
use super::table::{self, Defaults, Values, schema};

schema! {
    Field TABLE;
    Background "background" Shape::Bool, NULL, true;
    Include "include" INCLUDE, NULL, true;
    Input "input" Shape::Input, None, false;
    Instructions "instructions" Shape::Text, NULL, true;
    MaxOutputTokens "max_output_tokens" Shape::Int, NULL, true;
    MaxToolCalls "max_tool_calls" Shape::Int, NULL, true;
    Metadata "metadata" Shape::TextMap, NULL, true;
    Model "model" Shape::Text, NULL, true;
    ParallelToolCalls "parallel_tool_calls" Shape::Bool, Some("true"), false;
    PreviousResponseId "previous_response_id" Shape::Text, NULL, true;
    Prompt "prompt" Shape::Map, NULL, true;
    Reasoning "reasoning" Shape::Map, NULL, true;
    ServiceTier "service_tier" Shape::OneOf(&["auto", "default", "flex", "scale", "priority"]), NULL, true;
    Store "store" Shape::Bool, NULL, true;
    Temperature "temperature" Shape::Float, NULL, true;
    Text "text" Shape::Map, NULL, true;
    ToolChoice "tool_choice" Shape::ToolChoice, Some("\"auto\""), false;
    Tools "tools" Shape::Tools, Some("[]"), false;
    TopLogprobs "top_logprobs" Shape::Int, NULL, true;
    TopP "top_p" Shape::Float, NULL, true;
    Truncation "truncation" Shape::OneOf(&["auto", "disabled"]), NULL, true;
    User "user" Shape::Text, NULL, true;
    Stream "stream" Shape::OnlyFalse, NULL, true;
}

impl Field {
    /// Whether a request may have this key.
    pub fn is_known(name: &str) -> bool {
        Self::of(name).is_some()
    }
}

const NULL: Option<&str> = Some("null");

/// Whether 422 entries carry pydantic's `url`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urls {
    /// They do not, as everywhere but on `/v1/responses` of model servers.
    Without,
    /// They do.
    With,
}

/// The checked body of a Responses request, as slices of its text.
#[derive(Debug, Clone)]
pub struct CreateParams<'a>(Values<'a, { Field::COUNT }>);

impl<'a> CreateParams<'a> {
    /// Reads and checks a request body.
    pub fn parse(body: &'a [u8], urls: Urls) -> Result<Self, Rejection> {
        let text = std::str::from_utf8(body).map_err(|_| Rejection::NotUtf8)?;
        Self::from_object(text).map_err(|rejection| rejection.with_urls(urls == Urls::With))
    }

    /// Reads and checks an object that is part of a body; paths of faults begin with `body`.
    pub fn from_object(text: &'a str) -> Result<Self, Rejection> {
        Values::read(text, &TABLE, Field::of, true).map(|(values, _)| Self(values))
    }

    /// Takes the object in front of a walk; `None` when it needs the look that [`CreateParams::from_object`] takes.
    pub(super) fn take(cursor: &mut Cursor<'a>) -> Option<Self> {
        Values::take(cursor, &TABLE, Field::of, true).map(|(values, _)| Self(values))
    }

    /// Reads a body that was parsed before, or written by [`CreateParams::write_sparse`], without checking it again.
    /// The values of another body are of any type, or absent.
    pub fn trust(body: &'a [u8]) -> Self {
        Self(Values::trust(std::str::from_utf8(body).unwrap_or_default(), Field::of))
    }

    /// Whether a value had another type and was coerced, as pydantic does (`"12"` for 12).
    pub fn is_coerced(&self) -> bool {
        self.0.is_coerced()
    }

    /// The value of a key, whose type was checked, in the text's own lifetime where nothing was coerced.
    pub fn borrowed(&self, field: Field) -> Option<Cow<'a, str>> {
        self.0.0[field as usize].clone()
    }

    /// The JSON text of a key that was set.
    pub fn get(&self, field: Field) -> Option<&str> {
        self.0.0[field as usize].as_deref()
    }

    /// The JSON text of a key that was set to something else than null.
    pub fn set(&self, field: Field) -> Option<&str> {
        self.get(field).filter(|raw| !json::is_null(raw))
    }

    /// The JSON text of a key, or of its default.
    pub fn or_default(&self, field: Field) -> &str {
        self.get(field).or(TABLE[field as usize].default).unwrap_or("null")
    }

    /// The keys that were set, in the reference's order, with their JSON texts.
    pub fn iter(&self) -> impl Iterator<Item = (Field, &'static str, &str)> {
        Field::ALL
            .iter()
            .filter_map(|field| Some((*field, TABLE[*field as usize].name, self.get(*field)?)))
    }

    /// Writes every known key, defaults filled in.
    pub fn write_full(&self, out: &mut Vec<u8>) {
        static DEFAULTS: LazyLock<Defaults<{ Field::COUNT }>> =
            LazyLock::new(|| Defaults::of(&TABLE));
        self.0.write_full(&DEFAULTS, out);
    }

    /// Writes the keys that were set.
    pub fn write_sparse(&self, out: &mut Vec<u8>) {
        self.write_sparse_with_input(out, self.or_default(Field::Input));
    }

    /// Writes the keys that were set, with another `input`.
    pub fn write_sparse_with_input(&self, out: &mut Vec<u8>, input: &str) {
        out.push(b'{');
        for (field, _, raw) in self.iter() {
            table::write_member(
                out,
                TABLE[field as usize].key,
                if field == Field::Input { input } else { raw },
            );
        }
        out.push(b'}');
    }

    /// Writes the elements of `input` without brackets: a string becomes one user message.
    pub fn write_input_items(&self, out: &mut Vec<u8>) {
        let input = self.or_default(Field::Input);
        match input.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(inner) => out.extend_from_slice(inner.trim().as_bytes()),
            None => {
                out.extend_from_slice(b"{\"content\":");
                out.extend_from_slice(input.as_bytes());
                out.extend_from_slice(b",\"role\":\"user\",\"type\":\"message\"}");
            }
        }
    }
}
