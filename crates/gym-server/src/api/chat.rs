//! Chat Completions requests and replies, as slices.
//!
//! Known keys of a request are typed, unknown ones are dropped, as in the reference.

use std::borrow::Cow;

use super::check::Shape;
use super::detail::Rejection;
use super::json;
use super::table::{self, Values, schema};
use super::usage::{Usage, number};

schema! {
    ChatField TABLE;
    Messages "messages" Shape::MapList, None, false;
    Model "model" Shape::Text, NULL, true;
    Audio "audio" Shape::Map, NULL, true;
    FrequencyPenalty "frequency_penalty" Shape::Float, NULL, true;
    LogitBias "logit_bias" Shape::Map, NULL, true;
    Logprobs "logprobs" Shape::Bool, NULL, true;
    MaxCompletionTokens "max_completion_tokens" Shape::Int, NULL, true;
    MaxTokens "max_tokens" Shape::Int, NULL, true;
    Metadata "metadata" Shape::TextMap, NULL, true;
    Modalities "modalities" Shape::List, NULL, true;
    N "n" Shape::Int, NULL, true;
    ParallelToolCalls "parallel_tool_calls" Shape::Bool, NULL, true;
    Prediction "prediction" Shape::Map, NULL, true;
    PresencePenalty "presence_penalty" Shape::Float, NULL, true;
    PromptCacheKey "prompt_cache_key" Shape::Text, NULL, true;
    ReasoningEffort "reasoning_effort" Shape::Text, NULL, true;
    ResponseFormat "response_format" Shape::Map, NULL, true;
    SafetyIdentifier "safety_identifier" Shape::Text, NULL, true;
    Seed "seed" Shape::Int, NULL, true;
    ServiceTier "service_tier" Shape::OneOf(&["auto", "default", "flex", "scale", "priority"]), NULL, true;
    Stop "stop" Shape::Any, NULL, true;
    Store "store" Shape::Bool, NULL, true;
    Stream "stream" Shape::OnlyFalse, NULL, true;
    StreamOptions "stream_options" Shape::Map, NULL, true;
    Temperature "temperature" Shape::Float, NULL, true;
    ToolChoice "tool_choice" Shape::ToolChoice, NULL, true;
    Tools "tools" Shape::MapList, NULL, true;
    TopLogprobs "top_logprobs" Shape::Int, NULL, true;
    TopP "top_p" Shape::Float, NULL, true;
    User "user" Shape::Text, NULL, true;
    Verbosity "verbosity" Shape::Text, NULL, true;
    WebSearchOptions "web_search_options" Shape::Map, NULL, true;
}

const NULL: Option<&str> = Some("null");

/// The checked body of a chat request.
#[derive(Debug, Clone)]
pub struct ChatRequest<'a> {
    values: Values<'a, { ChatField::COUNT }>,
    has_unknown: bool,
}

impl<'a> ChatRequest<'a> {
    /// Reads and checks a request body.
    pub fn parse(body: &'a [u8]) -> Result<Self, Rejection> {
        let text = std::str::from_utf8(body).map_err(|_| Rejection::NotUtf8)?;
        let (values, has_unknown) = Values::read(text, &TABLE, ChatField::of, false)?;
        Ok(ChatRequest { values, has_unknown })
    }

    /// Reads a body that was parsed before, or written by [`ChatRequest::write_sparse`], without checking it again.
    /// The values of another body are of any type, or absent.
    pub fn trust(body: &'a [u8]) -> Self {
        let text = std::str::from_utf8(body).unwrap_or_default();
        ChatRequest { values: Values::trust(text, ChatField::of), has_unknown: false }
    }

    /// Whether the text of the body may be sent on as it is: nothing coerced, nothing to be dropped.
    pub fn is_verbatim(&self) -> bool {
        !self.has_unknown && !self.values.is_coerced()
    }

    /// The JSON text of a key that was set.
    pub fn get(&self, field: ChatField) -> Option<&str> {
        self.values.0[field as usize].as_deref()
    }

    /// The JSON text of a key that was set to something else than null.
    pub fn set(&self, field: ChatField) -> Option<&str> {
        self.get(field).filter(|raw| !json::is_null(raw))
    }

    /// The keys that were set, with their JSON texts.
    pub fn iter(&self) -> impl Iterator<Item = (ChatField, &'static str, &str)> {
        ChatField::ALL
            .iter()
            .filter_map(|field| Some((*field, TABLE[*field as usize].name, self.get(*field)?)))
    }

    /// Writes the keys that were set, but not `stream` and `stream_options`.
    pub fn write_sparse(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        for (field, _, raw) in self.iter() {
            if !matches!(field, ChatField::Stream | ChatField::StreamOptions) {
                table::write_member(out, TABLE[field as usize].key, raw);
            }
        }
        out.push(b'}');
    }
}

/// What the first choice of a chat reply holds; `None` members are absent or null. JSON texts.
#[derive(Debug, Clone, Default)]
pub struct ChatReply<'a> {
    /// `id`
    pub id: Option<&'a str>,
    /// `created`, unix seconds
    pub created: Option<&'a str>,
    /// `model`
    pub model: Option<&'a str>,
    /// `usage`
    pub usage: Option<&'a str>,
    /// The whole first choice
    pub choice: Option<&'a str>,
    /// `finish_reason` of the choice
    pub finish_reason: Option<Cow<'a, str>>,
    /// `message.content` when it is a string, decoded
    pub content: Option<Cow<'a, str>>,
    /// `message.refusal`, decoded
    pub refusal: Option<Cow<'a, str>>,
    /// `message.reasoning_content`, else `message.reasoning`, decoded
    pub reasoning: Option<Cow<'a, str>>,
    /// `message.tool_calls`
    pub tool_calls: Option<&'a str>,
    /// The whole message
    pub message: Option<&'a str>,
}

impl<'a> ChatReply<'a> {
    /// Reads a reply; what is missing or of the wrong type stays `None`.
    pub fn parse(body: &'a [u8]) -> Result<Self, super::ResponseError> {
        use super::ResponseError as Error;
        let text = std::str::from_utf8(body).map_err(|_| Error::NotUtf8)?;
        let Some(members) = json::members(text) else {
            json::document(text).map_err(Error::NotJson)?;
            return Err(Error::NotAnObject);
        };
        let mut reply = ChatReply::default();
        for member in members {
            let (key, value) = member.map_err(Error::NotJson)?;
            let value = Some(value).filter(|raw| !json::is_null(raw));
            match &*key {
                "id" => reply.id = value,
                "created" => reply.created = value,
                "model" => reply.model = value,
                "usage" => reply.usage = value,
                "choices" => {
                    reply.choice =
                        value.and_then(json::elements).and_then(|mut all| all.next()?.ok())
                }
                _ => {}
            }
        }
        let choice = reply.choice.ok_or(Error::Missing("choices[0]"))?;
        for (key, value) in json::members(choice).ok_or(Error::WrongType("choices[0]"))?.flatten() {
            match &*key {
                "finish_reason" => reply.finish_reason = json::string(value),
                "message" => reply.message = Some(value),
                _ => {}
            }
        }
        let message = reply.message.ok_or(Error::Missing("choices[0].message"))?;
        let mut other_reasoning = None;
        for (key, value) in
            json::members(message).ok_or(Error::WrongType("choices[0].message"))?.flatten()
        {
            match &*key {
                "content" => reply.content = json::string(value),
                "refusal" => reply.refusal = json::string(value),
                "reasoning_content" => reply.reasoning = json::string(value),
                "reasoning" => other_reasoning = json::string(value),
                "tool_calls" => reply.tool_calls = Some(value).filter(|raw| !json::is_null(raw)),
                _ => {}
            }
        }
        reply.reasoning = reply
            .reasoning
            .filter(|text| !text.is_empty())
            .or(other_reasoning)
            .filter(|text| !text.is_empty());
        Ok(reply)
    }

    /// The token counts in Responses terms, with the spellings of several engines.
    pub fn usage(&self) -> Option<Usage> {
        let raw = self.usage?;
        let mut usage = Usage::default();
        let (mut cached, mut cached_flat, mut reasoning, mut reasoning_flat) =
            (None, None, None, None);
        for (key, value) in json::members(raw)?.flatten() {
            match &*key {
                "prompt_tokens" => usage.input_tokens = number(value).unwrap_or(0),
                "completion_tokens" => usage.output_tokens = number(value).unwrap_or(0),
                "total_tokens" => usage.total_tokens = number(value).unwrap_or(0),
                "prompt_tokens_details" => {
                    cached = json::member(value, "cached_tokens").and_then(number)
                }
                "completion_tokens_details" => {
                    reasoning = json::member(value, "reasoning_tokens").and_then(number)
                }
                "cached_input_tokens" => cached_flat = number(value).or(cached_flat),
                "cache_read_input_tokens" => cached_flat = cached_flat.or(number(value)),
                "reasoning_output_tokens" => reasoning_flat = number(value),
                _ => {}
            }
        }
        usage.cached_tokens = cached.or(cached_flat);
        usage.reasoning_tokens = reasoning.or(reasoning_flat);
        Some(usage)
    }
}
