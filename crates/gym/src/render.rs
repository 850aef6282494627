//! Errors as a person reads them: what failed, why, and what to do.

use std::fmt;

use gym_server::config::ConfigError;

use crate::collect::CollectError;
use crate::env_test::EnvironmentError;
use crate::fleet::FleetError;
use crate::observe::RemoteError;
use crate::printer::Printer;
use crate::trace::SourceError;

/// An error with advice attached where it was made; prints as the error itself.
#[derive(Debug)]
pub struct Advised {
    hint: String,
    error: anyhow::Error,
}

impl fmt::Display for Advised {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(formatter)
    }
}

impl std::error::Error for Advised {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The error prints as its own first line; what follows are its causes.
        self.error.chain().nth(1)
    }
}

/// Adds advice to an error.
pub trait Advise<T> {
    /// `hint` is shown below the error and its causes.
    fn advise(self, hint: impl FnOnce() -> String) -> Result<T, anyhow::Error>;
}

impl<T, E: Into<anyhow::Error>> Advise<T> for Result<T, E> {
    fn advise(self, hint: impl FnOnce() -> String) -> Result<T, anyhow::Error> {
        self.map_err(|error| Advised { hint: hint(), error: error.into() }.into())
    }
}

/// Writes `error:`, `caused by:` and `hint:` to stderr.
pub fn error(printer: &Printer, error: &anyhow::Error) {
    printer.conversation(text(error, printer.colours_conversation()).as_bytes());
}

/// An error and its causes in one line.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

fn text(error: &anyhow::Error, colour: bool) -> String {
    let (red, cyan, reset) =
        if colour { ("\x1b[1;31m", "\x1b[1;36m", "\x1b[0m") } else { ("", "", "") };
    let mut text = format!("{red}error:{reset} {error}\n");
    for cause in error.chain().skip(1) {
        text.push_str(&format!("  caused by: {cause}\n"));
    }
    if let Some(hint) = error.chain().find_map(hint_of) {
        text.push_str(&format!("\n{cyan}hint:{reset} {hint}\n"));
    }
    text
}

/// Every error type that can give advice is asked here.
fn hint_of(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(advised) = cause.downcast_ref::<Advised>() {
        return Some(advised.hint.clone());
    }
    if let Some(config) = cause.downcast_ref::<ConfigError>() {
        return config.hint();
    }
    if let Some(collect) = cause.downcast_ref::<CollectError>() {
        return collect.hint();
    }
    if let Some(environment) = cause.downcast_ref::<EnvironmentError>() {
        return environment.hint();
    }
    if let Some(remote) = cause.downcast_ref::<RemoteError>() {
        return remote.hint();
    }
    if let Some(SourceError::Remote(remote)) = cause.downcast_ref::<SourceError>() {
        return remote.hint();
    }
    cause.downcast_ref::<FleetError>().and_then(FleetError::hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_rendered_with_its_causes_and_its_hint() {
        let result: Result<(), _> = Err(std::io::Error::other("permission denied"));
        let error = anyhow::Context::context(result, "failed to open \"rows.jsonl\"")
            .advise(|| "give another path with --input".to_owned())
            .expect_err("it is an error");
        insta::assert_snapshot!(text(&error, false), @r#"
        error: failed to open "rows.jsonl"
          caused by: permission denied

        hint: give another path with --input
        "#);
    }
}
