//! Which program serves an instance.
//!
//! `runtime:` decides if it is given. Otherwise the entrypoint under a search root does: `.py`
//! means Python, an executable runs as it is. Without such a file the built-in of that name
//! serves.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::closest::closest;
use super::error::{ConfigError, Unserved};
use super::instances::Candidate;
use super::marks::Marks;
use super::roots::Roots;
use crate::instance::ServerType;

/// What serves an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// This binary.
    Builtin,
    /// A Python server.
    Python {
        /// Its working directory, `<root>/<type>/<implementation>`.
        dir: PathBuf,
        /// File to run, relative to `dir`.
        entrypoint: String,
    },
    /// Any other executable.
    Exec {
        /// Its working directory, `<root>/<type>/<implementation>`.
        dir: PathBuf,
        /// The executable.
        path: PathBuf,
    },
}

impl Program {
    /// `builtin`, `python` or `exec`, as the field `runtime` names them.
    #[must_use]
    pub const fn runtime(&self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Python { .. } => "python",
            Self::Exec { .. } => "exec",
        }
    }

    /// The directory in which it runs, if it has one.
    #[must_use]
    pub fn dir(&self) -> Option<&Path> {
        match self {
            Self::Python { dir, .. } | Self::Exec { dir, .. } => Some(dir),
            Self::Builtin => None,
        }
    }
}

/// What there is to choose from.
pub(super) struct Programs<'a> {
    pub(super) roots: &'a Roots,
    pub(super) builtins: &'a [(ServerType, &'static str)],
    pub(super) marks: &'a Marks,
}

impl Programs<'_> {
    /// Chooses the program of an instance.
    pub(super) fn resolve(
        &self,
        candidate: &Candidate,
        block: &Map<String, Value>,
    ) -> Result<Program, ConfigError> {
        let entrypoint = block.get("entrypoint").and_then(Value::as_str);
        let on_disk = entrypoint.and_then(|entrypoint| self.on_disk(candidate, entrypoint));
        let relative = format!(
            "{}/{}/{}",
            candidate.server_type,
            candidate.implementation,
            entrypoint.unwrap_or("<entrypoint>")
        );
        let runtime = block.get("runtime").and_then(Value::as_str);
        match (runtime, on_disk, entrypoint) {
            (Some("builtin"), _, _) => {
                self.builtin(candidate, "there is no such built-in".to_owned())
            }
            (Some("python"), Some((dir, _)), Some(entrypoint)) => {
                Ok(Program::Python { dir, entrypoint: entrypoint.to_owned() })
            }
            (Some("exec"), Some((dir, path)), _) if is_executable(&path) => {
                Ok(Program::Exec { dir, path })
            }
            (Some("exec") | None, Some((_, path)), Some(entrypoint))
                if !is_python(entrypoint) && !is_executable(&path) =>
            {
                let reason = format!("{} is not executable (`chmod +x` it)", path.display());
                Err(self.fail(candidate, reason))
            }
            (Some(runtime), None, _) => {
                Err(self.fail(candidate, format!("runtime {runtime} needs {relative}")))
            }
            (None, Some((dir, _)), Some(entrypoint)) if is_python(entrypoint) => {
                Ok(Program::Python { dir, entrypoint: entrypoint.to_owned() })
            }
            (_, Some((dir, path)), _) => Ok(Program::Exec { dir, path }),
            (None, None, _) => {
                self.builtin(candidate, format!("no {relative}, and no built-in of that name"))
            }
        }
    }

    /// Directory and file of the entrypoint under the first root that has it.
    fn on_disk(&self, candidate: &Candidate, entrypoint: &str) -> Option<(PathBuf, PathBuf)> {
        if Path::new(entrypoint).is_absolute() {
            let path = PathBuf::from(entrypoint);
            return path.is_file().then(|| Some((path.parent()?.to_owned(), path.clone())))?;
        }
        self.roots.dirs().iter().find_map(|root| {
            let dir = root.join(candidate.server_type.as_str()).join(&candidate.implementation);
            let path = dir.join(entrypoint);
            path.is_file().then_some((dir, path))
        })
    }

    fn builtin(&self, candidate: &Candidate, missing: String) -> Result<Program, ConfigError> {
        let wanted = (candidate.server_type, candidate.implementation.as_str());
        if self.builtins.contains(&wanted) {
            Ok(Program::Builtin)
        } else {
            Err(self.fail(candidate, missing))
        }
    }

    fn fail(&self, candidate: &Candidate, reason: String) -> ConfigError {
        let builtins: Vec<&'static str> = self
            .builtins
            .iter()
            .filter(|(server_type, _)| *server_type == candidate.server_type)
            .map(|(_, implementation)| *implementation)
            .collect();
        ConfigError::Program(Box::new(Unserved {
            at: self.marks.find(&candidate.path()),
            instance: candidate.name.clone(),
            server_type: candidate.server_type,
            implementation: candidate.implementation.clone(),
            reason,
            searched: self.roots.dirs().iter().map(|dir| dir.display().to_string()).collect(),
            closest: closest(&candidate.implementation, builtins.iter().copied()),
            builtins,
        }))
    }
}

fn is_python(entrypoint: &str) -> bool {
    Path::new(entrypoint).extension().is_some_and(|extension| extension == "py")
}

fn is_executable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}
