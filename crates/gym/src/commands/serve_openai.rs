//! `gym serve-openai`.

use crate::args::ServeOpenaiArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;

pub fn run(_args: &ServeOpenaiArgs, _printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    anyhow::bail!("`gym serve-openai` is not built yet")
}
