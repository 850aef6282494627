//! `gym env start`.

use crate::args::EnvStartArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;

pub fn run(_args: &EnvStartArgs, _printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    anyhow::bail!("`gym env start` is not built yet")
}
