//! `gym trace list`.

use crate::args::TraceListArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;

pub fn run(_args: &TraceListArgs, _printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    anyhow::bail!("`gym trace list` is not built yet")
}
