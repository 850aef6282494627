//! How the merged config reaches a server.
//!
//! As one line of JSON (which is YAML) in the environment; above
//! [`MAX_INLINE_BYTES`], where the system would refuse the variable, as a
//! private file that only our own servers know to read. The file is removed
//! when the servers have started.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use gym_telemetry::env_vars;
use serde_json::Value;

use super::FleetError;

/// Longest config that goes through the environment.
pub const MAX_INLINE_BYTES: usize = 100 << 10;

/// The config in the form in which servers get it.
#[derive(Debug)]
pub struct Handover {
    text: String,
    file: Option<PrivateFile>,
}

impl Handover {
    /// Prepares the hand-over of `config`.
    ///
    /// # Errors
    ///
    /// [`FleetError::Handover`] when a file is needed and cannot be written.
    pub fn new(config: &Value) -> Result<Self, FleetError> {
        let text = config.to_string();
        let file = if text.len() > MAX_INLINE_BYTES {
            Some(PrivateFile::create(text.as_bytes())?)
        } else {
            None
        };
        Ok(Self { text, file })
    }

    /// Gives the config to the program of `instance`.
    ///
    /// # Errors
    ///
    /// [`FleetError::ConfigTooLong`] when only a file would do and the program is foreign.
    pub fn give(
        &self,
        command: &mut Command,
        instance: &str,
        is_foreign: bool,
    ) -> Result<(), FleetError> {
        command.env(env_vars::GYM_CONFIG_PATH, instance);
        match &self.file {
            None => {
                command.env(env_vars::GYM_CONFIG_DICT, &self.text);
                command.env_remove(env_vars::GYM_CONFIG_DICT_FILE);
            }
            Some(_) if is_foreign => {
                return Err(FleetError::ConfigTooLong {
                    instance: instance.to_owned(),
                    bytes: self.text.len(),
                });
            }
            Some(file) => {
                command.env(env_vars::GYM_CONFIG_DICT_FILE, file.path());
                command.env_remove(env_vars::GYM_CONFIG_DICT);
            }
        }
        Ok(())
    }
}

/// A file in a directory of its own that nobody else can read; gone when dropped.
#[derive(Debug)]
struct PrivateFile {
    directory: PathBuf,
    path: PathBuf,
}

impl PrivateFile {
    fn create(content: &[u8]) -> Result<Self, FleetError> {
        let unique = gym_telemetry::RunId::generate();
        let directory = std::env::temp_dir().join(format!(
            "nemo-gym-{}-{}",
            std::process::id(),
            unique.as_str()
        ));
        let path = directory.join("config.json");
        let write = || -> io::Result<()> {
            fs::DirBuilder::new().mode(0o700).create(&directory)?;
            let mut file =
                fs::File::options().write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(content)
        };
        let result = write();
        let file = Self { directory, path };
        match result {
            Ok(()) => Ok(file),
            Err(source) => Err(FleetError::Handover { path: file.path.clone(), source }),
        }
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_dir(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    fn variable(command: &Command, name: &str) -> Option<String> {
        let (_, value) = command.get_envs().find(|(key, _)| *key == name)?;
        value.map(|value| value.to_string_lossy().into_owned())
    }

    #[test]
    fn a_config_of_usual_size_is_one_line_of_the_environment() {
        let handover = Handover::new(&json!({"a": "x\ny", "b": "${c}"})).expect("made");
        let mut command = Command::new("true");
        handover.give(&mut command, "agent", true).expect("given");
        let text = variable(&command, env_vars::GYM_CONFIG_DICT);
        assert_eq!(text.as_deref(), Some(r#"{"a":"x\ny","b":"${c}"}"#));
        assert_eq!(variable(&command, env_vars::GYM_CONFIG_PATH).as_deref(), Some("agent"));
    }

    #[test]
    fn a_long_config_goes_by_a_private_file_and_never_to_a_foreign_program() {
        let long = json!({"prompt": "x".repeat(MAX_INLINE_BYTES)});
        let handover = Handover::new(&long).expect("made");
        let error = handover.give(&mut Command::new("true"), "theirs", true).expect_err("too long");
        assert!(error.to_string().contains("theirs"), "{error}");

        let mut command = Command::new("true");
        handover.give(&mut command, "ours", false).expect("given");
        assert_eq!(variable(&command, env_vars::GYM_CONFIG_DICT), None);
        let path =
            PathBuf::from(variable(&command, env_vars::GYM_CONFIG_DICT_FILE).expect("a file"));
        let mode = fs::metadata(&path).expect("it exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&path).expect("readable"), long.to_string());
        drop(handover);
        assert!(!path.exists() && !path.parent().expect("a directory").exists());
    }
}
