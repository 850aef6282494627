//! `gym guard`.

use crate::args::GuardArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;

pub fn run(_args: &GuardArgs, _printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    anyhow::bail!("`gym guard` is not built yet")
}
