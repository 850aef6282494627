//! Takes one row through an environment, hop by hop, and then once through its agent.
//!
//! The hops are called directly, so that a fault is named where it happens instead of where the
//! agent stumbles over it.

use std::time::Duration;

use bytes::Bytes;
use gym_envs::simple_agent::{Conversation, ToolCall, Turn};
use gym_server::api::RunRequest;
use gym_server::client::{Client, ClientReply, Policy};
use gym_server::instance::Endpoint;
use gym_server::session::CookieJar;
use serde_json::Value;

use super::contract::{self, Answer, Fault, Hop};
use super::environment::{Environment, Row};
use super::report::{Mark, RowReport};

/// Longest wait for one answer.
const HOP_LIMIT: Duration = Duration::from_secs(60);
/// Model calls after which a row counts as endless.
const MAX_MODEL_CALLS: usize = 64;
const RESPONSES: &str = "/v1/responses";

/// Drives rows through one environment.
pub struct Driver<'a> {
    pub client: &'a Client,
    pub environment: &'a Environment,
    /// Whether the model is to call every tool that a row declares.
    pub expects_every_tool: bool,
}

/// The faults of a row, and what came before them.
struct Progress {
    report: RowReport,
    session: Vec<String>,
    cookies: CookieJar,
}

impl Driver<'_> {
    /// Drives one row and says what was found.
    pub async fn check(&self, row: &Row) -> RowReport {
        let mut progress = Progress {
            report: RowReport { row: row.line, ..RowReport::default() },
            session: Vec::new(),
            cookies: CookieJar::default(),
        };
        if let Err(fault) = self.hops(row, &mut progress).await {
            progress.report.faults.push(fault.line());
        }
        let Progress { mut report, .. } = progress;
        let rolled_out = self.post(&self.environment.agent, "/run", Hop::Run, row.text.clone());
        match rolled_out.await.and_then(|(answer, _)| contract::run(&answer)) {
            Ok(reward) => {
                report.rollout = Mark::Passed;
                report.reward = report.reward.or(Some(reward));
            }
            Err(fault) => {
                report.rollout = Mark::Failed;
                report.faults.push(fault.line());
            }
        }
        report
    }

    async fn hops(&self, row: &Row, progress: &mut Progress) -> Result<(), Fault> {
        let refused = |rejection: &gym_server::api::Rejection| Fault::Row {
            reason: format!("{rejection}: {}", rejection.detail()),
        };
        let run = RunRequest::parse(row.text.as_bytes()).map_err(|error| refused(&error))?;
        let mut whole = Vec::new();
        run.write_full_open(&mut whole);
        let mut seed = whole.clone();
        seed.push(b'}');
        let params = run.create_params_text.to_owned();
        let mut missing = declared_tools(&params);
        let mut conversation =
            Conversation::new(Bytes::from(params), 0).map_err(|error| refused(&error))?;

        progress.report.seed = Mark::Failed;
        let (answer, cookies) =
            self.post(&self.environment.resources, "/seed_session", Hop::Seed, seed).await?;
        progress.session = contract::seed(&answer)?;
        progress.cookies = cookies;
        progress.report.seed = Mark::Passed;

        for _ in 0..MAX_MODEL_CALLS {
            let body = conversation.model_request();
            let (answer, _) =
                self.post(&self.environment.model, RESPONSES, Hop::Model, body).await?;
            contract::succeeded(&Hop::Model, &answer)?;
            let turn = conversation.accept_reply(answer.body)?;
            let Turn::CallTools(calls) = turn else {
                let response = conversation.finish()?;
                if self.expects_every_tool {
                    for name in missing {
                        progress.report.faults.push(Fault::NotCalled { name }.to_string());
                    }
                }
                return self.verify(whole, &response, progress).await;
            };
            for call in &calls {
                missing.retain(|name| name != call.name());
                let output = self.call_tool(call, progress).await;
                conversation.accept_output(call, &output);
            }
        }
        Err(Fault::Endless { calls: MAX_MODEL_CALLS })
    }

    /// Calls one tool and returns what the model is told.
    async fn call_tool(&self, call: &ToolCall, progress: &mut Progress) -> String {
        let arguments = match &call.arguments {
            Ok(arguments) => arguments.clone(),
            Err(output) => return output.clone(),
        };
        progress.report.tools_called += 1;
        let hop = Hop::Tool(call.name().to_owned());
        let result = self
            .post_with(&self.environment.resources, &call.path, hop, arguments, &progress.cookies)
            .await;
        let (answer, cookies) = match result {
            Ok(answered) => answered,
            Err(fault) => {
                progress.report.faults.push(fault.line());
                return String::new();
            }
        };
        match contract::tool(call.name(), &answer, &progress.session) {
            Ok(()) => {
                progress.report.tools_passed += 1;
                progress.cookies = cookies;
            }
            // The cookies of before are kept, so that one fault is not told twice.
            Err(fault) => progress.report.faults.push(fault.line()),
        }
        String::from_utf8_lossy(&answer.body).into_owned()
    }

    async fn verify(
        &self,
        mut body: Vec<u8>,
        response: &[u8],
        progress: &mut Progress,
    ) -> Result<(), Fault> {
        progress.report.verify = Mark::Failed;
        body.extend_from_slice(b",\"response\":");
        body.extend_from_slice(response);
        body.push(b'}');
        let resources = &self.environment.resources;
        let (answer, _) =
            self.post_with(resources, "/verify", Hop::Verify, body, &progress.cookies).await?;
        progress.report.reward = Some(contract::verify(&answer, &progress.session)?);
        progress.report.verify = Mark::Passed;
        Ok(())
    }

    async fn post(
        &self,
        endpoint: &Endpoint,
        path: &str,
        hop: Hop,
        body: impl Into<Bytes>,
    ) -> Result<(Answer, CookieJar), Fault> {
        self.post_with(endpoint, path, hop, body, &CookieJar::default()).await
    }

    async fn post_with(
        &self,
        endpoint: &Endpoint,
        path: &str,
        hop: Hop,
        body: impl Into<Bytes>,
        cookies: &CookieJar,
    ) -> Result<(Answer, CookieJar), Fault> {
        let reply = self
            .client
            .post(endpoint, path)
            .body(body)
            .cookies(cookies)
            .policy(Policy::Once)
            .limit(HOP_LIMIT)
            .send()
            .await
            .map_err(|error| Fault::Unanswered { hop, reason: error.full_message() })?;
        Ok(answer_of(reply))
    }
}

fn answer_of(reply: ClientReply) -> (Answer, CookieJar) {
    let cookies = reply.cookies();
    let names = cookies.iter().map(|(name, _)| name.to_owned()).collect();
    let answer = Answer { status: reply.status.as_u16(), cookies: names, body: reply.body };
    (answer, cookies)
}

/// Names of the functions that a request declares.
fn declared_tools(params: &str) -> Vec<String> {
    let params: Value = serde_json::from_str(params).unwrap_or_default();
    let tools = params.get("tools").and_then(Value::as_array);
    let name = |tool: &Value| tool.get("name").and_then(Value::as_str).map(str::to_owned);
    tools.into_iter().flatten().filter_map(name).collect()
}
