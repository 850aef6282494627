//! A resources server of one's own: two tools and a verifier, with spans and a metric of its own.
//!
//! Its config and example rows lie in `examples/calculator/`, laid out as a search root; the
//! built program is put beside them, and a fleet runs it as it is (`runtime: exec`):
//!
//! ```text
//! cargo build --release --example calculator
//! cp target/release/examples/calculator crates/gym/examples/calculator/resources_servers/calculator/
//! gym env test --resources-server calculator --search-dir crates/gym/examples/calculator
//! ```
//!
//! In a crate of your own, depend on `gym-server`, and on `lens` with the feature `enable` if its
//! spans are to be seen.

use std::process::ExitCode;
use std::sync::Arc;

use gym_server::http::{Call, HttpError};
use gym_server::instance::{InstanceConfig, InstanceError};
use gym_server::program::serve_resources;
use gym_server::resources::{FromInstance, ResourcesServer, Tools, VerifyRequest};
use lens::metrics::Counter;
use lens::{Group, managed_span, trace_fn};
use serde::{Deserialize, Serialize};

/// The spans of this server.
static CALCULATOR: Group = Group::new("calculator");
static GROUPS: &[&Group] = &[&CALCULATOR];
static OPERATIONS: Counter =
    Counter::new("calculator.operations_total", "{operation}", "Operations, by name");
const OPERATION: &str = "calculator.operation";

struct Calculator;

#[derive(Deserialize)]
struct Operands {
    a: f64,
    b: f64,
}

#[derive(Serialize)]
struct Computed {
    value: f64,
}

/// What a row of the dataset holds besides the request.
#[derive(Deserialize)]
struct Task {
    expected_value: f64,
}

#[derive(Serialize)]
struct Score {
    reward: f64,
    expected_value: f64,
}

impl Calculator {
    async fn add(self: Arc<Self>, _: Call, operands: Operands) -> Result<Computed, HttpError> {
        Ok(compute("add", || operands.a + operands.b))
    }

    async fn multiply(self: Arc<Self>, _: Call, operands: Operands) -> Result<Computed, HttpError> {
        Ok(compute("multiply", || operands.a * operands.b))
    }
}

/// Counts an operation and does it inside a span; the numbers are on neither.
fn compute(operation: &'static str, work: impl FnOnce() -> f64) -> Computed {
    OPERATIONS.add(1, &[(OPERATION, operation.into())]);
    let value = managed_span!(CALCULATOR, "calculator.compute", OPERATION = operation => work());
    Computed { value }
}

/// Whether an answer names a number.
#[trace_fn(group = CALCULATOR, name = "calculator.read_answer")]
fn names(text: &str, wanted: f64) -> bool {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit() && c != '.' && c != '-');
    numbers.any(|number| number.trim_end_matches('.').parse() == Ok(wanted))
}

impl FromInstance for Calculator {
    fn from_instance(_: &InstanceConfig) -> Result<Self, InstanceError> {
        Ok(Calculator)
    }
}

impl ResourcesServer for Calculator {
    type Task = Task;
    type Score = Score;

    fn tools(tools: &mut Tools<Self>) {
        tools.tool("add", Self::add);
        tools.tool("multiply", Self::multiply);
    }

    /// The answer is right when it names the expected value.
    async fn verify(&self, _: &Call, request: VerifyRequest<Task>) -> Result<Score, HttpError> {
        let expected_value = request.task.expected_value;
        let found = names(&request.output_text(), expected_value);
        Ok(Score { reward: if found { 1.0 } else { 0.0 }, expected_value })
    }
}

fn main() -> ExitCode {
    // The preset `per_rollout` has them from now on, in this process; `all` has them anyway.
    lens::register("calculator", GROUPS, &[("per_rollout", &["calculator"])]);
    serve_resources::<Calculator>()
}
