//! What a demo shows.

use std::fmt::Write as _;
use std::path::Path;

use super::Outcome;
use crate::args::DemoArgs;
use crate::trace::{
    Canvas, Section, Traces, counted, duration_text, summarise, summary_table, timeline,
};

/// The result of a demo as text.
pub struct Report<'a> {
    /// What was asked for.
    pub args: &'a DemoArgs,
    /// How the run ended.
    pub outcome: &'a Outcome,
    /// What was received.
    pub traces: &'a Traces,
    /// The directory that holds everything.
    pub directory: &'a Path,
}

impl Report<'_> {
    /// A typical rollout, the slowest, where the time went, what to type next.
    pub fn text(&self, canvas: &Canvas) -> String {
        let slowest_first = self.traces.slowest_first();
        let mut parts = Vec::new();
        let count = counted(slowest_first.len(), "rollout", "rollouts");
        let mut headline = format!(
            "{count} of {}, {} at a time, in {} with the start of four processes",
            self.args.environment,
            self.args.concurrency,
            duration_text(self.outcome.elapsed.as_nanos().try_into().unwrap_or(u64::MAX)),
        );
        if self.outcome.some_failed {
            headline.push_str("; some failed");
        }
        parts.push(canvas.bold(&headline) + "\n");

        let mut draw = |title: &str, at: usize| {
            if let Some((trace, rollout)) = slowest_first.get(at) {
                let section = self.traces.section(*trace, rollout);
                let timeline = timeline(self.traces, section, canvas);
                parts.push(format!("{}\n{timeline}", canvas.bold(title)));
            }
        };
        draw("a typical rollout (the median)", slowest_first.len() / 2);
        draw("the slowest rollout", 0);

        let all: Vec<Section> = self
            .traces
            .rollouts()
            .map(|(trace, rollout)| self.traces.section(trace, rollout))
            .collect();
        parts.push(summary_table(&summarise(self.traces, &all), canvas));
        parts.push(self.next(slowest_first.first().and_then(|(_, slowest)| slowest.id.as_deref())));
        parts.join("\n")
    }

    fn next(&self, slowest: Option<&str>) -> String {
        let store = self.directory.join("store");
        let store = shell_word(&store.display().to_string());
        let environment = &self.args.environment;
        let mut text = String::from("what to type next\n");
        let mut line = |command: &str, what: &str| {
            writeln!(text, "  {command}\n      {what}").ok();
        };
        line(&format!("gym trace report {store}"), "where the time of all rollouts went");
        line(&format!("gym trace show {store} --slowest 3"), "the three slowest rollouts");
        if let Some(id) = slowest {
            line(&format!("gym trace show {store} --rollout {id}"), "one rollout by its id");
        }
        line(
            &format!(
                "gym env start --resources-server {environment} --model-type vllm_model --model-url URL --model NAME --model-api-key KEY"
            ),
            "the same environment with a model of yours",
        );
        line("gym env test --resources-server NAME", "an environment of yours");
        text
    }
}

fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
