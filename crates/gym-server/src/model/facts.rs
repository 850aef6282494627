//! What a model call says about itself: names, counts and reasons, read from its bodies; never content.
//!
//! A body that does not say something leaves it unknown: what is absent is on no span and in no metric.

use std::borrow::Cow;

use gym_telemetry::semconv;
use lens::{Span, Value};

use super::Backend;
use crate::api::json::{self, trusted};
use crate::api::token_count;

/// Longest name or reason that is told; a longer one is none.
const MAX_WORD_BYTES: usize = 256;
/// Choices of a reply whose reasons are told.
const MAX_CHOICES: usize = 128;

/// What is known of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) request_model: Option<Box<str>>,
    pub(super) response_model: Option<Box<str>>,
    pub(super) finish_reasons: Vec<Box<str>>,
    pub(super) input_tokens: Option<u64>,
    pub(super) output_tokens: Option<u64>,
}

impl Facts {
    /// Reads what the backend answered, who was asked for `asked_model` (as JSON).
    pub(super) fn read(backend: Backend, asked_model: &[u8], reply: &[u8]) -> Self {
        let request_model = std::str::from_utf8(asked_model).ok().and_then(word);
        let mut facts = Self { request_model, ..Self::default() };
        // Bodies were checked on their way; walking them as checked costs a quarter of checking them again, and what is
        // no JSON gives no facts of use, and no panic.
        let Some(members) = std::str::from_utf8(reply).ok().and_then(trusted::members) else {
            return facts;
        };
        let (mut status, mut cut_off) = (None, None);
        for (key, value) in members {
            match (&*key, backend) {
                ("model", _) => facts.response_model = word(value),
                ("usage", Backend::Responses) => {
                    facts.read_usage(value, "input_tokens", "output_tokens");
                }
                ("usage", Backend::Chat) => {
                    facts.read_usage(value, "prompt_tokens", "completion_tokens");
                }
                ("status", Backend::Responses) => status = word(value),
                ("incomplete_details", Backend::Responses) => {
                    cut_off = trusted::member(value, "reason").and_then(word);
                }
                ("choices", Backend::Chat) => {
                    let choices = trusted::elements(value).into_iter().flatten();
                    facts.finish_reasons = choices
                        .take(MAX_CHOICES)
                        .filter_map(|choice| word(trusted::member(choice, "finish_reason")?))
                        .collect();
                }
                _ => {}
            }
        }
        facts.finish_reasons.extend(cut_off.or(status));
        facts
    }

    fn read_usage(&mut self, usage: &str, input: &str, output: &str) {
        let [input, output] = trusted::pick(usage, [input, output]);
        self.input_tokens = input.and_then(token_count);
        self.output_tokens = output.and_then(token_count);
    }

    /// Writes what is known as the attributes of the generative-AI conventions.
    pub(super) fn write(&self, span: &mut Span) {
        let models = [
            (semconv::GEN_AI_REQUEST_MODEL, &self.request_model),
            (semconv::GEN_AI_RESPONSE_MODEL, &self.response_model),
        ];
        for (key, model) in models {
            if let Some(model) = model {
                span.set(key, &**model);
            }
        }
        if !self.finish_reasons.is_empty() {
            let reasons: Vec<Value> =
                self.finish_reasons.iter().map(|reason| Value::from(&**reason)).collect();
            span.set(semconv::GEN_AI_RESPONSE_FINISH_REASONS, reasons);
        }
        span.set(semconv::GEN_AI_USAGE_INPUT_TOKENS, self.input_tokens);
        span.set(semconv::GEN_AI_USAGE_OUTPUT_TOKENS, self.output_tokens);
    }
}

fn word(raw: &str) -> Option<Box<str>> {
    let text = json::string(raw)?;
    let fits = !text.is_empty() && text.len() <= MAX_WORD_BYTES;
    fits.then(|| match text {
        Cow::Borrowed(text) => text.into(),
        Cow::Owned(text) => text.into_boxed_str(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(backend: Backend, reply: &str) -> Facts {
        Facts::read(backend, br#""asked""#, reply.as_bytes())
    }

    #[test]
    fn both_dialects_say_model_counts_and_reasons() {
        let responses = read(
            Backend::Responses,
            r#"{"model":"m-1","status":"completed","incomplete_details":null,"output":[],
                "usage":{"input_tokens":7,"output_tokens":3,"total_tokens":10}}"#,
        );
        let expected = Facts {
            request_model: Some("asked".into()),
            response_model: Some("m-1".into()),
            finish_reasons: vec!["completed".into()],
            input_tokens: Some(7),
            output_tokens: Some(3),
        };
        assert_eq!(responses, expected);
        let cut = read(
            Backend::Responses,
            r#"{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}"#,
        );
        assert_eq!(cut.finish_reasons, [Box::from("max_output_tokens")]);
        let chat = read(
            Backend::Chat,
            r#"{"model":"m-1","choices":[{"finish_reason":"stop"},{"finish_reason":"length"}],
                "usage":{"prompt_tokens":7,"completion_tokens":3.0}}"#,
        );
        let reasons = vec!["stop".into(), "length".into()];
        assert_eq!(chat, Facts { finish_reasons: reasons, ..expected });
    }

    /// Guarantees: the shapes that engines send where something is missing become neither zero nor the word "null".
    #[test]
    fn what_is_absent_stays_absent() {
        let none = Facts { request_model: Some("asked".into()), ..Facts::default() };
        let long = format!(r#"{{"model":"{}"}}"#, "x".repeat(300));
        for reply in [
            "{}",
            "null",
            "[]",
            "not json",
            "",
            r#"{"model":null,"usage":null,"choices":null,"status":null}"#,
            r#"{"model":7,"usage":{},"choices":[{"finish_reason":null,"message":{"content":null,"tool_calls":[]}}]}"#,
            r#"{"usage":{"prompt_tokens":null,"input_tokens":null},"choices":[{}]}"#,
            r#"{"usage":{"prompt_tokens":-1,"input_tokens":"7"}}"#,
            r#"{"usage":[],"incomplete_details":{}}"#,
            &long,
        ] {
            assert_eq!(read(Backend::Chat, reply), none, "{reply}");
            assert_eq!(read(Backend::Responses, reply), none, "{reply}");
        }
    }
}
