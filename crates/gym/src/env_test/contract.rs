//! What every answer of an environment must look like.
//!
//! The checks read answers and name the first thing that is wrong; they call nobody.

use std::fmt;

use bytes::Bytes;
use gym_envs::simple_agent::InvalidReply;
use serde_json::{Map, Value};

/// Longest part of a reply that a fault quotes, in characters.
const EXCERPT_CHARACTERS: usize = 160;

/// One step of a row's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hop {
    /// `POST /seed_session` of the resources server.
    Seed,
    /// `POST /v1/responses` of the model server.
    Model,
    /// `POST /<name>` of the resources server.
    Tool(String),
    /// `POST /verify` of the resources server.
    Verify,
    /// `POST /run` of the agent.
    Run,
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seed => f.write_str("seed_session"),
            Self::Model => f.write_str("model"),
            Self::Tool(name) => write!(f, "tool {name:?}"),
            Self::Verify => f.write_str("verify"),
            Self::Run => f.write_str("run"),
        }
    }
}

/// What a hop answered.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// Names of the cookies that the answer sets.
    pub cookies: Vec<String>,
    pub body: Bytes,
}

/// How an answer breaks the contract.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The request got no answer.
    #[error("{hop}: no answer: {reason}")]
    Unanswered { hop: Hop, reason: String },
    /// The answer is an error.
    #[error("{hop}: status {status}, expected 2xx: {excerpt}")]
    Status { hop: Hop, status: u16, excerpt: String },
    /// The body is not JSON.
    #[error("{hop}: the reply is not JSON: {excerpt}")]
    NotJson { hop: Hop, excerpt: String },
    /// A field of the reply, or the reply itself, has another type.
    #[error("{hop}: {what} is {found}, expected {expected}")]
    WrongType { hop: Hop, what: String, found: &'static str, expected: &'static str },
    /// A field is missing.
    #[error("{hop}: the reply has no `{field}`, expected {expected}")]
    Missing { hop: Hop, field: &'static str, expected: &'static str },
    /// No session was started.
    #[error("{hop}: the reply sets no session cookie")]
    NoSession { hop: Hop },
    /// A later reply forgets the session.
    #[error("{hop}: the reply does not set the session cookie {cookie:?} again")]
    SessionLost { hop: Hop, cookie: String },
    /// The model does not call a tool that the row declares.
    #[error("model: the declared tool {name:?} was not called")]
    NotCalled { name: String },
    /// The model's answer is none.
    #[error("model: the reply cannot be used")]
    Model {
        #[from]
        source: InvalidReply,
    },
    /// The model never comes to an answer.
    #[error("model: no answer after {calls} calls")]
    Endless { calls: usize },
    /// The row itself cannot be driven.
    #[error("row: {reason}")]
    Row { reason: String },
}

impl Fault {
    /// The fault and its causes on one line.
    pub fn line(&self) -> String {
        let mut line = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(source) = cause {
            line.push_str(&format!(": {source}"));
            cause = source.source();
        }
        line
    }
}

/// Checks the reply to `seed_session` and returns the names of the session's cookies.
pub fn seed(answer: &Answer) -> Result<Vec<String>, Fault> {
    let hop = Hop::Seed;
    object(&hop, answer)?;
    if answer.cookies.is_empty() {
        return Err(Fault::NoSession { hop });
    }
    Ok(answer.cookies.clone())
}

/// Checks the reply of a tool.
pub fn tool(name: &str, answer: &Answer, session: &[String]) -> Result<(), Fault> {
    let hop = Hop::Tool(name.to_owned());
    succeeded(&hop, answer)?;
    kept_session(hop, answer, session)
}

/// Checks the reply to `verify` and returns the reward.
pub fn verify(answer: &Answer, session: &[String]) -> Result<f64, Fault> {
    let reward = scored(&Hop::Verify, answer)?;
    kept_session(Hop::Verify, answer, session)?;
    Ok(reward)
}

/// Checks the agent's reply to `run` and returns the reward.
pub fn run(answer: &Answer) -> Result<f64, Fault> {
    scored(&Hop::Run, answer)
}

/// The status is 2xx.
pub fn succeeded(hop: &Hop, answer: &Answer) -> Result<(), Fault> {
    if (200..300).contains(&answer.status) {
        return Ok(());
    }
    Err(Fault::Status { hop: hop.clone(), status: answer.status, excerpt: excerpt(&answer.body) })
}

fn kept_session(hop: Hop, answer: &Answer, session: &[String]) -> Result<(), Fault> {
    match session.iter().find(|cookie| !answer.cookies.contains(cookie)) {
        // The caller replaces its cookies with those of each reply, so one missing is one lost.
        Some(cookie) => Err(Fault::SessionLost { hop, cookie: cookie.clone() }),
        None => Ok(()),
    }
}

fn scored(hop: &Hop, answer: &Answer) -> Result<f64, Fault> {
    let reply = object(hop, answer)?;
    for field in ["responses_create_params", "response"] {
        let value = member(hop, &reply, field, "an object")?;
        if !value.is_object() {
            return Err(wrong(hop, format!("`{field}`"), value, "an object"));
        }
    }
    let reward = member(hop, &reply, "reward", "a number")?;
    reward.as_f64().ok_or_else(|| wrong(hop, "`reward`".to_owned(), reward, "a number"))
}

fn object(hop: &Hop, answer: &Answer) -> Result<Map<String, Value>, Fault> {
    succeeded(hop, answer)?;
    match serde_json::from_slice(&answer.body) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(other) => Err(wrong(hop, "the reply".to_owned(), &other, "an object")),
        Err(_) => Err(Fault::NotJson { hop: hop.clone(), excerpt: excerpt(&answer.body) }),
    }
}

fn member<'a>(
    hop: &Hop,
    reply: &'a Map<String, Value>,
    field: &'static str,
    expected: &'static str,
) -> Result<&'a Value, Fault> {
    reply.get(field).ok_or_else(|| Fault::Missing { hop: hop.clone(), field, expected })
}

fn wrong(hop: &Hop, what: String, found: &Value, expected: &'static str) -> Fault {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    Fault::WrongType { hop: hop.clone(), what, found, expected }
}

fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let mut line: String = text
        .chars()
        .take(EXCERPT_CHARACTERS)
        .map(|character| if character.is_control() { ' ' } else { character })
        .collect();
    if text.chars().nth(EXCERPT_CHARACTERS).is_some() {
        line.push('…');
    }
    if line.is_empty() { "(empty body)".to_owned() } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, cookies: &[&str], body: &str) -> Answer {
        Answer {
            status,
            cookies: cookies.iter().map(|&name| name.to_owned()).collect(),
            body: Bytes::copy_from_slice(body.as_bytes()),
        }
    }

    fn session() -> Vec<String> {
        vec!["Weather___w".to_owned()]
    }

    #[test]
    fn a_session_starts_with_a_cookie() {
        assert_eq!(seed(&answer(200, &["Weather___w"], "{}")).expect("fine"), session());
        let fault = seed(&answer(200, &[], "{}")).expect_err("no cookie");
        assert_eq!(fault.to_string(), "seed_session: the reply sets no session cookie");
        let fault = seed(&answer(200, &["a"], "[]")).expect_err("no object");
        assert_eq!(fault.to_string(), "seed_session: the reply is an array, expected an object");
    }

    #[test]
    fn a_tool_may_answer_anything_but_an_error() {
        tool("t", &answer(200, &["Weather___w"], "plain text"), &session()).expect("fine");
        let fault = tool("t", &answer(404, &[], "{\"detail\":\"Not Found\"}"), &session());
        assert_eq!(
            fault.expect_err("not found").to_string(),
            "tool \"t\": status 404, expected 2xx: {\"detail\":\"Not Found\"}"
        );
    }

    #[test]
    fn a_reply_that_forgets_the_session_is_named() {
        let fault = tool("t", &answer(200, &["other"], "1"), &session()).expect_err("lost");
        assert_eq!(
            fault.to_string(),
            "tool \"t\": the reply does not set the session cookie \"Weather___w\" again"
        );
    }

    #[test]
    fn the_fields_of_a_verification_are_checked_by_name_and_type() {
        let reply = |body: &str| verify(&answer(200, &["Weather___w"], body), &session());
        let whole = r#"{"responses_create_params":{},"response":{},"reward":0.5,"extra":"kept"}"#;
        assert_eq!(reply(whole).expect("fine"), 0.5);
        for (body, expected) in [
            ("nope", "verify: the reply is not JSON: nope"),
            ("{}", "verify: the reply has no `responses_create_params`, expected an object"),
            (
                r#"{"responses_create_params":{},"response":[],"reward":1}"#,
                "verify: `response` is an array, expected an object",
            ),
            (
                r#"{"responses_create_params":{},"response":{}}"#,
                "verify: the reply has no `reward`, expected a number",
            ),
            (
                r#"{"responses_create_params":{},"response":{},"reward":"1.0"}"#,
                "verify: `reward` is a string, expected a number",
            ),
            (
                r#"{"responses_create_params":{},"response":{},"reward":true}"#,
                "verify: `reward` is a boolean, expected a number",
            ),
        ] {
            assert_eq!(reply(body).expect_err(body).to_string(), expected);
        }
    }

    #[test]
    fn a_model_that_answers_nonsense_is_told_with_the_cause() {
        use gym_envs::simple_agent::Conversation;
        let request = Bytes::from_static(b"{\"input\":[]}");
        let mut conversation = Conversation::new(request, 0).expect("a request");
        let error = conversation.accept_reply(Bytes::from_static(b"{}")).expect_err("nonsense");
        assert_eq!(
            Fault::from(error).line(),
            "model: the reply cannot be used: model reply is not a valid response: the reply has no `id`"
        );
    }

    #[test]
    fn long_bodies_are_quoted_in_part() {
        let body = "x".repeat(1000);
        let fault = run(&answer(500, &[], &body)).expect_err("an error");
        assert!(fault.to_string().ends_with("x…"), "{fault}");
        assert!(fault.to_string().len() < 250);
    }
}
