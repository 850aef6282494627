//! `--resources-server NAME[/FLAVOR]` and its siblings: short names for config files.

use super::closest::closest;
use super::error::ConfigError;
use super::roots::Roots;

/// One selector flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selector {
    Benchmark,
    Environment,
    ResourcesServer,
    ModelType,
}

impl Selector {
    const fn flag(self) -> &'static str {
        match self {
            Self::Benchmark => "--benchmark",
            Self::Environment => "--environment",
            Self::ResourcesServer => "--resources-server",
            Self::ModelType => "--model-type",
        }
    }

    const fn dir(self) -> &'static str {
        match self {
            Self::Benchmark => "benchmarks",
            Self::Environment => "environments",
            Self::ResourcesServer => "resources_servers",
            Self::ModelType => "responses_api_models",
        }
    }

    const fn has_configs_dir(self) -> bool {
        matches!(self, Self::ResourcesServer | Self::ModelType)
    }

    /// Paths that a value may stand for, most likely first.
    fn candidates(self, value: &str) -> Vec<String> {
        let dir = self.dir();
        let (name, flavor) = match value.split_once('/') {
            Some((name, flavor)) => (name, Some(flavor)),
            None => (value, None),
        };
        if self.has_configs_dir() {
            return vec![format!("{dir}/{name}/configs/{}.yaml", flavor.unwrap_or(name))];
        }
        match flavor {
            Some(flavor) => vec![
                format!("{dir}/{name}/{flavor}/config.yaml"),
                format!("{dir}/{name}/{flavor}.yaml"),
            ],
            None => vec![format!("{dir}/{name}/config.yaml")],
        }
    }

    /// The config file that a value names, and a warning when there is more than one.
    pub(super) fn resolve(
        self,
        value: &str,
        roots: &Roots,
        warnings: &mut Vec<String>,
    ) -> Result<String, ConfigError> {
        let candidates = self.candidates(value);
        for candidate in &candidates {
            let mut hits = roots.hits(candidate);
            let Some(first) = hits.next() else { continue };
            let first = first.display();
            let others: Vec<_> = hits
                .filter(|hit| matches!(hit, super::roots::FoundFile::Disk(_)))
                .map(|hit| hit.display())
                .collect();
            if !others.is_empty() {
                warnings.push(format!(
                    "{} {value}: using {first}, not {}",
                    self.flag(),
                    others.join(" or ")
                ));
            }
            return Ok(first);
        }
        Err(ConfigError::Selector {
            flag: self.flag(),
            name: value.to_owned(),
            implied: candidates.into_iter().next_back().unwrap_or_default(),
            searched: roots.describe(),
            closest: self.closest(value, roots),
        })
    }

    fn closest(self, value: &str, roots: &Roots) -> Option<String> {
        let (name, flavor) = value.split_once('/').unwrap_or((value, ""));
        let names = roots.entries(self.dir());
        if !names.iter().any(|known| known == name) {
            return closest(name, names.iter().map(String::as_str));
        }
        // The name is right, so the flavor is not.
        let dir = if self.has_configs_dir() {
            format!("{}/{name}/configs", self.dir())
        } else {
            format!("{}/{name}", self.dir())
        };
        let entries = roots.entries(&dir);
        let flavors: Vec<_> =
            entries.iter().filter_map(|entry| entry.strip_suffix(".yaml")).collect();
        let near = closest(flavor, flavors.iter().copied());
        near.or_else(|| flavors.first().map(|only| (*only).to_owned()))
            .map(|flavor| format!("{name}/{flavor}"))
    }
}
