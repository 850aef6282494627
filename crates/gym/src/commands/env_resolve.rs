//! `gym env resolve`.

use crate::args::EnvResolveArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;

pub fn run(_args: &EnvResolveArgs, _printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    anyhow::bail!("`gym env resolve` is not built yet")
}
