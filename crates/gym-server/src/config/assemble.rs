//! Instances, addresses and defaults of a merged config.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::LoadRequest;
use super::error::{ConfigError, Problem};
use super::global::{GlobalConfig, Instance};
use super::instances::{self, Candidate};
use super::interpolate::Resolver;
use super::marks::Path;
use super::merge::kind;
use super::ports::{
    DEFAULT_HIGH, DEFAULT_HOST, DEFAULT_LOW, HEAD_SERVER_PORT, PortSource, Ports, own_address,
};
use super::program::Programs;
use super::roots::Roots;
use super::yaml::Document;

/// A merged config on its way to a [`GlobalConfig`].
pub(super) struct Assembly<'a> {
    pub(super) request: &'a LoadRequest,
    pub(super) roots: Roots,
    pub(super) document: Document,
    pub(super) warnings: Vec<String>,
}

impl Assembly<'_> {
    fn resolver(&self) -> Resolver<'_> {
        Resolver {
            root: &self.document.value,
            environment: &self.request.environment_variables,
            marks: &self.document.marks,
        }
    }

    /// A resolved top-level setting.
    fn setting(&self, key: &str) -> Result<Option<Value>, ConfigError> {
        match self.document.value.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => self.resolver().resolve(value, &mut Path::from(key)).map(Some),
        }
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.setting(key)? else { return Ok(None) };
        match read(&value) {
            Some(value) => Ok(Some(value)),
            None => Err(self.wrong(key, expected, &value)),
        }
    }

    fn wrong(&self, path: &str, expected: &str, found: &Value) -> ConfigError {
        let shown = match found {
            Value::Object(_) | Value::Array(_) => kind(found).to_owned(),
            scalar => scalar.to_string(),
        };
        ConfigError::Setting(Problem {
            at: self.document.marks.find(path),
            path: path.to_owned(),
            reason: format!("expected {expected}, got {shown}"),
            closest: None,
        })
    }

    /// Finds the instances, gives them addresses and programs, and fills in defaults.
    pub(super) fn assemble(
        mut self,
        source: &mut dyn PortSource,
    ) -> Result<GlobalConfig, ConfigError> {
        let found = instances::find(&self.document.value, &self.document.marks);
        let mut problems = found.problems;
        self.warnings.extend(found.warnings);
        let mut candidates = found.candidates;
        let mut blocks = Vec::new();
        candidates.retain(|candidate| {
            let before = problems.len();
            match self.resolved_block(candidate) {
                Ok(block) => {
                    instances::check(candidate, &block, &self.document.marks, &mut problems);
                    if problems.len() == before {
                        blocks.push(Ok(block));
                    }
                }
                Err(error) => blocks.push(Err(error)),
            }
            problems.len() == before
        });
        let blocks = blocks.into_iter().collect::<Result<Vec<_>, _>>()?;
        if !problems.is_empty() {
            let ignored = self.typed("error_on_almost_servers", "true or false", Value::as_bool)?;
            if ignored != Some(false) {
                return Err(ConfigError::Instances { problems });
            }
            self.warnings.extend(problems.iter().map(|problem| format!("{problem} (not served)")));
        }
        for (candidate, block) in candidates.iter().zip(&blocks) {
            instances::check_references(candidate, block, &candidates, &self.document.marks)?;
        }
        let settings = self.network_settings()?;
        self.check_addresses(&candidates, &blocks, &settings)?;
        let mut ports = Ports {
            source,
            low: settings.low,
            high: settings.high,
            disallowed: settings.disallowed.clone(),
        };
        ports.disallowed.extend(blocks.iter().filter_map(port_of));
        let programs = Programs {
            roots: &self.roots,
            builtins: self.request.builtins,
            marks: &self.document.marks,
        };
        let mut instances = Vec::with_capacity(candidates.len());
        for (candidate, block) in candidates.iter().zip(&blocks) {
            let program = programs.resolve(candidate, block)?;
            let host = block.get("host").and_then(Value::as_str).unwrap_or(&settings.default_host);
            let port = match port_of(block) {
                Some(port) => port,
                None if self.request.assign_ports => ports.assign(&candidate.name)?,
                None => 0,
            };
            instances.push(Instance::new(candidate, block, host.to_owned(), port, program));
        }
        let disallowed = ports.disallowed;
        for (candidate, instance) in candidates.iter().zip(&instances) {
            self.write_address(candidate, instance);
        }
        self.write_defaults(&settings, &disallowed)?;
        Ok(GlobalConfig::assembled(
            self.document,
            self.request.environment_variables.clone(),
            instances,
            settings.head,
            self.roots,
            self.warnings,
        ))
    }

    /// No two servers may be told to listen on one address.
    fn check_addresses(
        &self,
        candidates: &[Candidate],
        blocks: &[Map<String, Value>],
        settings: &NetworkSettings,
    ) -> Result<(), ConfigError> {
        let mut taken = vec![("the head server", settings.head.0.as_str(), settings.head.1)];
        for (candidate, block) in candidates.iter().zip(blocks) {
            let Some(port) = port_of(block) else { continue };
            let host = block.get("host").and_then(Value::as_str).unwrap_or(&settings.default_host);
            if let Some((owner, ..)) = taken.iter().find(|(_, h, p)| *h == host && *p == port) {
                let path = format!("{}.port", candidate.path());
                return Err(ConfigError::Setting(Problem {
                    at: self.document.marks.find(&path),
                    path,
                    reason: format!("{host}:{port} is already the address of {owner}"),
                    closest: None,
                }));
            }
            taken.push((&candidate.name, host, port));
        }
        Ok(())
    }

    fn resolved_block(&self, candidate: &Candidate) -> Result<Map<String, Value>, ConfigError> {
        let block = candidate.block(&self.document.value).cloned().unwrap_or_default();
        match self
            .resolver()
            .resolve(&Value::Object(block), &mut Path::from(candidate.path().as_str()))?
        {
            Value::Object(map) => Ok(map),
            _ => Ok(Map::new()),
        }
    }

    /// Writes host and port into the block, and puts the type first, where lookups expect it.
    fn write_address(&mut self, candidate: &Candidate, instance: &Instance) {
        let assigned = instance.port != 0;
        if let Some(block) = candidate.block_mut(&mut self.document.value) {
            block.insert("host".to_owned(), instance.host.clone().into());
            if assigned {
                block.insert("port".to_owned(), instance.port.into());
            }
        }
        let outer = self.document.value.get_mut(&candidate.name).and_then(Value::as_object_mut);
        if let Some(outer) = outer
            && let Some(group) = outer.shift_remove(candidate.server_type.as_str())
        {
            outer.shift_insert(0, candidate.server_type.as_str().to_owned(), group);
        }
    }

    fn network_settings(&self) -> Result<NetworkSettings, ConfigError> {
        let port = |value: &Value| {
            value.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)
        };
        let expected_port = "a port between 1 and 65535";
        let low = self.typed("port_range_low", expected_port, port)?.unwrap_or(DEFAULT_LOW);
        let high = self.typed("port_range_high", expected_port, port)?.unwrap_or(DEFAULT_HIGH);
        if low > high {
            return Err(self.wrong(
                "port_range_high",
                &format!("at least port_range_low ({low})"),
                &high.into(),
            ));
        }
        let use_absolute_ip =
            self.typed("use_absolute_ip", "true or false", Value::as_bool)?.unwrap_or(false);
        let named = self.typed("default_host", "an address", |v| v.as_str().map(str::to_owned))?;
        let absolute = if use_absolute_ip { own_address() } else { None };
        let default_host = absolute.or(named).unwrap_or_else(|| DEFAULT_HOST.to_owned());
        let head = self
            .typed("head_server", "a mapping with host and port", |v| v.as_object().cloned())?
            .unwrap_or_default();
        let head_host =
            head.get("host").and_then(Value::as_str).unwrap_or(&default_host).to_owned();
        let head_port = match head.get("port") {
            None => HEAD_SERVER_PORT,
            Some(value) => {
                port(value).ok_or_else(|| self.wrong("head_server.port", expected_port, value))?
            }
        };
        let ports = |v: &Value| v.as_array()?.iter().map(port).collect::<Option<BTreeSet<u16>>>();
        let mut disallowed =
            self.typed("disallowed_ports", "a list of ports", ports)?.unwrap_or_default();
        disallowed.insert(head_port);
        Ok(NetworkSettings {
            low,
            high,
            use_absolute_ip,
            default_host,
            head: (head_host, head_port),
            disallowed,
        })
    }

    fn write_defaults(
        &mut self,
        settings: &NetworkSettings,
        disallowed: &BTreeSet<u16>,
    ) -> Result<(), ConfigError> {
        let path = |value: &Value| value.as_str().map(str::to_owned);
        let results =
            self.typed("results_dir", "a directory", path)?.unwrap_or_else(|| "results".to_owned());
        let cache =
            self.typed("cache_dir", "a directory", path)?.unwrap_or_else(|| "cache".to_owned());
        let absolute = |dir: String| self.request.cwd.join(dir).display().to_string();
        let (results, cache) = (absolute(results), absolute(cache));
        let Some(map) = self.document.value.as_object_mut() else { return Ok(()) };
        let defaults = [
            ("use_absolute_ip", settings.use_absolute_ip.into()),
            ("port_range_low", settings.low.into()),
            ("port_range_high", settings.high.into()),
        ];
        for (key, value) in defaults {
            map.entry(key).or_insert(value);
        }
        map.insert(
            "head_server".to_owned(),
            json!({"host": settings.head.0, "port": settings.head.1}),
        );
        map.insert("disallowed_ports".to_owned(), disallowed.iter().copied().collect());
        let defaults = [
            ("allow_openai_version_skew", false.into()),
            ("skip_venv_if_present", false.into()),
            ("dry_run", false.into()),
            ("model_endpoint_readiness_timeout_seconds", 600.into()),
        ];
        for (key, value) in defaults {
            map.entry(key).or_insert(value);
        }
        map.insert("results_dir".to_owned(), results.into());
        map.insert("cache_dir".to_owned(), cache.into());
        Ok(())
    }
}

struct NetworkSettings {
    low: u16,
    high: u16,
    use_absolute_ip: bool,
    default_host: String,
    head: (String, u16),
    disallowed: BTreeSet<u16>,
}

/// The port that a block names; 0 counts as none.
fn port_of(block: &Map<String, Value>) -> Option<u16> {
    block.get("port")?.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)
}
