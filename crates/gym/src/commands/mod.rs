//! One file per command; each turns what was typed into calls and says what came of it.

pub mod absent;
mod config_show;
mod demo;
mod env_resolve;
mod env_start;
mod env_status;
mod env_test;
mod eval_run;
mod guard;
mod serve_instance;
mod serve_openai;
mod trace_list;
mod trace_show;

use crate::args::{Cli, Command, ConfigCommand, EnvCommand, EvalCommand, TraceCommand};
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Runs the command that was typed.
pub fn dispatch(cli: &Cli, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    match &cli.command {
        Command::Env(EnvCommand::Start(args)) => env_start::run(args, printer),
        Command::Env(EnvCommand::Status(args)) => env_status::run(args, printer),
        Command::Env(EnvCommand::Resolve(args)) => env_resolve::run(args, printer),
        Command::Env(EnvCommand::Test(args)) => env_test::run(args, printer),
        Command::Eval(EvalCommand::Run(args)) => eval_run::run(args, printer),
        Command::Trace(TraceCommand::List(args)) => trace_list::run(args, printer),
        Command::Trace(TraceCommand::Show(args)) => trace_show::run(args, printer),
        Command::Config(ConfigCommand::Show(args)) => config_show::run(args, printer),
        Command::Demo(args) => demo::run(args, printer),
        Command::ServeOpenai(args) => serve_openai::run(args, printer),
        Command::ServeInstance => serve_instance::run(printer),
        Command::Guard(args) => guard::run(args),
    }
}
