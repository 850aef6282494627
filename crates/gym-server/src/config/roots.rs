//! Where relative paths are looked for.
//!
//! In order: `--search-dir`, each directory of `NEMO_GYM_EXTRA_ROOTS`, the working directory, and
//! the files inside the binary. The first hit wins; absolute paths are taken as they are.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::EmbeddedFile;

/// The search roots of one load.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    dirs: Vec<PathBuf>,
    embedded: &'static [EmbeddedFile],
}

/// A file that was found.
#[derive(Clone, Debug)]
pub enum FoundFile {
    /// On disk.
    Disk(PathBuf),
    /// Inside the binary.
    Embedded(&'static EmbeddedFile),
}

impl FoundFile {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// When a file on disk cannot be read.
    pub fn read(&self) -> std::io::Result<Cow<'static, [u8]>> {
        match self {
            Self::Disk(path) => std::fs::read(path).map(Cow::Owned),
            Self::Embedded(file) => Ok(Cow::Borrowed(file.bytes)),
        }
    }

    /// How messages and `config_paths` name it.
    #[must_use]
    pub fn display(&self) -> String {
        match self {
            Self::Disk(path) => path.display().to_string(),
            Self::Embedded(file) => file.path.to_owned(),
        }
    }
}

impl Roots {
    /// Roots from `--search-dir`, the value of `NEMO_GYM_EXTRA_ROOTS`, and the working directory.
    #[must_use]
    pub fn new(
        search_dirs: &[PathBuf],
        extra_roots: Option<&str>,
        cwd: &Path,
        embedded: &'static [EmbeddedFile],
    ) -> Self {
        let extra = extra_roots.into_iter().flat_map(std::env::split_paths);
        let mut dirs: Vec<PathBuf> = Vec::new();
        for dir in search_dirs.iter().cloned().chain(extra).chain([cwd.to_owned()]) {
            let dir = if dir.is_absolute() { dir } else { cwd.join(dir) };
            if !dir.as_os_str().is_empty() && !dirs.contains(&dir) {
                dirs.push(dir);
            }
        }
        Self { dirs, embedded }
    }

    /// Directories on disk, in search order.
    #[must_use]
    pub fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// The first file at `path`.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<FoundFile> {
        self.hits(path).next()
    }

    /// Every file at `path`, in search order.
    pub(super) fn hits<'a>(&'a self, path: &'a str) -> impl Iterator<Item = FoundFile> + 'a {
        let absolute = Path::new(path).is_absolute();
        let on_disk = self
            .dirs
            .iter()
            .take(if absolute { 1 } else { usize::MAX })
            .map(move |dir| dir.join(path))
            .filter(|path| path.is_file())
            .map(FoundFile::Disk);
        let wanted = path.strip_prefix("./").unwrap_or(path);
        let inside =
            self.embedded.iter().filter(move |file| file.path == wanted).map(FoundFile::Embedded);
        on_disk.chain(inside)
    }

    /// Names of the entries of `dir` under any root, sorted.
    pub(super) fn entries(&self, dir: &str) -> Vec<String> {
        let mut names = BTreeSet::new();
        for root in &self.dirs {
            let Ok(entries) = std::fs::read_dir(root.join(dir)) else { continue };
            names
                .extend(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()));
        }
        let prefix = format!("{}/", dir.trim_end_matches('/'));
        for file in self.embedded {
            if let Some(rest) = file.path.strip_prefix(&prefix) {
                names.extend(rest.split('/').next().map(str::to_owned));
            }
        }
        names.into_iter().collect()
    }

    /// The roots as messages list them.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let dirs = self.dirs.iter().map(|dir| dir.display().to_string());
        let inside = (!self.embedded.is_empty()).then(|| "the files inside the binary".to_owned());
        dirs.chain(inside).collect()
    }
}
