//! `gym spool recover`: sends what dead processes left, as the telemetry settings say.

use std::time::Duration;

use anyhow::Context as _;
use gym_telemetry::spool::{Shipped, ship_dead};
use serde_json::{Value, json};

use crate::args::SpoolRecoverArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::spool::Place;

/// What came of it.
#[derive(Debug)]
struct Outcome {
    shipped: Shipped,
    /// Items that are where they were.
    left: usize,
}

impl Outcome {
    fn status(&self) -> ExitStatus {
        if self.left == 0 && self.shipped.refused == 0 {
            ExitStatus::Done
        } else {
            ExitStatus::Negative
        }
    }

    fn text(&self) -> String {
        let Shipped { spans, logs, refused } = self.shipped;
        format!(
            "spans delivered        {spans}\nlog records delivered  {logs}\n\
             refused                {refused}\nleft where it was      {}\n",
            self.left
        )
    }

    fn document(&self) -> Value {
        let Shipped { spans, logs, refused } = self.shipped;
        json!({ "spans": spans, "logs": logs, "refused": refused, "left": self.left })
    }
}

pub fn run(args: &SpoolRecoverArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    let place = Place::find(&args.source, args.dir.as_deref(), printer)?;
    let dead = place.look().of_dead();
    let mut outcome = Outcome { shipped: Shipped::default(), left: 0 };
    if dead.is_empty() {
        printer.say(&format!("no dead process left anything in {}", place.names()));
    } else {
        let limit = Duration::from_secs(args.timeout);
        let overflow_dir = place.overflow_dir.as_deref();
        outcome.shipped = ship_dead(&place.settings, &place.spool_dir, overflow_dir, limit)
            .context("nothing can be sent")?;
        outcome.left = place.look().of_dead().items();
    }
    if outcome.left > 0 {
        let endpoint = place.settings.otlp.traces.endpoint.without_credentials();
        printer
            .warn(&format!("not everything was taken at {endpoint}; the rest stays where it is"));
    }
    if args.json {
        printer.data(&outcome.document().to_string())?;
    } else {
        printer.data(&outcome.text())?;
    }
    Ok(outcome.status())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_delivered_is_told_and_what_is_left_decides_the_exit_code() {
        let shipped = Shipped { spans: 1_204, logs: 7, refused: 0 };
        let outcome = Outcome { shipped, left: 0 };
        assert_eq!(outcome.status(), ExitStatus::Done);
        insta::assert_snapshot!(outcome.text(), @r"
        spans delivered        1204
        log records delivered  7
        refused                0
        left where it was      0
        ");
        assert_eq!(Outcome { shipped, left: 1 }.status(), ExitStatus::Negative);
        let refused = Shipped { refused: 2, ..shipped };
        assert_eq!(Outcome { shipped: refused, left: 0 }.status(), ExitStatus::Negative);
    }
}
