//! HTTP/1.1 as the client speaks it: one exchange at a time, in the task that asks.
//!
//! A request leaves in one write and a small reply is taken from one read, both through buffers of
//! the thread. No task, no channel and no buffer belongs to a connection that waits: with hundreds
//! of them, walking such memory costs more than the work. A dropped exchange leaves its connection
//! unusable, which its owner then drops too.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use super::framing::{Ambiguous, Framing, keeps_alive};
use super::trace_headers::TraceHeaders;
use crate::stream::Stream;

/// Bodies up to this size are copied behind their head.
const INLINE_BODY_BYTES: usize = 32 << 10;
const READ_BYTES: usize = 64 << 10;
const MAX_HEAD_BYTES: usize = 512 << 10;
const MAX_HEADERS: usize = 256;
/// Headers that are read without an allocation.
const USUAL_HEADERS: usize = 32;
/// Memory that is set aside because a head announced it.
const MAX_RESERVED_BYTES: u64 = 16 << 20;

thread_local! {
    static WRITING: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static READING: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// What went wrong on a connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// It broke.
    #[error("the connection failed")]
    Io(#[from] io::Error),
    /// The server ended it in the middle.
    #[error("the connection was closed before the reply was complete")]
    Closed,
    /// What the server sent is no HTTP/1.1 reply.
    #[error("the reply is not valid HTTP: {0}")]
    Invalid(&'static str),
    /// The reply is larger than is allowed.
    #[error("the reply is larger than {0} bytes")]
    TooLarge(usize),
}

impl From<Ambiguous> for WireError {
    fn from(Ambiguous(reason): Ambiguous) -> Self {
        Self::Invalid(reason)
    }
}

/// A request that could not be sent.
#[derive(Debug)]
pub(super) struct Unsent {
    pub(super) error: WireError,
    /// Whether a part of it left.
    pub(super) was_begun: bool,
}

/// The head of a request. `Host` comes first; `Content-Length` is added.
pub(super) struct RequestHead<'a, H> {
    pub(super) method: &'a Method,
    pub(super) target: &'a str,
    pub(super) headers: H,
    pub(super) trace: &'a TraceHeaders,
}

impl<'h, H: Iterator<Item = (&'h HeaderName, &'h HeaderValue)>> RequestHead<'_, H> {
    fn write(self, out: &mut Vec<u8>, body_len: usize) {
        out.extend_from_slice(self.method.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.target.as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\n");
        for (name, value) in self.headers {
            out.extend_from_slice(name.as_str().as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        self.trace.write(out);
        if body_len > 0 || *self.method == Method::POST {
            out.extend_from_slice(b"content-length: ");
            push_decimal(out, body_len);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }
}

fn push_decimal(out: &mut Vec<u8>, mut number: usize) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// The head of a reply.
#[derive(Debug)]
pub(super) struct ReplyHead {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
}

/// The body of a reply that is being read.
#[derive(Debug)]
pub(super) struct Body {
    framing: Framing,
    data: Vec<u8>,
    max_bytes: usize,
}

impl Body {
    fn is_complete(&self) -> bool {
        match &self.framing {
            Framing::Length(length) => self.data.len() as u64 == *length,
            Framing::Chunked(chunks) => chunks.is_done(),
            Framing::Close => false,
        }
    }

    /// Takes what belongs to the body from `input`; says how much that is.
    fn take(&mut self, input: &[u8]) -> Result<usize, WireError> {
        let used = match &mut self.framing {
            Framing::Length(length) => {
                let left = *length - self.data.len() as u64;
                let used = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                self.data.extend_from_slice(&input[..used]);
                used
            }
            Framing::Chunked(chunks) => chunks.decode(input, &mut self.data)?,
            Framing::Close => {
                self.data.extend_from_slice(input);
                input.len()
            }
        };
        if self.data.len() > self.max_bytes {
            return Err(WireError::TooLarge(self.max_bytes));
        }
        Ok(used)
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Wire {
    stream: Stream,
    /// What was read and is no complete head yet.
    carried: Vec<u8>,
    /// Whether the whole request left.
    is_sent: bool,
    may_be_kept: bool,
}

impl Wire {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, carried: Vec::new(), is_sent: true, may_be_kept: true }
    }

    /// Whether another request may be sent, as far as is known: a server that ended the
    /// connection, or that says something unasked, is not asked again.
    pub(super) fn is_open(&mut self) -> bool {
        if !self.may_be_kept || !self.carried.is_empty() {
            return false;
        }
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        // Whoever reads next registers the waker that counts.
        let mut context = Context::from_waker(Waker::noop());
        Pin::new(&mut self.stream).poll_read(&mut context, &mut buffer).is_pending()
    }

    #[cfg(test)]
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Whether the last reply left the connection fit for another request.
    pub(super) fn may_be_kept(&self) -> bool {
        self.may_be_kept
    }

    /// Sends a request. A server that answers before it has read everything ends this early.
    pub(super) async fn send<'h>(
        &mut self,
        head: RequestHead<'_, impl Iterator<Item = (&'h HeaderName, &'h HeaderValue)>>,
        body: &Bytes,
    ) -> Result<(), Unsent> {
        // Usable again once the reply is complete.
        (self.is_sent, self.may_be_kept) = (false, false);
        let mut head = Some(head);
        let (mut rest, mut body_rest) = (Bytes::new(), Bytes::new());
        let mut was_begun = false;
        let result = std::future::poll_fn(|cx| {
            if let Some(head) = head.take() {
                let mut out = WRITING.take();
                out.clear();
                head.write(&mut out, body.len());
                if body.len() <= INLINE_BODY_BYTES {
                    out.extend_from_slice(body);
                } else {
                    body_rest = body.clone();
                }
                let written = Pin::new(&mut self.stream).poll_write(cx, &out);
                let at = match written {
                    Poll::Ready(Ok(at)) => at,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                    Poll::Pending => 0,
                };
                was_begun = at > 0;
                if at < out.len() {
                    rest = Bytes::copy_from_slice(&out[at..]);
                }
                WRITING.set(out);
            }
            self.poll_send_rest(cx, &mut rest, &mut body_rest, &mut was_begun)
        });
        result.await.map_err(|error| Unsent { error, was_begun })
    }

    fn poll_send_rest(
        &mut self,
        cx: &mut Context<'_>,
        rest: &mut Bytes,
        body_rest: &mut Bytes,
        was_begun: &mut bool,
    ) -> Poll<Result<(), WireError>> {
        loop {
            if rest.is_empty() {
                if body_rest.is_empty() {
                    // TLS holds back what it could not write.
                    ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
                    self.is_sent = true;
                    return Poll::Ready(Ok(()));
                }
                *rest = std::mem::take(body_rest);
            }
            match Pin::new(&mut self.stream).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(WireError::Closed)),
                Poll::Ready(Ok(written)) => {
                    *was_begun = true;
                    bytes::Buf::advance(rest, written);
                }
                Poll::Ready(Err(error)) => {
                    // A server that refuses a body may have said why before it hung up.
                    return match self.poll_fill(cx) {
                        Poll::Ready(Ok(read)) if read > 0 => Poll::Ready(Ok(())),
                        _ => Poll::Ready(Err(error.into())),
                    };
                }
                Poll::Pending => {
                    return match self.poll_fill(cx) {
                        Poll::Ready(Ok(read)) if read > 0 => Poll::Ready(Ok(())),
                        _ => Poll::Pending,
                    };
                }
            }
        }
    }

    /// Reads once, into what is carried; says how much.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let carried = &mut self.carried;
        poll_read(&mut self.stream, cx, |input| {
            carried.extend_from_slice(input);
            input.len()
        })
    }

    /// Reads the head of the reply, and what has come of its body.
    pub(super) async fn reply(
        &mut self,
        method: &Method,
        max_bytes: usize,
    ) -> Result<ReplyHead, WireError> {
        std::future::poll_fn(|cx| {
            loop {
                if !self.carried.is_empty() {
                    let carried = std::mem::take(&mut self.carried);
                    if let Some(head) = self.open(&carried, method, max_bytes)? {
                        return Poll::Ready(Ok(head));
                    }
                    if carried.len() > MAX_HEAD_BYTES {
                        return Poll::Ready(Err(WireError::Invalid("the head is too long")));
                    }
                    self.carried = carried;
                    if ready!(self.poll_fill(cx))? == 0 {
                        return Poll::Ready(Err(WireError::Closed));
                    }
                    continue;
                }
                let mut buffer = Reading::borrow();
                let read = ready!(buffer.poll(&mut self.stream, cx))?;
                if read.is_empty() {
                    return Poll::Ready(Err(WireError::Closed));
                }
                if let Some(head) = self.open(read, method, max_bytes)? {
                    return Poll::Ready(Ok(head));
                }
                self.carried.extend_from_slice(read);
            }
        })
        .await
    }

    /// Reads more of the body. Says whether it is complete.
    pub(super) async fn more(&mut self, body: &mut Body) -> Result<bool, WireError> {
        if body.is_complete() {
            return Ok(true);
        }
        std::future::poll_fn(|cx| {
            let mut buffer = Reading::borrow();
            let read = ready!(buffer.poll(&mut self.stream, cx))?;
            if read.is_empty() {
                return Poll::Ready(match body.framing {
                    Framing::Close => Ok(true),
                    Framing::Length(_) | Framing::Chunked(_) => Err(WireError::Closed),
                });
            }
            let used = body.take(read)?;
            self.may_be_kept &= used == read.len();
            Poll::Ready(Ok(body.is_complete()))
        })
        .await
    }

    /// Reads a head in front of `input`, past interim ones; `None` when it is not complete. What
    /// follows an interim head that is not complete stays in front.
    fn open(
        &mut self,
        input: &[u8],
        method: &Method,
        max_bytes: usize,
    ) -> Result<Option<ReplyHead>, WireError> {
        let mut at = 0;
        loop {
            let Some(parsed) = parse_head(&input[at..])? else { return Ok(None) };
            let Parsed { version, status, headers, len } = parsed;
            at += len;
            if status == StatusCode::SWITCHING_PROTOCOLS {
                return Err(WireError::Invalid("it switches to another protocol"));
            }
            if status.is_informational() {
                continue;
            }
            let framing = match *method {
                Method::HEAD => Framing::Length(0),
                _ => Framing::of(status, &headers)?,
            };
            let mut data = Vec::new();
            if let Framing::Length(length) = framing {
                if length > max_bytes as u64 {
                    return Err(WireError::TooLarge(max_bytes));
                }
                data.reserve_exact(length.min(MAX_RESERVED_BYTES) as usize);
            }
            let keeps = keeps_alive(version, &headers) && framing != Framing::Close;
            let mut body = Body { framing, data, max_bytes };
            let used = body.take(&input[at..])?;
            self.may_be_kept = keeps && self.is_sent && at + used == input.len();
            return Ok(Some(ReplyHead { status, headers, body }));
        }
    }
}

impl Body {
    pub(super) fn into_bytes(self) -> Bytes {
        Bytes::from(self.data)
    }
}

/// The reading buffer of the thread, given back when it is dropped.
struct Reading(Vec<u8>);

impl Reading {
    fn borrow() -> Self {
        let mut buffer = READING.take();
        if buffer.is_empty() {
            buffer.resize(READ_BYTES, 0);
        }
        Self(buffer)
    }

    fn poll(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let mut buffer = ReadBuf::new(&mut self.0);
        ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
        let len = buffer.filled().len();
        Poll::Ready(Ok(&self.0[..len]))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        READING.set(std::mem::take(&mut self.0));
    }
}

fn poll_read<R>(
    stream: &mut Stream,
    cx: &mut Context<'_>,
    take: impl FnOnce(&[u8]) -> R,
) -> Poll<io::Result<R>> {
    let mut buffer = Reading::borrow();
    let read = ready!(buffer.poll(stream, cx))?;
    Poll::Ready(Ok(take(read)))
}

struct Parsed {
    version: Version,
    status: StatusCode,
    headers: HeaderMap,
    len: usize,
}

fn parse_head(input: &[u8]) -> Result<Option<Parsed>, WireError> {
    let mut few = [httparse::EMPTY_HEADER; USUAL_HEADERS];
    let mut response = httparse::Response::new(&mut few);
    match response.parse(input) {
        Ok(httparse::Status::Complete(len)) => read_head(input, &response, len).map(Some),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            let mut many = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let mut response = httparse::Response::new(&mut many);
            match response.parse(input).map_err(invalid)? {
                httparse::Status::Complete(len) => read_head(input, &response, len).map(Some),
                httparse::Status::Partial => Ok(None),
            }
        }
        Err(error) => Err(invalid(error)),
    }
}

fn read_head(
    input: &[u8],
    response: &httparse::Response<'_, '_>,
    len: usize,
) -> Result<Parsed, WireError> {
    let status = response.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or(WireError::Invalid("the status is none"))?;
    // The values share one copy of the head.
    let head = Bytes::copy_from_slice(&input[..len]);
    let mut headers = HeaderMap::with_capacity(response.headers.len());
    for header in response.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes())
            .map_err(|_| WireError::Invalid("a header has no valid name"))?;
        let start = header.value.as_ptr().addr() - input.as_ptr().addr();
        let value = head.slice(start..start + header.value.len());
        let value = HeaderValue::from_maybe_shared(value)
            .map_err(|_| WireError::Invalid("a header has no valid value"))?;
        headers.append(name, value);
    }
    let version = if response.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    Ok(Parsed { version, status, headers, len })
}

fn invalid(error: httparse::Error) -> WireError {
    WireError::Invalid(match error {
        httparse::Error::HeaderName => "a header has no valid name",
        httparse::Error::HeaderValue => "a header has no valid value",
        httparse::Error::NewLine => "a line does not end well",
        httparse::Error::Status => "the status line is not well formed",
        httparse::Error::Token => "the status line is not well formed",
        httparse::Error::TooManyHeaders => "it has too many headers",
        httparse::Error::Version => "the version is unknown",
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixStream;

    use super::*;

    fn pair() -> (Wire, UnixStream) {
        let (near, far) = UnixStream::pair().expect("a pair");
        (Wire::new(Stream::Unix(near)), far)
    }

    async fn send(wire: &mut Wire, body: &Bytes) -> Result<(), Unsent> {
        let name = http::header::HOST;
        let value = HeaderValue::from_static("x");
        let headers = std::iter::once((&name, &value));
        let trace = &TraceHeaders::none();
        wire.send(RequestHead { method: &Method::POST, target: "/a", headers, trace }, body).await
    }

    async fn read(wire: &mut Wire, method: &Method) -> Result<(u16, Bytes), WireError> {
        let ReplyHead { status, mut body, .. } = wire.reply(method, 64).await?;
        while !wire.more(&mut body).await? {}
        Ok((status.as_u16(), body.into_bytes()))
    }

    /// What comes of a reply whose parts arrive one after another before the connection ends.
    async fn told(parts: &[&[u8]]) -> (Result<(u16, Bytes), WireError>, bool) {
        let (mut wire, mut far) = pair();
        let parts: Vec<Vec<u8>> = parts.iter().map(|part| part.to_vec()).collect();
        let peer = tokio::spawn(async move {
            for part in parts {
                far.write_all(&part).await.expect("writes");
                tokio::task::yield_now().await;
            }
            drop(far);
        });
        let result = read(&mut wire, &Method::POST).await;
        peer.await.expect("no panic");
        (result, wire.may_be_kept())
    }

    #[tokio::test]
    async fn a_request_is_written_as_a_server_expects_it() {
        let (mut wire, mut far) = pair();
        send(&mut wire, &Bytes::from_static(b"{}")).await.expect("sends");
        let mut text = vec![0; 256];
        let read = far.read(&mut text).await.expect("reads");
        let expected = "POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(String::from_utf8_lossy(&text[..read]), expected);
    }

    #[tokio::test]
    async fn a_reply_is_read_wherever_it_is_cut() {
        let whole =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
        for at in 1..whole.len() {
            let (result, may_be_kept) = told(&[&whole[..at], &whole[at..]]).await;
            assert_eq!(result.expect("a reply"), (200, Bytes::from_static(b"hello")), "{at}");
            assert!(may_be_kept);
        }
        let chunked =
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        let bytes: Vec<&[u8]> = chunked.chunks(1).collect();
        let (result, may_be_kept) = told(&bytes).await;
        assert_eq!(result.expect("a reply").1, "hello");
        assert!(may_be_kept);
    }

    #[tokio::test]
    async fn a_reply_without_a_length_ends_with_its_connection() {
        let (result, may_be_kept) = told(&[b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo"]).await;
        assert_eq!(result.expect("a reply").1, "hello");
        assert!(!may_be_kept);
    }

    #[tokio::test]
    async fn a_connection_with_more_in_it_than_the_reply_is_not_used_again() {
        let (result, may_be_kept) =
            told(&[b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n"]).await;
        assert_eq!(result.expect("a reply").1, "x");
        assert!(!may_be_kept);
        let (mut wire, mut far) = pair();
        assert!(wire.is_open());
        far.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").await.expect("writes");
        tokio::task::yield_now().await;
        assert!(!wire.is_open());
        let (mut wire, far) = pair();
        drop(far);
        tokio::task::yield_now().await;
        assert!(!wire.is_open());
    }

    #[tokio::test]
    async fn a_reply_that_is_cut_off_or_no_reply_is_an_error() {
        for part in ["", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell"] {
            let (result, _) = told(&[part.as_bytes()]).await;
            assert!(matches!(result, Err(WireError::Closed)), "{part}: {result:?}");
        }
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(MAX_HEADERS + 1));
        for part in [
            "SSH-2.0-OpenSSH_9.6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nhello",
            &many,
        ] {
            let (result, _) = told(&[part.as_bytes()]).await;
            assert!(matches!(result, Err(WireError::Invalid(_))), "{part}: {result:?}");
        }
        let endless = vec![b'x'; 65];
        for head in ["content-length: 65", "connection: close"] {
            let head = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n");
            let (result, _) = told(&[head.as_bytes(), &endless]).await;
            assert!(matches!(result, Err(WireError::TooLarge(64))), "{head}: {result:?}");
        }
    }

    #[tokio::test]
    async fn more_headers_than_usual_and_a_head_request_are_read() {
        let head = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(MAX_HEADERS));
        let (result, _) = told(&[head.as_bytes()]).await;
        assert_eq!(result.expect("a reply").0, 200);
        let (mut wire, mut far) = pair();
        far.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n").await.expect("writes");
        assert_eq!(read(&mut wire, &Method::HEAD).await.expect("a reply").1, "");
    }

    /// Guarantees: a server that refuses a body without reading it is understood, and its
    /// connection is not used again.
    #[tokio::test]
    async fn a_server_that_answers_before_it_has_read_everything_is_heard() {
        let (mut wire, mut far) = pair();
        far.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
            .await
            .expect("writes");
        send(&mut wire, &Bytes::from(vec![0; 4 << 20])).await.expect("is heard");
        assert_eq!(read(&mut wire, &Method::POST).await.expect("a reply").0, 413);
        assert!(!wire.may_be_kept() && !wire.is_open());
    }

    #[tokio::test]
    async fn a_large_body_arrives_whole() {
        let (mut wire, mut far) = pair();
        let body: Bytes = (0..3_000_000_u32).map(|at| at as u8).collect();
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            far.read_to_end(&mut all).await.expect("reads");
            all
        });
        send(&mut wire, &body).await.expect("sends");
        drop(wire);
        let all = reader.await.expect("no panic");
        let head = b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3000000\r\n\r\n";
        assert!(all.strip_prefix(head).is_some_and(|rest| rest == body));
    }

    #[tokio::test]
    async fn a_request_of_which_nothing_left_says_so() {
        let (mut wire, far) = pair();
        drop(far);
        let unsent = send(&mut wire, &Bytes::from_static(b"{}")).await.expect_err("nobody reads");
        assert!(!unsent.was_begun);
    }
}
