//! `docs/reference/commands.md` says what can be typed.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Args, Command, CommandFactory};

use super::absent::ABSENT;
use crate::args::{Cli, ConfigSource, ModelFlags};

/// One argument as it is typed, and what it does.
fn row(arg: &Arg) -> String {
    let mut typed = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("`-{short}`, `--{long}"),
        (_, Some(long)) => format!("`--{long}"),
        _ => "`".to_owned(),
    };
    if arg.get_action().takes_values() {
        for name in arg.get_value_names().into_iter().flatten() {
            let _ = match arg.is_require_equals_set() {
                true => write!(typed, "[={name}]"),
                false if typed.ends_with('`') => write!(typed, "{name}"),
                false => write!(typed, " {name}"),
            };
        }
    }
    let mut what = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let values: Vec<String> =
        arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    if arg.get_action().takes_values() && !values.is_empty() {
        let _ = write!(what, "; one of {}", values.join(", "));
    }
    if let [default] = arg.get_default_values() {
        let _ = write!(what, "; default `{}`", default.to_string_lossy());
    }
    // A bar would end the cell, and `<` begin a tag.
    format!("| {typed}` | {} |\n", what.replace('|', "\\|").replace('<', "\\<"))
}

const TABLE: &str = "| argument | what it does |\n|---|---|\n";

fn table(args: impl Iterator<Item = Arg>) -> String {
    args.fold(TABLE.to_owned(), |table, arg| table + &row(&arg))
}

/// Every command that can be typed, below `path`.
fn describe(command: &Command, path: &str, shared: &[(&str, Command)], out: &mut String) {
    for sub in command.get_subcommands() {
        let path = format!("{path} {}", sub.get_name());
        if sub.is_hide_set() || sub.get_name() == "help" {
            continue;
        }
        if sub.has_subcommands() {
            describe(sub, &path, shared, out);
            continue;
        }
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = write!(out, "\n### `{path}`\n\n{about}.\n");
        let known = |one: &&Arg, group: &Command| {
            group.get_arguments().any(|arg| arg.get_id() == one.get_id() && row(arg) == row(one))
        };
        let used: Vec<&str> = shared
            .iter()
            .filter(|(_, group)| sub.get_arguments().any(|arg| known(&arg, group)))
            .map(|(title, _)| *title)
            .collect();
        if !used.is_empty() {
            let _ = writeln!(out, "Takes the arguments of {}, too.", used.join(" and "));
        }
        let own = sub
            .get_arguments()
            .filter(|arg| arg.get_id() != "help" && !arg.is_global_set())
            .filter(|arg| !shared.iter().any(|(_, group)| known(arg, group)));
        let own = table(own.cloned());
        if own != TABLE {
            let _ = write!(out, "\n{own}");
        }
    }
}

/// Guarantees: the page cannot go stale. `UPDATE_DOCS=1` writes it anew.
#[test]
fn the_page_of_commands_holds_what_can_be_typed() {
    let shared = [
        ("[a config](#a-config)", ConfigSource::augment_args(Command::new("config"))),
        ("[a model](#a-model)", ModelFlags::augment_args(Command::new("model"))),
    ];
    let cli = Cli::command();
    let mut commands = String::new();
    describe(&cli, "gym", &shared, &mut commands);
    let mut absent = String::from("| there | nearest here |\n|---|---|\n");
    for (group, action, nearest) in ABSENT {
        let name = format!("gym {group} {action}");
        let _ = writeln!(absent, "| `{}` | `{nearest}` |", name.trim_end());
    }
    let parts = [
        ("everywhere", table(cli.get_arguments().filter(|arg| arg.is_global_set()).cloned())),
        ("config", table(shared[0].1.get_arguments().cloned())),
        ("model", table(shared[1].1.get_arguments().cloned())),
        ("commands", commands),
        ("absent", absent),
    ];

    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands.md");
    let written = std::fs::read_to_string(&page).expect("the reference page");
    let mut new = written.clone();
    for (part, content) in parts {
        let begin = format!("<!-- {part}: begin -->\n");
        let (head, rest) = new.split_once(&begin).expect("the part's begin");
        let (_, tail) = rest.split_once(&format!("<!-- {part}: end -->")).expect("the part's end");
        new = format!("{head}{begin}{content}<!-- {part}: end -->{tail}");
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(page, new).expect("a writable page");
        return;
    }
    assert_eq!(written, new, "run this test once with UPDATE_DOCS=1");
}
