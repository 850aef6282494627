//! One rollout is one trace with the exact tree of its preset, at any concurrency.

use std::collections::BTreeSet;

use crate::spans::{self, Span};
use crate::support::{Fleet, Start, output, rows, text, weather_rows};

const ROLLOUTS: usize = 500;
const ROWS: usize = 5;

const DEFAULT_TREE: &str = "\
gym.rollout.attempt [driver INTERNAL]
  HTTP POST [driver CLIENT]
    POST /run [example_single_tool_call_simple_agent SERVER]
      gym.rollout [example_single_tool_call_simple_agent INTERNAL]
        HTTP POST [example_single_tool_call_simple_agent CLIENT]
          POST /seed_session [example_single_tool_call SERVER]
        HTTP POST [example_single_tool_call_simple_agent CLIENT]
          POST /v1/responses [example_single_tool_call_simple_agent SERVER]
            HTTP POST [example_single_tool_call_simple_agent CLIENT]
              POST /v1/responses [policy_model SERVER]
            HTTP POST [example_single_tool_call_simple_agent CLIENT]
              POST /get_weather [example_single_tool_call SERVER]
            HTTP POST [example_single_tool_call_simple_agent CLIENT]
              POST /v1/responses [policy_model SERVER]
        HTTP POST [example_single_tool_call_simple_agent CLIENT]
          POST /verify [example_single_tool_call SERVER]
";

pub const FULL_TREE: &str = "\
gym.rollout.attempt [driver INTERNAL]
  HTTP POST [driver CLIENT]
    POST /run [example_single_tool_call_simple_agent SERVER]
      gym.rollout [example_single_tool_call_simple_agent INTERNAL]
        HTTP POST [example_single_tool_call_simple_agent CLIENT]
          POST /seed_session [example_single_tool_call SERVER]
        HTTP POST [example_single_tool_call_simple_agent CLIENT]
          POST /v1/responses [example_single_tool_call_simple_agent SERVER]
            gym.agent.responses [example_single_tool_call_simple_agent INTERNAL]
              HTTP POST [example_single_tool_call_simple_agent CLIENT]
                POST /v1/responses [policy_model SERVER]
                  gym.model.responses [policy_model INTERNAL]
              HTTP POST [example_single_tool_call_simple_agent CLIENT]
                POST /get_weather [example_single_tool_call SERVER]
              HTTP POST [example_single_tool_call_simple_agent CLIENT]
                POST /v1/responses [policy_model SERVER]
                  gym.model.responses [policy_model INTERNAL]
        HTTP POST [example_single_tool_call_simple_agent CLIENT]
          POST /verify [example_single_tool_call SERVER]
            gym.verify [example_single_tool_call INTERNAL]
";

/// Runs 500 rollouts at concurrency 256 and returns every span of every process.
fn run(preset: &str) -> Vec<Span> {
    let environment = [
        ("NEMO_LENS_ENABLED", "1"),
        ("NEMO_GYM_OTEL_EXPORTER", "console"),
        ("NEMO_GYM_OTEL_SPAN_GROUPS", preset),
    ];
    let mut fleet = Fleet::start(&Start {
        arguments: &[
            "--resources-server",
            "example_single_tool_call",
            "--model-type",
            "scripted_model",
        ],
        environment: &environment,
    });
    let input = weather_rows(fleet.folder.path());
    let repeats = (ROLLOUTS / ROWS).to_string();
    let mut command = fleet.eval_run(&[
        "--input",
        input.to_str().expect("utf-8"),
        "--output",
        "out.jsonl",
        "--agent",
        "example_single_tool_call_simple_agent",
        "--num-repeats",
        &repeats,
        "--concurrency",
        "256",
    ]);
    let collected = output(command.envs(environment));
    assert_eq!(collected.status.code(), Some(0), "{}", text(&collected.stderr));
    assert_eq!(rows(&fleet.folder.path().join("out.jsonl")).len(), ROLLOUTS);
    assert_eq!(fleet.stop(), Some(0), "{}", fleet.said());
    let mut all = spans::parse(&text(&collected.stdout));
    all.extend(spans::parse(&fleet.stdout()));
    all
}

/// Checks the trees; returns the traces that are no rollouts, by the name of their root.
fn check(preset: &str, tree: &str) -> Vec<String> {
    let mut others = Vec::new();
    let mut rollouts = BTreeSet::new();
    let mut collections = BTreeSet::new();
    for (trace, spans) in spans::by_trace(run(preset)) {
        let ids: BTreeSet<String> = spans
            .iter()
            .filter_map(|span| span.attribute("nemo.gym.rollout.id").as_str())
            .map(str::to_owned)
            .collect();
        let root = spans.iter().find(|span| span.parent.is_none());
        let root_name = root.map(|root| root.name.clone()).unwrap_or_default();
        if root_name != "gym.rollout.attempt" {
            assert!(ids.is_empty(), "{trace} of {root_name} holds {ids:?}");
            others.push(root_name);
            continue;
        }
        assert_eq!(spans::render(&spans), tree, "{preset}: trace {trace}");
        assert_eq!(ids.len(), 1, "{trace} holds {ids:?}");
        for span in &spans {
            // The identity of the rollout is on every span, in every process.
            assert!(span.attribute("nemo.gym.rollout.id").is_string(), "{span:?}");
            assert!(span.attribute("nemo.gym.task.index").is_u64(), "{span:?}");
            assert!(span.attribute("nemo.gym.rollout.index").is_u64(), "{span:?}");
            assert_eq!(span.attribute("nemo.gym.attempt.index"), 0, "{span:?}");
            let collection = span.attribute("nemo.gym.collection.id").as_str();
            collections.insert(collection.expect("a collection id").to_owned());
        }
        for id in ids {
            assert!(rollouts.insert(id.clone()), "{id} is in two traces");
        }
    }
    assert_eq!(rollouts.len(), ROLLOUTS, "{preset}");
    assert_eq!(collections.len(), 1, "{collections:?}");
    others.sort();
    others
}

#[test]
fn default_gives_every_rollout_its_spine_and_the_run_its_job() {
    assert_eq!(check("default", DEFAULT_TREE), ["gym.job", "gym.startup"]);
}

#[test]
fn per_rollout_adds_what_servers_do_and_leaves_the_run_out() {
    assert_eq!(check("per_rollout", FULL_TREE), [""; 0]);
}

#[test]
fn all_gives_both() {
    assert_eq!(check("all", FULL_TREE), ["gym.job", "gym.startup"]);
}
