//! `gym env test`.

use crate::args::EnvTestArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;

pub fn run(_args: &EnvTestArgs, _printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    anyhow::bail!("`gym env test` is not built yet")
}
