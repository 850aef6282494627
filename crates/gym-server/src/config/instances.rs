//! Which top-level blocks are servers, and whether they are complete.

use serde_json::{Map, Value};

use super::closest::{closest, ranked};
use super::error::{ConfigError, Problem};
use super::marks::Marks;
use super::merge::kind;
use crate::instance::ServerType;

/// Top-level keys that are settings, never instances.
pub(super) const RESERVED: [&str; 34] = [
    "config_paths",
    "entrypoint",
    "default_host",
    "head_server",
    "disallowed_ports",
    "head_server_deps",
    "python_version",
    "pip_install_verbose",
    "use_absolute_ip",
    "uv_pip_set_python",
    "skip_venv_if_present",
    "hf_token",
    "ray_head_node_address",
    "port_range_low",
    "port_range_high",
    "dry_run",
    "model_endpoint_readiness_timeout_seconds",
    "allow_openai_version_skew",
    "uv_cache_dir",
    "uv_venv_dir",
    "results_dir",
    "cache_dir",
    "_inherit_from",
    "_copy",
    "nemo_gym_log_dir",
    "verbose",
    "json",
    "query",
    "observability_enabled",
    "model_call_capture_dir",
    "token_id_capture",
    "component_name",
    "skip_verification",
    "skip_verification_reward",
];

const DOMAINS: [&str; 12] = [
    "math",
    "coding",
    "agent",
    "knowledge",
    "instruction_following",
    "long_context",
    "safety",
    "games",
    "translation",
    "e2e",
    "rlhf",
    "other",
];

const DATASET_TYPES: [&str; 4] = ["example", "train", "validation", "benchmark"];

const LICENSES: [&str; 9] = [
    "Apache 2.0",
    "MIT",
    "Creative Commons Attribution 4.0 International",
    "Creative Commons Attribution-ShareAlike 4.0 International",
    "CC BY-SA 4.0",
    "CC BY-NC 3.0",
    "NVIDIA Internal Use Only, Do Not Distribute; NVIDIA Evaluation Dataset License Agreement",
    "TBD",
    "GNU General Public License v3.0",
];

const RUNTIMES: [&str; 3] = ["builtin", "python", "exec"];

pub(super) fn is_reserved(key: &str) -> bool {
    key == gym_telemetry::TELEMETRY_KEY_NAME || RESERVED.contains(&key)
}

/// A block that has the shape of a server.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) server_type: ServerType,
    pub(super) implementation: String,
}

impl Candidate {
    /// Dotted path of the implementation's block.
    pub(super) fn path(&self) -> String {
        format!("{}.{}.{}", self.name, self.server_type, self.implementation)
    }

    /// The implementation's block.
    pub(super) fn block<'v>(&self, config: &'v Value) -> Option<&'v Map<String, Value>> {
        config
            .get(&self.name)?
            .get(self.server_type.as_str())?
            .get(&self.implementation)?
            .as_object()
    }

    /// The implementation's block, to fill in.
    pub(super) fn block_mut<'v>(
        &self,
        config: &'v mut Value,
    ) -> Option<&'v mut Map<String, Value>> {
        config
            .get_mut(&self.name)?
            .get_mut(self.server_type.as_str())?
            .get_mut(&self.implementation)?
            .as_object_mut()
    }
}

/// What a walk over the top-level keys finds.
#[derive(Default)]
pub(super) struct Found {
    pub(super) candidates: Vec<Candidate>,
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<String>,
}

/// Finds the blocks with a server group and an `entrypoint` (or a `runtime`).
pub(super) fn find(config: &Value, marks: &Marks) -> Found {
    let mut found = Found::default();
    for (name, value) in config.as_object().into_iter().flatten() {
        let Some(map) = value.as_object().filter(|_| !is_reserved(name)) else { continue };
        let types: Vec<ServerType> =
            ServerType::ALL.into_iter().filter(|t| map.contains_key(t.as_str())).collect();
        let Some(&server_type) = types.first() else { continue };
        let path = format!("{name}.{server_type}");
        let Some(implementations) = map[server_type.as_str()].as_object() else { continue };
        let served: Vec<&String> = implementations
            .iter()
            .filter(|(_, block)| {
                block.get("entrypoint").is_some() || block.get("runtime").is_some()
            })
            .map(|(implementation, _)| implementation)
            .collect();
        let mut problem = |path: &str, reason: String| {
            found.problems.push(Problem {
                at: marks.find(path),
                path: path.to_owned(),
                reason,
                closest: None,
            });
        };
        if types.len() > 1 {
            let names: Vec<_> = types.iter().map(|t| t.as_str()).collect();
            problem(name, format!("expected one server type, got {}", names.join(" and ")));
            continue;
        }
        match (served.as_slice(), implementations.len()) {
            ([implementation], 1) => found.candidates.push(Candidate {
                name: name.clone(),
                server_type,
                implementation: (*implementation).clone(),
            }),
            ([], _) => {
                let at = marks.find(&path);
                found
                    .warnings
                    .push(format!("{at}{path} has no entrypoint, so {name} is not served"));
            }
            (_, _) => {
                let names: Vec<_> = implementations.keys().map(String::as_str).collect();
                problem(&path, format!("expected one implementation, got {}", names.join(" and ")));
            }
        }
    }
    found
}

/// Checks the fields that every server of a type has.
pub(super) struct Checker<'a> {
    marks: &'a Marks,
    base: String,
    problems: &'a mut Vec<Problem>,
}

/// Checks a resolved block.
pub(super) fn check(
    candidate: &Candidate,
    block: &Map<String, Value>,
    marks: &Marks,
    problems: &mut Vec<Problem>,
) {
    let mut checker = Checker { marks, base: candidate.path(), problems };
    checker.optional(block, "entrypoint", "a file name", |v| {
        v.as_str().is_some_and(|s| !s.is_empty())
    });
    checker.optional(block, "host", "an address", Value::is_string);
    checker.optional(block, "port", "a port between 0 and 65535", is_port);
    checker.optional(block, "num_workers", "an integer from 1", |v| {
        v.is_null() || v.as_u64() > Some(0)
    });
    if let Some(runtime) = block.get("runtime") {
        checker.choice("runtime", Some(runtime), &RUNTIMES);
    }
    if candidate.server_type == ServerType::ResourcesServers {
        checker.choice("domain", block.get("domain"), &DOMAINS);
    }
    match block.get("datasets") {
        None | Some(Value::Null) => {}
        Some(Value::Array(datasets)) => {
            for (index, dataset) in datasets.iter().enumerate() {
                checker.dataset(&format!("datasets[{index}]"), dataset);
            }
        }
        Some(other) => {
            checker.problem("datasets", &format!("expected a list, got {}", kind(other)), None)
        }
    }
}

pub(super) fn is_port(value: &Value) -> bool {
    value.as_u64().is_some_and(|port| u16::try_from(port).is_ok())
}

impl Checker<'_> {
    fn problem(&mut self, field: &str, reason: &str, closest: Option<String>) {
        let path = format!("{}.{field}", self.base);
        self.problems.push(Problem {
            at: self.marks.find(&path),
            path,
            reason: reason.to_owned(),
            closest,
        });
    }

    fn optional(
        &mut self,
        block: &Map<String, Value>,
        field: &str,
        expected: &str,
        fits: impl Fn(&Value) -> bool,
    ) {
        if let Some(value) = block.get(field)
            && !fits(value)
        {
            self.problem(field, &format!("expected {expected}, got {value}"), None);
        }
    }

    fn choice(&mut self, field: &str, value: Option<&Value>, choices: &[&str]) {
        let listed = choices.join(", ");
        match value {
            None => self.problem(field, &format!("is required, expected one of {listed}"), None),
            Some(Value::String(text)) if choices.contains(&text.as_str()) => {}
            Some(value) => {
                let near = value.as_str().and_then(|text| closest(text, choices.iter().copied()));
                self.problem(field, &format!("expected one of {listed}, got {value}"), near);
            }
        }
    }

    fn license(&mut self, path: &str, license: Option<&Value>) {
        let expected = "expected a known license, e.g. Apache 2.0, MIT or TBD";
        match license {
            None => self.problem(path, &format!("is required, {expected}"), None),
            Some(Value::String(text)) if LICENSES.contains(&text.as_str()) => {}
            Some(value) => {
                let near = value.as_str().and_then(|text| closest(text, LICENSES));
                self.problem(path, &format!("{expected}, got {value}"), near);
            }
        }
    }

    fn dataset(&mut self, path: &str, dataset: &Value) {
        let Some(map) = dataset.as_object() else {
            return self.problem(path, &format!("expected a mapping, got {}", kind(dataset)), None);
        };
        let field = |name: &str| format!("{path}.{name}");
        for name in ["name", "jsonl_fpath"] {
            if !map.get(name).is_some_and(Value::is_string) {
                self.problem(&field(name), "is required, expected a string", None);
            }
        }
        self.choice(&field("type"), map.get("type"), &DATASET_TYPES);
        match map.get("type").and_then(Value::as_str) {
            Some("train" | "validation") => self.license(&field("license"), map.get("license")),
            Some("benchmark") if !map.contains_key("prepare_script") => {
                self.problem(&field("prepare_script"), "is required for a benchmark", None);
            }
            _ => {}
        }
        if let Some(repeats) = map.get("num_repeats")
            && repeats.as_u64() < Some(1)
        {
            let reason = format!("expected an integer from 1, got {repeats}");
            self.problem(&field("num_repeats"), &reason, None);
        }
        let old = ["gitlab_identifier", "huggingface_identifier"];
        if map.contains_key("source")
            && let Some(old) = old.iter().find(|name| map.contains_key(**name))
        {
            self.problem(&field(old), "cannot stand beside source", None);
        }
    }
}

/// Checks that every direct field `{type, name}` of a block names an instance of that type.
pub(super) fn check_references(
    candidate: &Candidate,
    block: &Map<String, Value>,
    all: &[Candidate],
    marks: &Marks,
) -> Result<(), ConfigError> {
    for (field, value) in block {
        let server_type =
            value.get("type").and_then(Value::as_str).and_then(|t| t.parse::<ServerType>().ok());
        let (Some(server_type), Some(target)) =
            (server_type, value.get("name").and_then(Value::as_str))
        else {
            continue;
        };
        let mut known: Vec<&str> = all
            .iter()
            .filter(|other| other.server_type == server_type)
            .map(|other| other.name.as_str())
            .collect();
        if known.contains(&target) {
            continue;
        }
        known.sort_unstable();
        let near = ranked(target, known.iter().copied());
        let known = if near.is_empty() {
            known.into_iter().map(str::to_owned).collect()
        } else {
            near.into_iter().take(3).collect()
        };
        let path = format!("{}.{field}.name", candidate.path());
        return Err(ConfigError::Reference {
            at: marks.find(&path),
            path,
            server_type,
            target: target.to_owned(),
            known,
        });
    }
    Ok(())
}
