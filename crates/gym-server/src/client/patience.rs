//! How long a client goes on trying, from the keys of the merged config, and what it says meanwhile.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::retry::Policy;

/// Config key of [`Patience::servers`], in seconds.
pub const SERVER_RETRY_KEY: &str = "server_retry_timeout_seconds";
/// Config key of [`Patience::models`], in seconds.
pub const MODEL_RETRY_KEY: &str = "model_retry_timeout_seconds";
/// Config key of [`Patience::model_silence`], in seconds.
pub const MODEL_IDLE_KEY: &str = "model_idle_timeout_seconds";

/// A request that is being repeated is mentioned from here on.
const QUIET_FOR: Duration = Duration::from_secs(1);
const MENTION_EVERY: Duration = Duration::from_secs(10);

/// How long a request may go on before it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Time within which attempts at a Gym server may start.
    pub servers: Duration,
    /// Time within which attempts at a model endpoint may start.
    pub models: Duration,
    /// Longest silence of a model endpoint while a reply is awaited or read.
    pub model_silence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            servers: Duration::from_secs(60),
            models: Duration::from_secs(600),
            model_silence: Duration::from_secs(1800),
        }
    }
}

/// A time that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: expected a number of seconds, got {found}")]
pub struct InvalidPatience {
    /// The config key.
    pub key: &'static str,
    /// Its value.
    pub found: String,
}

impl Patience {
    /// The config keys that it is read from.
    pub const KEYS: [&str; 3] = [SERVER_RETRY_KEY, MODEL_RETRY_KEY, MODEL_IDLE_KEY];

    /// Reads [`SERVER_RETRY_KEY`], [`MODEL_RETRY_KEY`] and [`MODEL_IDLE_KEY`] from a merged config.
    ///
    /// # Errors
    ///
    /// When one of them is no time.
    pub fn from_global(global: &Value) -> Result<Self, InvalidPatience> {
        let seconds = |key: &'static str, default: Duration| match global.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => value
                .as_f64()
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .ok_or_else(|| InvalidPatience { key, found: value.to_string() }),
        };
        let default = Self::default();
        Ok(Self {
            servers: seconds(SERVER_RETRY_KEY, default.servers)?,
            models: seconds(MODEL_RETRY_KEY, default.models)?,
            model_silence: seconds(MODEL_IDLE_KEY, default.model_silence)?,
        })
    }

    /// Time within which attempts under `policy` may start.
    #[must_use]
    pub fn budget(&self, policy: Policy) -> Duration {
        match policy {
            Policy::Internal | Policy::InternalIdempotent => self.servers,
            Policy::Model => self.models,
            Policy::Once => Duration::ZERO,
        }
    }

    /// Longest silence under `policy`.
    #[must_use]
    pub fn silence(&self, policy: Policy) -> Option<Duration> {
        (policy == Policy::Model).then_some(self.model_silence)
    }
}

/// Hears of requests that are being repeated, so that nobody waits without knowing for what.
#[derive(Clone)]
pub struct Listener(Arc<dyn Fn(&str) + Send + Sync>);

impl Listener {
    /// Calls `hear` with one line without its line break, at most every ten seconds for a destination.
    pub fn new(hear: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// What has been said about repeated requests.
#[derive(Debug, Default)]
pub(super) struct Mentions(Mutex<HashMap<String, Instant>>);

impl Mentions {
    /// Tells `listener` about `destination`, unless it was told a moment ago.
    pub(super) fn mention(
        &self,
        listener: Option<&Listener>,
        destination: &str,
        trying_for: Duration,
        line: impl FnOnce() -> String,
    ) {
        let Some(listener) = listener.filter(|_| trying_for >= QUIET_FOR) else { return };
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if told.get(destination).is_some_and(|last| now - *last < MENTION_EVERY) {
            return;
        }
        told.insert(destination.to_owned(), now);
        drop(told);
        (listener.0)(&line());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_come_from_the_config_and_default_to_those_of_the_design() {
        let patience = Patience::from_global(&json!({})).expect("defaults");
        assert_eq!(patience, Patience::default());
        assert_eq!(patience.budget(Policy::Model), Duration::from_secs(600));
        assert_eq!(patience.budget(Policy::Internal), Duration::from_secs(60));
        assert_eq!(patience.silence(Policy::Model), Some(Duration::from_secs(1800)));
        assert_eq!(patience.silence(Policy::Internal), None);
        let set = json!({MODEL_RETRY_KEY: 1.5, MODEL_IDLE_KEY: 2, SERVER_RETRY_KEY: 0});
        let patience = Patience::from_global(&set).expect("times");
        assert_eq!(patience.models, Duration::from_millis(1500));
        assert_eq!(patience.servers, Duration::ZERO);
        let error = Patience::from_global(&json!({MODEL_IDLE_KEY: "soon"})).expect_err("no time");
        assert_eq!(
            error.to_string(),
            "model_idle_timeout_seconds: expected a number of seconds, got \"soon\""
        );
        assert!(Patience::from_global(&json!({MODEL_IDLE_KEY: -1})).is_err());
    }

    #[test]
    fn a_destination_is_mentioned_once_in_a_while_and_a_short_hiccup_never() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&heard);
        let listener = Listener::new(move |line| sink.lock().expect("lock").push(line.to_owned()));
        let mentions = Mentions::default();
        let mention = |destination: &str, seconds: f64| {
            mentions.mention(
                Some(&listener),
                destination,
                Duration::from_secs_f64(seconds),
                || format!("{destination} after {seconds}"),
            );
        };
        mention("a", 0.5);
        mention("a", 1.5);
        mention("a", 2.5);
        mention("b", 3.0);
        assert_eq!(*heard.lock().expect("lock"), ["a after 1.5", "b after 3"]);
    }
}
