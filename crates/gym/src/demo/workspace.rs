//! The directory that a demo leaves behind.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::rows;

/// Files of one demo.
#[derive(Debug)]
pub struct Workspace {
    directory: PathBuf,
}

/// Why a demo cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// No example rows of that name.
    #[error("no example environment {name:?}")]
    UnknownEnvironment {
        /// As it was asked for.
        name: String,
    },
    /// Traces of two runs in one directory would be shown as one run.
    #[error("{} is not empty", .path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// The disk says no.
    #[error("cannot write {}", .path.display())]
    Write {
        /// What was to be written.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl WorkspaceError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::UnknownEnvironment { .. } => {
                format!("there are {}", rows::environments().join(", "))
            }
            Self::NotEmpty { .. } => "give a new directory with --out".to_owned(),
            Self::Write { .. } => "give a directory that can be written with --out".to_owned(),
        }
    }
}

impl Workspace {
    /// Makes the directory (a fresh one below the system's temporary directory when none is
    /// given) and writes `rollouts` input rows into it.
    pub fn create(
        out: Option<&Path>,
        environment: &str,
        rollouts: usize,
    ) -> Result<Self, WorkspaceError> {
        let input = rows::input(environment, rollouts)
            .ok_or_else(|| WorkspaceError::UnknownEnvironment { name: environment.to_owned() })?;
        let directory = out.map_or_else(fresh_directory, Path::to_owned);
        let write = |path: &Path, result: io::Result<()>| {
            result.map_err(|source| WorkspaceError::Write { path: path.to_owned(), source })
        };
        write(&directory, std::fs::create_dir_all(&directory))?;
        let mut entries = std::fs::read_dir(&directory)
            .map_err(|source| WorkspaceError::Write { path: directory.clone(), source })?;
        if entries.next().is_some() {
            return Err(WorkspaceError::NotEmpty { path: directory });
        }
        // The run has this directory as its own, so that nothing of the caller's is picked up.
        let directory = directory
            .canonicalize()
            .map_err(|source| WorkspaceError::Write { path: directory, source })?;
        let workspace = Self { directory };
        write(&workspace.logs(), std::fs::create_dir_all(workspace.logs()))?;
        write(&workspace.input(), std::fs::write(workspace.input(), input))?;
        Ok(workspace)
    }

    /// The directory itself.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Input rows.
    pub fn input(&self) -> PathBuf {
        self.directory.join("input.jsonl")
    }

    /// Output rows.
    pub fn output(&self) -> PathBuf {
        self.directory.join("rollouts.jsonl")
    }

    /// The spans of the run.
    pub fn store(&self) -> PathBuf {
        self.directory.join("store")
    }

    /// One log a process.
    pub fn logs(&self) -> PathBuf {
        self.directory.join("logs")
    }
}

fn fresh_directory() -> PathBuf {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    std::env::temp_dir().join(format!("gym-demo-{}-{:x}", std::process::id(), nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_holds_something_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("mine"), "precious").unwrap();
        let error =
            Workspace::create(Some(directory.path()), "example_single_tool_call", 1).unwrap_err();
        assert!(matches!(error, WorkspaceError::NotEmpty { .. }));
        assert!(!directory.path().join("logs").exists());
    }

    #[test]
    fn an_unknown_environment_is_answered_with_those_there_are() {
        let error = Workspace::create(None, "example_single_tool", 1).unwrap_err();
        assert_eq!(error.to_string(), "no example environment \"example_single_tool\"");
        assert!(error.hint().contains("example_single_tool_call"));
    }
}
