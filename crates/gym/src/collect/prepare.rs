//! From input rows to rollouts: agent, parameters, prompt, indices, repeats.
//!
//! The rows stream through: what is kept is the plan and one hash per distinct line.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::io::{BufRead, Write};
use std::path::Path;

use super::error::CollectError;
use super::members::{Members, compacted, json_string};
use super::plan::{Plan, PlannedRollout, Stamp, index_of, keys};
use super::prompt::Prompt;

/// How many of the offending lines an error names.
const NAMED_LINES: usize = 10;

/// How many rollouts a row becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NumRepeats {
    /// The same for all rows.
    Every(u32),
    /// By the name of the agent.
    PerAgent { agents: BTreeMap<String, u32>, default: Option<u32> },
}

impl NumRepeats {
    /// Reads a number, or a map from agent to number with an optional `_default`.
    pub fn from_value(value: &serde_json::Value) -> Result<NumRepeats, CollectError> {
        let count = |value: &serde_json::Value| {
            value
                .as_u64()
                .filter(|count| (1..=u64::from(u32::MAX)).contains(count))
                .map(|count| count as u32)
                .ok_or_else(|| CollectError::Setting {
                    key: "num_repeats",
                    reason: format!("must be a whole number of 1 or more, got {value}"),
                })
        };
        match value {
            serde_json::Value::Null => Ok(NumRepeats::Every(1)),
            serde_json::Value::Object(map) => {
                let mut agents = BTreeMap::new();
                let mut default = None;
                for (name, value) in map {
                    match name.as_str() {
                        "_default" => default = Some(count(value)?),
                        _ => drop(agents.insert(name.clone(), count(value)?)),
                    }
                }
                Ok(NumRepeats::PerAgent { agents, default })
            }
            value => count(value).map(NumRepeats::Every),
        }
    }

    fn of(&self, agent: &str) -> Option<u32> {
        match self {
            NumRepeats::Every(count) => Some(*count),
            NumRepeats::PerAgent { agents, default } => agents.get(agent).copied().or(*default),
        }
    }
}

/// What is done to every row.
#[derive(Debug, Clone)]
pub struct RowOptions {
    /// Only the first so many lines.
    pub limit: Option<usize>,
    pub num_repeats: NumRepeats,
    /// Puts a `seed` of its own into every rollout's `metadata.extra_body`.
    pub add_seed: bool,
    /// The agent of rows that name none.
    pub agent: Option<String>,
    /// Members set in `responses_create_params`: key and JSON text.
    pub create_params: Vec<(String, String)>,
    pub prompt: Option<Prompt>,
    /// The `skills_ref` of every row, as JSON.
    pub skills_ref: Option<String>,
}

impl Default for RowOptions {
    fn default() -> Self {
        RowOptions {
            limit: None,
            num_repeats: NumRepeats::Every(1),
            add_seed: false,
            agent: None,
            create_params: Vec::new(),
            prompt: None,
            skills_ref: None,
        }
    }
}

/// What preparing found out.
#[derive(Debug, Default)]
pub struct Prepared {
    pub plan: Plan,
    /// Lines for the user.
    pub notices: Vec<String>,
}

/// Reads rows from `input` and writes one line per rollout to `out`. `input_path` is for messages only.
pub fn prepare(
    input: &mut dyn BufRead,
    input_path: &Path,
    options: &RowOptions,
    out: &mut dyn Write,
    out_path: &Path,
) -> Result<Prepared, CollectError> {
    let mut preparation = Preparation::new(input_path, options);
    let mut line = Vec::new();
    let mut number = 0;
    while options.limit.is_none_or(|limit| number < limit) {
        line.clear();
        if input.read_until(b'\n', &mut line).map_err(CollectError::read(input_path))? == 0 {
            break;
        }
        number += 1;
        let rows = preparation.row(number, &line)?;
        out.write_all(rows).map_err(CollectError::write(out_path))?;
    }
    out.flush().map_err(CollectError::write(out_path))?;
    preparation.finish()
}

struct Preparation<'a> {
    path: &'a Path,
    options: &'a RowOptions,
    prepared: Prepared,
    offset: u64,
    rows: Vec<u8>,
    task_of_line: HashMap<(u64, u64), u64>,
    rollouts_of_task: HashMap<u64, u32>,
    without_agent: Offenders,
    with_input: Offenders,
    without_repeats: BTreeSet<String>,
}

#[derive(Default)]
struct Offenders {
    lines: Vec<usize>,
    count: usize,
}

impl Offenders {
    fn add(&mut self, line: usize) {
        self.count += 1;
        if self.lines.len() < NAMED_LINES {
            self.lines.push(line);
        }
    }
}

impl<'a> Preparation<'a> {
    fn new(path: &'a Path, options: &'a RowOptions) -> Self {
        Preparation {
            path,
            options,
            prepared: Prepared::default(),
            offset: 0,
            rows: Vec::new(),
            task_of_line: HashMap::new(),
            rollouts_of_task: HashMap::new(),
            without_agent: Offenders::default(),
            with_input: Offenders::default(),
            without_repeats: BTreeSet::new(),
        }
    }

    /// The lines that an input line becomes.
    fn row(&mut self, number: usize, line: &[u8]) -> Result<&[u8], CollectError> {
        self.rows.clear();
        let (path, options) = (self.path, self.options);
        let bad =
            |reason: String| CollectError::BadRow { path: path.to_owned(), line: number, reason };
        let text = std::str::from_utf8(line).map_err(|_| bad("not UTF-8".to_owned()))?;
        let text = if number == 1 { text.trim_start_matches('\u{feff}') } else { text }.trim();
        if text.is_empty() {
            return Ok(&self.rows);
        }
        let no_json = |error: &_| bad(format!("not a JSON object ({})", json_reason(error)));
        let parsed = Members::parse(text).map_err(|error| no_json(&error))?;
        let spread = (!parsed.is_compact()).then(|| compacted(text));
        let row = match &spread {
            Some(text) => Members::parse(text).map_err(|error| no_json(&error))?,
            None => parsed,
        };

        let mut params = match row.get(keys::CREATE_PARAMS) {
            Some(text) => text.to_owned(),
            None if options.prompt.is_some() => "{}".to_owned(),
            None => {
                let reason = format!(
                    "`{}` is missing; give it, or build it with --prompt-config",
                    keys::CREATE_PARAMS
                );
                return Err(bad(reason));
            }
        };
        let not_object = || bad(format!("`{}` must be an object", keys::CREATE_PARAMS));
        if let Some(prompt) = &options.prompt {
            let members = Members::parse(&params).map_err(|_| not_object())?;
            if !matches!(members.get("input"), None | Some("null" | "[]" | "\"\"")) {
                self.with_input.add(number);
                return Ok(&self.rows);
            }
            let messages = prompt.messages(&row).map_err(bad)?;
            params = members.spliced(&[("input", &messages)]);
        }
        let members = Members::parse(&params).map_err(|_| not_object())?;
        let overrides: Vec<(&str, &str)> = options
            .create_params
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        params = members.spliced(&overrides);

        let task = match index_of(&row, keys::TASK_INDEX).map_err(bad)? {
            Some(task) => task,
            None => {
                let next = self.task_of_line.len() as u64;
                *self.task_of_line.entry(line_hash(text)).or_insert(next)
            }
        };
        let Some(mut stamp) = Stamp::of(&row, options.agent.as_deref()).map_err(bad)? else {
            self.without_agent.add(number);
            return Ok(&self.rows);
        };
        if options.skills_ref.is_some() {
            stamp.skills_ref.clone_from(&options.skills_ref);
        }
        let Some(repeats) = options.num_repeats.of(&stamp.agent) else {
            self.without_repeats.insert(stamp.agent);
            return Ok(&self.rows);
        };

        let next_rollout = self.rollouts_of_task.entry(task).or_default();
        let stamp_index = self.prepared.plan.intern(stamp.clone());
        let task_text = task.to_string();
        for _ in 0..repeats {
            let rollout = *next_rollout;
            *next_rollout += 1;
            let rollout_text = rollout.to_string();
            let seeded = if options.add_seed {
                Some(with_seed(&params, &rollout_text).map_err(bad)?)
            } else {
                None
            };
            let mut changes = vec![
                (keys::CREATE_PARAMS, seeded.as_deref().unwrap_or(&params)),
                (keys::AGENT_REF, stamp.agent_ref.as_str()),
            ];
            if let Some(skills) = &stamp.skills_ref {
                changes.push((keys::SKILLS_REF, skills));
            }
            changes.push((keys::TASK_INDEX, &task_text));
            changes.push((keys::ROLLOUT_INDEX, &rollout_text));
            let start = self.rows.len();
            row.splice_into(&changes, &mut self.rows);
            let len = u32::try_from(self.rows.len() - start)
                .map_err(|_| bad("longer than 4 GiB".to_owned()))?;
            self.rows.push(b'\n');
            self.prepared.plan.rollouts.push(PlannedRollout {
                offset: self.offset,
                len,
                stamp: stamp_index,
                task,
                rollout,
                attempt: 0,
            });
            self.offset += u64::from(len) + 1;
        }
        Ok(&self.rows)
    }

    fn finish(mut self) -> Result<Prepared, CollectError> {
        let path = self.path.to_owned();
        if self.with_input.count > 0 {
            let Offenders { lines, count } = self.with_input;
            return Err(CollectError::PromptAndInput { path, lines, count });
        }
        if self.without_agent.count > 0 {
            let Offenders { lines, count } = self.without_agent;
            return Err(CollectError::MissingAgents { path, lines, count });
        }
        if !self.without_repeats.is_empty() {
            return Err(CollectError::MissingRepeats {
                agents: self.without_repeats.into_iter().collect(),
            });
        }
        if self.prepared.plan.rollouts.is_empty() {
            return Err(CollectError::NoRows { path });
        }
        if let NumRepeats::PerAgent { agents, .. } = &self.options.num_repeats {
            let seen = self.prepared.plan.agents();
            let unseen: Vec<&str> = agents
                .keys()
                .map(String::as_str)
                .filter(|name| seen.binary_search(name).is_err())
                .collect();
            if !unseen.is_empty() {
                let notice =
                    format!("num_repeats names agents that no row names: {}", unseen.join(", "));
                self.prepared.notices.push(notice);
            }
        }
        Ok(self.prepared)
    }
}

/// Params with the rollout's index as `seed` in the JSON text `metadata.extra_body`.
fn with_seed(params: &str, seed: &str) -> Result<String, String> {
    let members = Members::parse(params).map_err(|error| error.to_string())?;
    let metadata_text = members.get("metadata").filter(|text| *text != "null").unwrap_or("{}");
    let metadata =
        Members::parse(metadata_text).map_err(|_| "`metadata` must be an object".to_owned())?;
    let extra_text: String = match metadata.get("extra_body") {
        None | Some("null") => "{}".to_owned(),
        Some(text) => serde_json::from_str(text)
            .map_err(|_| "`metadata.extra_body` must be JSON text".to_owned())?,
    };
    let extra = Members::parse(&extra_text)
        .map_err(|_| "`metadata.extra_body` must hold a JSON object".to_owned())?;
    let extra = json_string(&extra.spliced(&[("seed", seed)]));
    let metadata = metadata.spliced(&[("extra_body", &extra)]);
    Ok(members.spliced(&[("metadata", &metadata)]))
}

/// 128 bits that stand for a line: equal lines are one task.
fn line_hash(text: &str) -> (u64, u64) {
    let hash = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        text.hash(&mut hasher);
        hasher.finish()
    };
    (hash(0), hash(1))
}

/// What is wrong with a line, with the column but without the line number that is always 1.
pub(super) fn json_reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text);
    if error.column() == 0 { what.to_owned() } else { format!("{what}, column {}", error.column()) }
}

#[cfg(test)]
#[path = "prepare_tests.rs"]
mod tests;
