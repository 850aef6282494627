//! The only place that writes to stdout and stderr.
//!
//! stdout is data, stderr is conversation. A line is one write, so lines of
//! several threads and of the servers of a fleet never mix. While a progress
//! bar is attached, conversation is written above it.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};

use gym_telemetry::{env_vars, semconv};
use indicatif::ProgressBar;

/// Writes for one command. Clones share the terminal.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "commands use what they need")]
pub struct Printer {
    stdout_is_terminal: bool,
    stderr_is_terminal: bool,
    colour_allowed: bool,
    quiet: bool,
    bar: Arc<Mutex<Option<ProgressBar>>>,
}

#[allow(dead_code, reason = "commands use what they need")]
impl Printer {
    /// Looks at the terminal and at `NO_COLOR`.
    pub fn from_terminal() -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os(env_vars::TERM).is_some_and(|term| term == "dumb");
        Self {
            stdout_is_terminal: io::stdout().is_terminal(),
            stderr_is_terminal: io::stderr().is_terminal(),
            colour_allowed: !is_set(env_vars::NO_COLOR) && !is_dumb,
            quiet: false,
            bar: Arc::default(),
        }
    }

    /// The same without chatter.
    pub fn quieted(self) -> Self {
        Self { quiet: true, ..self }
    }

    /// Whether data may be coloured.
    pub fn colours_data(&self) -> bool {
        self.colour_allowed && self.stdout_is_terminal
    }

    /// Whether conversation may be coloured.
    pub fn colours_conversation(&self) -> bool {
        self.colour_allowed && self.stderr_is_terminal
    }

    /// Whether progress can be redrawn in place.
    pub fn is_interactive(&self) -> bool {
        self.stderr_is_terminal && !self.quiet
    }

    /// Width of the terminal behind stdout in columns; `None` in a pipe.
    pub fn width(&self) -> Option<u16> {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        (size.ws_col > 0).then_some(size.ws_col)
    }

    /// Writes data to stdout; a newline is added where the text lacks one.
    ///
    /// # Errors
    ///
    /// Those of the write; a broken pipe makes the command end with success.
    pub fn data(&self, text: &str) -> io::Result<()> {
        self.data_bytes(&ended(text))
    }

    /// Writes bytes to stdout as they are.
    ///
    /// # Errors
    ///
    /// As [`Printer::data`].
    pub fn data_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout
            .write_all(bytes)
            .and_then(|()| stdout.flush())
            .map_err(|source| io::Error::new(source.kind(), StdoutError(source)))
    }

    /// Writes one line of conversation to stderr, unless quiet.
    pub fn say(&self, text: &str) {
        if !self.quiet {
            self.conversation(&ended(text));
        }
    }

    /// Writes a warning to stderr; quiet does not silence it. Where log records are exported it is one, too.
    pub fn warn(&self, text: &str) {
        gym_telemetry::record_warning(semconv::event::NOTICE, text, &[]);
        let label =
            if self.colours_conversation() { "\x1b[33mwarning:\x1b[0m" } else { "warning:" };
        self.conversation(&ended(&format!("{label} {text}")));
    }

    /// Writes bytes to stderr as they are; quiet does not silence them.
    /// There is nobody to tell about an error on stderr.
    pub fn conversation(&self, bytes: &[u8]) {
        let write = || {
            let _ = io::stderr().lock().write_all(bytes);
        };
        let bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Makes conversation appear above `bar` until the next call with `None`.
    pub fn attach_bar(&self, bar: Option<ProgressBar>) {
        *self.bar.lock().unwrap_or_else(PoisonError::into_inner) = bar;
    }
}

/// Names the stream that the system's message does not name.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to stdout")]
struct StdoutError(#[source] io::Error);

fn ended(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() + 1);
    bytes.extend_from_slice(text.as_bytes());
    if !text.ends_with('\n') {
        bytes.push(b'\n');
    }
    bytes
}
