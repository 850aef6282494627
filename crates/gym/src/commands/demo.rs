//! `gym demo`.

use crate::args::DemoArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;

pub fn run(_args: &DemoArgs, _printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    anyhow::bail!("`gym demo` is not built yet")
}
