//! What telemetry has to say to people: one line a notice, on stderr, each at most once.

use std::{
    collections::BTreeSet,
    io::Write as _,
    sync::{Mutex, PoisonError},
};

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
}

fn to_stderr(text: &str) {
    // Nobody is left to tell when stderr is gone.
    let _ = writeln!(std::io::stderr().lock(), "warning: {text}");
}
