//! The frame that gRPC puts around a message.

use bytes::Bytes;

/// In front of a message: whether it is compressed, and its length.
pub(super) const PREFIX_BYTES: usize = 5;

/// Why a body is not one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Too short, or the first byte is neither 0 nor 1.
    #[error("the call has no message, or one without a valid prefix")]
    Prefix,
    /// Cut off.
    #[error("the message is shorter than its prefix says")]
    Short,
    /// More than one.
    #[error("a call of Export has one message")]
    Several,
}

/// The one message of a unary call, and whether it is compressed.
///
/// # Errors
///
/// When the body is anything else.
pub fn unframe(body: &Bytes) -> Result<(bool, Bytes), FrameError> {
    let Some([flag @ (0 | 1), length @ ..]) = body.first_chunk::<PREFIX_BYTES>().copied() else {
        return Err(FrameError::Prefix);
    };
    let message = body.slice(PREFIX_BYTES..);
    match message.len().cmp(&(u32::from_be_bytes(length) as usize)) {
        std::cmp::Ordering::Less => Err(FrameError::Short),
        std::cmp::Ordering::Equal => Ok((flag == 1, message)),
        std::cmp::Ordering::Greater => Err(FrameError::Several),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_one_whole_message() {
        let message = Bytes::from_static(b"\x01\0\0\0\x02hi");
        assert_eq!(unframe(&message), Ok((true, Bytes::from_static(b"hi"))));
        for (body, error) in [
            ("", FrameError::Prefix),
            ("\0\0\0\0", FrameError::Prefix),
            ("\x02\0\0\0\x02hi", FrameError::Prefix),
            ("\0\0\0\0\x03hi", FrameError::Short),
            ("\0\0\0\0\x01hi", FrameError::Several),
        ] {
            assert_eq!(unframe(&Bytes::from(body)), Err(error), "{body:?}");
        }
    }
}
