//! `gym serve-instance`.

use crate::exit::ExitStatus;
use crate::printer::Printer;

pub fn run(_printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    anyhow::bail!("`gym serve-instance` is not built yet")
}
