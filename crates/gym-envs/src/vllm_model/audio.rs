//! Audio named in a request's metadata, as parts of its last user message.

use std::io;
use std::path::{Component, Path, PathBuf};

use gym_server::api::json;

/// Why audio cannot be attached.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum AudioError {
    #[error("only one of audio_data, audio_path and audio_paths may be given")]
    Several,
    #[error("audio_paths is not a JSON list of strings")]
    Paths,
    #[error("audio path {0:?} lies outside audio_root")]
    Outside(PathBuf),
    #[error("failed to read audio file {path:?}")]
    Read { path: PathBuf, source: io::Error },
    #[error("there is no user message that the audio could be attached to")]
    NoUserMessage,
}

/// The `audio_url` parts that a request's metadata asks for, joined by commas.
pub fn parts(metadata: &str, root: Option<&Path>) -> Result<Option<String>, AudioError> {
    let member =
        |name| json::member(metadata, name).and_then(json::string).filter(|text| !text.is_empty());
    let urls = match (member("audio_data"), member("audio_path"), member("audio_paths")) {
        (None, None, None) => return Ok(None),
        (Some(data), None, None) if data.starts_with("data:") => vec![data.into_owned()],
        (Some(data), None, None) => vec![format!("data:audio/wav;base64,{data}")],
        (None, Some(path), None) => vec![read(&path, root)?],
        (None, None, Some(paths)) => {
            let paths: Vec<String> = serde_json::from_str(&paths).map_err(|_| AudioError::Paths)?;
            paths.iter().map(|path| read(path, root)).collect::<Result<_, _>>()?
        }
        _ => return Err(AudioError::Several),
    };
    let parts = urls.iter().map(|url| {
        let mut out = b"{\"type\":\"audio_url\",\"audio_url\":{\"url\":".to_vec();
        json::write_string(&mut out, url);
        out.extend_from_slice(b"}}");
        super::upstream::text(out)
    });
    Ok(Some(parts.collect::<Vec<_>>().join(",")))
}

fn read(path: &str, root: Option<&Path>) -> Result<String, AudioError> {
    let given = Path::new(path);
    let full = match root {
        Some(root) => {
            if given.is_absolute() && !given.starts_with(root)
                || given.components().any(|part| part == Component::ParentDir)
            {
                return Err(AudioError::Outside(given.to_owned()));
            }
            root.join(given)
        }
        None => given.to_owned(),
    };
    let bytes =
        std::fs::read(&full).map_err(|source| AudioError::Read { path: full.clone(), source })?;
    let media = match full.extension().and_then(|extension| extension.to_str()).unwrap_or_default()
    {
        "mp3" => "mpeg",
        "flac" => "flac",
        "ogg" => "ogg",
        "m4a" | "mp4" => "mp4",
        "webm" => "webm",
        _ => "wav",
    };
    Ok(format!("data:audio/{media};base64,{}", base64(&bytes)))
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let digit = (word >> (18 - 6 * at) & 63) as usize;
            text.push(if at <= chunk.len() { char::from(ALPHABET[digit]) } else { '=' });
        }
    }
    text
}

/// Puts parts at the front of the last user message.
pub fn put_first(parts: &str, messages: &str) -> Result<String, AudioError> {
    let all: Vec<&str> = json::elements(messages).into_iter().flatten().flatten().collect();
    let last = all
        .iter()
        .rposition(|message| json::member(message, "role") == Some("\"user\""))
        .ok_or(AudioError::NoUserMessage)?;
    let mut user = gym_server::api::Object::parse(all[last]);
    let content = user.get("content").unwrap_or("[]");
    let content =
        match content.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).map(str::trim) {
            Some("") => format!("[{parts}]"),
            Some(inner) => format!("[{parts},{inner}]"),
            None => format!(r#"[{parts},{{"type":"text","text":{content}}}]"#),
        };
    user.set("content", content);
    let user = super::upstream::text(user.to_json());
    let all: Vec<&str> = all
        .iter()
        .enumerate()
        .map(|(at, message)| if at == last { user.as_str() } else { message })
        .collect();
    Ok(format!("[{}]", all.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads() {
        let table = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("\u{7f}\u{0}", "fwA="),
        ];
        for (plain, encoded) in table {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn audio_goes_to_the_front_of_the_last_user_message() {
        let parts = parts(r#"{"audio_data":"QQ=="}"#, None).expect("parts").expect("audio");
        let messages = r#"[{"role":"user","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c"}]"#;
        assert_eq!(
            put_first(&parts, messages).expect("messages"),
            r#"[{"role":"user","content":"a"},{"role":"user","content":[{"type":"audio_url","audio_url":{"url":"data:audio/wav;base64,QQ=="}},{"type":"text","text":"b"}]},{"role":"assistant","content":"c"}]"#
        );
        assert!(matches!(put_first(&parts, "[]"), Err(AudioError::NoUserMessage)));
    }

    #[test]
    fn audio_metadata_is_exclusive_and_stays_below_the_root() {
        let refused =
            |metadata: &str| super::parts(metadata, Some(Path::new("/audio"))).expect_err(metadata);
        assert!(matches!(refused(r#"{"audio_data":"a","audio_path":"b"}"#), AudioError::Several));
        assert!(matches!(refused(r#"{"audio_path":"../secret.wav"}"#), AudioError::Outside(_)));
        assert!(matches!(refused(r#"{"audio_path":"/etc/passwd"}"#), AudioError::Outside(_)));
        assert!(matches!(refused(r#"{"audio_paths":"x"}"#), AudioError::Paths));
        assert!(super::parts(r#"{"other":"x"}"#, None).expect("none").is_none());
    }
}
