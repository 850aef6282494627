//! One file per command; each turns what was typed into calls and says what came of it.

pub mod absent;
mod config_show;
mod demo;
mod doctor;
mod env_resolve;
mod env_start;
mod env_status;
mod env_test;
mod eval_run;
mod guard;
mod observe;
#[cfg(test)]
mod reference_page;
mod run_list;
mod run_show;
mod run_watch;
mod serve_instance;
mod serve_openai;
mod spool_list;
mod spool_recover;
mod store;
mod store_replay;
mod telemetry;
mod trace_diff;
mod trace_export;
mod trace_list;
mod trace_report;
mod trace_search;
mod trace_show;
mod trace_stragglers;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{
    Cli, Command, ConfigCommand, EnvCommand, EvalCommand, RunCommand, SpoolCommand, TraceCommand,
};
use crate::printer::Printer;
use crate::trace::Source;

/// How long telemetry may take to flush where nobody wants to wait any more.
const HURRIED_FLUSH: Duration = Duration::from_millis(500);

/// Runs the command that was typed.
pub fn dispatch(cli: &Cli, printer: &Printer) -> Result<ExitCode, anyhow::Error> {
    let status = match &cli.command {
        Command::Env(EnvCommand::Start(args)) => env_start::run(args, cli.verbose, printer),
        Command::Env(EnvCommand::Status(args)) => env_status::run(args, printer),
        Command::Env(EnvCommand::Resolve(args)) => env_resolve::run(args, cli.verbose, printer),
        Command::Env(EnvCommand::Test(args)) => env_test::run(args, printer),
        Command::Eval(EvalCommand::Run(args)) => eval_run::run(args, printer),
        Command::Trace(TraceCommand::List(args)) => {
            Source::ask(&args.from.paths, printer, |source| trace_list::run(args, source, printer))
        }
        Command::Trace(TraceCommand::Show(args)) => {
            Source::ask(&args.from.paths, printer, |source| trace_show::run(args, source, printer))
        }
        Command::Trace(TraceCommand::Report(args)) => {
            Source::ask(&args.from.paths, printer, |source| {
                trace_report::run(args, source, printer)
            })
        }
        Command::Trace(TraceCommand::Search(args)) => trace_search::run(args, printer),
        Command::Trace(TraceCommand::Diff(args)) => trace_diff::run(args, printer),
        Command::Trace(TraceCommand::Stragglers(args)) => {
            Source::ask(&args.from.paths, printer, |source| {
                trace_stragglers::run(args, source, printer)
            })
        }
        Command::Trace(TraceCommand::Export(args)) => {
            Source::ask(&args.from.paths, printer, |source| {
                trace_export::run(args, source, printer)
            })
        }
        Command::Run(RunCommand::List(args)) => {
            Source::ask(&args.from.paths, printer, |source| run_list::run(args, source, printer))
        }
        Command::Run(RunCommand::Show(args)) => {
            Source::ask(&args.from.paths, printer, |source| run_show::run(args, source, printer))
        }
        Command::Run(RunCommand::Watch(args)) => run_watch::run(args, printer),
        Command::Config(ConfigCommand::Show(args)) => config_show::run(args, printer),
        Command::Spool(SpoolCommand::List(args)) => spool_list::run(args, printer),
        Command::Spool(SpoolCommand::Recover(args)) => spool_recover::run(args, printer),
        Command::Observe(args) => observe::run(args, printer),
        Command::Store(command) => store::run(command, printer),
        Command::Doctor(args) => doctor::run(args, printer),
        Command::Telemetry(args) => telemetry::run(args, printer),
        Command::Demo(args) => demo::run(args, printer),
        Command::ServeOpenai(args) => serve_openai::run(args, printer),
        Command::ServeInstance => return Ok(serve_instance::run()),
        Command::Guard(args) => guard::run(args),
    };
    status.map(Into::into)
}

/// Runs a future on a runtime of one thread: supervisor and driver wait, they do not compute.
pub fn block_on<T>(
    future: impl Future<Output = Result<T, anyhow::Error>>,
) -> Result<T, anyhow::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    let result = runtime.block_on(async {
        survive_file_size_limit();
        future.await
    });
    // A flush that was given up may still be going on.
    runtime.shutdown_timeout(HURRIED_FLUSH);
    result
}

/// Ends the telemetry of this process without holding up the runtime.
async fn flush_telemetry(limit: Duration) {
    let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    let _ = tokio::task::spawn_blocking(move || gym_telemetry::shutdown_telemetry(millis)).await;
}

/// A write beyond the file-size limit becomes an error that names the file, in place of a signal that kills.
fn survive_file_size_limit() {
    let _ = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()));
}
