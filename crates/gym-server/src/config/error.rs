//! What can be wrong with a config, each as one message that names the place and the fix.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::closest::{closest, one_of};
use crate::instance::ServerType;

/// Where a value of the merged config was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// A file; line and column count from 1.
    File {
        /// The file as it was named.
        path: Arc<str>,
        /// Line, from 1.
        line: u32,
        /// Column, from 1.
        column: u32,
    },
    /// A command-line override.
    Override(Arc<str>),
    /// Filled in, or not known any more.
    #[default]
    Unknown,
}

/// Shows as `FILE:LINE:COLUMN: `, or as nothing when the place is not known.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, column } => write!(f, "{path}:{line}:{column}: "),
            Self::Override(token) => write!(f, "override `{token}`: "),
            Self::Unknown => Ok(()),
        }
    }
}

/// One field of an instance that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where the field, or the block that lacks it, was written.
    pub at: Origin,
    /// Dotted path from the top of the config.
    pub path: String,
    /// What was expected, and what was found.
    pub reason: String,
    /// A name that was probably meant.
    pub closest: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}: {}", self.at, self.path, self.reason)
    }
}

fn join_problems(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// An instance that no program serves.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}{instance}: nothing serves {server_type}/{implementation}: {reason}")]
pub struct Unserved {
    /// Where the block was written.
    pub at: Origin,
    /// Instance.
    pub instance: String,
    /// Its type.
    pub server_type: ServerType,
    /// Its implementation.
    pub implementation: String,
    /// What is missing.
    pub reason: String,
    /// Directories that were searched.
    pub searched: Vec<String>,
    /// Built-in implementations of this type.
    pub builtins: Vec<&'static str>,
    /// What was probably meant.
    pub closest: Option<String>,
}

/// Why a config cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file exists but cannot be read.
    #[error("{at}cannot read {path}")]
    Read {
        /// What asked for the file.
        at: Origin,
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A config file is nowhere.
    #[error("{at}config file {path} not found")]
    FileNotFound {
        /// What asked for the file.
        at: Origin,
        /// The file as it was named.
        path: String,
        /// Directories that were searched.
        searched: Vec<String>,
        /// A file name beside it that was probably meant.
        closest: Option<String>,
    },
    /// A selector flag names nothing.
    #[error("{flag} {name}: no such config, expected {implied} in a search directory")]
    Selector {
        /// The flag, e.g. `--resources-server`.
        flag: &'static str,
        /// Its value.
        name: String,
        /// The file that it stands for.
        implied: String,
        /// Directories that were searched.
        searched: Vec<String>,
        /// A name that was probably meant.
        closest: Option<String>,
    },
    /// Text that is not YAML, or YAML that a config cannot be.
    #[error("{at}{reason}")]
    Yaml {
        /// Where.
        at: Origin,
        /// What was found.
        reason: String,
        /// The fix.
        hint: Option<&'static str>,
    },
    /// A command-line override that does not parse or apply.
    #[error("override `{token}`: {reason}")]
    Override {
        /// The argument as it was given.
        token: String,
        /// What was found.
        reason: String,
        /// The fix.
        hint: Option<String>,
    },
    /// A mapping meets a list under the same key.
    #[error("{at}{path}: cannot merge {new} over {old}")]
    Merge {
        /// Where the later value was written.
        at: Origin,
        /// Dotted path.
        path: String,
        /// Kind of the later value.
        new: &'static str,
        /// Kind of the earlier value.
        old: &'static str,
        /// Where the earlier value was written.
        before: Origin,
    },
    /// `${…}` that cannot be resolved.
    #[error("{at}{path}: {reason}")]
    Interpolation {
        /// Where the referring value was written.
        at: Origin,
        /// Dotted path of the referring value.
        path: String,
        /// What is wrong.
        reason: String,
        /// The fix.
        hint: Option<String>,
    },
    /// `_inherit_from`, `_copy` or `_delete_key` that cannot be followed.
    #[error("{at}{path}: {reason}")]
    Directive {
        /// Where it was written.
        at: Origin,
        /// Dotted path of the directive.
        path: String,
        /// What is wrong.
        reason: String,
        /// The fix.
        hint: Option<String>,
    },
    /// Values that are still `???`.
    #[error("no value for {}", one_of(keys, "and"))]
    Missing {
        /// Dotted paths.
        keys: Vec<String>,
    },
    /// A top-level setting of the wrong type.
    #[error("{0}")]
    Setting(Problem),
    /// Blocks that look like instances and are not.
    #[error("{}", join_problems(problems))]
    Instances {
        /// Every field that does not fit.
        problems: Vec<Problem>,
    },
    /// A reference to an instance that does not exist.
    #[error(
        "{at}{path}: no {server_type} instance is named {target:?}, {}",
        if known.is_empty() { "the config has none".to_owned() } else { format!("expected {}", one_of(known, "or")) }
    )]
    Reference {
        /// Where it was written.
        at: Origin,
        /// Dotted path of the reference.
        path: String,
        /// Type that the reference asks for.
        server_type: ServerType,
        /// Name that it asks for.
        target: String,
        /// Names that exist; only the close ones if there are any, closest first.
        known: Vec<String>,
    },
    /// Nothing to serve.
    #[error("the config has no server instance")]
    NoInstances,
    /// No instance has this name.
    #[error("the config has no instance {name:?}, expected {}", one_of(known, "or"))]
    UnknownInstance {
        /// Name that was asked for.
        name: String,
        /// Names that exist.
        known: Vec<String>,
        /// What was probably meant.
        closest: Option<String>,
    },
    /// No port could be found.
    #[error("found no free port for {instance} in {low}-{high} after {tries} tries")]
    NoFreePort {
        /// Instance that needs it.
        instance: String,
        /// Lowest port tried.
        low: u16,
        /// Highest port tried.
        high: u16,
        /// How many ports were tried.
        tries: usize,
    },
    /// Nothing can serve the instance.
    #[error(transparent)]
    Program(Box<Unserved>),
    /// The file named by a child's environment cannot be read.
    #[error("cannot read the config file {}", path.display())]
    ChildFile {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl ConfigError {
    /// What to do about it, in one sentence.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Read { .. } | Self::ChildFile { .. } => None,
            Self::FileNotFound { searched, closest, .. }
            | Self::Selector { searched, closest, .. } => {
                Some(with_closest(closest.as_deref(), &searched_in(searched)))
            }
            Self::Yaml { hint, .. } => hint.map(str::to_owned),
            Self::Override { hint, .. }
            | Self::Interpolation { hint, .. }
            | Self::Directive { hint, .. } => hint.clone(),
            Self::Merge { before, path, .. } => Some(match before {
                Origin::Unknown => format!("give {path} one kind of value everywhere"),
                before => format!(
                    "the earlier value is at {}; give {path} one kind of value everywhere",
                    before.to_string().trim_end_matches(": ")
                ),
            }),
            Self::Missing { keys } => {
                let examples: Vec<_> =
                    keys.iter().take(3).map(|key| format!("`++{key}=<value>`")).collect();
                Some(format!("add {}", one_of(&examples, "and")))
            }
            Self::Setting(problem) => problem.closest.as_deref().map(did_you_mean),
            Self::Instances { problems } => {
                let closest = problems.iter().find_map(|problem| problem.closest.as_deref());
                let ignore = "`++error_on_almost_servers=false` ignores such blocks";
                Some(with_closest(closest, ignore))
            }
            Self::Reference { server_type, known, .. } if known.is_empty() => {
                Some(match server_type {
                    ServerType::ResponsesApiModels => {
                        "add one with `--model-type NAME`, e.g. vllm_model, or `--config FILE`"
                            .to_owned()
                    }
                    ServerType::ResourcesServers => {
                        "add one with `--resources-server NAME` or `--config FILE`".to_owned()
                    }
                    ServerType::ResponsesApiAgents => "add one with `--config FILE`".to_owned(),
                })
            }
            Self::Reference { target, known, .. } => {
                closest(target, known.iter().map(String::as_str)).as_deref().map(did_you_mean)
            }
            Self::UnknownInstance { closest, .. } => closest.as_deref().map(did_you_mean),
            Self::NoInstances => Some(
                "name one with `--resources-server NAME`, `--model-type NAME` or `--config FILE`"
                    .to_owned(),
            ),
            Self::NoFreePort { .. } => {
                Some("widen the range with `++port_range_low=` and `++port_range_high=`".to_owned())
            }
            Self::Program(unserved) => {
                let builtins = if unserved.builtins.is_empty() {
                    "there are no built-in ones".to_owned()
                } else {
                    format!("built in are {}", unserved.builtins.join(", "))
                };
                let rest = format!("{}; {builtins}", searched_in(&unserved.searched));
                Some(with_closest(unserved.closest.as_deref(), &rest))
            }
        }
    }
}

fn did_you_mean(name: &str) -> String {
    format!("did you mean {name}?")
}

fn with_closest(closest: Option<&str>, rest: &str) -> String {
    closest.map_or_else(|| rest.to_owned(), |name| format!("{} {rest}", did_you_mean(name)))
}

fn searched_in(searched: &[String]) -> String {
    format!("searched in {}", one_of(searched, "and"))
}
