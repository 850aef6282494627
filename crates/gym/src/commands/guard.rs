//! `gym guard`: runs a foreign server so that it ends with its supervisor.

use crate::args::GuardArgs;
use crate::exit::ExitStatus;
use crate::fleet::guard;

pub fn run(args: &GuardArgs) -> Result<ExitStatus, anyhow::Error> {
    guard::run(&args.command)?;
    Ok(ExitStatus::Done)
}
