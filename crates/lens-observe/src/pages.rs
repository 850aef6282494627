//! What is read from a receiver's HTTP address: answers to questions, and pages.
//!
//! A page may take long (it may read files), so it is made on a thread that serves no connection; no more than
//! [`THREADS`] are made at a time for each thread of the receiver, the rest wait.

use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;

/// Pages that are made at the same time.
pub const THREADS: usize = 2;

/// What is asked for, by `GET`.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Path of the request.
    pub path: String,
    /// Query of the request, without the question mark.
    pub query: String,
    /// Forms that are wanted: the header `accept`, or empty.
    pub accept: String,
}

/// What is answered.
#[derive(Clone, Debug)]
pub struct Page {
    /// Status.
    pub status: StatusCode,
    /// Media type.
    pub content_type: Cow<'static, str>,
    /// Other headers.
    pub headers: Vec<(&'static str, String)>,
    /// Body.
    pub body: Bytes,
}

impl Page {
    /// A page that is as it should be.
    pub fn ok(content_type: impl Into<Cow<'static, str>>, body: impl Into<Bytes>) -> Self {
        Self {
            status: StatusCode::OK,
            content_type: content_type.into(),
            headers: Vec::new(),
            body: body.into(),
        }
    }

    /// What is wrong with a question, as JSON.
    pub fn refusal(status: StatusCode, message: &str) -> Self {
        let body = serde_json::json!({ "message": message }).to_string();
        Self {
            status,
            content_type: "application/json".into(),
            headers: Vec::new(),
            body: body.into(),
        }
    }
}

/// Answers questions.
pub trait Pages: Send + Sync {
    /// The page at a path; nothing when there is none.
    fn page(&self, question: &Question) -> Option<Page>;
}
