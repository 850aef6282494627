//! Everything that a store does to files, behind one trait, so that a test can let any of it fail.
//!
//! Reading is not here: a store reads what has its final name, which nobody changes any more.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::path::Path;
use std::sync::Arc;

/// A file system as a writer sees it.
pub trait Vfs: Debug + Send + Sync {
    /// Makes an empty file to be written, also where there was one.
    ///
    /// # Errors
    ///
    /// Those of the file system, as for every function here.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>>;

    /// Opens a file that is there, to be cut or written to its end.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>>;

    /// Gives a file another name, in place of what has it.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes a folder and those above it.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn create_folder(&self, path: &Path) -> io::Result<()>;

    /// Makes names in a folder survive a loss of power.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// A file that is being written.
pub trait VfsFile: Debug + Send + Sync {
    /// Appends what the slices hold, or the front of it; says how many bytes.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Makes what was written survive a loss of power.
    ///
    /// # Errors
    ///
    /// Those of the file system. What was written before is in doubt then.
    fn sync(&self) -> io::Result<()>;

    /// Cuts the file; what is written next follows the cut.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    fn cut(&self, bytes: u64) -> io::Result<()>;
}

/// The file system of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFiles;

#[derive(Debug)]
struct RealFile(File);

impl Vfs for RealFiles {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let mut options = OpenOptions::new();
        // What is appended follows a cut, wherever that was made.
        options.append(true).create(true).mode(0o600);
        let file = options.open(path)?;
        file.set_len(0)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        Ok(Arc::new(RealFile(OpenOptions::new().append(true).open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        use std::os::unix::fs::DirBuilderExt as _;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

impl VfsFile for RealFile {
    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.0).write_vectored(slices)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }
}

/// Writes all of the slices, in as few calls as the file takes.
pub(crate) fn write_all(file: &dyn VfsFile, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match file.write(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A file as [`Write`], counting.
#[derive(Debug)]
pub(crate) struct Sink {
    file: Arc<dyn VfsFile>,
    pub(crate) bytes: u64,
}

impl Sink {
    pub(crate) fn new(file: Arc<dyn VfsFile>) -> Self {
        Self { file, bytes: 0 }
    }
}

impl Write for Sink {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.file.write(&[IoSlice::new(buffer)])?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether the file system said that nothing more fits.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
