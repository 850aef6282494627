//! The rollouts of a run: what is sent, to whom, in which order.
//!
//! Only an index is kept in memory (40 bytes a rollout); the rows themselves lie in the materialised inputs, from which
//! the driver reads them one after another.

use std::collections::{HashMap, HashSet};

use super::members::{Members, json_string};

/// Keys of rows that the collection itself reads or writes.
pub mod keys {
    pub const TASK_INDEX: &str = "_ng_task_index";
    pub const ROLLOUT_INDEX: &str = "_ng_rollout_index";
    pub const ATTEMPT_INDEX: &str = "_ng_attempt_index";
    pub const ROLLOUT_ID: &str = "_ng_rollout_id";
    pub const NO_PERSIST: &str = "_ng_no_persist";
    pub const FAILURE_CLASS: &str = "_ng_failure_class";
    pub const FAILURE_MESSAGE: &str = "_ng_failure_message";
    pub const FAILURE_TERMINAL: &str = "_ng_failure_terminal";
    pub const AGENT_REF: &str = "agent_ref";
    pub const SKILLS_REF: &str = "skills_ref";
    pub const CREATE_PARAMS: &str = "responses_create_params";
    pub const RESPONSE: &str = "response";
    /// The W3C `traceparent` of a dispatch that failed.
    pub const TRACEPARENT: &str = "_ng_traceparent";
    pub const REWARD: &str = "reward";
}

/// One rollout to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedRollout {
    /// Where its row starts in the materialised inputs, in bytes.
    pub offset: u64,
    /// How long its row is, in bytes, without the line break.
    pub len: u32,
    /// Its stamp, an index into [`Plan::stamps`].
    pub stamp: u32,
    pub task: u64,
    pub rollout: u32,
    /// How many times it failed before.
    pub attempt: u32,
}

impl PlannedRollout {
    /// The rollout's id on the wire: `<task>-<rollout>`, or the row's own, with `-a<n>` on later attempts.
    pub fn wire_id(&self, stamp: &Stamp) -> String {
        let mut id = match &stamp.rollout_id {
            Some(id) => id.clone(),
            None => format!("{}-{}", self.task, self.rollout),
        };
        if self.attempt > 0 {
            id.push_str(&format!("-a{}", self.attempt));
        }
        id
    }
}

/// What a row gives to its result besides its indices. Rows share stamps.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// The name of the agent.
    pub agent: String,
    /// The row's `agent_ref` as JSON.
    pub agent_ref: String,
    /// The row's `skills_ref` as JSON.
    pub skills_ref: Option<String>,
    /// The row's own rollout id.
    pub rollout_id: Option<String>,
}

impl Stamp {
    /// The stamp of a row; `None` when it names no agent. The error says what is wrong with the row.
    pub fn of(row: &Members, default_agent: Option<&str>) -> Result<Option<Stamp>, String> {
        let (agent, agent_ref) = match row.get(keys::AGENT_REF) {
            None => match default_agent {
                Some(name) => (name.to_owned(), format!("{{\"name\":{}}}", json_string(name))),
                None => return Ok(None),
            },
            Some("null") => return Ok(None),
            Some(text) => {
                let members = Members::parse(text)
                    .map_err(|_| "`agent_ref` must be an object with a `name`".to_owned())?;
                match members.get("name") {
                    None | Some("null") => return Ok(None),
                    Some(name) => {
                        let name = serde_json::from_str(name)
                            .map_err(|_| "`agent_ref.name` must be text".to_owned())?;
                        (name, text.to_owned())
                    }
                }
            }
        };
        let rollout_id = match row.get(keys::ROLLOUT_ID) {
            None | Some("null") => None,
            Some(text) => {
                let id: String = serde_json::from_str(text)
                    .map_err(|_| format!("`{}` must be text", keys::ROLLOUT_ID))?;
                if !is_rollout_id(&id) {
                    return Err(format!(
                        "`{}` must be letters, digits, `.`, `_` and `-` and start with a letter or digit, got {id:?}",
                        keys::ROLLOUT_ID
                    ));
                }
                Some(id)
            }
        };
        Ok(Some(Stamp {
            agent,
            agent_ref,
            skills_ref: row.get(keys::SKILLS_REF).map(str::to_owned),
            rollout_id,
        }))
    }
}

fn is_rollout_id(id: &str) -> bool {
    id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

/// An index value of a row: a whole number that is not negative.
pub fn index_of(row: &Members, key: &str) -> Result<Option<u64>, String> {
    match row.get(key) {
        None => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| format!("`{key}` must be a whole number of 0 or more, got {text}")),
    }
}

/// The rollouts of a run in the order in which they are sent.
#[derive(Debug, Default)]
pub struct Plan {
    pub rollouts: Vec<PlannedRollout>,
    pub stamps: Vec<Stamp>,
    /// The `traceparent` of the last dispatch before, by task and rollout, where it is known.
    pub earlier: HashMap<(u64, u64), String>,
    interned: HashMap<Stamp, u32>,
}

impl Plan {
    /// The index of an equal stamp, which is kept if it is new.
    pub fn intern(&mut self, stamp: Stamp) -> u32 {
        if let Some(&index) = self.interned.get(&stamp) {
            return index;
        }
        let index = self.stamps.len() as u32;
        self.stamps.push(stamp.clone());
        self.interned.insert(stamp, index);
        index
    }

    /// How many tasks the rollouts belong to.
    pub fn tasks(&self) -> usize {
        self.rollouts.iter().map(|rollout| rollout.task).collect::<HashSet<_>>().len()
    }

    /// The names of all agents of the plan, each once.
    pub fn agents(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.stamps.iter().map(|stamp| stamp.agent.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(row: &str, default_agent: Option<&str>) -> Result<Option<Stamp>, String> {
        Stamp::of(&Members::parse(row).unwrap(), default_agent)
    }

    #[test]
    fn the_agent_of_a_row_wins_over_the_default() {
        let row = r#"{"agent_ref":{"type":"responses_api_agents","name":"a"}}"#;
        let own = stamp(row, Some("b")).unwrap().unwrap();
        assert_eq!((own.agent.as_str(), own.agent_ref.contains("type")), ("a", true));
        assert_eq!(stamp("{}", Some("b")).unwrap().unwrap().agent_ref, r#"{"name":"b"}"#);
        assert_eq!(stamp("{}", None).unwrap(), None);
        assert_eq!(stamp(r#"{"agent_ref":null}"#, None).unwrap(), None);
    }

    #[test]
    fn a_rollout_is_named_by_its_indices_or_its_own_id_and_the_attempt() {
        let plain = stamp("{}", Some("a")).unwrap().unwrap();
        let named = stamp(r#"{"_ng_rollout_id":"x.1"}"#, Some("a")).unwrap().unwrap();
        let mut rollout =
            PlannedRollout { offset: 0, len: 0, stamp: 0, task: 7, rollout: 3, attempt: 0 };
        assert_eq!(rollout.wire_id(&plain), "7-3");
        rollout.attempt = 2;
        assert_eq!(rollout.wire_id(&plain), "7-3-a2");
        assert_eq!(rollout.wire_id(&named), "x.1-a2");
        assert!(stamp(r#"{"_ng_rollout_id":"../x"}"#, Some("a")).is_err());
    }
}
