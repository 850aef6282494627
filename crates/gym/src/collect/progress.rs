//! Shows how a run goes: a bar on a terminal, a line now and then elsewhere.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::driver::Counters;
use super::summary::{grouped, grouped_rate, seconds};
use crate::printer::Printer;

const REDRAW_EVERY: Duration = Duration::from_millis(200);
const LINE_EVERY: Duration = Duration::from_secs(10);
/// The rate is that of the last so many redraws or lines.
const RATE_WINDOW: usize = 25;

/// One look at a run.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Look {
    total: u64,
    done: u64,
    failed: u64,
    in_flight: u64,
    per_second: f64,
}

impl Look {
    fn text(&self) -> String {
        let left = self.total.saturating_sub(self.done + self.failed);
        let mut text =
            format!("{} failed, {} in flight", grouped(self.failed), grouped(self.in_flight));
        if self.per_second > 0.0 {
            text.push_str(&format!(", {}/s", grouped_rate(self.per_second)));
            if left > 0 {
                text.push_str(&format!(", {} left", seconds(left as f64 / self.per_second)));
            }
        }
        text
    }

    fn line(&self) -> String {
        let percent = 100 * (self.done + self.failed) / self.total.max(1);
        format!(
            "{} of {} rollouts done ({percent} %), {}",
            grouped(self.done),
            grouped(self.total),
            self.text()
        )
    }
}

/// The rate over the last looks.
#[derive(Debug)]
struct Rate(VecDeque<(Instant, u64)>);

impl Rate {
    fn starting(now: Instant) -> Rate {
        Rate(VecDeque::from([(now, 0)]))
    }

    fn at(&mut self, now: Instant, finished: u64) -> f64 {
        self.0.push_back((now, finished));
        if self.0.len() > RATE_WINDOW {
            self.0.pop_front();
        }
        let (then, before) = self.0[0];
        let elapsed = now.duration_since(then).as_secs_f64();
        if elapsed > 0.0 { finished.saturating_sub(before) as f64 / elapsed } else { 0.0 }
    }
}

/// Shows a run until it is dropped or aborted.
pub async fn show(printer: Printer, counters: Arc<Counters>, total: u64) {
    let interactive = printer.is_interactive();
    let shown = interactive.then(|| Bar::on(&printer, total));
    let every = if interactive { REDRAW_EVERY } else { LINE_EVERY };
    let mut rate = Rate::starting(Instant::now());
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let done = counters.done.load(Ordering::Relaxed);
        let failed = counters.failed.load(Ordering::Relaxed);
        let in_flight = counters.in_flight.load(Ordering::Relaxed);
        let per_second = rate.at(Instant::now(), done + failed);
        let look = Look { total, done, failed, in_flight, per_second };
        match &shown {
            Some(shown) => {
                shown.bar.set_message(look.text());
                shown.bar.set_position(done + failed);
            }
            None => printer.say(&look.line()),
        }
    }
}

/// A bar that leaves the terminal when it is dropped.
struct Bar {
    bar: ProgressBar,
    printer: Printer,
}

impl Bar {
    fn on(printer: &Printer, total: u64) -> Bar {
        let bar =
            ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}") {
            bar.set_style(style);
        }
        printer.attach_bar(Some(bar.clone()));
        Bar { bar, printer: printer.clone() }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.printer.attach_bar(None);
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_counts_rate_and_what_is_left() {
        let look =
            Look { total: 50_000, done: 12_000, failed: 3, in_flight: 256, per_second: 4210.4 };
        insta::assert_snapshot!(look.line(), @"12,000 of 50,000 rollouts done (24 %), 3 failed, 256 in flight, 4,210/s, 9.0 s left");
        let first = Look { total: 5, done: 0, failed: 0, in_flight: 5, per_second: 0.0 };
        insta::assert_snapshot!(first.line(), @"0 of 5 rollouts done (0 %), 0 failed, 5 in flight");
    }

    #[test]
    fn the_rate_is_that_of_the_last_looks() {
        let start = Instant::now();
        let mut rate = Rate::starting(start);
        for second in 1..=100u64 {
            let finished = if second <= 50 { second } else { 50 + (second - 50) * 10 };
            rate.at(start + Duration::from_secs(second), finished);
        }
        assert_eq!(rate.at(start + Duration::from_secs(101), 560), 10.0);
    }
}
