//! The include tree: config files and what their `config_paths` pull in.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::closest::closest;
use super::error::{ConfigError, Origin, Problem};
use super::merge::merge_documents;
use super::roots::{FoundFile, Roots};
use super::yaml::{self, Document};

pub(super) const CONFIG_PATHS: &str = "config_paths";
const ENV_FILE: &str = "env.yaml";

/// Merges files in post-order: a file comes after everything it includes.
pub(super) struct Loader<'a> {
    roots: &'a Roots,
    seen: HashSet<String>,
    pub(super) merged: Document,
    /// Every file, in merge order, as it was named.
    pub(super) paths: Vec<String>,
    pub(super) warnings: Vec<String>,
}

impl<'a> Loader<'a> {
    pub(super) fn new(roots: &'a Roots) -> Self {
        Self {
            roots,
            seen: HashSet::new(),
            merged: Document { value: Value::Object(Map::new()), ..Document::default() },
            paths: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Loads one file and what it includes; a file that was loaded before is skipped.
    pub(super) fn load(&mut self, path: &str, asked_by: Origin) -> Result<(), ConfigError> {
        let Some(found) = self.roots.find(path) else {
            return Err(self.not_found(path, asked_by));
        };
        if !self.seen.insert(identity(&found)) {
            self.warnings.push(format!("{asked_by}{path} is included more than once"));
            return Ok(());
        }
        let mut document = read(&found, &asked_by)?;
        for (include, origin) in take_config_paths(&mut document)? {
            self.load(&include, origin)?;
        }
        merge_documents(&mut self.merged, document)?;
        self.paths.push(path.to_owned());
        Ok(())
    }

    fn not_found(&self, path: &str, at: Origin) -> ConfigError {
        let (dir, name) = path.rsplit_once('/').unwrap_or((".", path));
        let near = nearest_file(name, &self.roots.entries(dir));
        ConfigError::FileNotFound {
            at,
            path: path.to_owned(),
            searched: self.roots.describe(),
            closest: near.map(|near| if dir == "." { near } else { format!("{dir}/{near}") }),
        }
    }
}

/// The YAML file with the nearest name, whatever its extension.
fn nearest_file(name: &str, entries: &[String]) -> Option<String> {
    let stem = |file: &str| {
        let stem = file.strip_suffix(".yaml").or_else(|| file.strip_suffix(".yml"));
        stem.map(str::to_owned)
    };
    let wanted = stem(name).unwrap_or_else(|| name.to_owned());
    let stems: Vec<String> = entries.iter().filter_map(|entry| stem(entry)).collect();
    let near = if stems.contains(&wanted) {
        wanted
    } else {
        closest(&wanted, stems.iter().map(String::as_str))?
    };
    entries.iter().find(|entry| stem(entry).as_ref() == Some(&near)).cloned()
}

fn identity(found: &FoundFile) -> String {
    match found {
        FoundFile::Disk(path) => {
            path.canonicalize().unwrap_or_else(|_| path.clone()).display().to_string()
        }
        FoundFile::Embedded(file) => format!("embedded:{}", file.path),
    }
}

fn read(found: &FoundFile, asked_by: &Origin) -> Result<Document, ConfigError> {
    let name = found.display();
    let unreadable =
        |source| ConfigError::Read { at: asked_by.clone(), path: name.clone(), source };
    let bytes = found.read().map_err(unreadable)?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|error| unreadable(std::io::Error::new(std::io::ErrorKind::InvalidData, error)))?;
    yaml::parse_config(text, &name)
}

/// The `env.yaml` of the first root that has one.
pub(super) fn env_file(roots: &Roots) -> Result<Option<Document>, ConfigError> {
    match roots.find(ENV_FILE) {
        Some(found) => read(&found, &Origin::Unknown).map(Some),
        None => Ok(None),
    }
}

/// Takes `config_paths` out of a document.
pub(super) fn take_config_paths(
    document: &mut Document,
) -> Result<Vec<(String, Origin)>, ConfigError> {
    let Some(map) = document.value.as_object_mut() else { return Ok(Vec::new()) };
    let Some(value) = map.shift_remove(CONFIG_PATHS) else { return Ok(Vec::new()) };
    path_list(&value, |path| document.marks.find(path))
}

/// A list of file names, each with its place.
pub(super) fn path_list(
    value: &Value,
    place: impl Fn(&str) -> Origin,
) -> Result<Vec<(String, Origin)>, ConfigError> {
    let wrong = |path: &str, found: &Value| {
        ConfigError::Setting(Problem {
            at: place(path),
            path: path.to_owned(),
            reason: format!("expected a list of file names, got {}", super::merge::kind(found)),
            closest: None,
        })
    };
    let items = match value {
        Value::Null => return Ok(Vec::new()),
        Value::Array(items) => items,
        other => return Err(wrong(CONFIG_PATHS, other)),
    };
    items
        .iter()
        .enumerate()
        .map(|(index, item)| {
            let path = format!("{CONFIG_PATHS}[{index}]");
            match item.as_str() {
                Some(name) if !name.is_empty() => Ok((name.to_owned(), place(&path))),
                _ => Err(wrong(&path, item)),
            }
        })
        .collect()
}
