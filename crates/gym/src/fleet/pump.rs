//! Carries the output of one stream of one server, whole lines only.
//!
//! A pump is a thread of its own: a full disk or a slow reader of our stdout
//! must not stall the supervisor, and a server that prints tens of thousands
//! of telemetry lines a second costs two writes a block, not two a line.
//! Nothing is held back once its newline is there. A line longer than
//! [`MAX_LINE_BYTES`] is broken.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::reference_lines;
use crate::printer::Printer;

/// Longest line that is kept whole.
pub const MAX_LINE_BYTES: usize = 16 << 20;
const BLOCK_BYTES: usize = 128 << 10;
const TAIL_LINES: usize = 12;
const TAIL_LINE_BYTES: usize = 400;

/// Which stream a pump reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Telemetry lines, and whatever a foreign server prints.
    Stdout,
    /// Conversation.
    Stderr,
}

/// The last lines a server wrote to stderr, for the message about its death.
#[derive(Clone, Debug, Default)]
pub struct Tail(Arc<Mutex<VecDeque<String>>>);

impl Tail {
    fn push_block(&self, block: &[u8]) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for line in block.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            if lines.len() == TAIL_LINES {
                lines.pop_front();
            }
            let kept = &line[..line.len().min(TAIL_LINE_BYTES)];
            lines.push_back(String::from_utf8_lossy(kept).into_owned());
        }
    }

    /// The lines, oldest first.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// The log file of an instance, written by both of its pumps.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    /// `None` after the first failed write: a torn line must stay the last one.
    file: Mutex<Option<File>>,
}

impl Log {
    /// Opens `path` for appending.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn open(path: PathBuf) -> io::Result<Arc<Self>> {
        let file = File::options().create(true).append(true).open(&path)?;
        Ok(Arc::new(Self { path, file: Mutex::new(Some(file)) }))
    }

    /// Where it lies.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    fn append(&self, instance: &str, block: &[u8], printer: &Printer) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = file.as_mut() else { return };
        if let Err(error) = open.write_all(block) {
            *file = None;
            printer.warn(&format!(
                "{instance} is no longer logged to {:?}: {error}; the server keeps running, \
                 its output still appears here",
                self.path
            ));
        }
    }
}

/// What a pump does with the lines of one stream.
#[derive(Debug)]
pub struct Pump {
    /// Name of the instance, for prefixes and messages.
    pub instance: String,
    /// The stream that is read.
    pub stream: Stream,
    /// Appended to, if given.
    pub log: Option<Arc<Log>>,
    /// Whether lines also go to our own streams.
    pub forwards: bool,
    /// Whether telemetry lines of the Python reference are brought into our form.
    pub translates: bool,
    /// Where the last lines of stderr are kept.
    pub tail: Tail,
    /// Writes to our own streams.
    pub printer: Printer,
    /// Told once when our stdout has no reader any more.
    pub on_closed_stdout: Arc<tokio::sync::Notify>,
}

impl Pump {
    /// Reads `source` to its end.
    pub fn run(mut self, mut source: impl Read) {
        let mut pending = Vec::with_capacity(BLOCK_BYTES);
        let mut block = vec![0; BLOCK_BYTES];
        loop {
            match source.read(&mut block) {
                Ok(0) => break,
                Ok(count) => {
                    let fresh = &block[..count];
                    match memchr::memrchr(b'\n', fresh) {
                        Some(newline) => {
                            pending.extend_from_slice(&fresh[..=newline]);
                            self.deliver(&pending);
                            pending.clear();
                            pending.extend_from_slice(&fresh[newline + 1..]);
                        }
                        None => pending.extend_from_slice(fresh),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
            if pending.len() > MAX_LINE_BYTES {
                pending.push(b'\n');
                self.deliver(&pending);
                pending.clear();
            }
        }
        if !pending.is_empty() {
            pending.push(b'\n');
            self.deliver(&pending);
        }
    }

    /// `block` is whole lines.
    fn deliver(&mut self, block: &[u8]) {
        let translated;
        let block = if self.translates && self.stream == Stream::Stdout {
            translated = reference_lines::translate_block(block);
            &translated
        } else {
            block
        };
        if self.stream == Stream::Stderr {
            self.tail.push_block(block);
        }
        if let Some(log) = &self.log {
            log.append(&self.instance, block, &self.printer);
        }
        if !self.forwards {
            return;
        }
        match self.stream {
            Stream::Stdout => {
                let Err(error) = self.printer.data_bytes(block) else { return };
                // The server goes on writing; here it is not passed on any more.
                self.forwards = false;
                if error.kind() == io::ErrorKind::BrokenPipe {
                    self.on_closed_stdout.notify_one();
                } else {
                    let kept = if self.log.is_some() { "it is still logged" } else { "it is lost" };
                    self.printer.warn(&format!(
                        "the stdout of {} is no longer passed on: {}; the server keeps running, {kept}",
                        self.instance,
                        crate::render::chain(&error),
                    ));
                }
            }
            Stream::Stderr => self.printer.conversation(&prefixed(&self.instance, block)),
        }
    }
}

/// Puts `(<instance>) ` before every line that does not have it yet.
fn prefixed(instance: &str, block: &[u8]) -> Vec<u8> {
    let prefix = format!("({instance}) ");
    let mut out = Vec::with_capacity(block.len() + prefix.len() * 4);
    for line in block.split_inclusive(|byte| *byte == b'\n') {
        if !line.starts_with(prefix.as_bytes()) {
            out.extend_from_slice(prefix.as_bytes());
        }
        out.extend_from_slice(line);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its pieces one read at a time.
    struct Pieces(VecDeque<Vec<u8>>);

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some(piece) = self.0.pop_front() else { return Ok(0) };
            buffer[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        }
    }

    fn pump(stream: Stream, log: Option<Arc<Log>>) -> Pump {
        Pump {
            instance: "policy_model".to_owned(),
            stream,
            log,
            forwards: false,
            translates: false,
            tail: Tail::default(),
            printer: Printer::from_terminal().quieted(),
            on_closed_stdout: Arc::default(),
        }
    }

    fn pieces(pieces: &[&str]) -> Pieces {
        Pieces(pieces.iter().map(|piece| piece.as_bytes().to_vec()).collect())
    }

    #[test]
    fn lines_split_over_reads_reach_the_log_whole_and_the_last_one_gets_its_newline() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("policy_model.log");
        let log = Log::open(path.clone()).expect("a log");
        pump(Stream::Stdout, Some(log)).run(pieces(&["one\ntw", "o", "\nthree"]));
        assert_eq!(std::fs::read_to_string(path).expect("the log"), "one\ntwo\nthree\n");
    }

    #[test]
    fn two_streams_never_share_a_line_of_the_log() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.log");
        let log = Log::open(path.clone()).expect("a log");
        std::thread::scope(|scope| {
            for (stream, letter) in [(Stream::Stdout, "o"), (Stream::Stderr, "e")] {
                let pump = pump(stream, Some(Arc::clone(&log)));
                let half = letter.repeat(50);
                scope.spawn(move || {
                    let both = [half.clone(), format!("{half}\n")];
                    let all: Vec<&str> =
                        (0..500).flat_map(|_| both.iter().map(String::as_str)).collect();
                    pump.run(pieces(&all));
                });
            }
        });
        let text = std::fs::read_to_string(path).expect("the log");
        assert_eq!(text.lines().count(), 1000);
        assert!(text.lines().all(|line| line == "o".repeat(100) || line == "e".repeat(100)));
    }

    #[test]
    fn the_last_lines_of_stderr_are_kept_for_the_obituary() {
        let pump = pump(Stream::Stderr, None);
        let tail = pump.tail.clone();
        let many: Vec<String> = (0..30).map(|index| format!("line {index}\n")).collect();
        pump.run(pieces(&many.iter().map(String::as_str).collect::<Vec<_>>()));
        assert_eq!(tail.lines().len(), TAIL_LINES);
        assert_eq!(tail.lines().last().map(String::as_str), Some("line 29"));
    }

    #[test]
    fn a_full_disk_ends_the_log_and_not_the_pump() {
        let log = Log::open(PathBuf::from("/dev/full")).expect("the device opens");
        let pump = pump(Stream::Stderr, Some(Arc::clone(&log)));
        let tail = pump.tail.clone();
        pump.run(pieces(&["first\n", "second\n"]));
        assert!(log.file.lock().expect("unpoisoned").is_none());
        assert_eq!(tail.lines(), ["first", "second"]);
    }

    #[test]
    fn a_line_gets_the_name_of_its_server_once() {
        let text = prefixed("agent", b"plain\n(agent) from the reference\n\n");
        assert_eq!(
            String::from_utf8(text).expect("text"),
            "(agent) plain\n(agent) from the reference\n(agent) \n"
        );
    }
}
