//! What processes keep, or left behind, on this machine: read as it lies, locks tell the dead from the living.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gym_server::program::overflow_dir;
use gym_telemetry::{Resolved, resolve, telemetry_config_from_global_config};
use lens::{Leftover, Spool};
use serde_json::Value;

use crate::args::ConfigSource;
use crate::printer::Printer;
use crate::settings;

/// Where to look, and with what to send.
pub struct Place {
    /// The telemetry settings that hold.
    pub settings: Resolved,
    /// Folder of buffers.
    pub spool_dir: PathBuf,
    /// Folder of requests that could not be delivered.
    pub overflow_dir: Option<PathBuf>,
}

impl Place {
    /// The folders that a config names, the first unless `dir` does.
    ///
    /// # Errors
    ///
    /// Those of the config, and a `dir` that cannot be read.
    pub fn find(
        source: &ConfigSource,
        dir: Option<&Path>,
        printer: &Printer,
    ) -> Result<Self, anyhow::Error> {
        let config = settings::load_data(source, Vec::new(), printer)?.resolved()?;
        let place = Self::read(&config, dir)?;
        if let Some(fault) = place.settings.faults.first() {
            anyhow::bail!("{fault}");
        }
        Ok(place)
    }

    /// The folders that a resolved config names, the first unless `dir` does; settings may have faults.
    ///
    /// # Errors
    ///
    /// As [`Place::find`].
    pub fn read(config: &Value, dir: Option<&Path>) -> Result<Self, anyhow::Error> {
        let block = telemetry_config_from_global_config(config)?;
        let mut place = Self::of(config, resolve(&gym_telemetry::environment(), &block));
        if let Some(dir) = dir {
            std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
            place.spool_dir = dir.to_owned();
        }
        Ok(place)
    }

    /// The folders that settings and a resolved config name.
    pub fn of(config: &Value, settings: Resolved) -> Self {
        let spool_dir = gym_telemetry::spool::spool_dir(&settings);
        Self { settings, spool_dir, overflow_dir: overflow_dir(config) }
    }

    /// What is there.
    pub fn look(&self) -> Kept {
        Kept {
            buffers: lens::spools(&self.spool_dir),
            files: self.overflow_dir.as_deref().map(lens::leftovers).unwrap_or_default(),
        }
    }

    /// Both folders, for a sentence.
    pub fn names(&self) -> String {
        match &self.overflow_dir {
            Some(files) => format!("{} and {}", self.spool_dir.display(), files.display()),
            None => self.spool_dir.display().to_string(),
        }
    }
}

/// Buffers and files.
pub struct Kept {
    /// Buffers of processes.
    pub buffers: Vec<Spool>,
    /// Requests that could not be delivered.
    pub files: Vec<Leftover>,
}

impl Kept {
    /// What nobody will send by itself.
    pub fn of_dead(self) -> Self {
        Self {
            buffers: self.buffers.into_iter().filter(|buffer| !buffer.is_alive).collect(),
            files: self.files.into_iter().filter(|file| !file.is_alive).collect(),
        }
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty() && self.files.is_empty()
    }

    /// Spans and log records, open spans included.
    pub fn items(&self) -> usize {
        let in_buffers = self.buffers.iter().map(|buffer| buffer.waiting + buffer.open);
        in_buffers.chain(self.files.iter().map(|file| file.items)).sum()
    }
}
