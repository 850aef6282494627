//! A logger for the `log` facade: records go to lens with the ids of the current span, and on to another logger.

use std::borrow::Cow;

use log::{Level, LevelFilter, Log, Metadata, Record, SetLoggerError};

use super::logs::{self, LogRecord, Severity};
use super::thread;

/// Hands records to lens.
pub struct LogBridge {
    next: Option<Box<dyn Log>>,
    least: LevelFilter,
}

impl std::fmt::Debug for LogBridge {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LogBridge").field("least", &self.least).finish_non_exhaustive()
    }
}

impl LogBridge {
    /// A bridge for records of at least `least`, which `next` gets too.
    pub fn new(least: LevelFilter, next: Option<Box<dyn Log>>) -> Self {
        Self { next, least }
    }

    /// Makes it the program's logger.
    ///
    /// # Errors
    ///
    /// When the program has a logger already.
    pub fn install(self) -> Result<(), SetLoggerError> {
        let least = self.least;
        log::set_boxed_logger(Box::new(self))?;
        log::set_max_level(least);
        Ok(())
    }
}

impl Log for LogBridge {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= self.least
            && (logs::is_enabled() || self.next.as_ref().is_some_and(|next| next.enabled(metadata)))
    }

    fn log(&self, record: &Record<'_>) {
        if record.level() > self.least {
            return;
        }
        if let Some(next) = &self.next {
            next.log(record);
        }
        if logs::is_enabled() && !thread::exports() {
            let severity = match record.level() {
                Level::Trace => Severity::Trace,
                Level::Debug => Severity::Debug,
                Level::Info => Severity::Info,
                Level::Warn => Severity::Warn,
                Level::Error => Severity::Error,
            };
            let (args, target) = (record.args(), record.target());
            let body = args.as_str().map_or_else(|| args.to_string().into(), Cow::Borrowed);
            let (attributes, event_name) = (&[] as _, "");
            logs::emit_record(&LogRecord { severity, body: &body, attributes, event_name, target });
        }
    }

    fn flush(&self) {
        if let Some(next) = &self.next {
            next.flush();
        }
    }
}
