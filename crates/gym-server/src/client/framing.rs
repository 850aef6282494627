//! How long the body of a reply is, and the decoder of chunked ones (RFC 9112).
//!
//! What two readers could understand differently is refused, or ends the connection.

use http::{HeaderMap, HeaderValue, StatusCode, Version, header};

/// Bytes of chunk extensions and trailers, which nobody reads, that one reply may have.
const MAX_IGNORED_BYTES: usize = 64 << 10;

/// Where a body ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// After so many bytes.
    Length(u64),
    /// After its last chunk.
    Chunked(Chunks),
    /// With the connection.
    Close,
}

/// A head that says nothing certain about its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Ambiguous(pub(super) &'static str);

impl Framing {
    /// The body of a reply to a request that was no HEAD.
    pub(super) fn of(status: StatusCode, headers: &HeaderMap) -> Result<Self, Ambiguous> {
        if status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED {
            return Ok(Self::Length(0));
        }
        if let Some(last) = headers.get_all(header::TRANSFER_ENCODING).iter().next_back() {
            let last_coding = last.as_bytes().rsplit(|byte| *byte == b',').next();
            let is_chunked = last_coding
                .is_some_and(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"chunked"));
            return Ok(if is_chunked { Self::Chunked(Chunks::default()) } else { Self::Close });
        }
        let mut length = None;
        for value in headers.get_all(header::CONTENT_LENGTH) {
            let this = content_length(value).ok_or(Ambiguous("a content length is no number"))?;
            if length.is_some_and(|other| other != this) {
                return Err(Ambiguous("the content lengths differ"));
            }
            length = Some(this);
        }
        Ok(length.map_or(Self::Close, Self::Length))
    }
}

fn content_length(value: &HeaderValue) -> Option<u64> {
    let text = value.to_str().ok()?;
    // A sign would parse, too.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Whether a connection may serve another request after this reply.
pub(super) fn keeps_alive(version: Version, headers: &HeaderMap) -> bool {
    let says = |wanted: &[u8]| {
        headers
            .get_all(header::CONNECTION)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .any(|token| token.trim_ascii().eq_ignore_ascii_case(wanted))
    };
    let is_kept = if version == Version::HTTP_10 { says(b"keep-alive") } else { !says(b"close") };
    // Two lengths are how requests are smuggled past a proxy.
    let has_two_lengths = headers.contains_key(header::TRANSFER_ENCODING)
        && headers.contains_key(header::CONTENT_LENGTH);
    is_kept && !has_two_lengths
}

/// The decoder of a chunked body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chunks {
    at: At,
    /// Of the size line that is being read, or what is left of the chunk.
    size: u64,
    ignored: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    SizeStart,
    Size,
    Extension,
    SizeEnd,
    Data,
    DataReturn,
    DataEnd,
    TrailerStart,
    Trailer,
    TrailerEnd,
    LastEnd,
    Done,
}

impl Chunks {
    /// Appends the data in `input` to `out`; says how much of the input belongs to the body.
    pub(super) fn decode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Ambiguous> {
        let mut at = 0;
        while self.at != At::Done {
            let Some(byte) = input.get(at).copied() else { break };
            if self.at == At::Data {
                let left = usize::try_from(self.size).unwrap_or(usize::MAX);
                let part = &input[at..][..left.min(input.len() - at)];
                out.extend_from_slice(part);
                at += part.len();
                self.size -= part.len() as u64;
                if self.size == 0 {
                    self.at = At::DataReturn;
                }
                continue;
            }
            self.at = self.step(byte)?;
            at += 1;
        }
        Ok(at)
    }

    pub(super) fn is_done(&self) -> bool {
        self.at == At::Done
    }

    fn step(&mut self, byte: u8) -> Result<At, Ambiguous> {
        let digit = char::from(byte).to_digit(16).map(u64::from);
        Ok(match (self.at, byte) {
            (At::SizeStart | At::Size, _) if let Some(digit) = digit => {
                let size = self.size.checked_mul(16).and_then(|size| size.checked_add(digit));
                self.size = size.ok_or(Ambiguous("a chunk is too large"))?;
                At::Size
            }
            (At::Size, b'\r') => At::SizeEnd,
            (At::Size, b';' | b' ' | b'\t') => At::Extension,
            (At::Extension, b'\r') => At::SizeEnd,
            (At::Extension, byte) if byte != b'\n' => self.ignore(At::Extension)?,
            (At::SizeEnd, b'\n') if self.size == 0 => At::TrailerStart,
            (At::SizeEnd, b'\n') => At::Data,
            (At::DataReturn, b'\r') => At::DataEnd,
            (At::DataEnd, b'\n') => At::SizeStart,
            (At::TrailerStart, b'\r') => At::LastEnd,
            (At::Trailer, b'\r') => At::TrailerEnd,
            (At::TrailerStart | At::Trailer, byte) if byte != b'\n' => self.ignore(At::Trailer)?,
            (At::TrailerEnd, b'\n') => At::TrailerStart,
            (At::LastEnd, b'\n') => At::Done,
            _ => return Err(Ambiguous("a chunk is not well formed")),
        })
    }

    fn ignore(&mut self, next: At) -> Result<At, Ambiguous> {
        self.ignored += 1;
        if self.ignored > MAX_IGNORED_BYTES {
            return Err(Ambiguous("the trailers are too long"));
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = lines.iter().map(|(name, value)| {
            (http::HeaderName::from_static(name), HeaderValue::from_static(value))
        });
        pairs.collect()
    }

    fn framing(lines: &[(&'static str, &'static str)]) -> Result<Framing, Ambiguous> {
        // `collect` keeps the last of a name only.
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(*name, HeaderValue::from_static(value));
        }
        Framing::of(StatusCode::OK, &map)
    }

    #[test]
    fn the_end_of_a_body_is_told_from_the_head() {
        let chunked = || Ok(Framing::Chunked(Chunks::default()));
        assert_eq!(framing(&[("content-length", "7")]), Ok(Framing::Length(7)));
        assert_eq!(framing(&[]), Ok(Framing::Close));
        assert_eq!(framing(&[("transfer-encoding", "gzip, Chunked")]), chunked());
        assert_eq!(
            framing(&[("transfer-encoding", "chunked"), ("content-length", "7")]),
            chunked()
        );
        assert_eq!(framing(&[("transfer-encoding", "chunked, gzip")]), Ok(Framing::Close));
        assert_eq!(
            framing(&[("content-length", "7"), ("content-length", "7")]),
            Ok(Framing::Length(7))
        );
        for wrong in ["-1", "+1", "", "7, 7", "0x7", "99999999999999999999"] {
            assert!(framing(&[("content-length", wrong)]).is_err(), "{wrong:?}");
        }
        assert!(framing(&[("content-length", "7"), ("content-length", "8")]).is_err());
        let empty = Framing::of(StatusCode::NO_CONTENT, &headers(&[("content-length", "7")]));
        assert_eq!(empty, Ok(Framing::Length(0)));
    }

    #[test]
    fn a_connection_is_kept_unless_the_reply_says_otherwise() {
        let keeps = |version, lines: &[_]| keeps_alive(version, &headers(lines));
        assert!(keeps(Version::HTTP_11, &[]));
        assert!(!keeps(Version::HTTP_11, &[("connection", "x, Close")]));
        assert!(!keeps(Version::HTTP_10, &[]));
        assert!(keeps(Version::HTTP_10, &[("connection", "Keep-Alive")]));
        let both = [("transfer-encoding", "chunked"), ("content-length", "7")];
        assert!(!keeps(Version::HTTP_11, &both));
    }

    #[test]
    fn chunks_are_joined_however_they_arrive() {
        let body = b"4\r\nWiki\r\n6;x=y\r\npedia \r\nE \r\nin \r\n\r\nchunks.\r\n0\r\nTrailer: 1\r\n\r\nHTTP/1.1";
        for step in 1..body.len() {
            let (mut chunks, mut out) = (Chunks::default(), Vec::new());
            let mut used = 0;
            for part in body.chunks(step) {
                used += chunks.decode(part, &mut out).expect("well formed");
            }
            assert!(chunks.is_done());
            assert_eq!(out, b"Wikipedia in \r\n\r\nchunks.");
            assert_eq!(&body[used..], b"HTTP/1.1");
        }
    }

    #[test]
    fn chunks_that_are_not_well_formed_are_refused() {
        let long = format!("1;{}", "x".repeat(MAX_IGNORED_BYTES + 1));
        for body in [
            "\r\n",
            "x\r\n",
            "4\nWiki",
            "4\r\nWikipedia",
            "4;\n",
            "0\r\n\n",
            "-1\r\n",
            "11111111111111111\r\n",
            &long,
        ] {
            let result = Chunks::default().decode(body.as_bytes(), &mut Vec::new());
            assert!(result.is_err(), "{body:.20}");
        }
    }
}
