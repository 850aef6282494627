//! Tests in processes of their own, and folders that go with them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::PATIENCE;

const NAME: &str = "LENS_TEST_CHILD";
const CONTEXT: &str = "LENS_TEST_CONTEXT";

/// What a child wrote to stderr.
pub struct Said(Option<String>);

impl Said {
    /// Panics unless the child said it exactly once. Says nothing in the child itself.
    pub fn said_once(self, what: &str) {
        if let Some(text) = self.0 {
            assert_eq!(text.matches(what).count(), 1, "{what:?} in:\n{text}");
        }
    }
}

impl Said {
    /// Panics unless the child said these and nothing else, a line each. Says nothing in the child itself.
    pub fn said_in_all(self, what: &[&str]) {
        if let Some(text) = self.0 {
            let lines: Vec<&str> =
                text.lines().filter(|line| line.starts_with("warning: ")).collect();
            let are_those = lines.iter().zip(what).all(|(line, what)| line.contains(what));
            assert!(lines.len() == what.len() && are_those, "{what:?} in:\n{text}");
        }
    }
}

/// What this process was told, if it is the child of test `name`.
pub fn context(name: &str) -> Option<Vec<String>> {
    let is_child = std::env::var(NAME).is_ok_and(|child| child == name);
    let context = std::env::var(CONTEXT).unwrap_or_default();
    is_child.then(|| context.split('\n').map(str::to_owned).collect())
}

/// Runs test `name` in a child; panics when it fails.
pub fn run(name: &str, context: &[&str]) -> Said {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program)
        .args(["--exact", name, "--nocapture"])
        .env(NAME, name)
        .env(CONTEXT, context.join("\n"))
        .output()
        .expect("a child");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stdout));
    Said(Some(text))
}

/// Runs `test`, the body of test `name`, in a child.
pub fn in_child(name: &str, test: impl FnOnce()) -> Said {
    if context(name).is_some() {
        test();
        return Said(None);
    }
    run(name, &[])
}

/// Waits for a condition that nobody announces.
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < give_up, "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// A folder that is removed when it is dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        let name = format!("lens-collector-{}", std::process::id());
        let unique = std::thread::current().id();
        let path = std::env::temp_dir().join(format!("{name}-{unique:?}"));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("a folder");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// All files below it.
    pub fn all(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.0.clone()];
        while let Some(folder) = folders.pop() {
            let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
            for path in entries.map(|entry| entry.path()) {
                if path.is_dir() { folders.push(path) } else { found.push(path) }
            }
        }
        found.sort();
        found
    }

    /// Names of files with spans.
    pub fn chunks(&self) -> Vec<String> {
        let name = |path: &PathBuf| Some(path.file_name()?.to_str()?.to_owned());
        let names = self.all().iter().filter_map(name).collect::<Vec<_>>();
        names.into_iter().filter(|name| name.ends_with(".otlp")).collect()
    }

    pub fn bytes(&self) -> u64 {
        let len = |path: &PathBuf| Some(path.metadata().ok()?.len());
        self.all().iter().filter_map(len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
