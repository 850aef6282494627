//! What a resumed run still has to do, from the files of the earlier ones.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::error::CollectError;
use super::files::RunFiles;
use super::members::Members;
use super::plan::{Plan, PlannedRollout, Stamp, index_of, keys};
use super::prepare::json_reason;

/// A rollout's stable key within its run.
type Key = (u64, u64);

/// What the earlier runs left, counted.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Found {
    /// Rollouts of the run.
    pub planned: usize,
    /// Those in the output.
    pub done: usize,
    /// Lines of the failures file that belong to the run.
    pub failures: usize,
    /// Rollouts that have such lines.
    pub failed: usize,
    /// Rollouts that failed for good.
    pub terminal: usize,
    /// Rollouts that failed as often as allowed.
    pub exhausted: usize,
    /// Rollouts that are still to be made.
    pub remaining: usize,
}

impl Found {
    /// The counts as lines for the user.
    pub fn lines(&self, max_attempts: u32) -> Vec<String> {
        vec![
            format!("resuming a run of {} rollouts:", self.planned),
            format!("  {} done", self.done),
            format!("  {} failed attempts of {} rollouts", self.failures, self.failed),
            format!("  {} of them failed for good", self.terminal),
            format!("  {} of them failed {max_attempts} times and are given up", self.exhausted),
            format!("  {} to do", self.remaining),
        ]
    }
}

/// Reads the plan of what remains. Failures before the byte `failures_from` belong to another run. `on_done` sees the
/// agent, the key and the line of every result, for the metrics.
pub fn load(
    files: &RunFiles,
    failures_from: u64,
    max_attempts: u32,
    mut on_done: impl FnMut(&str, (u64, u64), &Members),
) -> Result<(Plan, Found), CollectError> {
    let mut done = HashSet::new();
    for_each_row(&files.output, |row, _, _| {
        let key = key_of(row)?.ok_or("the indices of the rollout are missing")?;
        if done.insert(key) {
            let agent = Stamp::of(row, None)?.map(|stamp| stamp.agent).unwrap_or_default();
            on_done(&agent, key, row);
        }
        Ok(())
    })?;
    let mut attempts: HashMap<Key, u32> = HashMap::new();
    let mut terminal = HashSet::new();
    let mut earlier: HashMap<Key, String> = HashMap::new();
    if files.failures.exists() {
        for_each_row(&files.failures, |row, offset, _| {
            if offset < failures_from {
                return Ok(());
            }
            if let Some(key) = key_of(row)? {
                *attempts.entry(key).or_default() += 1;
                if let Some(parent) = row.get(keys::TRACEPARENT)
                    && let Ok(parent) = serde_json::from_str(parent)
                {
                    earlier.insert(key, parent);
                }
                if row
                    .get(keys::FAILURE_TERMINAL)
                    .is_some_and(|flag| !matches!(flag, "null" | "false"))
                {
                    terminal.insert(key);
                }
            }
            Ok(())
        })?;
    }
    let mut found = Found {
        failures: attempts.values().map(|count| *count as usize).sum(),
        ..Found::default()
    };
    let mut plan = Plan::default();
    for_each_row(&files.materialized, |row, offset, len| {
        let (task, rollout) = key_of(row)?.ok_or("the indices of the rollout are missing")?;
        let key = (task, rollout);
        let attempt = attempts.get(&key).copied().unwrap_or_default();
        found.planned += 1;
        found.failed += usize::from(attempt > 0);
        if done.contains(&key) {
            found.done += 1;
            return Ok(());
        }
        if terminal.contains(&key) {
            found.terminal += 1;
            return Ok(());
        }
        if attempt >= max_attempts {
            found.exhausted += 1;
            return Ok(());
        }
        let stamp = Stamp::of(row, None)?.ok_or("the row names no agent")?;
        let stamp = plan.intern(stamp);
        if let Some(parent) = earlier.remove(&key) {
            plan.earlier.insert(key, parent);
        }
        plan.rollouts.push(PlannedRollout {
            offset,
            len: u32::try_from(len).map_err(|_| "longer than 4 GiB")?,
            stamp,
            task,
            rollout: u32::try_from(rollout).map_err(|_| "the rollout index is too large")?,
            attempt,
        });
        Ok(())
    })?;
    found.remaining = plan.rollouts.len();
    Ok((plan, found))
}

fn key_of(row: &Members) -> Result<Option<Key>, String> {
    Ok(index_of(row, keys::TASK_INDEX)?.zip(index_of(row, keys::ROLLOUT_INDEX)?))
}

/// Calls `each` with every object of a file of lines, its offset and its length. A last line without its line break is
/// what an interrupted write left and is not looked at.
fn for_each_row(
    path: &Path,
    mut each: impl FnMut(&Members, u64, usize) -> Result<(), String>,
) -> Result<(), CollectError> {
    let file = File::open(path).map_err(CollectError::read(path))?;
    let mut reader = BufReader::with_capacity(256 * 1024, file);
    let mut line = Vec::new();
    let mut offset = 0;
    for number in 1.. {
        line.clear();
        let read = reader.read_until(b'\n', &mut line).map_err(CollectError::read(path))?;
        if read == 0 || line.last() != Some(&b'\n') {
            break;
        }
        let bad =
            |reason: String| CollectError::BadRow { path: path.to_owned(), line: number, reason };
        let text =
            std::str::from_utf8(&line[..read - 1]).map_err(|_| bad("not UTF-8".to_owned()))?;
        if !text.trim().is_empty() {
            let row = Members::parse(text).map_err(|error| bad(json_reason(&error)))?;
            each(&row, offset, text.len()).map_err(bad)?;
        }
        offset += read as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(dir: &Path, output: &str, failures: &str) -> RunFiles {
        let files = RunFiles::of(&dir.join("o.jsonl"));
        let rows: String = (0..6)
            .map(|task| {
                format!("{{\"agent_ref\":{{\"name\":\"a\"}},\"_ng_task_index\":{task},\"_ng_rollout_index\":0}}\n")
            })
            .collect();
        std::fs::write(&files.materialized, rows).unwrap();
        std::fs::write(&files.output, output).unwrap();
        std::fs::write(&files.failures, failures).unwrap();
        files
    }

    fn row(task: u64, more: &str) -> String {
        format!("{{\"_ng_task_index\":{task},\"_ng_rollout_index\":0{more}}}\n")
    }

    #[test]
    fn only_what_is_neither_done_nor_given_up_remains() {
        let dir = tempfile::tempdir().unwrap();
        let failures = [
            row(1, ",\"_ng_failure_terminal\":true"),
            row(2, ""),
            row(3, ""),
            row(3, ""),
            row(9, ""),
        ]
        .concat();
        let files = files(dir.path(), &row(0, ",\"reward\":1"), &failures);
        let mut seen = 0;
        let (plan, found) = load(&files, 0, 2, |_, _, _| seen += 1).unwrap();
        let remaining: Vec<_> =
            plan.rollouts.iter().map(|rollout| (rollout.task, rollout.attempt)).collect();
        assert_eq!(remaining, [(2, 1), (4, 0), (5, 0)]);
        assert_eq!(seen, 1);
        assert_eq!(
            found,
            Found {
                planned: 6,
                done: 1,
                failures: 5,
                failed: 3,
                terminal: 1,
                exhausted: 1,
                remaining: 3
            }
        );
        insta::assert_snapshot!(found.lines(2).join("\n"), @"
        resuming a run of 6 rollouts:
          1 done
          5 failed attempts of 3 rollouts
          1 of them failed for good
          1 of them failed 2 times and are given up
          3 to do
        ");
    }

    #[test]
    fn a_late_result_of_an_older_attempt_does_not_replace_a_newer_one() {
        let dir = tempfile::tempdir().unwrap();
        let newer = row(0, ",\"_ng_attempt_index\":1,\"reward\":1");
        let late = row(0, ",\"reward\":0");
        let files = files(dir.path(), &(newer + &late), &row(0, ""));
        let mut taken = Vec::new();
        let (plan, found) = load(&files, 0, 3, |_, key, row| {
            taken.push((key, row.get(keys::REWARD).map(str::to_owned)));
        })
        .unwrap();
        assert_eq!(taken, [((0, 0), Some("1".to_owned()))]);
        assert_eq!((found.done, plan.rollouts.len()), (1, 5));
    }

    #[test]
    fn failures_of_an_earlier_run_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let failures = row(2, "");
        let files = files(dir.path(), "", &failures);
        let (plan, found) = load(&files, failures.len() as u64, 3, |_, _, _| {}).unwrap();
        assert_eq!((found.failures, plan.rollouts[2].attempt), (0, 0));
    }

    #[test]
    fn the_plan_points_at_the_rows() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path(), "", "");
        let (plan, _) = load(&files, 0, 3, |_, _, _| {}).unwrap();
        let text = std::fs::read_to_string(&files.materialized).unwrap();
        let last = plan.rollouts[5];
        let line = &text[last.offset as usize..last.offset as usize + last.len as usize];
        assert!(line.contains("\"_ng_task_index\":5") && line.ends_with('}'), "{line}");
    }

    #[test]
    fn a_broken_last_line_counts_as_not_there_and_a_broken_line_before_it_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let broken = files(dir.path(), &(row(0, "") + "{\"_ng_task"), "");
        assert_eq!(load(&broken, 0, 3, |_, _, _| {}).unwrap().1.done, 1);
        let broken = files(dir.path(), &("{\"_ng_task\n".to_owned() + &row(0, "")), "");
        let message = load(&broken, 0, 3, |_, _, _| {}).unwrap_err().to_string();
        assert!(message.contains("o.jsonl\", line 1: "), "{message}");
    }
}
