//! `gym env status`.

use crate::args::EnvStatusArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;

pub fn run(_args: &EnvStatusArgs, _printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    anyhow::bail!("`gym env status` is not built yet")
}
