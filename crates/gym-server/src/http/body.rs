//! The body of a reply, which ends the SERVER span when its last byte is handed over.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::span::RequestSpan;

/// A complete body and the span of the request it answers.
pub(crate) struct ReplyBody {
    data: Option<Bytes>,
    span: Option<RequestSpan>,
}

impl ReplyBody {
    pub(crate) fn new(data: Bytes, span: RequestSpan) -> Self {
        if data.is_empty() {
            span.complete();
            return Self { data: None, span: None };
        }
        Self { data: Some(data), span: Some(span) }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = self.data.take();
        if let Some(span) = self.span.take() {
            span.complete();
        }
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.as_ref().map_or(0, |data| data.len() as u64))
    }
}
