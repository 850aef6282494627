//! Rollouts as the Gym traces them: the driver's attempt, the agent's turns, the model's calls, the tools.

use std::ops::RangeInclusive;

use lens_otlp::encode::{
    EVENT_ATTRIBUTES, RESOURCE_ATTRIBUTES, SPAN_ATTRIBUTES, Scope, SpanParts, StatusCode,
    put_event, put_key_value,
};

use super::random::Random;
use super::{Made, Options, Trace, Traces};

/// What is run.
#[derive(Clone, Debug)]
pub struct Rollouts {
    /// Rows of the input.
    pub tasks: u64,
    /// Rollouts of each.
    pub repeats: u64,
    /// Spans of a rollout, with a tail towards the larger number.
    pub spans: RangeInclusive<u32>,
    /// Rollouts of a thousand that fail.
    pub failed_permille: u16,
    /// Requests of a thousand that are sent twice.
    pub retried_permille: u16,
    /// Model calls of a thousand with a text of 2 to 40 KiB.
    pub text_permille: u16,
    /// Sets of processes (agent, model and resources server) that the rollouts are divided among.
    pub fleets: usize,
    /// Id of the run, 12 hex digits.
    pub run: &'static str,
}

impl Default for Rollouts {
    fn default() -> Self {
        Self {
            tasks: 10,
            repeats: 4,
            spans: 300..=5_000,
            failed_permille: 20,
            retried_permille: 10,
            text_permille: 5,
            fleets: 1,
            run: "5ca1ab1e0001",
        }
    }
}

/// Spans of a rollout without turns, and of each turn.
const FIXED: u32 = 12;
const PER_TURN: u32 = 6;

const DRIVER: usize = 0;
const AGENT: usize = 1;
const MODEL: usize = 2;
const RESOURCES: usize = 3;
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
const INSTANCES: [(&str, &str); 4] = [
    ("orchestrator", "orchestrator"),
    ("simple_agent", "responses_api_agents"),
    ("policy_model", "responses_api_models"),
    ("weather", "resources_servers"),
];
const TOOLS: [&str; 3] = ["/get_weather", "/search", "/run_code"];

const SCOPE: Scope<'static> = Scope { name: "nemo.gym", version: "0.1.0" };

/// A run that goes on.
pub(super) struct Running {
    random: Random,
    wanted: Rollouts,
    nth: u64,
    at_nanos: u64,
    spacing_nanos: u64,
    processes: Vec<(Vec<u8>, Scope<'static>)>,
    text: String,
}

impl Running {
    pub(super) fn new(options: &Options, wanted: Rollouts) -> Self {
        let mut processes = Vec::new();
        for fleet in 0..wanted.fleets.max(1) {
            for (nth, (instance, server_type)) in INSTANCES.iter().enumerate() {
                processes.push((resource(fleet, nth, instance, server_type), SCOPE));
            }
        }
        let words = "the model thinks about the weather in a town and calls a tool; ";
        Self {
            random: Random::new(options.seed),
            wanted,
            nth: 0,
            at_nanos: options.base_nanos,
            spacing_nanos: options.spacing_nanos,
            processes,
            text: words.repeat(40 * 1_024 / words.len() + 1),
        }
    }

    fn turns(&mut self) -> u32 {
        let least = self.wanted.spans.start().saturating_sub(FIXED).div_ceil(PER_TURN).max(1);
        let most = (self.wanted.spans.end().saturating_sub(FIXED) / PER_TURN).max(least);
        let more = self.random.tail(u64::from(most - least).max(512) / 512) as u32;
        (least + more).min(most)
    }
}

fn resource(fleet: usize, nth: usize, instance: &str, server_type: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |key: &str, value: &str| put_key_value(&mut out, RESOURCE_ATTRIBUTES, key, value);
    put("service.name", &format!("nemo-gym/{instance}"));
    put("service.version", "0.1.0");
    put("service.instance.id", &format!("0b9f4a52-66fb-4d2e-8f0f-{:012x}", fleet * 4 + nth));
    put("nemo.gym.server.name", instance);
    put("nemo.gym.server.type", server_type);
    put("nemo.gym.service_group", "nemo-gym");
    put("nemo.run.id", "3f6c1a90b2de");
    put("host.name", &format!("gym-{fleet:03}"));
    put("telemetry.sdk.name", "lens");
    put("telemetry.sdk.language", "rust");
    put_key_value(&mut out, RESOURCE_ATTRIBUTES, "process.pid", &(4_000 + nth as i64));
    out
}

/// What a span has besides its ids, attributes and events.
struct What<'a> {
    name: &'a str,
    kind: u8,
    process: usize,
    span_id: [u8; 8],
    parent_id: Option<[u8; 8]>,
    start_nanos: u64,
    end_nanos: u64,
    is_error: bool,
}

/// One rollout while it is made.
struct Making<'a> {
    random: &'a mut Random,
    trace: &'a mut Trace,
    wanted: &'a Rollouts,
    text: &'a str,
    trace_id: [u8; 16],
    /// First process of its fleet.
    fleet: usize,
    /// Encoded attributes that all its spans have.
    common: Vec<u8>,
    attributes: Vec<u8>,
    events: Vec<u8>,
}

impl Making<'_> {
    fn text(&mut self, key: &str, value: &str) {
        put_key_value(&mut self.attributes, SPAN_ATTRIBUTES, key, value);
    }

    fn int(&mut self, key: &str, value: u64) {
        put_key_value(&mut self.attributes, SPAN_ATTRIBUTES, key, &(value as i64));
    }

    /// Adds the span with the attributes and events that were put before.
    fn add(&mut self, what: &What<'_>) {
        self.attributes.extend_from_slice(&self.common);
        let from = self.trace.bytes.len();
        SpanParts {
            trace_id: self.trace_id,
            span_id: what.span_id,
            parent_id: what.parent_id,
            name: what.name,
            kind: what.kind,
            start_nanos: what.start_nanos,
            end_nanos: what.end_nanos,
            attributes: &self.attributes,
            events: &self.events,
            status: if what.is_error { StatusCode::Error } else { StatusCode::Unset },
            flags: 0x101,
            ..SpanParts::default()
        }
        .put(&mut self.trace.bytes);
        self.trace.spans.push(Made {
            process: if what.process == DRIVER { DRIVER } else { self.fleet + what.process },
            start_nanos: what.start_nanos,
            end_nanos: what.end_nanos,
            message: from..self.trace.bytes.len(),
        });
        self.attributes.clear();
        self.events.clear();
    }

    fn put_attempt(&mut self, at_nanos: u64, nth: u64, backoff_nanos: u64, status: u64) -> u64 {
        let pool_nanos = if self.random.permille(100) { self.random.tail(200_000) } else { 4_000 };
        let connect_nanos = if self.random.permille(20) { 150_000 } else { 0 };
        let first_byte_nanos = self.random.tail(300_000);
        put_event(&mut self.events, "nemo.gym.http.attempt", at_nanos, 0, |out| {
            let mut put = |key: &str, value: u64| {
                put_key_value(out, EVENT_ATTRIBUTES, key, &(value as i64));
            };
            put("nemo.gym.http.attempt.index", nth);
            put("nemo.gym.http.pool_wait_nanos", pool_nanos);
            put("nemo.gym.http.connect_nanos", connect_nanos);
            put("nemo.gym.http.time_to_first_byte_nanos", first_byte_nanos);
            put("nemo.gym.http.backoff_nanos", backoff_nanos);
            put("http.response.status_code", status);
        });
        pool_nanos + connect_nanos
    }

    /// A request: its CLIENT span around what `serve` makes, which takes the id of the CLIENT span and the time at
    /// which the server begins, and returns when it ended.
    fn request(
        &mut self,
        process: usize,
        parent_id: [u8; 8],
        at_nanos: u64,
        to: (&str, &str),
        serve: impl FnOnce(&mut Self, [u8; 8], u64) -> u64,
    ) -> u64 {
        let span_id = self.random.span_id();
        let is_retried = self.random.permille(self.wanted.retried_permille);
        let backoff_nanos = if is_retried { self.random.tail(100_000_000) } else { 0 };
        let sent_nanos = at_nanos + backoff_nanos + 60_000;
        let end_nanos = serve(self, span_id, sent_nanos + 80_000) + 90_000;
        if is_retried {
            self.put_attempt(at_nanos, 0, 0, 503);
            self.int("http.request.resend_count", 1);
        }
        let pool_nanos =
            self.put_attempt(at_nanos + backoff_nanos, u64::from(is_retried), backoff_nanos, 200);
        self.text("http.request.method", "POST");
        self.text("server.address", "127.0.0.1");
        self.int("server.port", 11_000 + process as u64);
        self.text("url.full", to.1);
        self.int("http.response.status_code", 200);
        self.text("nemo.gym.http.destination.kind", to.0);
        self.int("nemo.gym.http.pool_wait_nanos", pool_nanos);
        self.int("nemo.gym.http.backoff_nanos", backoff_nanos);
        self.add(&What {
            name: "HTTP POST",
            kind: CLIENT,
            process,
            span_id,
            parent_id: Some(parent_id),
            start_nanos: at_nanos,
            end_nanos,
            is_error: false,
        });
        end_nanos
    }

    /// A SERVER span around what `work` makes.
    fn served(
        &mut self,
        process: usize,
        parent_id: [u8; 8],
        at_nanos: u64,
        route: &str,
        work: impl FnOnce(&mut Self, [u8; 8], u64) -> u64,
    ) -> u64 {
        let span_id = self.random.span_id();
        let end_nanos = work(self, span_id, at_nanos + 40_000) + 30_000;
        self.text("http.request.method", "POST");
        self.text("http.route", route);
        self.text("url.path", route);
        self.text("url.scheme", "http");
        self.int("http.response.status_code", 200);
        self.text("network.protocol.version", "1.1");
        let name = ["POST ", route].concat();
        self.add(&What {
            name: &name,
            kind: SERVER,
            process,
            span_id,
            parent_id: Some(parent_id),
            start_nanos: at_nanos,
            end_nanos,
            is_error: false,
        });
        end_nanos
    }

    /// A span of the Gym itself; its attributes are put by `work`.
    fn own(
        &mut self,
        name: &str,
        process: usize,
        parent_id: [u8; 8],
        at_nanos: u64,
        work: impl FnOnce(&mut Self, [u8; 8], u64) -> u64,
    ) -> u64 {
        let span_id = self.random.span_id();
        let end_nanos = work(self, span_id, at_nanos + 10_000) + 10_000;
        self.add(&What {
            name,
            kind: INTERNAL,
            process,
            span_id,
            parent_id: Some(parent_id),
            start_nanos: at_nanos,
            end_nanos,
            is_error: false,
        });
        end_nanos
    }

    fn model_call(&mut self, parent: [u8; 8], at: u64) -> u64 {
        let url = "http://127.0.0.1:11002/v1/responses";
        self.request(AGENT, parent, at, ("gym", url), |making, id, at| {
            making.served(MODEL, id, at, "/v1/responses", |making, id, at| {
                making.own("gym.model.responses", MODEL, id, at, |making, id, at| {
                    let queue = making.random.tail(1_000_000);
                    let prefill = making.random.tail(5_000_000);
                    let decode = making.random.tail(80_000_000);
                    let upstream = "http://127.0.0.1:8000/v1/responses";
                    let took = queue + prefill + decode;
                    let end =
                        making.request(MODEL, id, at, ("model", upstream), |_, _, at| at + took);
                    making.text("nemo.gym.model.dialect", "responses");
                    making.text("gen_ai.operation.name", "chat");
                    making.text("gen_ai.request.model", "qwen3-32b");
                    making.int("gen_ai.usage.input_tokens", prefill / 5_000);
                    making.int("gen_ai.usage.output_tokens", decode / 400_000);
                    making.int("nemo.gym.model.queue_nanos", queue);
                    making.int("nemo.gym.model.prefill_nanos", prefill);
                    making.int("nemo.gym.model.decode_nanos", decode);
                    if making.random.permille(making.wanted.text_permille) {
                        let bytes = 2_048 + making.random.below(38 * 1_024) as usize;
                        let text = &making.text[..bytes];
                        put_key_value(&mut making.attributes, SPAN_ATTRIBUTES, "load.text", text);
                    }
                    end
                })
            })
        })
    }

    fn tool_call(&mut self, parent: [u8; 8], at: u64) -> u64 {
        let tool = TOOLS[self.random.below(TOOLS.len() as u64) as usize];
        let url = ["http://127.0.0.1:11003", tool].concat();
        self.request(AGENT, parent, at, ("gym", &url), |making, id, at| {
            making
                .served(RESOURCES, id, at, tool, |making, _, at| at + making.random.tail(3_000_000))
        })
    }

    fn turns(&mut self, turns: u32, parent: [u8; 8], at: u64) -> u64 {
        let mut at = at;
        for _ in 0..turns {
            at = self.model_call(parent, at + 100_000);
            at = self.tool_call(parent, at + 200_000);
        }
        self.int("nemo.gym.agent.steps", u64::from(turns));
        self.int("nemo.gym.agent.tool_calls", u64::from(turns));
        at
    }

    fn rollout(&mut self, turns: u32, parent: [u8; 8], at: u64, outcome: &str) -> u64 {
        self.own("gym.rollout", AGENT, parent, at, |making, id, at| {
            let seed = "http://127.0.0.1:11003/seed_session";
            let mut at = making.request(AGENT, id, at, ("gym", seed), |making, id, at| {
                making.served(RESOURCES, id, at, "/seed_session", |making, _, at| {
                    at + making.random.tail(1_000_000)
                })
            });
            let itself = "http://127.0.0.1:11001/v1/responses";
            at = making.request(AGENT, id, at, ("gym", itself), |making, id, at| {
                making.served(AGENT, id, at, "/v1/responses", |making, id, at| {
                    making.own("gym.agent.responses", AGENT, id, at, |making, id, at| {
                        making.turns(turns, id, at)
                    })
                })
            });
            let verify = "http://127.0.0.1:11003/verify";
            at = making.request(AGENT, id, at, ("gym", verify), |making, id, at| {
                making.served(RESOURCES, id, at, "/verify", |making, id, at| {
                    making.own("gym.verify", RESOURCES, id, at, |making, _, at| {
                        at + making.random.tail(2_000_000)
                    })
                })
            });
            making.text("nemo.gym.rollout.outcome", outcome);
            at
        })
    }
}

impl Traces for Running {
    fn processes(&self) -> &[(Vec<u8>, Scope<'static>)] {
        &self.processes
    }

    fn next(&mut self, trace: &mut Trace) -> bool {
        if self.nth == self.wanted.tasks * self.wanted.repeats {
            return false;
        }
        let (task, repeat) = (self.nth / self.wanted.repeats, self.nth % self.wanted.repeats);
        let fleet = 4 * (self.nth as usize % self.wanted.fleets.max(1));
        let turns = self.turns();
        let mut common = Vec::new();
        put_key_value(
            &mut common,
            SPAN_ATTRIBUTES,
            "nemo.gym.rollout.id",
            &*format!("{task}-{repeat}"),
        );
        put_key_value(&mut common, SPAN_ATTRIBUTES, "nemo.gym.task.index", &(task as i64));
        put_key_value(&mut common, SPAN_ATTRIBUTES, "nemo.gym.rollout.index", &(repeat as i64));
        put_key_value(&mut common, SPAN_ATTRIBUTES, "nemo.gym.attempt.index", &0_i64);
        put_key_value(&mut common, SPAN_ATTRIBUTES, "nemo.gym.collection.id", self.wanted.run);
        let is_failed = self.random.permille(self.wanted.failed_permille);
        let outcome = if is_failed { "failure" } else { "success" };
        let trace_id = self.random.trace_id();
        let root = self.random.span_id();
        let admission_nanos = self.random.tail(2_000_000);
        let begin = self.at_nanos;
        let mut making = Making {
            random: &mut self.random,
            trace,
            wanted: &self.wanted,
            text: &self.text,
            trace_id,
            fleet,
            common,
            attributes: Vec::new(),
            events: Vec::new(),
        };
        let run = "http://127.0.0.1:11001/run";
        let from = begin + admission_nanos;
        let end_nanos = making.request(DRIVER, root, from, ("gym", run), |making, id, at| {
            making.served(AGENT, id, at, "/run", |making, id, at| {
                making.rollout(turns, id, at, outcome)
            })
        });
        making.text("nemo.gym.rollout.outcome", outcome);
        making.int("nemo.gym.admission.wait_nanos", admission_nanos);
        making.add(&What {
            name: "gym.rollout.attempt",
            kind: INTERNAL,
            process: DRIVER,
            span_id: root,
            parent_id: None,
            start_nanos: begin,
            end_nanos: end_nanos + 20_000,
            is_error: is_failed,
        });
        self.nth += 1;
        self.at_nanos += self.spacing_nanos;
        true
    }
}
