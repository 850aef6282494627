//! What each span group gives and what it costs.
//!
//! Nothing is timed here: spans are counted from the tree of a rollout, and a span costs what `docs/bench/spans.md`
//! says.

use gym_telemetry::semconv::{metric, span};
use gym_telemetry::{GymSpanGroup::name, Resolved, groups};
use serde_json::{Value, json};

use crate::trace::{Align, Canvas, duration_text, table};

/// CPU of all threads for a span with four attributes and the five ids of a rollout, up to its export: about.
const SPAN_CPU_NANOS: u64 = 400;
/// The rollout that the figures are for.
const MODEL_CALLS: u64 = 2;
const TOOL_CALLS: u64 = 1;

/// One group.
struct Gives {
    group: &'static str,
    spans: &'static [&'static str],
    /// What there is only together with the group.
    metrics: &'static [&'static str],
    /// Spans of a rollout, whatever it does.
    fixed: u64,
    per_model_call: u64,
    per_tool_call: u64,
    /// What comes on top, or when else.
    note: &'static str,
}

const NONE: Gives = Gives {
    group: "",
    spans: &[],
    metrics: &[],
    fixed: 0,
    per_model_call: 0,
    per_tool_call: 0,
    note: "",
};

const SERVER_SPAN: &str = "<METHOD> <route>";
const CLIENT_SPAN: &str = "HTTP <METHOD>";

const GROUPS: &[Gives] = &[
    Gives { group: name::JOB, spans: &[span::JOB], note: "one a run", ..NONE },
    Gives {
        group: name::STARTUP,
        spans: &[span::STARTUP, span::STARTUP_SERVER, span::SERVER_STARTUP],
        note: "8 a fleet and 2 a server",
        ..NONE
    },
    Gives {
        group: name::SERVER,
        spans: &[SERVER_SPAN],
        // run, seed_session, responses, verify
        fixed: 4,
        per_model_call: 1,
        per_tool_call: 1,
        ..NONE
    },
    Gives {
        group: name::HTTP_CLIENT,
        spans: &[CLIENT_SPAN],
        fixed: 4,
        per_model_call: 1,
        per_tool_call: 1,
        note: "and one for each request to an outside model",
        ..NONE
    },
    Gives {
        group: name::ROLLOUT,
        spans: &[span::ROLLOUT_ATTEMPT, span::ROLLOUT],
        fixed: 2,
        ..NONE
    },
    Gives { group: name::AGENT, spans: &[span::AGENT_RESPONSES], fixed: 1, ..NONE },
    Gives {
        group: name::MODEL_CALL,
        spans: &[span::MODEL_RESPONSES, span::MODEL_CHAT_COMPLETIONS, span::MODEL_MESSAGES],
        per_model_call: 1,
        ..NONE
    },
    Gives { group: name::VERIFY, spans: &[span::VERIFY], fixed: 1, ..NONE },
    Gives {
        group: name::SANDBOX,
        spans: &[span::SANDBOX_START, span::SANDBOX_EXEC],
        note: "one for each sandbox and command",
        ..NONE
    },
    Gives { group: name::CONCURRENCY, metrics: &[metric::CONCURRENCY_QUEUE_WAIT], ..NONE },
    Gives {
        group: name::TRACING,
        note: "whatever libraries say through `tracing`; in no preset and not in `all`",
        ..NONE
    },
];

impl Gives {
    /// Spans of the rollout that the figures are for.
    fn in_example(&self) -> u64 {
        self.fixed + self.per_model_call * MODEL_CALLS + self.per_tool_call * TOOL_CALLS
    }

    fn formula(&self) -> String {
        let parts = [
            (self.fixed, ""),
            (self.per_model_call, " a model call"),
            (self.per_tool_call, " a tool call"),
        ];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts.map(|(count, of)| format!("{count}{of}")).collect();
        match (parts.is_empty(), self.note.is_empty()) {
            (true, true) => "no spans".to_owned(),
            (true, false) => self.note.to_owned(),
            (false, true) => parts.join(" + "),
            (false, false) => format!("{}, {}", parts.join(" + "), self.note),
        }
    }
}

/// The groups as a table, with what those that are on cost together.
pub fn text(settings: &Resolved, canvas: &Canvas) -> String {
    let resolved = groups::resolve(&settings.span_groups);
    let mut rows = Vec::new();
    let mut total = 0;
    for gives in GROUPS {
        let is_on = resolved.contains(gives.group);
        let spans = gives.in_example();
        total += if is_on { spans } else { 0 };
        let made: Vec<&str> = gives.spans.iter().chain(gives.metrics).copied().collect();
        rows.push(vec![
            gives.group.to_owned(),
            if is_on { "on" } else { "off" }.to_owned(),
            spans.to_string(),
            duration_text(spans * SPAN_CPU_NANOS),
            gives.formula(),
            made.join(", "),
        ]);
    }
    let header = [
        ("GROUP", Align::Left),
        ("", Align::Left),
        ("SPANS", Align::Right),
        ("CPU", Align::Right),
        ("SPANS OF A ROLLOUT", Align::Left),
        ("WHAT", Align::Left),
    ];
    let mut text = canvas.bold(&format!(
        "span groups: {} ({})",
        settings.span_groups.value, settings.span_groups.origin
    ));
    text.push('\n');
    for warning in resolved.warnings() {
        text.push_str(&format!("  {warning}\n"));
    }
    text.push_str(&table(canvas, &header, &rows, 5));
    text.push_str(&format!(
        "a rollout of {MODEL_CALLS} model calls and {TOOL_CALLS} tool call makes {total} spans, about {} of CPU; \
         a span costs about {} (docs/bench/spans.md)\n",
        duration_text(total * SPAN_CPU_NANOS),
        duration_text(SPAN_CPU_NANOS)
    ));
    text
}

/// The same for a program.
pub fn document(settings: &Resolved) -> Value {
    let resolved = groups::resolve(&settings.span_groups);
    let groups = GROUPS.iter().map(|gives| {
        json!({
            "group": gives.group,
            "on": resolved.contains(gives.group),
            "spans": gives.spans,
            "metrics": gives.metrics,
            "spans_per_rollout": {
                "fixed": gives.fixed,
                "per_model_call": gives.per_model_call,
                "per_tool_call": gives.per_tool_call,
            },
            "example_spans": gives.in_example(),
            "example_cpu_nanos": gives.in_example() * SPAN_CPU_NANOS,
            "note": gives.note,
        })
    });
    json!({
        "setting": settings.span_groups.value,
        "origin": settings.span_groups.origin.to_string(),
        "warnings": resolved.warnings(),
        "example": { "model_calls": MODEL_CALLS, "tool_calls": TOOL_CALLS },
        "span_cpu_nanos": SPAN_CPU_NANOS,
        "groups": groups.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn settings(groups: &str) -> Resolved {
        let config = serde_json::json!({"telemetry": {"span_groups": groups}});
        let block = gym_telemetry::telemetry_config_from_global_config(&config).expect("a block");
        gym_telemetry::resolve(&BTreeMap::new(), &block)
    }

    #[test]
    fn every_group_is_in_the_table_once() {
        let mut known: Vec<&str> = GROUPS.iter().map(|gives| gives.group).collect();
        known.sort_unstable();
        let mut all: Vec<&str> = groups::resolve(name::ALL).names().to_vec();
        all.push(name::TRACING);
        all.sort_unstable();
        assert_eq!(known, all);
    }

    #[test]
    fn groups_are_shown_with_what_they_cost_and_a_typo_with_what_was_meant() {
        insta::assert_snapshot!(text(&settings("default,verfy"), &Canvas::PLAIN));
    }
}
