//! The body of an agent's `POST /run` and of `POST /seed_session` and `POST /verify`: create params and the row's other fields.

use std::borrow::Cow;

use super::create_params::CreateParams;
use super::detail::Rejection;
use super::json::{self, Cursor};
use super::response::Response;

/// A run request, as slices of its text.
#[derive(Debug, Clone)]
pub struct RunRequest<'a> {
    /// The request to the model.
    pub create_params: CreateParams<'a>,
    /// The text of `responses_create_params` as it came.
    pub create_params_text: &'a str,
    /// Every other field, in order, as JSON text.
    pub extras: Vec<(Cow<'a, str>, &'a str)>,
    response: Option<Response<'a>>,
}

impl<'a> RunRequest<'a> {
    /// Reads and checks a body.
    pub fn parse(body: &'a [u8]) -> Result<Self, Rejection> {
        let text = std::str::from_utf8(body).map_err(|_| Rejection::NotUtf8)?;
        match Self::walk(text) {
            Some(request) => Ok(request),
            None => Self::read_precisely(text),
        }
    }

    /// Reads a plain body in one walk.
    fn walk(text: &'a str) -> Option<Self> {
        let (mut params, mut response) = (None, None);
        let mut extras = Vec::new();
        let mut cursor = Cursor::new(text);
        cursor.enter(b'{')?;
        let mut first = true;
        while let Some(key) = cursor.member(&mut first)? {
            let start = cursor.at();
            match key {
                "responses_create_params" => {
                    let create_params = CreateParams::take(&mut cursor)?;
                    params = Some((create_params, cursor.since(start)));
                    continue;
                }
                "response" => response = Some(Response::take(&mut cursor)?),
                _ => drop(cursor.value()?),
            }
            extras.push((Cow::Borrowed(key), cursor.since(start)));
        }
        cursor.end()?;
        let (create_params, create_params_text) = params?;
        Some(RunRequest { create_params, create_params_text, extras, response })
    }

    #[cold]
    fn read_precisely(text: &'a str) -> Result<Self, Rejection> {
        if text.is_empty() {
            return Err(Rejection::empty_body());
        }
        let Some(members) = json::members(text) else {
            return Err(match json::document(text) {
                Ok(raw) => Rejection::not_an_object(raw),
                Err(fault) => Rejection::not_json(text, fault),
            });
        };
        let mut params = None;
        let mut extras = Vec::new();
        for member in members {
            let (key, value) = member.map_err(|fault| Rejection::not_json(text, fault))?;
            if key == "responses_create_params" {
                params = Some(value);
            } else {
                extras.push((key, value));
            }
        }
        let Some(params) = params else {
            let loc = vec!["body".into(), "responses_create_params".into()];
            return Err(Rejection::one("missing", loc, "Field required", text.trim()));
        };
        let create_params = match json::members(params) {
            Some(_) => CreateParams::from_object(params)
                .map_err(|rejection| rejection.under("responses_create_params"))?,
            None => {
                let msg = "Input should be a valid dictionary or instance of ResponseCreateParams";
                let loc = vec!["body".into(), "responses_create_params".into()];
                return Err(Rejection::one("model_type", loc, msg, params));
            }
        };
        Ok(RunRequest { create_params, create_params_text: params, extras, response: None })
    }

    /// The field `response`, as in a request to verify, if it is a plain one.
    pub fn response(&self) -> Option<&Response<'a>> {
        self.response.as_ref()
    }

    /// The JSON text of one of the other fields.
    pub fn extra(&self, name: &str) -> Option<&'a str> {
        self.extras.iter().rev().find(|(key, _)| key == name).map(|(_, raw)| *raw)
    }

    /// Writes the body with the create params in full, without the closing brace, so that members can follow.
    pub fn write_full_open(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"responses_create_params\":");
        self.create_params.write_full(out);
        for (key, raw) in &self.extras {
            json::write_member(out, key, raw);
        }
    }

    /// Writes the body with the create params in full: what `seed_session` gets.
    pub fn write_full(&self, out: &mut Vec<u8>) {
        self.write_full_open(out);
        out.push(b'}');
    }
}
