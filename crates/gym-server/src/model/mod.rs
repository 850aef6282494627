//! What surrounds a model server: three dialects in, two backend calls, and replies as JSON or as a replayed event stream.
//!
//! The backend is always called without streaming; a client that asked for a stream gets the finished reply as events.
//! All but [`server`], which makes routes and spans, is pure: [`prepare`] turns a request body into the backend's body, [`finish`] the backend's reply
//! into the client's. A plain request is checked and handed on without a copy.

mod events;
mod facts;
mod messages;
mod meter;
mod sanitise;
pub mod server;

use bytes::Bytes;

use crate::api::chat::{ChatField, ChatRequest};
use crate::api::{CreateParams, Field, Rejection, ResponseError, Urls, json};

pub use sanitise::Namespaces;

/// The three endpoints of a model server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1/messages`
    Messages,
}

impl Dialect {
    /// The dialect of a route, without any rollout prefix.
    pub fn of_path(path: &str) -> Option<Self> {
        match path {
            "/v1/responses" => Some(Self::Responses),
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/messages" => Some(Self::Messages),
            _ => None,
        }
    }
}

/// Which of the backend's two methods is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// [`responses`](crate::model), with a Responses body
    Responses,
    /// `chat_completions`, with a chat body
    Chat,
}

/// A request that was checked, and what is needed to answer it.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The endpoint that was called.
    pub dialect: Dialect,
    /// The method to call.
    pub backend: Backend,
    /// The body to call it with.
    pub body: Bytes,
    /// Whether the client wants events.
    pub stream: bool,
    include_usage: bool,
    model: Option<String>,
    /// What the backend's body has as `model`, as JSON; empty without one.
    asked_model: Bytes,
    namespaces: Namespaces,
}

/// Why a request was not prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The body is wrong: 422 (or 400).
    #[error("the request body was refused")]
    Rejected(#[source] Rejection),
    /// The body has something that cannot be mapped: 500, as in the reference, saying this.
    #[error("{0}")]
    Unsupported(String),
}

impl From<Rejection> for PrepareError {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

/// Why a backend's reply could not be turned into the client's.
#[derive(Debug, thiserror::Error)]
#[error("the model's reply cannot be handed on")]
pub struct FinishError(#[from] pub ResponseError);

/// A reply for the client.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The body.
    pub body: Bytes,
    /// Its content type.
    pub content_type: &'static str,
}

/// The content type of plain replies.
pub const JSON: &str = "application/json";

/// The content type of replayed streams.
pub const EVENT_STREAM: &str = "text/event-stream; charset=utf-8";

/// Checks a request and makes the backend's body of it.
pub fn prepare(dialect: Dialect, body: &Bytes) -> Result<Prepared, PrepareError> {
    match dialect {
        Dialect::Responses => prepare_responses(body),
        Dialect::Chat => prepare_chat(body),
        Dialect::Messages => prepare_messages(body),
    }
}

fn prepare_responses(body: &Bytes) -> Result<Prepared, PrepareError> {
    let first = CreateParams::parse(body, Urls::With);
    // A strict pass admits no truthy `stream`, so the common case needs no second look.
    let Err(rejection) = first else {
        let params = first.map_err(PrepareError::Rejected)?;
        let asked_model = part_of(body, params.set(Field::Model));
        let body = if params.is_coerced() {
            let mut out = Vec::with_capacity(body.len());
            params.write_sparse(&mut out);
            out.into()
        } else {
            body.clone()
        };
        return Ok(Prepared {
            asked_model,
            ..Prepared::new(Dialect::Responses, Backend::Responses, body)
        });
    };
    let wants_stream = std::str::from_utf8(body)
        .ok()
        .and_then(|text| json::member(text, "stream"))
        .is_some_and(is_truthy);
    if !wants_stream {
        return Err(rejection.into());
    }
    let (sanitised, namespaces) = sanitise::responses(body)?;
    let sanitised = Bytes::from(sanitised);
    let params = CreateParams::parse(&sanitised, Urls::With)?;
    let model = params.set(Field::Model);
    let asked_model = part_of(&sanitised, model);
    let model = model.and_then(json::string).map(std::borrow::Cow::into_owned);
    drop(params);
    Ok(Prepared {
        stream: true,
        namespaces,
        model,
        asked_model,
        ..Prepared::new(Dialect::Responses, Backend::Responses, sanitised)
    })
}

fn prepare_chat(body: &Bytes) -> Result<Prepared, PrepareError> {
    let text = std::str::from_utf8(body).map_err(|_| Rejection::NotUtf8)?;
    let stream = json::member(text, "stream") == Some("true");
    let options = if stream { json::member(text, "stream_options") } else { None };
    let include_usage =
        options.and_then(|options| json::member(options, "include_usage")) == Some("true");
    let without_stream: Bytes;
    let source = if stream {
        without_stream = drop_member(text, "stream").into();
        &without_stream
    } else {
        body
    };
    let request = ChatRequest::parse(source)?;
    let asked_model = part_of(body, request.set(ChatField::Model));
    let verbatim = request.is_verbatim() && request.get(ChatField::Stream).is_none() && !stream;
    let body = if verbatim {
        body.clone()
    } else {
        let mut out = Vec::with_capacity(body.len());
        request.write_sparse(&mut out);
        out.into()
    };
    Ok(Prepared {
        stream,
        include_usage,
        asked_model,
        ..Prepared::new(Dialect::Chat, Backend::Chat, body)
    })
}

fn prepare_messages(body: &Bytes) -> Result<Prepared, PrepareError> {
    let request = messages::request(body)?;
    let body = Bytes::from(request.body);
    let params = CreateParams::parse(&body, Urls::Without)?;
    let asked_model = part_of(&body, params.set(Field::Model));
    drop(params);
    Ok(Prepared {
        stream: request.stream,
        model: request.model,
        asked_model,
        ..Prepared::new(Dialect::Messages, Backend::Responses, body)
    })
}

/// Turns a successful reply of the backend into the client's.
pub fn finish(prepared: &Prepared, reply: Bytes) -> Result<Finished, FinishError> {
    let body = match (prepared.dialect, prepared.stream) {
        (Dialect::Responses | Dialect::Chat, false) => {
            return Ok(Finished { body: reply, content_type: JSON });
        }
        (Dialect::Responses, true) => events::responses(&reply, &prepared.namespaces)?,
        (Dialect::Chat, true) => events::chat(&reply, prepared.include_usage)?,
        (Dialect::Messages, stream) => {
            let message = messages::reply(&reply, prepared.model.as_deref())?;
            if !stream {
                return Ok(Finished { body: message.to_json().into(), content_type: JSON });
            }
            events::messages(&message)
        }
    };
    Ok(Finished { body: body.into(), content_type: EVENT_STREAM })
}

/// The stream that tells a failure of the backend, with status 200; `None` where the dialect answers with a plain 500.
/// `id` is 32 hex digits of the caller's choice, `now` unix seconds.
pub fn failed_stream(prepared: &Prepared, message: &str, id: &str, now: f64) -> Option<Finished> {
    (prepared.dialect == Dialect::Responses && prepared.stream).then(|| Finished {
        body: events::failed(message, prepared.model.as_deref().unwrap_or_default(), id, now)
            .into(),
        content_type: EVENT_STREAM,
    })
}

impl Prepared {
    fn new(dialect: Dialect, backend: Backend, body: Bytes) -> Self {
        Self {
            dialect,
            backend,
            body,
            stream: false,
            include_usage: false,
            model: None,
            asked_model: Bytes::new(),
            namespaces: Namespaces::default(),
        }
    }
}

/// A value of a body, without a copy unless it lies elsewhere; empty without one.
fn part_of(body: &Bytes, value: Option<&str>) -> Bytes {
    let Some(value) = value else { return Bytes::new() };
    if body.as_ptr_range().contains(&value.as_ptr()) {
        body.slice_ref(value.as_bytes())
    } else {
        Bytes::copy_from_slice(value.as_bytes())
    }
}

/// Python's truth of a JSON value.
fn is_truthy(raw: &str) -> bool {
    match json::kind(raw) {
        json::Kind::Null => false,
        json::Kind::Bool => raw == "true",
        json::Kind::Number => raw.parse::<f64>().is_ok_and(|number| number != 0.0),
        json::Kind::String => raw != "\"\"",
        json::Kind::Array => json::elements(raw).is_some_and(|mut all| all.next().is_some()),
        json::Kind::Object => json::members(raw).is_some_and(|mut all| all.next().is_some()),
    }
}

/// The text of an object without one of its members.
fn drop_member(object: &str, name: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len());
    out.push(b'{');
    for (key, value) in json::members(object).into_iter().flatten().flatten() {
        if key != name {
            json::write_member(&mut out, &key, value);
        }
    }
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests;
