//! `gym env resolve`: the merged and resolved config, and what serves each instance.

use gym_server::config::{GlobalConfig, Instance, Program};

use crate::args::EnvResolveArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::settings::{self, Ports};

pub fn run(
    args: &EnvResolveArgs,
    verbose: bool,
    printer: &Printer,
) -> Result<ExitStatus, anyhow::Error> {
    let mut flags = settings::verbose_override(verbose);
    flags.extend(settings::model_overrides(&args.model));
    let config = settings::load(&args.source, flags, Ports::Keep, printer)?;
    let masked = GlobalConfig::masked(&config.resolved()?);
    for instance in config.instances() {
        printer.say(&program(instance));
    }
    let text = if args.json {
        serde_json::to_string_pretty(&masked)?
    } else {
        GlobalConfig::to_yaml(&masked)
    };
    printer.data(&text)?;
    Ok(ExitStatus::Done)
}

/// One line: what serves the instance, from where.
fn program(instance: &Instance) -> String {
    let root = match &instance.program {
        Program::Builtin => "this binary".to_owned(),
        Program::Python { dir, entrypoint } => dir.join(entrypoint).display().to_string(),
        Program::Exec { path, .. } => path.display().to_string(),
    };
    let Instance { name, server_type, implementation, program, .. } = instance;
    format!("{name} ({server_type}/{implementation}): {}, {root}", program.runtime())
}
