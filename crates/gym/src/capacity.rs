//! How many rollouts can be in flight at once before a limit makes them wait, and which limit that is.
//!
//! A rollout holds one connection at a time from the driver to its agent, one from the agent to whomever it asks,
//! and one from a model server to its endpoint; kept connections of an agent stay open beside the one in use. Servers of
//! one host reach each other by sockets that take no port.

use gym_server::client::PoolLimits;
use gym_server::config::{GlobalConfig, Instance};
use gym_server::instance::ServerType;

use crate::collect::grouped;
use crate::limits::{POOL_KEY, POOL_PER_HOST_KEY};

/// Descriptors that a process needs for anything but connections.
const OWN_DESCRIPTORS: usize = 64;
const PORT_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// What the system grants to a process.
#[derive(Clone, Copy, Debug)]
struct System {
    /// Open files; `None` is no limit.
    descriptors: Option<usize>,
    /// Ports for connections to one address; `None` when that is not known.
    ports: Option<usize>,
}

impl System {
    /// Of this process, whose servers have the same.
    fn of_this_process() -> Self {
        let range = std::fs::read_to_string(PORT_RANGE).unwrap_or_default();
        let mut ends = range.split_ascii_whitespace().filter_map(|end| end.parse::<usize>().ok());
        let ports = ends.next().zip(ends.next()).and_then(|(from, to)| (to + 1).checked_sub(from));
        Self { descriptors: gym_server::program::descriptor_limit(), ports }
    }
}

/// What a limit is called, and how it is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    PerHost,
    Total,
    Descriptors,
    Ports,
}

impl Limit {
    fn name(self) -> &'static str {
        match self {
            Self::PerHost => POOL_PER_HOST_KEY,
            Self::Total => POOL_KEY,
            Self::Descriptors => "open files (ulimit -n)",
            Self::Ports => "local ports (net.ipv4.ip_local_port_range)",
        }
    }

    /// How it is changed so that `wanted` is possible with so many workers.
    fn change(self, wanted: usize, workers: usize, per_rollout: usize) -> String {
        match self {
            Self::PerHost | Self::Total => {
                format!("set ++{}={}", self.name(), wanted.next_multiple_of(workers))
            }
            Self::Descriptors => {
                format!("start it after `ulimit -n {}`", wanted * per_rollout + OWN_DESCRIPTORS)
            }
            Self::Ports => "widen it with sysctl".to_owned(),
        }
    }

    /// What becomes of the rollouts beyond it.
    fn consequence(self) -> &'static str {
        match self {
            Self::PerHost | Self::Total => "the others wait for a connection",
            Self::Descriptors | Self::Ports => "connections of the others fail",
        }
    }
}

/// One process that rollouts pass through.
#[derive(Debug)]
struct Holder {
    name: String,
    workers: usize,
    /// Of one worker.
    pool: PoolLimits,
    /// Different servers that it opens connections to, for different rollouts.
    destinations: usize,
    descriptors_per_rollout: usize,
    uses_ports: bool,
}

impl Holder {
    /// Rollouts that each of its limits allows at a time.
    fn limits(&self, system: System) -> impl Iterator<Item = (Limit, usize)> {
        let pool = |limit: usize| (limit > 0).then_some(limit * self.workers);
        let descriptors = system
            .descriptors
            .map(|all| all.saturating_sub(OWN_DESCRIPTORS) / self.descriptors_per_rollout.max(1));
        [
            (Limit::PerHost, pool(self.pool.per_host).map(|limit| limit * self.destinations)),
            (Limit::Total, pool(self.pool.total)),
            (Limit::Descriptors, descriptors),
            (Limit::Ports, system.ports.filter(|_| self.uses_ports)),
        ]
        .into_iter()
        .filter_map(|(limit, rollouts)| Some((limit, rollouts?)))
    }

    fn describe(&self, system: System) -> String {
        let of_pool = |limit: usize| match limit {
            0 => "any number of".to_owned(),
            limit => grouped(limit as u64),
        };
        let workers = match self.workers {
            1 => String::new(),
            workers => format!(" for each of {workers} workers"),
        };
        let mut text = format!(
            "  {}: {} connections, {} to one server{workers}",
            self.name,
            of_pool(self.pool.total),
            of_pool(self.pool.per_host),
        );
        if let Some(descriptors) = system.descriptors {
            text.push_str(&format!(", {} open files", grouped(descriptors as u64)));
        }
        if let Some(ports) = system.ports.filter(|_| self.uses_ports) {
            text.push_str(&format!(", {} local ports", grouped(ports as u64)));
        }
        text
    }
}

/// What a fleet and its driver can have in flight.
#[derive(Debug)]
pub struct Capacity {
    holders: Vec<Holder>,
    system: System,
}

impl Capacity {
    /// Of the driver and servers of a config, on this machine.
    pub fn of(config: &GlobalConfig) -> Self {
        let pool = PoolLimits::from_global(config.value());
        Self::new(config.instances(), pool, System::of_this_process())
    }

    /// Of a driver and these servers, whose pools have these limits.
    fn new(instances: &[Instance], pool: PoolLimits, system: System) -> Self {
        let is_agent =
            |instance: &&Instance| instance.server_type == ServerType::ResponsesApiAgents;
        let driver = Holder {
            name: "driver".to_owned(),
            workers: 1,
            pool,
            destinations: instances.iter().filter(is_agent).count().max(1),
            descriptors_per_rollout: 1,
            uses_ports: false,
        };
        let server = |instance: &Instance| {
            let asks_others = instance.server_type != ServerType::ResourcesServers;
            asks_others.then(|| Holder {
                name: instance.name.clone(),
                workers: instance.workers,
                pool: pool.divided_by(instance.workers),
                destinations: 1,
                // Its caller and who it asks: an agent asks a model and an environment.
                descriptors_per_rollout: if is_agent(&instance) { 3 } else { 2 },
                uses_ports: instance.server_type == ServerType::ResponsesApiModels,
            })
        };
        let holders = std::iter::once(driver).chain(instances.iter().filter_map(server));
        Self { holders: holders.collect(), system }
    }

    /// The limit that is reached first, and at how many rollouts.
    fn binding(&self) -> Option<(&Holder, Limit, usize)> {
        let of_holder = |holder| {
            let limits = Holder::limits(holder, self.system);
            limits.map(move |(limit, rollouts)| (holder, limit, rollouts))
        };
        self.holders.iter().flat_map(of_holder).min_by_key(|(_, _, rollouts)| *rollouts)
    }

    /// One line that says how many rollouts can be in flight.
    pub fn line(&self) -> String {
        match self.binding() {
            Some((holder, limit, rollouts)) => format!(
                "Capacity: {} rollouts in flight (of {}: {})",
                grouped(rollouts as u64),
                holder.name,
                limit.name(),
            ),
            None => "Capacity: no limit".to_owned(),
        }
    }

    /// What to say when more are wanted; `None` when they fit.
    pub fn warning(&self, wanted: usize) -> Option<String> {
        let (holder, limit, rollouts) = self.binding()?;
        // What dividing by workers rounds off is no reason to speak.
        if wanted < rollouts + holder.workers {
            return None;
        }
        let change = limit.change(wanted, holder.workers, holder.descriptors_per_rollout);
        let mut text = format!(
            "{} rollouts are to be in flight, but {} of {} allows {}; {}: {change}, or lower \
             --concurrency",
            grouped(wanted as u64),
            limit.name(),
            holder.name,
            grouped(rollouts as u64),
            limit.consequence(),
        );
        for holder in &self.holders {
            text.push('\n');
            text.push_str(&holder.describe(self.system));
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity(limits: &str, system: System) -> Capacity {
        let yaml = format!(
            "{limits}\nagent:\n  responses_api_agents:\n    simple_agent:\n      entrypoint: app.py\n      host: 127.0.0.1\n      port: 1\n      num_workers: 3\n\
             model:\n  responses_api_models:\n    vllm_model:\n      entrypoint: app.py\n      host: 127.0.0.1\n      port: 2\n\
             tools:\n  resources_servers:\n    weather:\n      entrypoint: app.py\n      host: 127.0.0.1\n      port: 3\n      domain: agent\n"
        );
        let config = GlobalConfig::from_yaml_text(&yaml, Default::default()).expect("a config");
        assert_eq!(config.instances().len(), 3);
        let pool = PoolLimits::from_global(&config.resolved().expect("resolves"));
        Capacity::new(config.instances(), pool, system)
    }

    const PLENTY: System = System { descriptors: Some(1 << 20), ports: Some(28_232) };

    #[test]
    fn with_defaults_sixteen_thousand_are_too_many_and_the_limit_is_named_with_its_key() {
        let capacity = capacity("", PLENTY);
        assert_eq!(capacity.warning(1_024), None, "as many as by default");
        insta::assert_snapshot!(capacity.line(), @"Capacity: 1,023 rollouts in flight (of agent: global_aiohttp_connector_limit_per_host)");
        insta::assert_snapshot!(capacity.warning(16_000).expect("too many"), @"
        16,000 rollouts are to be in flight, but global_aiohttp_connector_limit_per_host of agent allows 1,023; the others wait for a connection: set ++global_aiohttp_connector_limit_per_host=16002, or lower --concurrency
          driver: 102,400 connections, 1,024 to one server, 1,048,576 open files
          agent: 34,133 connections, 341 to one server for each of 3 workers, 1,048,576 open files
          model: 102,400 connections, 1,024 to one server, 1,048,576 open files, 28,232 local ports
        ");
    }

    #[test]
    fn the_change_that_is_named_is_enough_and_the_next_limit_is_named_then() {
        let raised = "global_aiohttp_connector_limit_per_host: 16002";
        assert_eq!(capacity(raised, PLENTY).warning(16_000), None);
        let first_words = |limits, system, wanted| {
            let text = capacity(limits, system).warning(wanted).expect("too many");
            text.lines().next().expect("a line").to_owned()
        };
        let few = System { descriptors: Some(1024), ..PLENTY };
        let text = first_words(raised, few, 16_000);
        assert!(text.contains("open files (ulimit -n) of agent allows 320"), "{text}");
        assert!(text.contains("`ulimit -n 48064`"), "{text}");
        assert!(text.contains("connections of the others fail"), "{text}");
        assert_eq!(
            capacity(raised, System { descriptors: Some(48_064), ..PLENTY }).warning(16_000),
            None
        );
        let unlimited = "global_aiohttp_connector_limit_per_host: 0";
        let text = first_words(unlimited, PLENTY, 50_000);
        assert!(text.contains("ip_local_port_range) of model allows 28,232"), "{text}");
        let text = first_words("global_aiohttp_connector_limit: 90", PLENTY, 100);
        assert!(text.contains("global_aiohttp_connector_limit of driver allows 90"), "{text}");
    }
}
