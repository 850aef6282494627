//! The body of a reply, which ends the SERVER span when its last byte is handed over.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use super::reply::Delivery;
use super::span::RequestSpan;

/// The reply breaks off on purpose.
#[derive(Debug, thiserror::Error)]
#[error("the reply breaks off on purpose")]
pub(crate) struct BrokenOff;

/// A complete body and the span of the request it answers.
pub(crate) struct ReplyBody {
    data: Option<Bytes>,
    span: Option<RequestSpan>,
    pace: Option<Box<Pace>>,
}

/// A delivery that is not as fast as it could be.
enum Pace {
    Broken,
    Slow { piece_bytes: usize, every: Duration, timer: Pin<Box<Sleep>> },
}

const PIECES: u32 = 10;

impl ReplyBody {
    pub(crate) fn new(data: Bytes, mut span: RequestSpan, delivery: Delivery) -> Self {
        span.replies_with(if span.is_head() { 0 } else { data.len() });
        if data.is_empty() || span.is_head() {
            span.complete();
            return Self { data: None, span: None, pace: None };
        }
        let pace = match delivery {
            Delivery::Whole => None,
            Delivery::Broken => Some(Box::new(Pace::Broken)),
            Delivery::Slow(total) => {
                let every = total / PIECES;
                Some(Box::new(Pace::Slow {
                    piece_bytes: data.len().div_ceil(PIECES as usize),
                    every,
                    timer: Box::pin(tokio::time::sleep(every)),
                }))
            }
        };
        Self { data: Some(data), span: Some(span), pace }
    }
}

impl ReplyBody {
    /// The whole body at once; its span ends.
    pub(crate) fn into_whole(mut self) -> Bytes {
        if let Some(span) = self.span.take() {
            span.complete();
        }
        self.data.take().unwrap_or_default()
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let this = &mut *self;
        match this.pace.as_deref_mut() {
            None => {}
            Some(Pace::Broken) => {
                this.data = None;
                return Poll::Ready(Some(Err(BrokenOff)));
            }
            Some(Pace::Slow { piece_bytes, every, timer }) => {
                std::task::ready!(timer.as_mut().poll(cx));
                timer.as_mut().reset(tokio::time::Instant::now() + *every);
                if let Some(rest) = this.data.as_mut().filter(|rest| rest.len() > *piece_bytes) {
                    return Poll::Ready(Some(Ok(Frame::data(rest.split_to(*piece_bytes)))));
                }
            }
        }
        let data = this.data.take();
        if let Some(span) = this.span.take() {
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
