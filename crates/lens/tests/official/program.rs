//! Random programs: spans below one another or below remote parents, with all that can be said on a span.

use lens::{Context, Group, Span, SpanContext, SpanKind, Value};
use proptest::prelude::*;

use crate::model::{Ended, Expected, Range, hex};

static FIRST: Group = Group::new("first");
static SECOND: Group = Group::new("second");
static THIRD: Group = Group::new("third");
static OFF: Group = Group::new("off");
static NEAR: &[&Group] = &[&FIRST, &SECOND, &OFF];
static FAR: &[&Group] = &[&THIRD];

/// Baggage that becomes attributes.
pub const PROMOTED: &[&str] = &["p.id", "p.index"];
/// Keys of attributes; few, so that they repeat, and some that baggage sets too.
const KEYS: &[&str] = &["a", "b", "c", "d", "e", "f", "g.long.key.name", "p.id", "p.index"];
const EVENT_KEYS: &[&str] = &["x", "y", "z", "u", "v"];
const EVENT_NAMES: &[&str] = &["tried", "größer", ""];

pub fn register() {
    lens::register("near", NEAR, &[]);
    lens::register("far", FAR, &[]);
}

/// A value and how it is handed over.
#[derive(Clone, Debug)]
pub enum Said {
    Static(&'static str),
    Text(String),
    Bool(bool),
    Int(i64),
    Unsigned(u64),
    Small(u8),
    Double(f64),
    Texts(Vec<String>),
    Ints(Vec<i64>),
    Doubles(Vec<f64>),
    Bools(Vec<bool>),
    Mixed(Vec<i64>, String),
    Missing,
}

impl Said {
    pub fn value(&self) -> Option<Value> {
        Some(match self.clone() {
            Self::Static(text) => Value::from_static(text),
            Self::Text(text) => text.into(),
            Self::Bool(value) => value.into(),
            Self::Int(value) => value.into(),
            Self::Unsigned(value) => value.into(),
            Self::Small(value) => value.into(),
            Self::Double(value) => value.into(),
            Self::Texts(values) => values.into(),
            Self::Ints(values) => values.into(),
            Self::Doubles(values) => values.into(),
            Self::Bools(values) => values.into(),
            Self::Mixed(values, text) => vec![Value::from(values), Value::from(text)].into(),
            Self::Missing => return None,
        })
    }

    /// In its own type, as a site does, where that differs from a `Value`.
    fn set(&self, span: &mut Span, key: &'static str) {
        match self.clone() {
            Self::Static(text) => span.set(key, text),
            Self::Text(text) => span.set(key, &text),
            Self::Bool(value) => span.set(key, value),
            Self::Int(value) => span.set(key, value),
            Self::Unsigned(value) => span.set(key, value),
            Self::Small(value) => span.set(key, value),
            Self::Double(value) => span.set(key, value),
            Self::Ints(values) => span.set(key, values),
            Self::Missing => span.set(key, None::<i64>),
            _ => span.set(key, self.value()),
        }
    }
}

#[derive(Clone, Debug)]
pub enum Op {
    Set(&'static str, Said),
    Event(&'static str, Option<u64>, Vec<(&'static str, Said)>),
    Link(Linked),
    Rename(String),
    Fail(String),
    Ok,
    Exception(String, String),
}

/// A context that something points at, remote or made here, maybe invalid.
#[derive(Clone, Debug)]
pub struct Linked {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
}

impl Linked {
    fn header(&self, sampled: bool) -> String {
        let (trace_id, span_id) = (hex(&self.trace_id), hex(&self.span_id));
        format!("00-{trace_id}-{span_id}-{:02x}", u8::from(sampled))
    }

    fn context(&self) -> SpanContext {
        extract(&self.header(true), None).span_context()
    }
}

fn extract(traceparent: &str, tracestate: Option<&str>) -> Context {
    Context::extract(|name| match name {
        "traceparent" => Some(traceparent),
        "tracestate" => tracestate,
        _ => None,
    })
}

#[derive(Clone, Debug)]
pub enum Parent {
    None,
    /// The span so many places before.
    Earlier(usize),
    Remote {
        at: Linked,
        sampled: bool,
        state: Option<&'static str>,
    },
}

#[derive(Clone, Debug)]
pub struct Plan {
    group: usize,
    name: String,
    kind: SpanKind,
    parent: Parent,
    /// Through the thread's current context instead of the builder.
    attached: bool,
    baggage: Vec<(&'static str, String)>,
    builder_links: Vec<Linked>,
    start: Option<u64>,
    ops: Vec<Op>,
    end: Option<u64>,
    on_another_thread: bool,
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![".{0,10}", ".{30,60}", Just("ü".repeat(100))]
}

fn double() -> impl Strategy<Value = f64> {
    use prop::num::f64::{INFINITE, NEGATIVE, NORMAL, POSITIVE, ZERO};
    POSITIVE | NEGATIVE | NORMAL | ZERO | INFINITE
}

fn said(listed: impl Strategy<Value = String> + 'static) -> impl Strategy<Value = Said> {
    use prop::collection::vec;
    prop_oneof![
        prop::sample::select(vec!["", "static", "a static text that is longer than the limit"])
            .prop_map(Said::Static),
        text().prop_map(Said::Text),
        any::<bool>().prop_map(Said::Bool),
        any::<i64>().prop_map(Said::Int),
        any::<u64>().prop_map(Said::Unsigned),
        any::<u8>().prop_map(Said::Small),
        double().prop_map(Said::Double),
        vec(listed, 0..3).prop_map(Said::Texts),
        vec(any::<i64>(), 0..3).prop_map(Said::Ints),
        vec(double(), 0..3).prop_map(Said::Doubles),
        vec(any::<bool>(), 0..3).prop_map(Said::Bools),
        (vec(any::<i64>(), 0..3), ".{0,8}").prop_map(|(ints, text)| Said::Mixed(ints, text)),
        Just(Said::Missing),
    ]
}

fn event_attributes() -> impl Strategy<Value = Vec<(&'static str, Said)>> {
    // Texts inside lists of events are not cut.
    let said =
        || said(".{0,8}").prop_filter("an event takes values", |said| said.value().is_some());
    let repeated = prop::collection::vec((prop::sample::select(&EVENT_KEYS[..3]), said()), 0..5);
    let many = prop::collection::vec(said(), 4..=5)
        .prop_map(|values| EVENT_KEYS.iter().copied().zip(values).collect());
    prop_oneof![3 => repeated, 1 => many]
}

fn linked() -> impl Strategy<Value = Linked> {
    prop_oneof![
        8 => (any::<[u8; 16]>(), any::<[u8; 8]>()),
        1 => Just(([0; 16], [1; 8])),
    ]
    .prop_map(|(trace_id, span_id)| Linked { trace_id, span_id })
}

fn op() -> impl Strategy<Value = Op> {
    let name = prop::sample::select(EVENT_NAMES);
    prop_oneof![
        12 => (prop::sample::select(KEYS), said(text())).prop_map(|(key, said)| Op::Set(key, said)),
        3 => (name, any::<Option<u64>>(), event_attributes())
            .prop_map(|(name, at, attributes)| Op::Event(name, at, attributes)),
        2 => linked().prop_map(Op::Link),
        1 => text().prop_map(Op::Rename),
        1 => text().prop_map(Op::Fail),
        1 => Just(Op::Ok),
        1 => (".{1,10}", ".{0,10}").prop_map(|(kind, message)| Op::Exception(kind, message)),
    ]
}

fn parent() -> impl Strategy<Value = Parent> {
    let state = prop::sample::select(vec![None, Some("vendor=1"), Some("a=b,c=d")]);
    prop_oneof![
        1 => Just(Parent::None),
        3 => (1..4_usize).prop_map(Parent::Earlier),
        2 => (any::<[u8; 15]>(), any::<[u8; 7]>(), prop::bool::weighted(0.8), state).prop_map(
            |(trace, span, sampled, state)| {
                let (mut trace_id, mut span_id) = ([1; 16], [1; 8]);
                trace_id[1..].copy_from_slice(&trace);
                span_id[1..].copy_from_slice(&span);
                Parent::Remote { at: Linked { trace_id, span_id }, sampled, state }
            },
        ),
    ]
}

fn plan() -> impl Strategy<Value = Plan> {
    let kind = prop::sample::select(vec![
        SpanKind::Internal,
        SpanKind::Server,
        SpanKind::Client,
        SpanKind::Producer,
        SpanKind::Consumer,
    ]);
    let value = prop_oneof!["[a-z0-9]{0,8}", "[0-9]{1,4}"];
    let baggage = prop::collection::btree_map(prop::sample::select(PROMOTED), value, 0..=2)
        .prop_map(|entries| entries.into_iter().collect());
    let head = (0..4_usize, text(), kind, parent(), any::<bool>(), baggage);
    let rest = (
        prop::collection::vec(linked(), 0..2),
        any::<Option<u64>>(),
        prop::collection::vec(op(), 0..16),
        any::<Option<u64>>(),
        prop::bool::weighted(0.1),
    );
    (head, rest).prop_map(|(head, rest)| {
        let (group, name, kind, parent, attached, baggage) = head;
        let (builder_links, start, ops, end, on_another_thread) = rest;
        Plan {
            group,
            name,
            kind,
            parent,
            attached,
            baggage,
            builder_links,
            start,
            ops,
            end,
            on_another_thread,
        }
    })
}

pub fn plans() -> impl Strategy<Value = Vec<Plan>> {
    prop::collection::vec(plan(), 1..6)
}

/// A span's context as later spans see it, and what the model knows of it.
#[derive(Clone)]
struct Scene {
    context: Context,
    trace_id: Option<String>,
    span_id: String,
    remote: bool,
    sampled: bool,
    state: &'static str,
    baggage: Vec<(&'static str, String)>,
}

impl Scene {
    fn empty() -> Self {
        Self {
            context: Context::empty(),
            trace_id: None,
            span_id: String::new(),
            remote: false,
            sampled: true,
            state: "",
            baggage: Vec::new(),
        }
    }

    fn remote(at: &Linked, sampled: bool, state: Option<&'static str>) -> Self {
        Self {
            context: extract(&at.header(sampled), state),
            trace_id: Some(hex(&at.trace_id)),
            span_id: hex(&at.span_id),
            remote: true,
            sampled,
            state: state.unwrap_or_default(),
            baggage: Vec::new(),
        }
    }

    fn with_baggage(mut self, entries: &[(&'static str, String)]) -> Self {
        if !entries.is_empty() {
            self.context = self.context.with_baggage(entries);
            self.baggage.retain(|(key, _)| entries.iter().all(|(new, _)| new != key));
            self.baggage.extend(entries.iter().cloned());
        }
        self
    }
}

fn nanos() -> u64 {
    lens::now_unix_nanos()
}

/// Runs the spans one after another and says what each must look like.
pub fn run(plans: &[Plan]) -> Vec<Ended> {
    let mut scenes: Vec<Scene> = Vec::new();
    let mut ended = Vec::new();
    for plan in plans {
        let scene = match &plan.parent {
            Parent::Earlier(back) if *back <= scenes.len() => scenes[scenes.len() - back].clone(),
            Parent::None | Parent::Earlier(_) => Scene::empty(),
            Parent::Remote { at, sampled, state } => Scene::remote(at, *sampled, *state),
        };
        let scene = scene.with_baggage(&plan.baggage);
        let (scene, span) = run_one(plan, scene);
        scenes.push(scene);
        ended.extend(span);
    }
    ended
}

fn run_one(plan: &Plan, scene: Scene) -> (Scene, Option<Ended>) {
    let (group, scope) =
        [(&FIRST, "near"), (&SECOND, "near"), (&THIRD, "far"), (&OFF, "")][plan.group];
    let before = nanos();
    let builder = Span::build(group, plan.name.clone()).kind(plan.kind);
    let builder = match plan.start {
        Some(start) => builder.start_nanos(start),
        None => builder,
    };
    let builder =
        plan.builder_links.iter().fold(builder, |builder, link| builder.link(link.context()));
    let mut span = if plan.attached {
        let _current = scene.context.clone().attach();
        builder.start()
    } else {
        builder.parent(&scene.context).start()
    };
    let started = nanos();
    assert_eq!(span.is_recording(), !scope.is_empty() && scene.sampled);
    if scope.is_empty() {
        // Work below a span that does not exist is below that span's parent.
        return (Scene { context: scene.context.with_span(&span), ..scene }, None);
    }
    let own = span.context();
    let next = Scene {
        context: scene.context.with_span(&span),
        trace_id: Some(own.trace_id().to_string()),
        span_id: own.span_id().to_string(),
        remote: false,
        ..scene.clone()
    };
    let mut expected =
        Expected::new(scope, plan.name.clone(), plan.kind, scene.remote, scene.state);
    expected.promote(&scene.baggage);
    for link in &plan.builder_links {
        expected.link(link);
    }
    for op in &plan.ops {
        apply(op, &mut span);
        expected.apply(op);
    }
    let end = plan.end;
    let finish = move |span: Span| match end {
        Some(end) => span.end_at(end),
        None => drop(span),
    };
    if plan.on_another_thread {
        std::thread::scope(|scope| {
            scope.spawn(move || finish(span));
        });
    } else {
        finish(span);
    }
    let after = nanos();
    let sampled = scene.sampled.then(|| Ended {
        trace_id: scene.trace_id.clone().unwrap_or_else(|| own.trace_id().to_string()),
        span_id: own.span_id().to_string(),
        parent_id: scene.span_id.clone(),
        start: plan.start.map_or(Range::new(before, started), Range::exactly),
        end: plan.end.map_or(Range::new(before, after), Range::exactly),
        now: Range::new(before, after),
        expected,
    });
    (next, sampled)
}

fn apply(op: &Op, span: &mut Span) {
    match op {
        Op::Set(key, said) => said.set(span, key),
        Op::Event(name, at, attributes) => {
            let attributes: Vec<(&'static str, Value)> = attributes
                .iter()
                .filter_map(|(key, said)| said.value().map(|value| (*key, value)))
                .collect();
            match at {
                Some(at) => span.event_at(name, *at, &attributes),
                None => span.event(name, &attributes),
            }
        }
        Op::Link(link) => span.link(link.context()),
        Op::Rename(name) => span.update_name(name.clone()),
        Op::Fail(message) => span.set_error(message.clone()),
        Op::Ok => span.set_ok(),
        Op::Exception(kind, message) => span.record_exception(kind, message),
    }
}
