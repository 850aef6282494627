//! The entries of a 422 reply, in the shape of FastAPI and pydantic.

use std::borrow::Cow;

use super::json;

/// One step of the path to a faulty value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loc {
    /// A member, or an arm of a union.
    Key(Cow<'static, str>),
    /// An element, or a character offset.
    Index(usize),
}

impl From<&'static str> for Loc {
    fn from(key: &'static str) -> Self {
        Loc::Key(Cow::Borrowed(key))
    }
}

impl From<String> for Loc {
    fn from(key: String) -> Self {
        Loc::Key(Cow::Owned(key))
    }
}

impl From<usize> for Loc {
    fn from(index: usize) -> Self {
        Loc::Index(index)
    }
}

/// One thing that is wrong with a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detail {
    /// pydantic's name of the error, such as `missing`.
    pub error_type: &'static str,
    /// Where; begins with `body`.
    pub loc: Vec<Loc>,
    /// What a human reads.
    pub msg: Cow<'static, str>,
    /// The faulty value, as JSON text.
    pub input: String,
    /// What the message was made of: member and value of the `ctx` object.
    pub ctx: Option<(&'static str, Cow<'static, str>)>,
    /// Whether the entry carries pydantic's `url`, as on `/v1/responses` of model servers.
    pub url: bool,
}

impl Detail {
    /// Writes the entry as a JSON object.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        json::write_key(out, "type");
        json::write_string(out, self.error_type);
        out.extend_from_slice(b",\"loc\":[");
        for (at, step) in self.loc.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            match step {
                Loc::Key(key) => json::write_string(out, key),
                Loc::Index(index) => out.extend_from_slice(index.to_string().as_bytes()),
            }
        }
        out.push(b']');
        json::write_key(out, "msg");
        json::write_string(out, &self.msg);
        out.extend_from_slice(b",\"input\":");
        json::write_compact(out, &self.input);
        if let Some((key, value)) = &self.ctx {
            out.extend_from_slice(b",\"ctx\":{");
            json::write_key(out, key);
            json::write_string(out, value);
            out.push(b'}');
        }
        if self.url {
            json::write_key(out, "url");
            json::write_string(
                out,
                &format!("https://errors.pydantic.dev/2.13/v/{}", self.error_type),
            );
        }
        out.push(b'}');
    }
}

/// Why a body was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The body does not have the required shape: status 422.
    #[error("the body does not have the required shape ({} {})", .0.len(), if .0.len() == 1 { "fault" } else { "faults" })]
    Unprocessable(Vec<Detail>),
    /// The body is not UTF-8: status 400.
    #[error("the body is not UTF-8")]
    NotUtf8,
}

impl Rejection {
    /// A body of no bytes.
    pub fn empty_body() -> Self {
        Self::one("missing", vec!["body".into()], "Field required", "null")
    }

    /// A body that is not JSON; the place is counted in characters.
    pub fn not_json(text: &str, fault: json::Fault) -> Self {
        let chars = text.get(..fault.at).map_or(fault.at, |before| before.chars().count());
        Self::Unprocessable(vec![Detail {
            error_type: "json_invalid",
            loc: vec!["body".into(), chars.into()],
            msg: "JSON decode error".into(),
            input: "{}".into(),
            ctx: Some(("error", fault.message.into())),
            url: false,
        }])
    }

    /// A JSON body that is not an object.
    pub fn not_an_object(raw: &str) -> Self {
        if json::is_null(raw) {
            return Self::empty_body();
        }
        let msg = "Input should be a valid dictionary or object to extract fields from";
        Self::one("model_attributes_type", vec!["body".into()], msg, raw)
    }

    /// A rejection with one entry.
    pub fn one(
        error_type: &'static str,
        loc: Vec<Loc>,
        msg: impl Into<Cow<'static, str>>,
        input: &str,
    ) -> Self {
        Self::Unprocessable(vec![Detail {
            error_type,
            loc,
            msg: msg.into(),
            input: input.to_owned(),
            ctx: None,
            url: false,
        }])
    }

    /// The HTTP status of the reply.
    pub fn status(&self) -> u16 {
        match self {
            Self::Unprocessable(_) => 422,
            Self::NotUtf8 => 400,
        }
    }

    /// The JSON body of the reply.
    pub fn body(&self) -> Vec<u8> {
        let mut out = b"{\"detail\":".to_vec();
        match self {
            Self::NotUtf8 => json::write_string(&mut out, "There was an error parsing the body"),
            Self::Unprocessable(details) => {
                out.push(b'[');
                for (at, detail) in details.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    detail.write(&mut out);
                }
                out.push(b']');
            }
        }
        out.push(b'}');
        out
    }

    /// The value under `detail` of the reply.
    pub fn detail(&self) -> serde_json::Value {
        let body: serde_json::Value = serde_json::from_slice(&self.body()).unwrap_or_default();
        body.get("detail").cloned().unwrap_or_default()
    }

    /// The same with, or without, pydantic's `url` in each entry.
    pub fn with_urls(mut self, url: bool) -> Self {
        if let Self::Unprocessable(details) = &mut self {
            for detail in details {
                detail.url = url && detail.error_type != "json_invalid";
            }
        }
        self
    }

    /// The same with every path leading through `step` below `body`.
    pub fn under(mut self, step: &'static str) -> Self {
        if let Self::Unprocessable(details) = &mut self {
            for detail in details {
                detail.loc.insert(1.min(detail.loc.len()), step.into());
            }
        }
        self
    }
}
