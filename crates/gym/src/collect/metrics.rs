//! The aggregate metrics of a run: the results of each agent go to its `/aggregate_metrics`, which answers with means,
//! deviations and what else its environment computes.
//!
//! What the request needs of a result is kept while the run goes on, so that the output need not be read again.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::dispatch::Dispatch;
use super::error::CollectError;
use super::members::Members;
use super::reply::{quoted, stripped_into};

/// Bytes of results that are kept for all agents at most. Beyond it there are no metrics, and a notice says so.
const MAX_KEPT_BYTES: usize = 1024 * 1024 * 1024;

/// The results of a run, without their heavy members, by agent.
#[derive(Debug, Default)]
pub struct MetricsBodies {
    agents: BTreeMap<String, Results>,
    kept_bytes: usize,
    overflowed: bool,
}

#[derive(Debug, Default)]
struct Results {
    text: Vec<u8>,
    /// Where each result is in the text, by task and rollout.
    index: Vec<((u64, u64), std::ops::Range<usize>)>,
}

impl MetricsBodies {
    /// Keeps what is needed of a result, with `changes` made to it.
    pub fn add(
        &mut self,
        agent: &str,
        key: (u64, u64),
        result: &Members,
        changes: &[(&str, &str)],
    ) {
        if self.overflowed {
            return;
        }
        if !self.agents.contains_key(agent) {
            self.agents.insert(agent.to_owned(), Results::default());
        }
        let results = self.agents.get_mut(agent).expect("inserted above");
        let start = results.text.len();
        stripped_into(result, changes, &mut results.text);
        results.index.push((key, start..results.text.len()));
        self.kept_bytes += results.text.len() - start;
        if self.kept_bytes > MAX_KEPT_BYTES {
            self.overflowed = true;
            self.agents.clear();
        }
    }

    /// Whether there were too many results to keep.
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// The request bodies by agent, results in the order of tasks and rollouts.
    fn into_bodies(self) -> impl Iterator<Item = (String, Bytes)> {
        self.agents.into_iter().map(|(agent, mut results)| {
            results.index.sort_by_key(|(key, _)| *key);
            let mut body = Vec::with_capacity(results.text.len() + results.index.len() + 32);
            body.extend_from_slice(b"{\"verify_responses\":[");
            for (position, (_, range)) in results.index.iter().enumerate() {
                if position > 0 {
                    body.push(b',');
                }
                body.extend_from_slice(&results.text[range.clone()]);
            }
            body.extend_from_slice(b"]}");
            (agent, body.into())
        })
    }
}

/// The aggregate metrics of one agent.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentMetrics {
    pub agent: String,
    pub key_metrics: Map<String, Value>,
    document: Value,
}

/// Asks every agent for its metrics. What an agent does not answer is among the errors.
pub async fn aggregate(
    dispatch: &impl Dispatch,
    bodies: MetricsBodies,
    context: Option<&lens::Context>,
) -> (Vec<AgentMetrics>, Vec<CollectError>) {
    let mut metrics = Vec::new();
    let mut errors = Vec::new();
    for (agent, body) in bodies.into_bodies() {
        let reply = dispatch.aggregate(&agent, body, context).await;
        let read = match reply {
            Ok(reply) if (200..300).contains(&reply.status) => agent_metrics(&agent, &reply.body),
            Ok(reply) => Err(format!("it answered {}: {}", reply.status, quoted(&reply.body))),
            Err(error) => Err(error.message),
        };
        match read {
            Ok(read) => metrics.push(read),
            Err(reason) => errors.push(CollectError::Aggregate { agent, reason }),
        }
    }
    (metrics, errors)
}

fn agent_metrics(agent: &str, body: &[u8]) -> Result<AgentMetrics, String> {
    let reply: Value = serde_json::from_slice(body)
        .map_err(|_| format!("its reply is not JSON: {}", quoted(body)))?;
    let member = |key: &str, default: Value| reply.get(key).cloned().unwrap_or(default);
    let key_metrics = match member("key_metrics", json!({})) {
        Value::Object(map) => map,
        _ => return Err("its `key_metrics` are not an object".to_owned()),
    };
    let document = json!({
        "agent_ref": {"name": agent},
        "agent_metrics": member("agent_metrics", json!({})),
        "key_metrics": key_metrics.clone(),
        "group_level_metrics": member("group_level_metrics", json!([])),
    });
    Ok(AgentMetrics { agent: agent.to_owned(), key_metrics, document })
}

/// The content of the metrics file.
pub fn document(metrics: &[AgentMetrics]) -> Vec<u8> {
    let documents: Vec<&Value> = metrics.iter().map(|metrics| &metrics.document).collect();
    serde_json::to_vec_pretty(&documents).expect("JSON values always serialise")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_sent_by_agent_in_the_order_of_tasks() {
        let mut bodies = MetricsBodies::default();
        for (agent, task) in [("b", 2), ("a", 1), ("b", 0)] {
            let text = format!("{{\"reward\":{task}}}");
            bodies.add(agent, (task, 0), &Members::parse(&text).unwrap(), &[]);
        }
        let bodies: Vec<(String, Bytes)> = bodies.into_bodies().collect();
        assert_eq!(bodies[0].0, "a");
        assert_eq!(bodies[1].1, r#"{"verify_responses":[{"reward":0},{"reward":2}]}"#);
    }

    #[test]
    fn the_file_has_one_entry_per_agent() {
        let metrics = agent_metrics(
            "a",
            br#"{"agent_metrics":{"mean/reward":1.0},"key_metrics":{"mean/reward":1.0}}"#,
        );
        insta::assert_snapshot!(String::from_utf8(document(&[metrics.unwrap()])).unwrap(), @r#"
        [
          {
            "agent_ref": {
              "name": "a"
            },
            "agent_metrics": {
              "mean/reward": 1.0
            },
            "key_metrics": {
              "mean/reward": 1.0
            },
            "group_level_metrics": []
          }
        ]
        "#);
        assert!(agent_metrics("a", b"oops").unwrap_err().contains("oops"));
    }
}
