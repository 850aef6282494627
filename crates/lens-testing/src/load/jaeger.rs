//! Many small traces with many attributes.

use lens_otlp::encode::{
    RESOURCE_ATTRIBUTES, SPAN_ATTRIBUTES, Scope, SpanParts, StatusCode, put_key_value,
};

use super::random::Random;
use super::{Made, Options, Trace, Traces};

const SERVICES: usize = 10;
const SPANS: usize = 10;
const KEYS: usize = 97;
const ATTRIBUTES: usize = 11;
const VALUES: u64 = 1_000;
const OPERATIONS: u64 = 8;

pub(super) struct Jaeger {
    random: Random,
    left: u64,
    at_nanos: u64,
    spacing_nanos: u64,
    processes: Vec<(Vec<u8>, Scope<'static>)>,
    keys: Vec<String>,
    names: Vec<String>,
    attributes: Vec<u8>,
}

impl Jaeger {
    pub(super) fn new(options: &Options, traces: u64) -> Self {
        let mut processes = Vec::new();
        let mut names = Vec::new();
        for service in 0..SERVICES {
            let mut resource = Vec::new();
            let mut put = |key: &str, value: &str| {
                put_key_value(&mut resource, RESOURCE_ATTRIBUTES, key, value);
            };
            put("service.name", &format!("service-{service:02}"));
            put("service.version", "1.27.0");
            put("host.name", &format!("node-{service:02}.cluster.local"));
            put("service.instance.id", &format!("6f1c0f0e-5d1c-4c55-9a1b-{service:012}"));
            processes.push((resource, Scope { name: "load", version: "1.0" }));
            names.extend((0..OPERATIONS).map(|nth| format!("GET /service-{service:02}/{nth:02}")));
        }
        Self {
            random: Random::new(options.seed),
            left: traces,
            at_nanos: options.base_nanos,
            spacing_nanos: options.spacing_nanos,
            processes,
            keys: (0..KEYS).map(|nth| format!("load.attribute.key_{nth:02}")).collect(),
            names,
            attributes: Vec::new(),
        }
    }

    /// Eleven of the 97 keys, none twice: a walk with a stride that has no factor in common with their number.
    fn put_attributes(&mut self) {
        self.attributes.clear();
        let mut key = self.random.below(KEYS as u64) as usize;
        let stride = 1 + self.random.below(KEYS as u64 - 1) as usize;
        let mut text = *b"value-000-of-a-thousand-ones";
        for _ in 0..ATTRIBUTES {
            let value = self.random.below(VALUES);
            let name = &self.keys[key];
            let out = &mut self.attributes;
            match key % 10 {
                7 => put_key_value(out, SPAN_ATTRIBUTES, name, &(value as i64 * 1_000)),
                8 => put_key_value(out, SPAN_ATTRIBUTES, name, &(value as f64 * 0.25)),
                9 => put_key_value(out, SPAN_ATTRIBUTES, name, &value.is_multiple_of(2)),
                _ => {
                    text[6] = b'0' + (value / 100) as u8;
                    text[7] = b'0' + (value / 10 % 10) as u8;
                    text[8] = b'0' + (value % 10) as u8;
                    let text = std::str::from_utf8(&text).unwrap_or_default();
                    put_key_value(out, SPAN_ATTRIBUTES, name, text);
                }
            }
            key = (key + stride) % KEYS;
        }
    }
}

impl Traces for Jaeger {
    fn processes(&self) -> &[(Vec<u8>, Scope<'static>)] {
        &self.processes
    }

    fn next(&mut self, trace: &mut Trace) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let trace_id = self.random.trace_id();
        let mut above: Vec<([u8; 8], u64, u64)> = Vec::with_capacity(SPANS);
        for nth in 0..SPANS {
            let span_id = self.random.span_id();
            let (parent_id, start_nanos, end_nanos) = match nth {
                0 => (None, self.at_nanos, self.at_nanos + self.random.tail(4_000_000)),
                _ => {
                    let (id, from, to) = above[self.random.below(nth as u64) as usize];
                    let start = from + self.random.below((to - from) / 2 + 1);
                    (Some(id), start, start + self.random.below(to - start + 1))
                }
            };
            above.push((span_id, start_nanos, end_nanos));
            self.put_attributes();
            let service = (nth + (trace_id[0] as usize)) % SERVICES;
            let operation = self.random.below(OPERATIONS) as usize;
            let from = trace.bytes.len();
            SpanParts {
                trace_id,
                span_id,
                parent_id,
                name: &self.names[service * OPERATIONS as usize + operation],
                kind: if nth == 0 { 2 } else { 1 + self.random.below(3) as u8 },
                start_nanos,
                end_nanos,
                attributes: &self.attributes,
                status: if self.random.permille(20) {
                    StatusCode::Error
                } else {
                    StatusCode::Unset
                },
                flags: 0x101,
                ..SpanParts::default()
            }
            .put(&mut trace.bytes);
            trace.spans.push(Made {
                process: service,
                start_nanos,
                end_nanos,
                message: from..trace.bytes.len(),
            });
        }
        self.at_nanos += self.spacing_nanos;
        true
    }
}
