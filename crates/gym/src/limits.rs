//! Every limit of a fleet and of a collection, its value and who decided it.
//!
//! A limit without a dot in its name is a key of the config; the others are fixed.

use std::time::Duration;

use gym_server::client::{Failure, Patience, Policy, PoolLimits};
use gym_server::config::{GlobalConfig, Origin};
use gym_telemetry::env_vars;
use http::StatusCode;
use serde_json::{Value, json};

use crate::collect::{self, OptionsError};
use crate::fleet::{self, FleetError};
use crate::printer::Printer;

/// Key of [`PoolLimits::total`].
pub const POOL_KEY: &str = "global_aiohttp_connector_limit";
/// Key of [`PoolLimits::per_host`].
pub const POOL_PER_HOST_KEY: &str = "global_aiohttp_connector_limit_per_host";
/// What stands for a limit that does not hold.
const NONE: &str = "-";
const DEFAULT: &str = "default";
const FIXED: &str = "fixed";
/// Enough failures for the back-off to have become as long as it gets.
const MANY_TRIES: u32 = 100;

/// One limit as it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Its config key, or a dotted name where it has none.
    pub name: &'static str,
    /// The variable that sets it; empty where there is none.
    pub variable: &'static str,
    /// What holds.
    pub value: String,
    /// Where that was written; `default`, or `fixed` for what cannot be set.
    pub origin: String,
}

impl Limit {
    /// The limit as a JSON object, with the fields of a setting.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "value": self.value,
            "origin": self.origin,
            "variable": self.variable,
        })
    }

    fn fixed(name: &'static str, value: impl ToString) -> Self {
        Self { name, variable: "", value: value.to_string(), origin: FIXED.to_owned() }
    }

    fn of_key(config: &GlobalConfig, name: &'static str, value: impl ToString) -> Self {
        let origin = match config.origin(name) {
            Origin::File { path, line, .. } => format!("{path}:{line}"),
            Origin::Override(token) => format!("override `{token}`"),
            Origin::Unknown => DEFAULT.to_owned(),
        };
        Self { name, variable: "", value: value.to_string(), origin }
    }
}

/// The limits that hold under `config`.
///
/// # Errors
///
/// When a key holds no value that it can have.
pub fn of(config: &GlobalConfig, printer: &Printer) -> Result<Vec<Limit>, anyhow::Error> {
    let resolved = config.resolved()?;
    let pool = PoolLimits::from_global(&resolved);
    let patience = Patience::from_global(&resolved).map_err(FleetError::Patience)?;
    let model_wait = fleet::model_wait(&resolved)?;
    let run = collect::run_limits(config, printer).map_err(OptionsError::into_inner)?;
    let key = |name, value: String| Limit::of_key(config, name, value);
    let time = |name, value: Duration| key(name, seconds(value));
    let [servers, models, silence] = Patience::KEYS;
    let attempts = env_vars::GYM_MAX_ROLLOUT_ATTEMPTS;
    let attempts_set =
        config.environment().get(attempts).is_some_and(|text| !text.trim().is_empty());
    Ok(vec![
        Limit::fixed("limits.connect_seconds", seconds(pool.connect)),
        Limit::fixed("limits.idle_connection_seconds", seconds(pool.idle)),
        Limit::fixed("limits.requests_waiting_per_host", pool.waiting),
        key(POOL_KEY, count(pool.total)),
        key(POOL_PER_HOST_KEY, count(pool.per_host)),
        Limit::fixed("limits.first_backoff_seconds", seconds(backoff(1))),
        Limit::fixed("limits.longest_backoff_seconds", seconds(backoff(MANY_TRIES))),
        time(servers, patience.servers),
        time(models, patience.models),
        Limit::fixed("limits.model_error_tries", model_error_tries()),
        time(silence, patience.model_silence),
        key(fleet::MODEL_WAIT_KEY, model_wait.map_or_else(|| "0".to_owned(), seconds)),
        Limit::fixed("limits.server_start_seconds", seconds(fleet::START_LIMIT)),
        Limit::fixed("limits.server_stop_grace_seconds", seconds(fleet::STOP_GRACE)),
        Limit::fixed(
            "limits.telemetry_flush_seconds",
            seconds(Duration::from_millis(fleet::FLUSH_MILLIS)),
        ),
        key(
            collect::ROLLOUT_TIMEOUT_KEY,
            run.rollout_timeout.map_or_else(|| NONE.to_owned(), seconds),
        ),
        key(collect::CONCURRENCY_KEY, run.concurrency.to_string()),
        Limit {
            variable: attempts,
            origin: if attempts_set { attempts } else { DEFAULT }.to_owned(),
            ..Limit::fixed("limits.max_rollout_attempts", run.max_attempts)
        },
        Limit::fixed("limits.rollout_stop_grace_seconds", seconds(run.stop_grace)),
    ])
}

fn seconds(time: Duration) -> String {
    time.as_secs_f64().to_string()
}

/// A count of which 0 stands for no limit.
fn count(limit: usize) -> String {
    if limit == 0 { NONE.to_owned() } else { limit.to_string() }
}

/// The wait after so many refused attempts, as the schedule itself has it.
fn backoff(tries: u32) -> Duration {
    let wait = Policy::Internal.next(Failure::NeverSent, tries, 0, Duration::ZERO, Duration::MAX);
    wait.unwrap_or_default()
}

/// How often a model endpoint that answers 500 is tried, as the schedule itself has it.
fn model_error_tries() -> u32 {
    let failure = Failure::Status(StatusCode::INTERNAL_SERVER_ERROR, None);
    let goes_on =
        |tries| Policy::Model.next(failure, tries, tries, Duration::ZERO, Duration::MAX).is_some();
    (1..MANY_TRIES).find(|tries| !goes_on(*tries)).unwrap_or(MANY_TRIES)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gym_server::config::{LoadRequest, load};

    use super::*;

    fn limits(overrides: &[&str], environment: &[(&str, &str)]) -> Vec<Limit> {
        let environment = environment.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let request = LoadRequest {
            overrides: overrides.iter().map(|token| (*token).to_owned()).collect(),
            embedded: gym_envs::assets::FILES,
            environment_variables: environment.collect::<BTreeMap<_, _>>(),
            ..LoadRequest::default()
        };
        let config = load(&request).expect("a config");
        of(&config, &Printer::from_terminal().quieted()).expect("limits")
    }

    #[test]
    fn a_limit_that_was_set_names_who_set_it_and_the_others_their_default() {
        let limits = limits(
            &[
                "++model_retry_timeout_seconds=90",
                "++model_endpoint_readiness_timeout_seconds=0",
                "++global_aiohttp_connector_limit=0",
                "++rollout_timeout_seconds=2.5",
            ],
            &[(env_vars::GYM_MAX_ROLLOUT_ATTEMPTS, "7")],
        );
        let lines: Vec<String> = limits
            .iter()
            .map(|limit| format!("{} {} {}", limit.name, limit.value, limit.origin))
            .collect();
        assert_eq!(
            lines,
            [
                "limits.connect_seconds 10 fixed",
                "limits.idle_connection_seconds 15 fixed",
                "limits.requests_waiting_per_host 131072 fixed",
                "global_aiohttp_connector_limit - override `++global_aiohttp_connector_limit=0`",
                "global_aiohttp_connector_limit_per_host 1024 default",
                "limits.first_backoff_seconds 0.1 fixed",
                "limits.longest_backoff_seconds 5 fixed",
                "server_retry_timeout_seconds 60 default",
                "model_retry_timeout_seconds 90 override `++model_retry_timeout_seconds=90`",
                "limits.model_error_tries 3 fixed",
                "model_idle_timeout_seconds 1800 default",
                "model_endpoint_readiness_timeout_seconds 0 override \
                 `++model_endpoint_readiness_timeout_seconds=0`",
                "limits.server_start_seconds 600 fixed",
                "limits.server_stop_grace_seconds 8 fixed",
                "limits.telemetry_flush_seconds 5 fixed",
                "rollout_timeout_seconds 2.5 override `++rollout_timeout_seconds=2.5`",
                "num_samples_in_parallel 1024 default",
                "limits.max_rollout_attempts 7 NEMO_GYM_MAX_ROLLOUT_ATTEMPTS",
                "limits.rollout_stop_grace_seconds 2 fixed",
            ]
        );
    }

    /// Guarantees: the table of the reference shows every limit with its default.
    #[test]
    fn every_limit_is_documented_with_its_default() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration.md");
        let text = std::fs::read_to_string(path).expect("the reference");
        for limit in limits(&[], &[]) {
            let row = format!("| `{}` | `{}` |", limit.name, limit.value);
            assert!(text.contains(&row), "configuration.md has no row {row}");
        }
    }
}
