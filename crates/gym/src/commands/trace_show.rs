//! `gym trace show`.

use crate::args::TraceShowArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;

pub fn run(_args: &TraceShowArgs, _printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    anyhow::bail!("`gym trace show` is not built yet")
}
