//! Files of lines that stay whole: batches of lines are written at once, and what a failed write left of a line is cut
//! off again.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::error::CollectError;

/// A file to which lines are appended.
#[derive(Debug)]
pub struct LineFile {
    path: PathBuf,
    file: File,
    /// Lines that are not in the file yet.
    pending: Vec<u8>,
    pending_lines: u64,
    /// The length of the file in bytes, up to its last whole line.
    len: u64,
    lines: u64,
}

impl LineFile {
    /// Opens a file and empties it.
    pub fn create(path: &Path) -> Result<LineFile, CollectError> {
        let file = File::create(path).map_err(CollectError::write(path))?;
        Ok(LineFile::new(path, file, 0))
    }

    /// Opens a file to go on behind its last whole line; says how many bytes of a broken line were cut off.
    pub fn append(path: &Path) -> Result<(LineFile, u64), CollectError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(CollectError::write(path))?;
        let whole = end_of_last_line(&mut file).map_err(CollectError::read(path))?;
        let len = file.seek(SeekFrom::End(0)).map_err(CollectError::read(path))?;
        if whole < len {
            file.set_len(whole).map_err(CollectError::write(path))?;
            file.seek(SeekFrom::Start(whole)).map_err(CollectError::write(path))?;
        }
        Ok((LineFile::new(path, file, whole), len - whole))
    }

    fn new(path: &Path, file: File, len: u64) -> LineFile {
        LineFile {
            path: path.to_owned(),
            file,
            pending: Vec::new(),
            pending_lines: 0,
            len,
            lines: 0,
        }
    }

    /// The buffer to which one line is to be appended without its line break; then call [`LineFile::line_ended`].
    pub fn line(&mut self) -> &mut Vec<u8> {
        self.drop_unfinished();
        &mut self.pending
    }

    /// Ends the line that was appended to [`LineFile::line`].
    pub fn line_ended(&mut self) {
        self.pending.push(b'\n');
        self.pending_lines += 1;
    }

    /// Forgets a line whose writer panicked before its end.
    fn drop_unfinished(&mut self) {
        let whole = memchr::memrchr(b'\n', &self.pending).map_or(0, |at| at + 1);
        self.pending.truncate(whole);
    }

    /// Lines written by this process.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Bytes waiting for the next write.
    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Writes what waits. After an error the file holds whole lines only, and every line that got through is counted.
    pub fn flush(&mut self) -> Result<(), CollectError> {
        self.drop_unfinished();
        let mut written = 0;
        let failure = loop {
            if written == self.pending.len() {
                break None;
            }
            match self.file.write(&self.pending[written..]) {
                Ok(0) => break Some(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Some(error),
            }
        };
        let Some(source) = failure else {
            self.len += written as u64;
            self.lines += self.pending_lines;
            self.pending.clear();
            self.pending_lines = 0;
            return Ok(());
        };
        let whole = memchr::memrchr(b'\n', &self.pending[..written]).map_or(0, |at| at + 1);
        self.len += whole as u64;
        self.lines += memchr::memchr_iter(b'\n', &self.pending[..whole]).count() as u64;
        self.pending.clear();
        self.pending_lines = 0;
        if written > whole {
            // A device cannot be cut, and holds nothing either.
            let _ = self
                .file
                .set_len(self.len)
                .and_then(|()| self.file.seek(SeekFrom::Start(self.len)));
        }
        Err(CollectError::Write { path: self.path.clone(), source })
    }
}

/// The offset behind the last line break, found from the end.
fn end_of_last_line(file: &mut File) -> io::Result<u64> {
    let mut block = vec![0; 64 * 1024];
    let mut end = file.seek(SeekFrom::End(0))?;
    while end > 0 {
        let start = end.saturating_sub(block.len() as u64);
        let part = &mut block[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(part)?;
        if let Some(at) = memchr::memrchr(b'\n', part) {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Replaces a small file as a whole: it is either the old or the new one.
pub fn replace(path: &Path, content: &[u8]) -> Result<(), CollectError> {
    let partial = partial_path(path);
    std::fs::write(&partial, content)
        .and_then(|()| std::fs::rename(&partial, path))
        .inspect_err(|_| drop(std::fs::remove_file(&partial)))
        .map_err(CollectError::write(path))
}

/// Where a file is built before it takes its name.
pub fn partial_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".partial");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_in_the_file_after_a_flush() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("o.jsonl");
        let mut file = LineFile::create(&path).unwrap();
        file.line().extend_from_slice(b"{}");
        file.line_ended();
        assert_eq!((file.lines(), file.pending_bytes()), (0, 3));
        file.flush().unwrap();
        assert_eq!((file.lines(), file.pending_bytes()), (1, 0));
        assert_eq!(std::fs::read(&path).unwrap(), b"{}\n");
    }

    #[test]
    fn a_broken_last_line_is_cut_off_when_a_file_is_continued() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("o.jsonl");
        std::fs::write(&path, b"{\"a\":1}\n{\"b\":").unwrap();
        let (mut file, cut) = LineFile::append(&path).unwrap();
        assert_eq!(cut, 5);
        file.line().extend_from_slice(b"{}");
        file.line_ended();
        file.flush().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"{\"a\":1}\n{}\n");
        let fresh = dir.path().join("new.jsonl");
        assert_eq!(LineFile::append(&fresh).unwrap().1, 0);
        assert!(fresh.exists());
    }

    #[test]
    fn a_full_disk_is_an_error_that_names_the_file() {
        let mut file = LineFile::create(Path::new("/dev/full")).unwrap();
        file.line().extend_from_slice(b"{}");
        file.line_ended();
        let error = file.flush().unwrap_err();
        assert_eq!(error.to_string(), "cannot write \"/dev/full\"");
        assert_eq!(file.lines(), 0);
        assert!(error.hint().unwrap().contains("make room"));
    }

    #[test]
    fn a_replaced_file_leaves_nothing_else_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        replace(&path, b"1").unwrap();
        replace(&path, b"2").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"2");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(replace(&dir.path().join("no/run.json"), b"").is_err());
    }
}
