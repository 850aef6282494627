//! What telemetry has to say to people: one line a notice, on stderr, each at most once.
//!
//! Where log records are exported, a notice is one, too, in the trace of what it is about.

use std::{
    collections::BTreeSet,
    io::Write as _,
    sync::{Mutex, PoisonError},
};

use lens::Value;
use lens::logs::{LogRecord, Severity, emit_record};

use crate::semconv;

/// Where notices go.
pub type NoticeSink = fn(&str);

struct Notices {
    sink: NoticeSink,
    said: BTreeSet<String>,
}

static NOTICES: Mutex<Notices> = Mutex::new(Notices { sink: to_stderr, said: BTreeSet::new() });

/// Sends notices elsewhere, for a program that owns its stderr.
pub fn set_notice_sink(sink: NoticeSink) {
    NOTICES.lock().unwrap_or_else(PoisonError::into_inner).sink = sink;
}

/// Says something, unless this process has said it before.
pub fn notice(text: &str) {
    let sink = {
        let mut notices = NOTICES.lock().unwrap_or_else(PoisonError::into_inner);
        if !notices.said.insert(text.to_owned()) {
            return;
        }
        notices.sink
    };
    sink(text);
    record_warning(semconv::event::NOTICE, text, &[]);
}

/// Says something every time: on stderr, and as a log record of the current trace.
pub fn mention(text: &str) {
    to_stderr(text);
    record_warning(semconv::event::NOTICE, text, &[]);
}

/// Makes a log record of what was said, in the current trace; nothing where log records are off.
pub fn record_warning(event_name: &str, body: &str, attributes: &[(&'static str, Value)]) {
    let (severity, target) = (Severity::Warn, semconv::SCOPE);
    emit_record(&LogRecord { severity, body, attributes, event_name, target });
}

fn to_stderr(text: &str) {
    // Nobody is left to tell when stderr is gone.
    let _ = writeln!(std::io::stderr().lock(), "warning: {text}");
}
