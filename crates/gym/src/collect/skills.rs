//! Skills: a directory of directories with a `SKILL.md`, offered to the agent and stamped on every row.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::error::CollectError;

const SKILL_FILE: &str = "SKILL.md";
/// Hex digits that tell the variants of one experiment apart.
const HASH_DIGITS: usize = 12;

/// The `skills_ref` of a directory: its path as given, a hash of its files, and what each skill says of itself.
/// `parse_yaml` reads the front matter.
pub fn skills_ref(
    given: &str,
    directory: &Path,
    parse_yaml: &dyn Fn(&str) -> Result<Value, String>,
) -> Result<String, CollectError> {
    let bad = |reason: String| CollectError::Skills { path: directory.to_owned(), reason };
    if !directory.is_dir() {
        return Err(bad("it is not a directory".to_owned()));
    }
    let mut skills = Vec::new();
    for path in sorted_entries(directory)? {
        if path.is_dir() {
            let file = path.join(SKILL_FILE);
            let text = std::fs::read_to_string(&file).map_err(CollectError::read(&file))?;
            let skill = front_matter(&text, parse_yaml)
                .map_err(|reason| bad(format!("{}: {reason}", file.display())))?;
            skills.push(skill);
        }
    }
    if skills.is_empty() {
        return Err(bad(format!("it has no directory with a {SKILL_FILE}")));
    }
    let hash = hash_of(directory)?;
    Ok(json!({"path": given, "hash": hash, "skills": skills}).to_string())
}

/// Name, description and version from the front matter of a skill.
fn front_matter(
    text: &str,
    parse_yaml: &dyn Fn(&str) -> Result<Value, String>,
) -> Result<Value, String> {
    let mut lines = text.trim_start_matches('\u{feff}').lines();
    if lines.next().map(str::trim) != Some("---") {
        return Err("it must start with a line `---`".to_owned());
    }
    let mut yaml = String::new();
    let mut closed = false;
    for line in lines {
        if line.trim() == "---" {
            closed = true;
            break;
        }
        yaml.push_str(line);
        yaml.push('\n');
    }
    if !closed {
        return Err("its front matter has no closing line `---`".to_owned());
    }
    let matter = parse_yaml(&yaml)?;
    let name = matter
        .get("name")
        .filter(|name| !name.is_null())
        .ok_or("its front matter has no `name`")?;
    let text = |value: &Value| match value {
        Value::String(text) => Value::String(text.clone()),
        Value::Null => Value::Null,
        other => Value::String(other.to_string()),
    };
    let version = matter.get("metadata").and_then(|metadata| metadata.get("version"));
    Ok(json!({
        "name": text(name),
        "description": matter.get("description").map_or(Value::Null, text),
        "version": version.map_or(Value::Null, text),
    }))
}

/// A short SHA-256 over relative paths and contents, in the order of the paths.
fn hash_of(directory: &Path) -> Result<String, CollectError> {
    let mut files = Vec::new();
    collect_files(directory, &mut files)?;
    files.sort();
    let mut hasher = Sha256::new();
    for file in files {
        let relative = file.strip_prefix(directory).unwrap_or(&file);
        hasher.update(relative.to_string_lossy().as_bytes());
        hasher.update([0]);
        hasher.update(std::fs::read(&file).map_err(CollectError::read(&file))?);
        hasher.update([0]);
    }
    let hex: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(hex[..HASH_DIGITS].to_owned())
}

fn collect_files(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), CollectError> {
    for path in sorted_entries(directory)? {
        if path.is_dir() {
            collect_files(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn sorted_entries(directory: &Path) -> Result<Vec<PathBuf>, CollectError> {
    let read = || -> std::io::Result<Vec<PathBuf>> {
        let mut paths = std::fs::read_dir(directory)?
            .map(|entry| Ok(entry?.path()))
            .collect::<std::io::Result<Vec<_>>>()?;
        paths.sort();
        Ok(paths)
    };
    read().map_err(CollectError::read(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `key: value` lines are all that these tests need of YAML.
    fn yaml(text: &str) -> Result<Value, String> {
        let pairs = text.lines().filter_map(|line| line.split_once(": "));
        Ok(Value::Object(pairs.map(|(key, value)| (key.to_owned(), json!(value))).collect()))
    }

    #[test]
    fn a_directory_is_known_by_its_skills_and_the_hash_of_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let skill = dir.path().join("add");
        std::fs::create_dir(&skill).unwrap();
        std::fs::write(skill.join(SKILL_FILE), "---\nname: add\ndescription: adds\n---\nbody\n")
            .unwrap();
        let first = skills_ref("skills", dir.path(), &yaml).unwrap();
        let value: Value = serde_json::from_str(&first).unwrap();
        assert_eq!(
            value["skills"],
            json!([{"name": "add", "description": "adds", "version": null}])
        );
        assert_eq!(value["hash"].as_str().unwrap().len(), HASH_DIGITS);
        std::fs::write(skill.join("more.txt"), "x").unwrap();
        assert_ne!(skills_ref("skills", dir.path(), &yaml).unwrap(), first);
    }

    #[test]
    fn what_is_no_skills_directory_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let message = |path: &Path| skills_ref("s", path, &yaml).unwrap_err().to_string();
        assert!(message(dir.path()).ends_with("it has no directory with a SKILL.md"));
        assert!(message(&dir.path().join("none")).ends_with("it is not a directory"));
        let skill = dir.path().join("add");
        std::fs::create_dir(&skill).unwrap();
        std::fs::write(skill.join(SKILL_FILE), "no front matter").unwrap();
        assert!(message(dir.path()).ends_with("it must start with a line `---`"));
    }
}
