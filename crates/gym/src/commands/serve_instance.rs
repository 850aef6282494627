//! `gym serve-instance`: one built-in server, configured by the environment.

use std::process::ExitCode;

pub fn run() -> ExitCode {
    gym_server::program::with_instance(gym_envs::builtin::run)
}
