//! A config that is ready to use.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::closest::closest;
use super::error::{ConfigError, Origin, Problem};
use super::instances::{self, Candidate};
use super::interpolate::Resolver;
use super::marks::{Marks, Path, select};
use super::ports::{DEFAULT_HOST, HEAD_SERVER_PORT};
use super::program::Program;
use super::roots::Roots;
use super::yaml::{self, Document};
use crate::instance::{Endpoint, InstanceConfig, ServerType};

/// One server of the fleet.
#[derive(Clone, Debug)]
pub struct Instance {
    /// Its name, a top-level key of the config.
    pub name: String,
    /// Its type.
    pub server_type: ServerType,
    /// Its implementation, e.g. `simple_agent`.
    pub implementation: String,
    /// Address that it binds.
    pub host: String,
    /// Port that it binds; 0 when none was assigned.
    pub port: u16,
    /// Shards (or worker processes, for Python); at least 1.
    pub workers: usize,
    /// The file that the config names as entrypoint.
    pub entrypoint: Option<String>,
    /// What serves it; without meaning when the config came from a fleet that already runs.
    pub program: Program,
}

impl Instance {
    pub(super) fn new(
        candidate: &Candidate,
        block: &Map<String, Value>,
        host: String,
        port: u16,
        program: Program,
    ) -> Self {
        let workers = block.get("num_workers").and_then(Value::as_u64).unwrap_or(1);
        Self {
            name: candidate.name.clone(),
            server_type: candidate.server_type,
            implementation: candidate.implementation.clone(),
            host,
            port,
            workers: usize::try_from(workers).unwrap_or(1).max(1),
            entrypoint: block.get("entrypoint").and_then(Value::as_str).map(str::to_owned),
            program,
        }
    }

    fn candidate(&self) -> Candidate {
        Candidate {
            name: self.name.clone(),
            server_type: self.server_type,
            implementation: self.implementation.clone(),
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::gym(&self.name, &self.host, self.port)
    }
}

/// A merged config and its instances.
#[derive(Clone, Debug)]
pub struct GlobalConfig {
    value: Arc<Value>,
    marks: Arc<Marks>,
    environment: Arc<BTreeMap<String, String>>,
    instances: Vec<Instance>,
    head: (String, u16),
    roots: Roots,
    warnings: Vec<String>,
}

impl GlobalConfig {
    pub(super) fn assembled(
        document: Document,
        environment: BTreeMap<String, String>,
        instances: Vec<Instance>,
        head: (String, u16),
        roots: Roots,
        warnings: Vec<String>,
    ) -> Self {
        Self {
            value: Arc::new(document.value),
            marks: Arc::new(document.marks),
            environment: Arc::new(environment),
            instances,
            head,
            roots,
            warnings,
        }
    }

    /// A config that somebody else merged, e.g. the one that a head server serves.
    ///
    /// Instances that are not complete are left out: whoever made the config has judged them.
    ///
    /// # Errors
    ///
    /// When the value is no mapping.
    pub fn from_value(
        value: Value,
        environment: BTreeMap<String, String>,
    ) -> Result<Self, ConfigError> {
        Self::from_document(Document { value, marks: Marks::default() }, environment)
    }

    /// A config as YAML or JSON text.
    ///
    /// # Errors
    ///
    /// When the text is neither, or no mapping.
    pub fn from_yaml_text(
        text: &str,
        environment: BTreeMap<String, String>,
    ) -> Result<Self, ConfigError> {
        let document = match serde_json::from_str(text) {
            Ok(value @ Value::Object(_)) => Document { value, marks: Marks::default() },
            _ => yaml::parse_config(text, "config")?,
        };
        Self::from_document(document, environment)
    }

    fn from_document(
        document: Document,
        environment: BTreeMap<String, String>,
    ) -> Result<Self, ConfigError> {
        if !document.value.is_object() {
            return Err(ConfigError::Yaml {
                at: super::Origin::Unknown,
                reason: "expected a mapping at the top of the config".to_owned(),
                hint: None,
            });
        }
        let found = instances::find(&document.value, &document.marks);
        let mut config = Self::assembled(
            document,
            environment,
            Vec::new(),
            (DEFAULT_HOST.to_owned(), HEAD_SERVER_PORT),
            Roots::default(),
            Vec::new(),
        );
        for candidate in found.candidates {
            let host = config.field(&candidate, "host").and_then(|v| v.as_str().map(str::to_owned));
            let port = config.field(&candidate, "port").and_then(|v| port(&v)).unwrap_or(0);
            let block = candidate.block(&config.value).cloned().unwrap_or_default();
            let host = host.unwrap_or_else(|| DEFAULT_HOST.to_owned());
            let instance = Instance::new(&candidate, &block, host, port, Program::Builtin);
            config.instances.push(instance);
        }
        if let Some(head) = config.get("head_server") {
            if let Some(host) = head.get("host").and_then(Value::as_str) {
                host.clone_into(&mut config.head.0);
            }
            config.head.1 = head.get("port").and_then(port).unwrap_or(config.head.1);
        }
        Ok(config)
    }

    fn field(&self, candidate: &Candidate, name: &str) -> Option<Value> {
        self.get(&format!("{}.{name}", candidate.path()))
    }

    /// The merged config, `${…}` unresolved.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The merged config with every `${…}` resolved.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Interpolation`] for the first that cannot be.
    pub fn resolved(&self) -> Result<Value, ConfigError> {
        self.resolver().resolve(&self.value, &mut Path::root())
    }

    /// The servers of the fleet, in config order.
    #[must_use]
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }

    /// The servers of the fleet, at least one.
    ///
    /// # Errors
    ///
    /// [`ConfigError::NoInstances`].
    pub fn require_instances(&self) -> Result<&[Instance], ConfigError> {
        if self.instances.is_empty() { Err(ConfigError::NoInstances) } else { Ok(&self.instances) }
    }

    /// The instance of this name.
    ///
    /// # Errors
    ///
    /// [`ConfigError::UnknownInstance`] with the names that exist.
    pub fn instance(&self, name: &str) -> Result<&Instance, ConfigError> {
        self.instances.iter().find(|instance| instance.name == name).ok_or_else(|| {
            let known: Vec<String> =
                self.instances.iter().map(|instance| instance.name.clone()).collect();
            ConfigError::UnknownInstance {
                name: name.to_owned(),
                closest: closest(name, known.iter().map(String::as_str)),
                known,
            }
        })
    }

    /// Host and port of the head server.
    #[must_use]
    pub fn head_server(&self) -> (String, u16) {
        self.head.clone()
    }

    /// Where files that the config names are looked for.
    #[must_use]
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// The environment that `${oc.env:…}` reads.
    #[must_use]
    pub fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }

    /// What looked odd and was not wrong.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The resolved value at a dotted path; `None` when there is none or it is `null`.
    ///
    /// # Errors
    ///
    /// When a `${…}` in it cannot be resolved.
    pub fn try_get(&self, path: &str) -> Result<Option<Value>, ConfigError> {
        match select(&self.value, path) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => self.resolver().resolve(value, &mut Path::from(path)).map(Some),
        }
    }

    /// As [`GlobalConfig::try_get`]; a value that cannot be resolved counts as none.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Value> {
        self.try_get(path).ok().flatten()
    }

    /// Where the value at a dotted path was written; unknown when it is a default.
    #[must_use]
    pub fn origin(&self, path: &str) -> Origin {
        self.marks.find(path)
    }

    /// Where an instance listens.
    #[must_use]
    pub fn endpoint(&self, instance: &str) -> Option<Endpoint> {
        self.instance(instance).ok().map(Instance::endpoint)
    }

    /// The error of an instance whose block does not fit its implementation.
    ///
    /// `field` is a dotted path below the implementation's key.
    #[must_use]
    pub fn misfit(&self, instance: &Instance, field: &str, reason: String) -> ConfigError {
        let path = format!("{}.{field}", instance.candidate().path());
        let at = self.marks.find(&path);
        ConfigError::Setting(Problem { at, path, reason, closest: None })
    }

    /// What the process of an instance needs to know.
    ///
    /// # Errors
    ///
    /// When there is no such instance, or its block cannot be resolved.
    pub fn instance_config(&self, name: &str) -> Result<InstanceConfig, ConfigError> {
        let instance = self.instance(name)?;
        let candidate = instance.candidate();
        let block = self.try_get(&candidate.path())?;
        let mut block = match block {
            Some(Value::Object(block)) => block,
            _ => Map::new(),
        };
        block.insert("name".to_owned(), name.into());
        Ok(InstanceConfig {
            name: name.to_owned(),
            server_type: instance.server_type,
            implementation: instance.implementation.clone(),
            host: instance.host.clone(),
            port: instance.port,
            workers: instance.workers,
            block,
            global: self.value.clone(),
        })
    }

    /// What a server process makes of its environment: the text of the config, and the name of
    /// the instance it serves.
    ///
    /// # Errors
    ///
    /// When the text is no config, or has no such instance.
    pub fn from_child_env(
        text: &str,
        instance: &str,
        environment: &BTreeMap<String, String>,
    ) -> Result<InstanceConfig, ConfigError> {
        Self::from_yaml_text(text, environment.clone())?.instance_config(instance)
    }

    /// A value as YAML: [`to_yaml`](super::to_yaml).
    #[must_use]
    pub fn to_yaml(value: &Value) -> String {
        super::to_yaml(value)
    }

    /// A value without its secrets: [`masked`](super::masked).
    #[must_use]
    pub fn masked(value: &Value) -> Value {
        super::masked(value)
    }

    fn resolver(&self) -> Resolver<'_> {
        Resolver { root: &self.value, environment: &self.environment, marks: &self.marks }
    }
}

fn port(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|port| u16::try_from(port).ok())
}
