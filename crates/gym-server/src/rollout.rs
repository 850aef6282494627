//! Which rollout a request belongs to.
//!
//! The wire form of a rollout id is `<task>-<rollout>`, with `-a<n>` on later attempts. It
//! travels in a run's body, in baggage between Gym servers, and in `/ng-rollout/<id>/…` paths
//! when capture is on.

use std::fmt;

use serde::Deserialize;

/// Start of a path that carries a rollout id.
pub const PATH_PREFIX: &str = "/ng-rollout/";
/// What follows the id in paths of rollouts whose token ids are captured.
pub const CAPTURE_SEGMENT: &str = "/training-token-capture";

/// A rollout's id in wire form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RolloutId(String);

impl RolloutId {
    /// Takes an id that fits `[A-Za-z0-9][A-Za-z0-9._-]*`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        is_valid(text).then(|| Self(text.to_owned()))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RolloutId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_valid(text: &str) -> bool {
    text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// The identity that a run's body carries in its `_ng_…` fields.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub struct Indices<'a> {
    /// Id given by the caller, instead of the one made of the indices.
    #[serde(rename = "_ng_rollout_id", borrow, default)]
    pub id: Option<&'a str>,
    /// Input row.
    #[serde(rename = "_ng_task_index", default)]
    pub task: Option<u64>,
    /// Repeat of the row.
    #[serde(rename = "_ng_rollout_index", default)]
    pub rollout: Option<u64>,
    /// Earlier attempts of the same rollout.
    #[serde(rename = "_ng_attempt_index", default)]
    pub attempt: Option<u64>,
}

/// A rollout id in a body that no path or header may carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("_ng_rollout_id {0:?} must match [A-Za-z0-9][A-Za-z0-9._-]*")]
pub struct InvalidRolloutId(pub String);

impl Indices<'_> {
    /// The wire form, or `None` when the body names no rollout.
    ///
    /// # Errors
    ///
    /// When `_ng_rollout_id` has characters that are not allowed.
    pub fn rollout_id(&self) -> Result<Option<RolloutId>, InvalidRolloutId> {
        let mut text = match (self.id, self.task, self.rollout) {
            (Some(id), _, _) if is_valid(id) => id.to_owned(),
            (Some(id), _, _) => return Err(InvalidRolloutId(id.to_owned())),
            (None, Some(task), Some(rollout)) => format!("{task}-{rollout}"),
            _ => return Ok(None),
        };
        if let Some(attempt) = self.attempt.filter(|attempt| *attempt > 0) {
            text.push_str("-a");
            text.push_str(&attempt.to_string());
        }
        Ok(Some(RolloutId(text)))
    }
}

/// A path split into its rollout prefix and the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitPath<'a> {
    /// `/ng-rollout/<id>` or `/ng-rollout/<id>/training-token-capture`; empty without one.
    pub prefix: &'a str,
    /// The id in the prefix; empty without one.
    pub id: &'a str,
    /// What routing sees.
    pub path: &'a str,
}

/// Splits a rollout prefix off a path. A path without one comes back whole.
#[must_use]
pub fn split_path(path: &str) -> SplitPath<'_> {
    let whole = SplitPath { prefix: "", id: "", path };
    let Some(rest) = path.strip_prefix(PATH_PREFIX) else { return whole };
    let Some(id_len) = rest.find('/') else { return whole };
    let (id, mut tail) = rest.split_at(id_len);
    if !is_valid(id) {
        return whole;
    }
    if let Some(stripped) = tail.strip_prefix(CAPTURE_SEGMENT)
        && stripped.starts_with('/')
    {
        tail = stripped;
    }
    SplitPath { prefix: &path[..path.len() - tail.len()], id, path: tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_form_names_task_rollout_and_later_attempts() {
        let indices = |attempt| Indices { task: Some(7), rollout: Some(2), attempt, id: None };
        let text = |attempt| indices(attempt).rollout_id().expect("valid").expect("an id").0;
        assert_eq!(text(None), "7-2");
        assert_eq!(text(Some(0)), "7-2");
        assert_eq!(text(Some(3)), "7-2-a3");
        assert_eq!(Indices::default().rollout_id(), Ok(None));
        let own = Indices { id: Some("x.1"), ..indices(None) };
        assert_eq!(own.rollout_id().expect("valid").expect("an id").0, "x.1");
        let bad = Indices { id: Some("a/b"), ..indices(None) };
        assert!(bad.rollout_id().is_err());
    }

    #[test]
    fn a_prefix_is_split_off_with_and_without_capture() {
        let split = split_path("/ng-rollout/7-2/v1/responses");
        assert_eq!(
            (split.prefix, split.id, split.path),
            ("/ng-rollout/7-2", "7-2", "/v1/responses")
        );
        let split = split_path("/ng-rollout/7-2/training-token-capture/v1/responses");
        assert_eq!(split.path, "/v1/responses");
        assert_eq!(split.prefix, "/ng-rollout/7-2/training-token-capture");
        for path in ["/ng-rollout/", "/ng-rollout/7-2", "/ng-rollout/../v1", "/verify"] {
            assert_eq!(split_path(path).path, path);
        }
    }
}
