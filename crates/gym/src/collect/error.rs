//! What stops a collection as a whole. A rollout that fails does not: it becomes a row of the failures file.

use std::io;
use std::path::PathBuf;

/// Why a collection could not start, or had to stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectError {
    /// A row cannot be sent as it is.
    #[error("bad row in {path:?}, line {line}: {reason}")]
    BadRow { path: PathBuf, line: usize, reason: String },
    /// Rows name no agent and none was given.
    #[error("no agent for {} (the first: {})", rows(*.count), positions(.lines))]
    MissingAgents { path: PathBuf, lines: Vec<usize>, count: usize },
    /// Rows or `--agent` name an agent that the config does not have.
    #[error("no agent is called {name:?}")]
    UnknownAgent { name: String, known: Vec<String> },
    /// A prompt config and rows with an input exclude each other.
    #[error("a prompt config is given, but {} already {} an input (the first: {})", rows(*.count), if *.count == 1 { "has" } else { "have" }, positions(.lines))]
    PromptAndInput { path: PathBuf, lines: Vec<usize>, count: usize },
    /// `num_repeats` is a map without an entry for an agent of the rows.
    #[error("num_repeats has no entry for {} and no `_default`", .agents.join(", "))]
    MissingRepeats { agents: Vec<String> },
    /// There is nothing to collect.
    #[error("{path:?} has no rows")]
    NoRows { path: PathBuf },
    /// A setting does not make sense.
    #[error("{key} {reason}")]
    Setting { key: &'static str, reason: String },
    /// A prompt config is not one.
    #[error("bad prompt config {path:?}: {reason}")]
    Prompt { path: PathBuf, reason: String },
    /// A skills directory is not one.
    #[error("bad skills directory {path:?}: {reason}")]
    Skills { path: PathBuf, reason: String },
    /// The config has no data for a split.
    #[error("no dataset of the config is of split {split:?}")]
    NoDatasets { split: String, available: Vec<String> },
    /// A file of a dataset is nowhere.
    #[error("data file {path:?} of dataset {dataset:?} does not exist")]
    MissingData { dataset: String, path: String, roots: Vec<String> },
    /// The datasets of an agent are not a list of datasets.
    #[error("bad datasets of agent {agent:?}: {reason}")]
    Datasets { agent: String, reason: String },
    /// Neither rows nor a split were given.
    #[error("there is nothing to collect: no input")]
    NoInput,
    /// The input is nowhere.
    #[error("input file {path:?} does not exist")]
    MissingInput { path: PathBuf, roots: Vec<String> },
    /// The rows would be overwritten.
    #[error("{path:?} is both input and output, and would be overwritten")]
    InputOverwritten { path: PathBuf },
    /// A file could not be read.
    #[error("cannot read {path:?}")]
    Read { path: PathBuf, source: io::Error },
    /// A file could not be written; what it held before is intact.
    #[error("cannot write {path:?}")]
    Write { path: PathBuf, source: io::Error },
    /// The metrics of an agent could not be had.
    #[error("agent {agent:?} did not aggregate its metrics: {reason}")]
    Aggregate { agent: String, reason: String },
}

impl CollectError {
    pub(super) fn read(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> CollectError {
        let path = path.into();
        move |source| CollectError::Read { path, source }
    }

    pub(super) fn write(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> CollectError {
        let path = path.into();
        move |source| CollectError::Write { path, source }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            CollectError::MissingAgents { .. } => {
                "name one with --agent, or give the rows an `agent_ref: {\"name\": …}`".to_owned()
            }
            CollectError::UnknownAgent { known, .. } if known.is_empty() => {
                "the config has no agents".to_owned()
            }
            CollectError::UnknownAgent { name, known } => match closest(name, known) {
                Some(close) => {
                    format!("did you mean {close:?}? The config has: {}", known.join(", "))
                }
                None => format!("the config has: {}", known.join(", ")),
            },
            CollectError::PromptAndInput { .. } => {
                "drop --prompt-config, or the `responses_create_params.input` of the rows"
                    .to_owned()
            }
            CollectError::MissingRepeats { .. } => "add them, or a `_default`".to_owned(),
            CollectError::NoDatasets { available, .. } if available.is_empty() => {
                "the config has no datasets; give the rows with --input".to_owned()
            }
            CollectError::NoDatasets { available, .. } => {
                format!("it has {}; or give the rows with --input", available.join(", "))
            }
            CollectError::MissingData { roots, .. } | CollectError::MissingInput { roots, .. } => {
                format!("looked under {}; --search-dir adds a root", roots.join(", "))
            }
            CollectError::InputOverwritten { .. } => "give another --output".to_owned(),
            CollectError::NoInput => {
                "give the rows with --input, or a --split of the config's datasets".to_owned()
            }
            CollectError::Write { source, .. } if is_full(source) => {
                "make room; --resume continues a run that has begun, and its lines are whole"
                    .to_owned()
            }
            _ => return None,
        })
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

fn rows(count: usize) -> String {
    if count == 1 { "1 row".to_owned() } else { format!("{count} rows") }
}

fn positions(lines: &[usize]) -> String {
    let shown: Vec<String> = lines.iter().map(|line| line.to_string()).collect();
    format!("line {}", shown.join(", "))
}

/// The known name nearest to `name`, if it is near at all.
pub(super) fn closest<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (distance(name, candidate), candidate.as_str()))
        .filter(|(distance, candidate)| distance * 2 <= name.len().max(candidate.len()))
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance in characters.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_agent_is_answered_with_the_closest_name() {
        let error = CollectError::UnknownAgent {
            name: "wether_agent".into(),
            known: vec!["math_agent".into(), "weather_agent".into()],
        };
        assert_eq!(error.to_string(), "no agent is called \"wether_agent\"");
        assert_eq!(
            error.hint().unwrap(),
            "did you mean \"weather_agent\"? The config has: math_agent, weather_agent"
        );
    }

    #[test]
    fn rows_without_an_agent_are_counted_and_placed() {
        let error =
            CollectError::MissingAgents { path: "in.jsonl".into(), lines: vec![2, 5], count: 9 };
        assert_eq!(error.to_string(), "no agent for 9 rows (the first: line 2, 5)");
    }

    #[test]
    fn a_full_disk_comes_with_the_way_on() {
        let error = CollectError::Write {
            path: "out.jsonl".into(),
            source: io::ErrorKind::StorageFull.into(),
        };
        assert_eq!(error.to_string(), "cannot write \"out.jsonl\"");
        assert!(error.hint().unwrap().contains("--resume"));
    }
}
