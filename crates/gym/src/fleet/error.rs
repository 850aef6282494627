//! Why a fleet could not start or had to stop.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::port_holder::PortHolder;
use crate::exit::ExitStatus;

/// Why a fleet could not start or had to stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// The config cannot be used.
    #[error(transparent)]
    Config(#[from] gym_server::config::ConfigError),
    /// The telemetry block cannot be used.
    #[error(transparent)]
    Telemetry(#[from] gym_telemetry::TelemetryConfigError),
    /// A port that the fleet needs is taken.
    #[error("{needed_by} cannot listen on {host}:{port}, {}", held_by(holder.as_ref()))]
    PortInUse {
        /// Instance, or the head server.
        needed_by: String,
        /// Config key of the port.
        key: String,
        /// Host.
        host: String,
        /// Port.
        port: u16,
        /// Who has it, if that can be seen.
        holder: Option<PortHolder>,
    },
    /// The address that a flag names is taken.
    #[error("cannot listen on {address}, {}", held_by(holder.as_ref()))]
    ListenTaken {
        /// The address.
        address: std::net::SocketAddr,
        /// Who has its port, if that can be seen.
        holder: Option<PortHolder>,
    },
    /// Two servers of the config want one port.
    #[error("{first} and {second} are both configured to listen on port {port}")]
    SharedPort {
        /// The first of them.
        first: String,
        /// The second.
        second: String,
        /// Config key of the second one's port.
        key: String,
        /// The port.
        port: u16,
    },
    /// An address cannot be bound for another reason.
    #[error("{needed_by} cannot listen on {host}:{port}")]
    Bind {
        /// Instance, or the head server.
        needed_by: String,
        /// Host.
        host: String,
        /// Port.
        port: u16,
        /// What the network says.
        source: io::Error,
    },
    /// The directory or a file of the logs cannot be written.
    #[error("failed to open the log {path:?}")]
    Log {
        /// The directory or the file.
        path: PathBuf,
        /// What the file system says.
        source: io::Error,
    },
    /// The config is too long for the environment of a foreign program.
    #[error(
        "the merged config has {bytes} bytes, too many for the environment of {instance}, \
         which is no built-in server"
    )]
    ConfigTooLong {
        /// The foreign instance.
        instance: String,
        /// Length of the config.
        bytes: usize,
    },
    /// The file that holds a long config cannot be written.
    #[error("failed to write the config of the servers to {path:?}")]
    Handover {
        /// The file.
        path: PathBuf,
        /// What the file system says.
        source: io::Error,
    },
    /// A server's program did not start.
    #[error("failed to start {instance} with {program:?}")]
    Spawn {
        /// The instance.
        instance: String,
        /// What was to be run.
        program: String,
        /// Why it was not.
        source: io::Error,
    },
    /// A server ended before every server was ready.
    #[error("{instance} ended while the servers were starting")]
    DiedStarting {
        /// The instance.
        instance: String,
        /// How it ended.
        source: Obituary,
    },
    /// A server of a ready fleet ended.
    #[error("{instance} ended")]
    Died {
        /// The instance.
        instance: String,
        /// How it ended.
        source: Obituary,
    },
    /// The fleet that a driver uses does not answer any more.
    #[error("the fleet at {url} is gone")]
    Gone {
        /// Its head server.
        url: String,
        /// What asking it came to.
        source: super::probe::ProbeError,
    },
    /// The start took too long.
    #[error("{} not ready within {seconds} s", names(waiting))]
    NotReady {
        /// Instances that did not answer.
        waiting: Vec<String>,
        /// The limit.
        seconds: u64,
    },
    /// A setting of the supervisor has the wrong type.
    #[error("{key} is {found}, expected {expected}")]
    Setting {
        /// The config key.
        key: &'static str,
        /// What it is.
        found: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A time that servers are given has the wrong type.
    #[error(transparent)]
    Patience(gym_server::client::InvalidPatience),
    /// Model endpoints did not answer.
    #[error("no answer from the model endpoint {} within {seconds} s", endpoints(unanswered))]
    ModelEndpoints {
        /// URL and config key of each.
        unanswered: Vec<(String, String)>,
        /// The limit.
        seconds: f64,
        /// What asking the first of them came to last.
        source: super::probe::ProbeError,
    },
    /// Ctrl-C or SIGTERM before every server was ready.
    #[error("interrupted while the servers were starting")]
    Interrupted,
    /// Something the supervisor needs from the system.
    #[error("failed to {action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

/// How a server ended, and the last it said.
#[derive(Debug)]
pub struct Obituary {
    /// Exit status as the system words it.
    pub status: String,
    /// Last lines of stderr.
    pub last_lines: Vec<String>,
    /// Whether SIGKILL ended it.
    pub was_killed: bool,
    /// Where its output is kept.
    pub log: Option<PathBuf>,
}

impl Obituary {
    fn hint(&self) -> String {
        let log = match &self.log {
            Some(log) => format!("its output is in {}", log.display()),
            None => "--log-dir DIR keeps the output of every server".to_owned(),
        };
        if self.was_killed {
            format!(
                "who did not kill it should look for the out-of-memory killer in `dmesg`; {log}"
            )
        } else {
            log
        }
    }
}

impl fmt::Display for Obituary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.status)?;
        if !self.last_lines.is_empty() {
            formatter.write_str("; its last lines were:")?;
            for line in &self.last_lines {
                write!(formatter, "\n    {line}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Obituary {}

fn held_by(holder: Option<&PortHolder>) -> String {
    match holder {
        Some(holder) => format!("which {holder} holds"),
        None => "which another process holds".to_owned(),
    }
}

fn names(waiting: &[String]) -> String {
    waiting.join(", ")
}

fn endpoints(unanswered: &[(String, String)]) -> String {
    let each: Vec<String> =
        unanswered.iter().map(|(url, key)| format!("{url} (key {key})")).collect();
    each.join(", ")
}

impl FleetError {
    /// The address of `--listen` is taken.
    pub fn listen_taken(address: std::net::SocketAddr) -> Self {
        Self::ListenTaken { address, holder: super::port_holder::find(address.port()) }
    }

    /// The exit status of a command that failed with this.
    pub fn exit_status(&self) -> ExitStatus {
        match self {
            Self::Interrupted => ExitStatus::Interrupted,
            Self::DiedStarting { .. } | Self::Died { .. } | Self::Gone { .. } => {
                ExitStatus::Negative
            }
            _ => ExitStatus::Usage,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::PortInUse { key, holder, .. } => {
                let stop = holder
                    .as_ref()
                    .map_or_else(String::new, |holder| format!("end pid {} or ", holder.pid));
                Some(format!("{stop}choose another port with ++{key}=PORT"))
            }
            Self::ListenTaken { holder, .. } => {
                let stop = holder
                    .as_ref()
                    .map_or_else(String::new, |holder| format!("end pid {} or ", holder.pid));
                Some(format!(
                    "{stop}choose another port with --listen HOST:PORT; 0 takes a free one"
                ))
            }
            Self::SharedPort { key, .. } => Some(format!(
                "choose another port with ++{key}=PORT, or leave it out to get a free one"
            )),
            Self::DiedStarting { source, .. } | Self::Died { source, .. } => Some(source.hint()),
            Self::Gone { .. } => {
                Some("see what ended it, start it again, and continue with --resume".to_owned())
            }
            Self::Log { .. } => Some("choose another directory with --log-dir".to_owned()),
            Self::ConfigTooLong { .. } => Some(format!(
                "foreign servers get the config in {}, which holds up to {} bytes; \
                 remove what no server needs, e.g. long prompts, from the config",
                gym_telemetry::env_vars::GYM_CONFIG_DICT,
                super::handover::MAX_INLINE_BYTES
            )),
            Self::ModelEndpoints { .. } => Some(
                "start the endpoint or correct its URL (--model-url); \
                 ++model_endpoint_readiness_timeout_seconds=0 does not wait for it"
                    .to_owned(),
            ),
            Self::Config(error) => error.hint(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_names_its_holder_and_the_key_to_change() {
        let error = FleetError::PortInUse {
            needed_by: "policy_model".to_owned(),
            key: "policy_model.responses_api_models.vllm_model.port".to_owned(),
            host: "127.0.0.1".to_owned(),
            port: 10001,
            holder: Some(PortHolder {
                pid: 17,
                command: "python3 -m http.server 10001".to_owned(),
            }),
        };
        insta::assert_snapshot!(error, @"policy_model cannot listen on 127.0.0.1:10001, which pid 17 (python3 -m http.server 10001) holds");
        insta::assert_snapshot!(error.hint().expect("a hint"), @"end pid 17 or choose another port with ++policy_model.responses_api_models.vllm_model.port=PORT");
        assert_eq!(error.exit_status(), ExitStatus::Usage);
    }
}
