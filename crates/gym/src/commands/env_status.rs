//! `gym env status`: the servers of a running fleet and whether they answer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gym_server::instance::Endpoint;

use crate::args::EnvStatusArgs;
use crate::commands::block_on;
use crate::exit::ExitStatus;
use crate::fleet::head::{INSTANCES_PATH, ServerInstance};
use crate::fleet::probe::{self, ProbeError};
use crate::printer::Printer;
use crate::settings;

const HEAD_LIMIT: Duration = Duration::from_secs(5);
const PROBE_LIMIT: Duration = Duration::from_secs(2);
const HEALTHY: &str = "success";

pub fn run(args: &EnvStatusArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    let (host, port) = settings::load_data(&args.source, Vec::new(), printer)?.head_server();
    let head = Endpoint::gym("head_server", &host, port);
    block_on(async {
        let instances = match fetch(&head).await {
            Ok(instances) => probe_all(instances).await,
            Err(error) => {
                printer.warn(&format!(
                    "no head server at {}: {error}; start one with `gym env start`, \
                     or name another with +head_server.port=PORT",
                    head.url()
                ));
                Vec::new()
            }
        };
        if args.json {
            printer.data(&serde_json::to_string_pretty(&instances)?)?;
        } else {
            printer.data(&table(&instances))?;
        }
        Ok(ExitStatus::Done)
    })
}

async fn fetch(head: &Endpoint) -> Result<Vec<ServerInstance>, anyhow::Error> {
    let (_, body) = probe::get(head.host(), head.port(), INSTANCES_PATH, HEAD_LIMIT).await?;
    Ok(serde_json::from_slice(&body)?)
}

/// Fills in status and uptime; what only the fleet's own process can know is left out.
async fn probe_all(instances: Vec<ServerInstance>) -> Vec<ServerInstance> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let mut probes = tokio::task::JoinSet::new();
    for (index, mut instance) in instances.into_iter().enumerate() {
        probes.spawn(async move {
            instance.status = Some(status_of(&instance).await.to_owned());
            instance.uptime_seconds = instance.start_time.map(|start| now - start);
            instance.config_path = None;
            instance.dir_path = None;
            instance.start_time = None;
            (index, instance)
        });
    }
    let mut probed = probes.join_all().await;
    probed.sort_by_key(|(index, _)| *index);
    probed.into_iter().map(|(_, instance)| instance).collect()
}

async fn status_of(instance: &ServerInstance) -> &'static str {
    let (Some(host), Some(port)) = (&instance.host, instance.port) else { return "unknown_error" };
    let endpoint = Endpoint::gym("", host, port);
    match probe::get(endpoint.host(), port, "/", PROBE_LIMIT).await {
        Ok(_) => HEALTHY,
        Err(ProbeError::Timeout { .. }) => "timeout",
        Err(ProbeError::Connect { .. } | ProbeError::Resolve { .. }) => "connection_error",
        Err(ProbeError::Http { .. }) => "unknown_error",
    }
}

fn table(instances: &[ServerInstance]) -> String {
    if instances.is_empty() {
        return "No servers are running.".to_owned();
    }
    let of = |field: &Option<String>| field.clone().unwrap_or_else(|| "?".to_owned());
    let mut text = String::new();
    let mut healthy = 0;
    for (index, instance) in instances.iter().enumerate() {
        let is_healthy = instance.status.as_deref() == Some(HEALTHY);
        healthy += usize::from(is_healthy);
        let mark = if is_healthy { '✓' } else { '✗' };
        text.push_str(&format!(
            "[{}] {mark} {} ({}/{})\n    status  {}\n    url     {}\n    pid     {}\n    uptime  {}\n",
            index + 1,
            of(&instance.process_name),
            of(&instance.server_type),
            of(&instance.name),
            of(&instance.status),
            of(&instance.url),
            instance.pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string()),
            instance.uptime_seconds.map_or_else(|| "?".to_owned(), uptime),
        ));
    }
    text.push_str(&format!("{healthy} healthy, {} unhealthy\n", instances.len() - healthy));
    text
}

/// `Dd Hh Mm S.Ss`, from the largest part that is not zero.
fn uptime(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3_600 % 24, whole / 60 % 60);
    let rest = seconds.max(0.0) - (whole / 60 * 60) as f64;
    let mut text = String::new();
    for (value, unit) in [(days, 'd'), (hours, 'h'), (minutes, 'm')] {
        if value > 0 || !text.is_empty() {
            text.push_str(&format!("{value}{unit} "));
        }
    }
    text + &format!("{rest:.1}s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_listed_with_their_health() {
        let instance = |name: &str, status: &str| ServerInstance {
            process_name: Some(name.to_owned()),
            server_type: Some("responses_api_models".to_owned()),
            name: Some("vllm_model".to_owned()),
            status: Some(status.to_owned()),
            url: Some("http://127.0.0.1:1".to_owned()),
            pid: Some(7),
            uptime_seconds: Some(3_725.25),
            ..ServerInstance::default()
        };
        insta::assert_snapshot!(table(&[instance("a", "success"), instance("b", "timeout")]), @r"
        [1] ✓ a (responses_api_models/vllm_model)
            status  success
            url     http://127.0.0.1:1
            pid     7
            uptime  1h 2m 5.2s
        [2] ✗ b (responses_api_models/vllm_model)
            status  timeout
            url     http://127.0.0.1:1
            pid     7
            uptime  1h 2m 5.2s
        1 healthy, 1 unhealthy
        ");
    }

    #[test]
    fn an_uptime_starts_with_its_largest_part() {
        assert_eq!(uptime(0.04), "0.0s");
        assert_eq!(uptime(90_000.0), "1d 1h 0m 0.0s");
    }
}
