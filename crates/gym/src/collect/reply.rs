//! What an agent answered to `/run`, and the line it becomes.

use super::members::{Members, compacted, json_string};
use super::plan::{PlannedRollout, Stamp, keys};

/// Where a result goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The output file.
    Output,
    /// The failures file: the agent or the verifier said that it failed.
    Failures,
    /// Nowhere: the agent asked for it, and a resumed run tries again.
    Nowhere,
}

/// A checked reply.
#[derive(Debug)]
pub struct Reply<'a> {
    members: Members<'a>,
    /// Where it goes.
    pub route: Route,
}

/// How much of a bad reply or an error body a message quotes.
const QUOTED_CHARS: usize = 300;

impl<'a> Reply<'a> {
    /// Checks a reply. The error says what is wrong with it.
    pub fn parse(body: &'a [u8]) -> Result<Reply<'a>, String> {
        let text = std::str::from_utf8(body).map_err(|_| "the reply is not UTF-8".to_owned())?;
        let members = Members::parse(text).map_err(|error| {
            let reason = super::prepare::json_reason(&error);
            if text.trim().is_empty() {
                "the reply is empty".to_owned()
            } else {
                format!("the reply is not a JSON object ({reason}): {}", quoted(body))
            }
        })?;
        let route = if members.get(keys::NO_PERSIST).is_some_and(is_truthy) {
            Route::Nowhere
        } else if members.get(keys::FAILURE_CLASS).is_some_and(|class| class != "null") {
            Route::Failures
        } else if members.get(keys::REWARD).is_some_and(is_number) {
            Route::Output
        } else {
            return Err("the reply has no `reward`".to_owned());
        };
        Ok(Reply { members, route })
    }

    /// Appends the line of the result: the reply with the row's stamp.
    pub fn line_into(&self, changes: &[(&str, &str)], out: &mut Vec<u8>) {
        if self.members.is_compact() {
            self.members.splice_into(changes, out);
        } else {
            let line = compacted(&self.members.spliced(changes));
            out.extend_from_slice(line.as_bytes());
        }
    }

    /// The class of a reply that says it failed.
    pub fn failure_class(&self) -> String {
        let text = self.members.get(keys::FAILURE_CLASS).unwrap_or_default();
        serde_json::from_str(text).unwrap_or_else(|_| text.to_owned())
    }

    /// What a reply that says it failed tells about it.
    pub fn failure_message(&self) -> String {
        let is_told = |name: &&(&str, &str)| {
            name.0.starts_with("_ng_failure_") && name.0 != keys::FAILURE_CLASS
        };
        let members: Vec<(&str, &str)> = self.members.iter().collect();
        let told = members
            .iter()
            .find(is_told)
            .and_then(|(_, text)| serde_json::from_str::<String>(text).ok());
        told.map(|text| quoted(text.as_bytes())).unwrap_or_else(|| "the reply says so".to_owned())
    }

    /// The numeric top-level members; booleans count as 0 and 1.
    pub fn numbers(&self) -> impl Iterator<Item = (&str, f64)> {
        self.members.iter().filter(|(name, _)| !name.starts_with("_ng_")).filter_map(
            |(name, value)| {
                let number = match value {
                    "true" => 1.0,
                    "false" => 0.0,
                    text if is_number(text) => text.parse().ok()?,
                    _ => return None,
                };
                Some((name, number))
            },
        )
    }

    /// The members of the reply.
    pub fn members(&self) -> &Members<'a> {
        &self.members
    }
}

/// What a row gives to its result, as members to set.
#[derive(Debug)]
pub struct Stamped<'a> {
    task: String,
    rollout: String,
    attempt: Option<String>,
    id: Option<String>,
    stamp: &'a Stamp,
}

impl<'a> Stamped<'a> {
    /// The stamp of a rollout's result.
    pub fn new(rollout: &PlannedRollout, stamp: &'a Stamp) -> Stamped<'a> {
        Stamped {
            task: rollout.task.to_string(),
            rollout: rollout.rollout.to_string(),
            attempt: (rollout.attempt > 0).then(|| rollout.attempt.to_string()),
            id: stamp.rollout_id.as_deref().map(json_string),
            stamp,
        }
    }

    /// The members, in the order in which they are appended.
    pub fn changes(&self) -> Vec<(&str, &str)> {
        let mut changes = Vec::with_capacity(6);
        changes.push((keys::TASK_INDEX, self.task.as_str()));
        changes.push((keys::ROLLOUT_INDEX, self.rollout.as_str()));
        changes.push((keys::AGENT_REF, self.stamp.agent_ref.as_str()));
        if let Some(skills) = &self.stamp.skills_ref {
            changes.push((keys::SKILLS_REF, skills));
        }
        if let Some(attempt) = &self.attempt {
            changes.push((keys::ATTEMPT_INDEX, attempt));
        }
        if let Some(id) = &self.id {
            changes.push((keys::ROLLOUT_ID, id));
        }
        changes
    }
}

/// Appends what the aggregation of metrics needs of a result: all but the heavy members, and the usage.
pub fn stripped_into(result: &Members, changes: &[(&str, &str)], out: &mut Vec<u8>) {
    let is_changed = |name: &str| changes.iter().any(|(key, _)| *key == name);
    let is_heavy = |name: &str| {
        name.starts_with("ng_") || name == keys::CREATE_PARAMS || name == keys::RESPONSE
    };
    let kept = result.iter().filter(|(name, _)| !is_heavy(name) && !is_changed(name));
    out.push(b'{');
    for (name, value) in kept.chain(changes.iter().copied()) {
        super::members::push_json_string(name, out);
        out.push(b':');
        out.extend_from_slice(value.as_bytes());
        out.push(b',');
    }
    match result.get(keys::RESPONSE).and_then(usage_of) {
        Some(usage) => {
            out.extend_from_slice(b"\"response\":{\"usage\":");
            out.extend_from_slice(usage.as_bytes());
            out.extend_from_slice(b"}}");
        }
        None if out.last() == Some(&b',') => {
            out.pop();
            out.push(b'}');
        }
        None => out.push(b'}'),
    }
}

fn usage_of(response: &str) -> Option<&str> {
    #[derive(serde::Deserialize)]
    struct Response<'a> {
        #[serde(borrow, default)]
        usage: Option<&'a serde_json::value::RawValue>,
    }
    let usage = serde_json::from_str::<Response>(response).ok()?.usage?.get();
    (usage != "null").then_some(usage)
}

/// Appends the line of a rollout that failed: its row as it was, and why.
pub fn failure_line_into(
    row: &[u8],
    class: &str,
    message: &str,
    traceparent: Option<&str>,
    out: &mut Vec<u8>,
) {
    let class = json_string(class);
    let message = json_string(message);
    let traceparent = traceparent.map(json_string);
    let mut changes =
        vec![(keys::FAILURE_CLASS, class.as_str()), (keys::FAILURE_MESSAGE, message.as_str())];
    changes.extend(traceparent.as_deref().map(|parent| (keys::TRACEPARENT, parent)));
    match std::str::from_utf8(row).ok().and_then(|text| Members::parse(text).ok()) {
        Some(members) => members.splice_into(&changes, out),
        None => {
            let empty = Members::parse("{}").expect("an object");
            empty.splice_into(&changes, out);
        }
    }
}

/// The beginning of a body, for a message.
pub fn quoted(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * QUOTED_CHARS)]);
    let mut quoted: String = text.trim().chars().take(QUOTED_CHARS).collect();
    if quoted.len() < body.trim_ascii().len() {
        quoted.push('…');
    }
    quoted
}

fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
}

/// Whether Python takes a JSON value for true.
fn is_truthy(text: &str) -> bool {
    !matches!(text, "null" | "false" | "0" | "0.0" | "\"\"" | "[]" | "{}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp() -> Stamp {
        Stamp {
            agent: "a".into(),
            agent_ref: r#"{"name":"a"}"#.into(),
            skills_ref: None,
            rollout_id: None,
        }
    }

    fn rollout(attempt: u32) -> PlannedRollout {
        PlannedRollout { offset: 0, len: 0, stamp: 0, task: 3, rollout: 1, attempt }
    }

    fn line(body: &str, rollout: &PlannedRollout, stamp: &Stamp) -> String {
        let mut out = Vec::new();
        let stamped = Stamped::new(rollout, stamp);
        Reply::parse(body.as_bytes()).unwrap().line_into(&stamped.changes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_result_gets_the_indices_and_the_agent_of_its_row() {
        assert_eq!(
            line(r#"{"response":{},"reward":1.0}"#, &rollout(0), &stamp()),
            r#"{"response":{},"reward":1.0,"_ng_task_index":3,"_ng_rollout_index":1,"agent_ref":{"name":"a"}}"#
        );
        let named =
            Stamp { rollout_id: Some("x".into()), skills_ref: Some("{}".into()), ..stamp() };
        assert_eq!(
            line(r#"{"reward":1,"agent_ref":0}"#, &rollout(2), &named),
            r#"{"reward":1,"agent_ref":{"name":"a"},"_ng_task_index":3,"_ng_rollout_index":1,"skills_ref":{},"_ng_attempt_index":2,"_ng_rollout_id":"x"}"#
        );
    }

    #[test]
    fn a_spread_reply_becomes_one_line() {
        let line = line("{\n  \"reward\": 1,\n  \"text\": \"a\\n b\"\n}\n", &rollout(0), &stamp());
        assert!(line.starts_with(r#"{"reward":1,"text":"a\n b","_ng_task_index":3"#), "{line}");
    }

    #[test]
    fn the_reply_says_where_its_line_goes() {
        let route = |body: &str| Reply::parse(body.as_bytes()).map(|reply| reply.route);
        assert_eq!(route(r#"{"reward":0}"#), Ok(Route::Output));
        assert_eq!(
            route(r#"{"reward":0.0,"_ng_failure_class":"judge_failed"}"#),
            Ok(Route::Failures)
        );
        assert_eq!(route(r#"{"reward":0.0,"_ng_failure_class":null}"#), Ok(Route::Output));
        assert_eq!(route(r#"{"_ng_failure_class":"x","_ng_no_persist":true}"#), Ok(Route::Nowhere));
        assert_eq!(route(r#"{"reward":1,"_ng_no_persist":false}"#), Ok(Route::Output));
    }

    #[test]
    fn what_is_no_result_is_refused_with_the_reason() {
        let reason = |body: &[u8]| Reply::parse(body).unwrap_err();
        assert_eq!(reason(b""), "the reply is empty");
        assert_eq!(reason(b"{\"response\":{}}"), "the reply has no `reward`");
        assert_eq!(reason(b"{\"reward\":\"1\"}"), "the reply has no `reward`");
        assert_eq!(reason(b"\xff"), "the reply is not UTF-8");
        insta::assert_snapshot!(reason(b"<html>oops</html>"), @"the reply is not a JSON object (expected value, column 1): <html>oops</html>");
    }

    #[test]
    fn numbers_are_top_level_and_not_of_the_collection() {
        let reply =
            Reply::parse(br#"{"reward":1.5,"ok":true,"_ng_x":7,"s":"1","o":{"n":1}}"#).unwrap();
        assert_eq!(reply.numbers().collect::<Vec<_>>(), [("reward", 1.5), ("ok", 1.0)]);
    }

    #[test]
    fn the_aggregation_gets_everything_but_the_heavy_members() {
        let text = r#"{"responses_create_params":{},"response":{"output":[],"usage":{"total_tokens":3}},"reward":1,"answer":"x","ng_trajectory":[]}"#;
        let mut out = Vec::new();
        let changes = [("_ng_task_index", "4"), ("answer", "\"y\"")];
        stripped_into(&Members::parse(text).unwrap(), &changes, &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"reward":1,"_ng_task_index":4,"answer":"y","response":{"usage":{"total_tokens":3}}}"#
        );
        let mut out = Vec::new();
        stripped_into(&Members::parse(r#"{"response":{}}"#).unwrap(), &[], &mut out);
        assert_eq!(out, b"{}");
    }

    #[test]
    fn a_failure_is_the_row_and_the_reason() {
        let mut out = Vec::new();
        failure_line_into(
            br#"{"responses_create_params":{},"_ng_task_index":0}"#,
            "http_error",
            "500: \"x\"",
            Some("00-0af7-b7ad-01"),
            &mut out,
        );
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"responses_create_params":{},"_ng_task_index":0,"_ng_failure_class":"http_error","_ng_failure_message":"500: \"x\"","_ng_traceparent":"00-0af7-b7ad-01"}"#
        );
    }

    #[test]
    fn long_bodies_are_quoted_in_part() {
        assert_eq!(quoted(b" short \n"), "short");
        assert_eq!(quoted(&[b'x'; 5000]).chars().count(), QUOTED_CHARS + 1);
    }
}
