//! The model endpoints behind a fleet: which there are, and whether they answer.

use std::time::{Duration, Instant};

use gym_server::instance::{Endpoint, ServerType};
use serde_json::Value;

use super::FleetError;
use super::probe::{self, ProbeError};
use crate::printer::Printer;

/// Config key of the time that endpoints are waited for, in seconds.
pub const TIMEOUT_KEY: &str = "model_endpoint_readiness_timeout_seconds";
const DEFAULT_TIMEOUT_SECONDS: f64 = 600.0;
const PROBE_LIMIT: Duration = Duration::from_secs(5);
const SHORTEST_PROBE: Duration = Duration::from_millis(100);
const INTERVAL: Duration = Duration::from_secs(3);
const NOTE_EVERY: Duration = Duration::from_secs(10);

/// A URL that a model server will call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelUrl {
    /// The URL without a trailing slash.
    pub url: String,
    /// Dotted config key it stands under.
    pub key: String,
}

/// Every string below a key that ends in `base_url` in the blocks of model servers, once.
pub fn collect(config: &Value) -> Vec<ModelUrl> {
    let mut found = Vec::new();
    for (name, instance) in config.as_object().into_iter().flatten() {
        let group = ServerType::ResponsesApiModels.as_str();
        if let Some(block) = instance.get(group) {
            walk(block, &format!("{name}.{group}"), &mut found);
        }
    }
    found
}

fn walk(value: &Value, path: &str, found: &mut Vec<ModelUrl>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                let path = format!("{path}.{key}");
                if key.ends_with("base_url") {
                    let urls = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
                    urls.iter().filter_map(Value::as_str).for_each(|url| add(url, &path, found));
                } else {
                    walk(value, &path, found);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| walk(value, path, found)),
        _ => {}
    }
}

fn add(url: &str, key: &str, found: &mut Vec<ModelUrl>) {
    let url = url.trim().trim_end_matches('/');
    if !url.is_empty() && found.iter().all(|known| known.url != url) {
        found.push(ModelUrl { url: url.to_owned(), key: key.to_owned() });
    }
}

/// How long endpoints are waited for; `None` when they are not.
///
/// # Errors
///
/// [`FleetError::Setting`] when the key holds no number.
pub fn timeout(config: &Value) -> Result<Option<Duration>, FleetError> {
    let seconds = match config.get(TIMEOUT_KEY) {
        None => DEFAULT_TIMEOUT_SECONDS,
        Some(value) => value.as_f64().ok_or_else(|| FleetError::Setting {
            key: TIMEOUT_KEY,
            found: value.to_string(),
            expected: "a number of seconds",
        })?,
    };
    Ok((seconds > 0.0).then(|| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)))
}

/// Waits until every endpoint has answered once.
///
/// # Errors
///
/// [`FleetError::ModelEndpoints`] names those that have not within `limit`.
pub async fn wait(
    urls: Vec<ModelUrl>,
    limit: Duration,
    printer: &Printer,
) -> Result<(), FleetError> {
    let started = Instant::now();
    let mut noted = started;
    let mut waiting = urls;
    loop {
        let mut still = Vec::new();
        let mut last = None;
        for endpoint in waiting {
            let left = limit.saturating_sub(started.elapsed()).max(SHORTEST_PROBE);
            match answers(&endpoint.url, left.min(PROBE_LIMIT)).await {
                Answer::Yes => {}
                Answer::NotYet(error) => {
                    last.get_or_insert(error);
                    still.push(endpoint);
                }
                Answer::Never(why) => printer.warn(&format!(
                    "model endpoint {} (key {}) is not waited for: {why}",
                    endpoint.url, endpoint.key
                )),
            }
        }
        waiting = still;
        let Some(last) = last else { return Ok(()) };
        if started.elapsed() >= limit {
            return Err(FleetError::ModelEndpoints {
                unanswered: waiting
                    .into_iter()
                    .map(|endpoint| (endpoint.url, endpoint.key))
                    .collect(),
                seconds: limit.as_secs_f64(),
                source: last,
            });
        }
        if noted == started || noted.elapsed() >= NOTE_EVERY {
            let list: Vec<String> = waiting
                .iter()
                .map(|endpoint| format!("{} (key {})", endpoint.url, endpoint.key))
                .collect();
            printer.say(&format!(
                "Waiting for model endpoints to answer: {} ({:.0} s of {:.0} s): {}",
                list.join(", "),
                started.elapsed().as_secs_f64(),
                limit.as_secs_f64(),
                crate::render::chain(&last),
            ));
            noted = Instant::now();
        }
        tokio::time::sleep(INTERVAL.min(limit.saturating_sub(started.elapsed()))).await;
    }
}

enum Answer {
    Yes,
    NotYet(ProbeError),
    Never(String),
}

async fn answers(url: &str, limit: Duration) -> Answer {
    let endpoint = match Endpoint::model(url) {
        Ok(endpoint) => endpoint,
        Err(error) => return Answer::Never(error.to_string()),
    };
    let result = if endpoint.tls() {
        // Whoever takes the connection would also answer, if only with a TLS error.
        probe::connect(endpoint.host(), endpoint.port(), limit).await
    } else {
        let path = match endpoint.base_path() {
            path if path.ends_with("/v1") => format!("{path}/models"),
            "" => "/".to_owned(),
            path => path.to_owned(),
        };
        probe::get(endpoint.host(), endpoint.port(), &path, limit).await.map(drop)
    };
    match result {
        // An answer that is no HTTP, e.g. TLS behind an http:// URL, is for the model server to report.
        Ok(()) | Err(ProbeError::Http { .. }) => Answer::Yes,
        Err(ProbeError::Resolve { host, source }) => {
            Answer::Never(format!("cannot resolve {host:?}: {source}"))
        }
        Err(error @ (ProbeError::Connect { .. } | ProbeError::Timeout { .. })) => {
            Answer::NotYet(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn base_urls_of_model_servers_are_found_once_with_their_key() {
        let config = json!({
            "policy_model": {"responses_api_models": {"vllm_model": {
                "base_url": ["http://a/v1/", "http://b/v1"],
                "router": {"judge_base_url": "http://c"},
                "openai_base_url": "",
            }}},
            "other": {"responses_api_models": {"openai_model": {"openai_base_url": "http://a/v1"}}},
            "tools": {"resources_servers": {"x": {"base_url": "http://ignored"}}},
        });
        let found: Vec<(String, String)> =
            collect(&config).into_iter().map(|endpoint| (endpoint.url, endpoint.key)).collect();
        let key = "policy_model.responses_api_models.vllm_model";
        assert_eq!(
            found,
            [
                ("http://a/v1".to_owned(), format!("{key}.base_url")),
                ("http://b/v1".to_owned(), format!("{key}.base_url")),
                ("http://c".to_owned(), format!("{key}.router.judge_base_url")),
            ]
        );
    }

    #[test]
    fn the_time_limit_is_ten_minutes_unless_set_and_zero_means_no_wait() {
        let of = |config: Value| timeout(&config).map(|limit| limit.map(|limit| limit.as_secs()));
        assert_eq!(of(json!({})).expect("fine"), Some(600));
        assert_eq!(of(json!({TIMEOUT_KEY: 1.5})).expect("fine"), Some(1));
        assert_eq!(of(json!({TIMEOUT_KEY: 0})).expect("fine"), None);
        let error = of(json!({TIMEOUT_KEY: "soon"})).expect_err("no number");
        assert!(error.to_string().contains(TIMEOUT_KEY), "{error}");
    }

    #[tokio::test]
    async fn an_endpoint_that_refuses_is_named_when_the_time_is_over() {
        let url = format!("http://127.0.0.1:{}/v1", lens_testing::free_port());
        let urls = vec![ModelUrl { url: url.clone(), key: "policy_base_url".to_owned() }];
        let error = wait(urls, Duration::from_millis(1), &Printer::from_terminal().quieted())
            .await
            .expect_err("nobody answers");
        assert!(error.to_string().contains(&url) && error.to_string().contains("policy_base_url"));
    }
}
