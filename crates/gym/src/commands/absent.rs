//! Commands of the reference that this binary does not have.

use clap::error::ErrorKind;

use crate::exit::ExitStatus;
use crate::printer::Printer;

/// (group, action, what it does there, the nearest command here); an empty
/// action stands for the whole group.
pub(super) const ABSENT: &[(&str, &str, &str)] = &[
    ("list", "", "gym env resolve"),
    ("search", "", "gym env resolve"),
    ("dataset", "", "gym eval run --input ROWS.jsonl"),
    ("dev", "", "gym env test"),
    ("env", "init", "gym env test"),
    ("env", "validate", "gym env resolve"),
    ("env", "packages", "gym env resolve"),
    ("env", "publish", "gym env test"),
    ("env", "prefetch", "gym env start"),
    ("eval", "prepare", "gym eval run"),
    ("eval", "aggregate", "gym eval run"),
    ("eval", "reverify", "gym eval run"),
    ("eval", "profile", "gym eval run"),
    ("eval", "submit", "gym eval run"),
];

/// Prints what is wrong with the command line, or the help that was asked for.
pub fn explain(
    printer: &Printer,
    error: &clap::Error,
    typed: impl Iterator<Item = String>,
) -> ExitStatus {
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some((name, nearest)) = nearest(typed)
    {
        printer.conversation(format!("error: `gym {name}` exists in the Python reference, not here\n\nhint: the nearest command is `{nearest}`\n").as_bytes());
        return ExitStatus::Usage;
    }
    let _ = error.print();
    if error.use_stderr() { ExitStatus::Usage } else { ExitStatus::Done }
}

fn nearest(typed: impl Iterator<Item = String>) -> Option<(String, &'static str)> {
    let mut words = typed.filter(|token| !token.starts_with('-'));
    let group = words.next()?;
    let action = words.next().unwrap_or_default();
    let &(_, only, nearest) = ABSENT.iter().find(|(absent_group, absent_action, _)| {
        *absent_group == group && (absent_action.is_empty() || *absent_action == action)
    })?;
    let name = if only.is_empty() { group } else { format!("{group} {only}") };
    Some((name, nearest))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::args::Cli;

    fn words(line: &str) -> impl Iterator<Item = String> {
        line.split_whitespace().map(str::to_owned)
    }

    #[test]
    fn an_absent_command_is_named_with_the_nearest_one_here() {
        assert_eq!(
            nearest(words("-v env validate x --json")),
            Some(("env validate".to_owned(), "gym env resolve"))
        );
        assert_eq!(
            nearest(words("dataset collate")),
            Some(("dataset".to_owned(), "gym eval run --input ROWS.jsonl"))
        );
        assert_eq!(nearest(words("env strat")), None);
    }

    #[test]
    fn every_absent_command_is_absent_and_every_nearest_one_exists() {
        for (group, action, nearest) in ABSENT {
            let typed = ["gym", group, action].into_iter().filter(|word| !word.is_empty());
            let error = Cli::try_parse_from(typed).expect_err("absent");
            assert_eq!(error.kind(), ErrorKind::InvalidSubcommand, "{group} {action}");
            let mut command = Cli::command();
            for word in nearest.split_whitespace().skip(1).take_while(|word| !word.starts_with('-'))
            {
                command =
                    command.find_subcommand(word).unwrap_or_else(|| panic!("{nearest}")).clone();
            }
        }
    }
}
