//! Two tools that must be used in order: look up a value per synonym, then hand all of them in.
//!
//! The verifier compares the last hand-in with the expected list; order matters. A *minefield*
//! value is that of the word the task is about, which is not one of its synonyms.

use std::collections::BTreeSet;
use std::sync::Arc;

use gym_server::http::{Call, HttpError};
use gym_server::instance::{InstanceConfig, InstanceError};
use gym_server::resources::{FromInstance, ResourcesServer, Tools, VerifyRequest};
use serde::{Deserialize, Serialize};

const HAND_IN: &str = "extract_synonym_values";

/// The server.
#[derive(Debug)]
pub struct ExampleMultiStep;

/// Arguments of `get_synonym_value`.
#[derive(Debug, Deserialize)]
pub struct ValueArguments {
    synonym: String,
}

/// Result of `get_synonym_value`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct SynonymValue {
    synonym_value: u64,
}

/// Arguments of `extract_synonym_values`.
#[derive(Debug, Deserialize)]
pub struct HandInArguments {
    /// Only checked here: the verifier reads them from the response.
    #[serde(rename = "synonym_values")]
    _synonym_values: Vec<i64>,
}

/// Result of `extract_synonym_values`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct HandedIn {
    success: bool,
}

/// What a row says about its task.
#[derive(Debug, Deserialize)]
pub struct Task {
    #[serde(rename = "id")]
    _id: i64,
    expected_synonym_values: Vec<i64>,
    #[serde(rename = "expected_synonyms")]
    _expected_synonyms: Vec<String>,
    #[serde(rename = "minefield_label")]
    _minefield_label: String,
    minefield_label_value: i64,
}

/// Score of a rollout.
#[derive(Debug, PartialEq, Serialize)]
pub struct Score {
    reward: f64,
    parsed_synonym_values: Vec<i64>,
    accuracy: bool,
    set_overlap: f64,
    original_term_minefield_hit: bool,
    order_instruction_following_failure: bool,
}

impl ExampleMultiStep {
    async fn get_synonym_value(
        self: Arc<Self>,
        _call: Call,
        arguments: ValueArguments,
    ) -> Result<SynonymValue, HttpError> {
        Ok(SynonymValue { synonym_value: value_of(&arguments.synonym) })
    }

    async fn extract_synonym_values(
        self: Arc<Self>,
        _call: Call,
        _arguments: HandInArguments,
    ) -> Result<HandedIn, HttpError> {
        Ok(HandedIn { success: true })
    }
}

impl FromInstance for ExampleMultiStep {
    fn from_instance(_instance: &InstanceConfig) -> Result<Self, InstanceError> {
        Ok(Self)
    }
}

impl ResourcesServer for ExampleMultiStep {
    type Task = Task;
    type Score = Score;

    fn tools(tools: &mut Tools<Self>) {
        tools.tool("get_synonym_value", Self::get_synonym_value);
        tools.tool(HAND_IN, Self::extract_synonym_values);
    }

    async fn verify(&self, _call: &Call, request: VerifyRequest<Task>) -> Result<Score, HttpError> {
        let calls = request.function_calls();
        let last = calls.iter().rev().find(|call| call.name == HAND_IN);
        let actual = match last {
            Some(call) => handed_in(&call.arguments)?,
            None => Vec::new(),
        };
        score(actual, &request.task)
    }
}

/// Sum of the code points of a word.
fn value_of(word: &str) -> u64 {
    word.chars().map(|character| u64::from(u32::from(character))).sum()
}

/// The values of one hand-in.
fn handed_in(arguments: &str) -> Result<Vec<i64>, HttpError> {
    #[derive(Deserialize)]
    struct HandIn {
        synonym_values: Option<Vec<i64>>,
    }
    let hand_in: HandIn = serde_json::from_str(arguments).map_err(|error| {
        let kind = if error.is_data() { "ValidationError" } else { "JSONDecodeError" };
        HttpError::failed(kind, &error.to_string())
    })?;
    hand_in.synonym_values.ok_or_else(|| HttpError::failed("KeyError", "synonym_values"))
}

fn score(actual: Vec<i64>, task: &Task) -> Result<Score, HttpError> {
    let expected = &task.expected_synonym_values;
    if expected.is_empty() {
        return Err(HttpError::failed("ZeroDivisionError", "division by zero"));
    }
    let accuracy = actual == *expected;
    let found: BTreeSet<_> = actual.iter().collect();
    let wanted: BTreeSet<_> = expected.iter().collect();
    let set_overlap = found.intersection(&wanted).count() as f64 / expected.len() as f64;
    // The reference also looks for the label itself, which a list of integers cannot hold.
    let original_term_minefield_hit = actual.contains(&task.minefield_label_value);
    Ok(Score {
        reward: if accuracy { 1.0 } else { 0.0 },
        parsed_synonym_values: actual,
        accuracy,
        set_overlap,
        original_term_minefield_hit,
        order_instruction_following_failure: !accuracy && set_overlap == 1.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(expected: &[i64]) -> Task {
        Task {
            _id: 7,
            expected_synonym_values: expected.to_vec(),
            _expected_synonyms: Vec::new(),
            _minefield_label: "Cold".to_owned(),
            minefield_label_value: 386,
        }
    }

    #[test]
    fn a_word_is_worth_its_code_points() {
        assert_eq!(value_of("Chilly"), 613);
        assert_eq!(value_of("Cold"), 386);
        assert_eq!(value_of("é"), 233);
    }

    #[test]
    fn only_the_expected_list_in_order_is_rewarded() {
        let scored = |actual: &[i64]| score(actual.to_vec(), &task(&[1, 2])).expect("scored");
        assert_eq!(
            scored(&[1, 2]),
            Score {
                reward: 1.0,
                parsed_synonym_values: vec![1, 2],
                accuracy: true,
                set_overlap: 1.0,
                original_term_minefield_hit: false,
                order_instruction_following_failure: false,
            }
        );
        let swapped = scored(&[2, 1]);
        assert_eq!(swapped.reward, 0.0);
        assert!(swapped.order_instruction_following_failure);
        let half = scored(&[1, 386, 386]);
        assert_eq!(half.set_overlap, 0.5);
        assert!(half.original_term_minefield_hit);
        assert!(!half.order_instruction_following_failure);
        assert_eq!(scored(&[]).set_overlap, 0.0);
    }

    #[test]
    fn a_broken_hand_in_is_an_error_and_no_zero() {
        assert_eq!(handed_in("{\"synonym_values\":[3]}").expect("read"), [3]);
        for (arguments, expected) in [
            ("{", "JSONDecodeError"),
            ("{}", "KeyError"),
            ("{\"synonym_values\":[\"x\"]}", "ValidationError"),
        ] {
            let error = handed_in(arguments).expect_err(arguments);
            assert_eq!(error.error_type(), expected);
        }
    }
}
