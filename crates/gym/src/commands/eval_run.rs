//! `gym eval run`.

use crate::args::EvalRunArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;

pub fn run(_args: &EvalRunArgs, _printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    anyhow::bail!("`gym eval run` is not built yet")
}
