//! `gym config show`.

use crate::args::ConfigShowArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;

pub fn run(_args: &ConfigShowArgs, _printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    anyhow::bail!("`gym config show` is not built yet")
}
