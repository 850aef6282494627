//! Asks a running `gym observe`.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use gym_telemetry::env_vars;
use http::header::{ACCEPT, AUTHORIZATION, CONNECTION, HOST};
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use lens::config::parse_headers;
use lens_observe::LEFT_OUT;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

use crate::commands::block_on;

/// Longest answer that is taken.
const MAX_ANSWER_BYTES: usize = 1 << 30;
/// How long an answer may take: a question may read many files.
const LIMIT: Duration = Duration::from_secs(120);
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/x-protobuf";

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// It is no URL that can be asked.
    #[error("{url} is no URL of a `gym observe`: http://HOST:PORT")]
    Url {
        /// As it was given.
        url: String,
    },
    /// Nobody answers there.
    #[error("no `gym observe` answers at {base}")]
    Silent {
        /// Where it was asked.
        base: String,
        /// Why.
        source: anyhow::Error,
    },
    /// It answers something else.
    #[error("{base} answers what this version does not understand")]
    Answer {
        /// Where it was asked.
        base: String,
        /// Why.
        source: serde_json::Error,
    },
    /// It says no.
    #[error("{message} ({base} answers {status})")]
    Refused {
        /// Where it was asked.
        base: String,
        /// The status.
        status: StatusCode,
        /// What it says.
        message: String,
    },
}

impl RemoteError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Url { .. } | Self::Silent { .. } => {
                Some("`gym observe`, or `--observe` of a command, says its address".to_owned())
            }
            Self::Refused { status: StatusCode::UNAUTHORIZED, .. } => {
                let name = env_vars::OTEL_EXPORTER_OTLP_HEADERS;
                Some(format!(
                    "it wants its token: {name}=authorization=Bearer%20TOKEN, as for the fleets that send to it"
                ))
            }
            Self::Refused { .. } | Self::Answer { .. } => None,
        }
    }
}

/// A `gym observe` that runs.
#[derive(Clone, Debug)]
pub struct Remote {
    host: String,
    port: u16,
    /// The credentials that a fleet sends there too.
    authorization: Option<HeaderValue>,
}

/// What it answered.
#[derive(Debug)]
pub struct Answered {
    /// The body.
    pub body: Bytes,
    /// Older traces that are not in it.
    pub left_out: u64,
}

impl Remote {
    /// The `gym observe` at a URL; nothing when the text is no URL. It is asked with the credentials that spans are sent
    /// with, when it is on the host that they are sent to.
    pub fn parse(text: &str) -> Option<Result<Self, RemoteError>> {
        let is_url = text.contains("://");
        is_url.then(|| {
            let wrong = || RemoteError::Url { url: text.to_owned() };
            let uri: Uri = text.parse().map_err(|_| wrong())?;
            let is_plain = uri.scheme_str() == Some("http") && matches!(uri.path(), "" | "/");
            let host = uri.host().filter(|_| is_plain).ok_or_else(wrong)?;
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let authorization = credentials_for(&host);
            Ok(Self { host, port: uri.port_u16().unwrap_or(4318), authorization })
        })
    }

    /// The `gym observe` at a URL.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub fn of(url: &str) -> Result<Self, RemoteError> {
        Self::parse(url).unwrap_or_else(|| Err(RemoteError::Url { url: url.to_owned() }))
    }

    /// Its URL.
    pub fn base(&self) -> String {
        format!("http://{}", self.authority())
    }

    fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Asks for JSON.
    ///
    /// # Errors
    ///
    /// [`RemoteError`].
    pub fn json(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Answered, RemoteError> {
        self.get(path, parameters, JSON)
    }

    /// Asks for spans as an export request in protobuf.
    ///
    /// # Errors
    ///
    /// [`RemoteError`].
    pub fn spans(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Answered, RemoteError> {
        self.get(path, parameters, PROTOBUF)
    }

    /// Asks, and waits on the runtime that is there.
    ///
    /// # Errors
    ///
    /// [`RemoteError`].
    pub async fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        parameters: &[(&str, &str)],
    ) -> Result<T, RemoteError> {
        let answered = self.talk(path, parameters, JSON).await?;
        serde_json::from_slice(&answered.body)
            .map_err(|source| RemoteError::Answer { base: self.base(), source })
    }

    fn get(
        &self,
        path: &str,
        parameters: &[(&str, &str)],
        accept: &str,
    ) -> Result<Answered, RemoteError> {
        let mut answered = None;
        let asking = async {
            answered = Some(self.talk(path, parameters, accept).await);
            Ok(())
        };
        block_on(asking).map_err(|source| RemoteError::Silent { base: self.base(), source })?;
        answered.unwrap_or_else(|| {
            let source = anyhow::anyhow!("nobody was asked");
            Err(RemoteError::Silent { base: self.base(), source })
        })
    }

    async fn talk(
        &self,
        path: &str,
        parameters: &[(&str, &str)],
        accept: &str,
    ) -> Result<Answered, RemoteError> {
        let mut target = format!("/api/v1/{path}");
        for (at, (name, value)) in parameters.iter().enumerate() {
            target.push(if at == 0 { '?' } else { '&' });
            target.push_str(name);
            target.push('=');
            percent_encode(&mut target, value);
        }
        let exchange = tokio::time::timeout(LIMIT, self.exchange(&target, accept)).await;
        let (status, answered) = exchange
            .map_err(anyhow::Error::from)
            .and_then(|done| done)
            .map_err(|source| RemoteError::Silent { base: self.base(), source })?;
        if status.is_success() {
            return Ok(answered);
        }
        let document: serde_json::Value =
            serde_json::from_slice(&answered.body).unwrap_or_default();
        let message = document.get("message").and_then(|message| message.as_str());
        let message = message.unwrap_or("nothing that can be read").to_owned();
        Err(RemoteError::Refused { base: self.base(), status, message })
    }

    async fn exchange(
        &self,
        target: &str,
        accept: &str,
    ) -> Result<(StatusCode, Answered), anyhow::Error> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let talk = async {
            let mut request = Request::get(target)
                .header(HOST, self.authority())
                .header(ACCEPT, accept)
                .header(CONNECTION, "close");
            if let Some(authorization) = &self.authorization {
                request = request.header(AUTHORIZATION, authorization);
            }
            let reply = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
            let status = reply.status();
            let left_out = reply.headers().get(LEFT_OUT).and_then(|count| count.to_str().ok());
            let left_out = left_out.and_then(|count| count.parse().ok()).unwrap_or(0);
            let body = Limited::new(reply.into_body(), MAX_ANSWER_BYTES).collect().await;
            let body = body.map_err(anyhow::Error::from_boxed)?.to_bytes();
            Ok((status, Answered { body, left_out }))
        };
        let (done, _) = tokio::join!(talk, connection);
        done
    }
}

/// The `authorization` that spans are sent with to a host, as the environment says.
pub fn credentials_for(host: &str) -> Option<HeaderValue> {
    let first = |names: [&str; 2]| {
        let mut set = names.into_iter().filter_map(|name| std::env::var(name).ok());
        set.find(|value| !value.is_empty())
    };
    let endpoint =
        first([env_vars::per_signal::ENDPOINT[0], env_vars::OTEL_EXPORTER_OTLP_ENDPOINT]);
    let is_theirs = match endpoint {
        Some(endpoint) => endpoint.parse::<Uri>().is_ok_and(|endpoint| {
            let known = endpoint.host().unwrap_or_default();
            known.trim_start_matches('[').trim_end_matches(']') == host
        }),
        // Spans go to this host then.
        None => host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()),
    };
    let headers = first([env_vars::per_signal::HEADERS[0], env_vars::OTEL_EXPORTER_OTLP_HEADERS])
        .filter(|_| is_theirs)?;
    let mut headers = parse_headers(&headers).into_iter();
    let (_, credentials) = headers.find(|(name, _)| name == AUTHORIZATION.as_str())?;
    HeaderValue::try_from(credentials).ok()
}

/// Appends a value as it may stand in a query.
fn percent_encode(out: &mut String, value: &str) {
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_url_and_what_is_a_path() {
        let base = |text: &str| Remote::parse(text).map(|it| it.map(|it| it.base()).ok());
        assert_eq!(base("logs"), None);
        assert_eq!(base("http://127.0.0.1:7/"), Some(Some("http://127.0.0.1:7".to_owned())));
        assert_eq!(base("http://[::1]"), Some(Some("http://[::1]:4318".to_owned())));
        assert_eq!(base("https://127.0.0.1:7"), Some(None));
        assert_eq!(base("http://127.0.0.1:7/api"), Some(None));
        let mut text = String::new();
        percent_encode(&mut text, "{ a = \"ü\" }");
        assert_eq!(text, "%7B%20a%20%3D%20%22%C3%BC%22%20%7D");
    }
}
