//! `gym demo`.

use indicatif::{ProgressBar, ProgressStyle};

use crate::args::DemoArgs;
use crate::demo::{Report, Workspace, collect};
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::render::Advise;
use crate::trace::{self, Canvas};

/// Runs an example environment and shows where the time went.
pub fn run(args: &DemoArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    if !cfg!(feature = "telemetry") {
        return Err(anyhow::anyhow!("this build of gym has no telemetry, so there are no traces"))
            .advise(|| "build it with its default features".to_owned());
    }
    if args.rollouts == 0 || args.concurrency == 0 {
        anyhow::bail!("a demo needs at least one rollout, and one at a time");
    }
    let workspace = Workspace::create(args.out.as_deref(), &args.environment, args.rollouts);
    let workspace = workspace.map_err(|error| {
        let hint = error.hint();
        Advise::<()>::advise(Err(error), || hint).unwrap_err()
    })?;
    let directory = workspace.directory().display().to_string();
    printer.say(&format!(
        "{} with a scripted model: rows, logs and traces go to {directory}",
        args.environment
    ));

    let bar = printer.is_interactive().then(|| bar(args.rollouts));
    printer.attach_bar(bar.clone());
    let outcome = collect(args, &workspace, |done| {
        if let Some(bar) = &bar {
            bar.set_position(done as u64);
        }
    });
    printer.attach_bar(None);
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let outcome = outcome
        .map_err(anyhow::Error::from)
        .advise(|| format!("all of it is in {directory}/logs"))?;

    if outcome.was_interrupted {
        printer.say(&format!("interrupted; what was collected is in {directory}"));
        return Ok(ExitStatus::Interrupted);
    }

    let source = trace::Source::open(&[workspace.store()])?;
    let traces = source.all()?;
    if traces.rollouts().next().is_none() {
        anyhow::bail!("no rollout is in {}: {}", workspace.store().display(), source.sentence());
    }
    let text =
        Report { args, outcome: &outcome, traces: &traces, directory: workspace.directory() }
            .text(&Canvas::of(printer));
    printer.data(&text)?;
    Ok(if outcome.some_failed { ExitStatus::Negative } else { ExitStatus::Done })
}

fn bar(rollouts: usize) -> ProgressBar {
    let template = "{spinner} {pos}/{len} rollouts [{bar:30}] {elapsed}";
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(rollouts as u64).with_style(style);
    bar.enable_steady_tick(std::time::Duration::from_millis(100));
    bar
}
