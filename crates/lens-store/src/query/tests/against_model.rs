//! The evaluator against one that is written as simply as it can be.

use std::collections::BTreeSet;

use lens_otlp::encode::StatusCode;
use proptest::prelude::*;

use super::fixture::{Described, MILLI, Parts, START};
use crate::query::{Query, SearchOptions};

/// A condition, as text and as a function.
#[derive(Clone, Debug)]
enum Model {
    Name(&'static str, &'static str),
    Number(&'static str, i64),
    Duration(&'static str, u64),
    Flag,
    HasText(bool),
    Text(&'static str),
    Failed(bool),
    Service(&'static str),
    Both(Box<(Self, Self)>),
    Either(Box<(Self, Self)>),
    Not(Box<Self>),
}

fn compare<T: PartialOrd>(op: &str, value: T, literal: T) -> bool {
    match op {
        "=" => value == literal,
        "!=" => value != literal,
        ">" => value > literal,
        ">=" => value >= literal,
        "<" => value < literal,
        _ => value <= literal,
    }
}

impl Model {
    fn text(&self) -> String {
        match self {
            Self::Name(op, name) => format!("name {op} \"{name}\""),
            Self::Number(op, number) => format!(".number {op} {number}"),
            Self::Duration(op, millis) => format!("{millis}ms {op} duration"),
            Self::Flag => "span.flag".to_owned(),
            Self::HasText(true) => "span.text != nil".to_owned(),
            Self::HasText(false) => ".text = nil".to_owned(),
            Self::Text(pattern) => format!(".text =~ \"{pattern}\""),
            Self::Failed(true) => "status = error".to_owned(),
            Self::Failed(false) => "status != error".to_owned(),
            Self::Service(name) => format!("resource.service.name = \"{name}\""),
            Self::Both(parts) => format!("({}) && ({})", parts.0.text(), parts.1.text()),
            Self::Either(parts) => format!("({}) || ({})", parts.0.text(), parts.1.text()),
            Self::Not(part) => format!("!({})", part.text()),
        }
    }

    fn holds(&self, span: &Described) -> bool {
        match self {
            Self::Name(op, name) => compare(op, span.name, name),
            Self::Number(op, number) => {
                span.number.is_some_and(|value| compare(op, value, *number))
            }
            Self::Duration(op, millis) => compare(op, millis * MILLI, span.duration),
            Self::Flag => span.flag == Some(true),
            Self::HasText(wanted) => span.text.is_some() == *wanted,
            Self::Text(pattern) => span.text.is_some_and(|text| text.starts_with(&pattern[..1])),
            Self::Failed(wanted) => (span.status == StatusCode::Error) == *wanted,
            Self::Service(name) => span.service == *name,
            Self::Both(parts) => parts.0.holds(span) && parts.1.holds(span),
            Self::Either(parts) => parts.0.holds(span) || parts.1.holds(span),
            Self::Not(part) => !part.holds(span),
        }
    }
}

fn model() -> impl Strategy<Value = Model> {
    let op = || prop::sample::select(vec!["=", "!=", ">", ">=", "<", "<="]);
    let name = || prop::sample::select(vec!["a", "b", "c"]);
    let leaf = prop_oneof![
        (op(), name()).prop_map(|(op, name)| Model::Name(op, name)),
        (op(), 0_i64..4).prop_map(|(op, number)| Model::Number(op, number)),
        (op(), 0_u64..4).prop_map(|(op, millis)| Model::Duration(op, millis)),
        Just(Model::Flag),
        any::<bool>().prop_map(Model::HasText),
        prop::sample::select(vec!["x.*", "y.*"]).prop_map(Model::Text),
        any::<bool>().prop_map(Model::Failed),
        prop::sample::select(vec!["s", "t"]).prop_map(Model::Service),
    ];
    leaf.prop_recursive(4, 16, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|parts| Model::Both(Box::new(parts))),
            (inner.clone(), inner.clone()).prop_map(|parts| Model::Either(Box::new(parts))),
            inner.prop_map(|part| Model::Not(Box::new(part))),
        ]
    })
}

/// Spans of a few traces, with ids that are theirs alone and parents before them, behind them, or nowhere.
pub fn spans() -> impl Strategy<Value = Vec<Described>> {
    let span = (
        (1_u128..4, 0_u64..12, prop::sample::select(vec!["a", "b", "c"])),
        (0_u64..4, 0_u64..4, prop::sample::select(vec!["s", "t"])),
        (
            prop::option::of(0_i64..4),
            prop::option::of(any::<bool>()),
            prop::option::of(prop::sample::select(vec!["x1", "y1"])),
            any::<bool>(),
        ),
    );
    prop::collection::vec(span, 1..24).prop_map(|spans| {
        let described = |(at, ((trace, parent, name), (start, duration, service), rest))| {
            let (number, flag, text, failed): (_, _, _, bool) = rest;
            Described {
                trace,
                id: at as u64 + 1,
                parent,
                name,
                service,
                start: START + start * MILLI,
                duration: duration * MILLI,
                number,
                flag,
                text,
                status: if failed { StatusCode::Error } else { StatusCode::Unset },
                ..Described::default()
            }
        };
        spans.into_iter().enumerate().map(described).collect()
    })
}

type Ids = BTreeSet<(u128, u64)>;

/// What the operator between two sets means, from its words.
fn related(op: &str, first: &Ids, second: &Ids, spans: &[Described]) -> Ids {
    let parent = |id: &(u128, u64)| {
        let span = spans.iter().find(|span| (span.trace, span.id) == *id).unwrap();
        let parent = (span.trace, span.parent);
        (span.parent != 0, parent)
    };
    let exists = |id: &(u128, u64)| spans.iter().any(|span| (span.trace, span.id) == *id);
    let above = |id: &(u128, u64)| {
        let mut all = Vec::new();
        let mut at = *id;
        while parent(&at).0 && exists(&parent(&at).1) && all.len() < 30 {
            at = parent(&at).1;
            all.push(at);
        }
        all
    };
    let in_both =
        |trace: u128| first.iter().any(|id| id.0 == trace) && second.iter().any(|id| id.0 == trace);
    let keep = |id: &&(u128, u64)| match op {
        ">" => above(id).first().is_some_and(|parent| first.contains(parent)),
        ">>" => above(id).iter().any(|one| first.contains(one)),
        "<" => first.iter().any(|one| above(one).first() == Some(*id)),
        "<<" => first.iter().any(|one| above(one).contains(*id)),
        _ => first.iter().any(|one| one != *id && parent(id).0 && parent(one) == parent(id)),
    };
    match op {
        "||" => first | second,
        "&&" => (first | second).into_iter().filter(|id| in_both(id.0)).collect(),
        _ => second.iter().filter(keep).copied().collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn queries_find_what_a_simple_evaluator_finds(
        spans in spans(),
        one in model(),
        other in model(),
        op in prop::sample::select(vec!["", "&&", "||", ">", ">>", "<", "<<", "~"]),
        split in 1_usize..4,
    ) {
        let set = |model: &Model| -> Ids {
            let held = spans.iter().filter(|span| model.holds(span));
            held.map(|span| (span.trace, span.id)).collect()
        };
        let (text, wanted) = if op.is_empty() {
            (format!("{{ {} }}", one.text()), set(&one))
        } else {
            let text = format!("{{ {} }} {op} {{ {} }}", one.text(), other.text());
            (text, related(op, &set(&one), &set(&other), &spans))
        };
        let mut parts = vec![Vec::new(); split];
        for (at, span) in spans.iter().enumerate() {
            parts[at % split].push(span.raw());
        }
        let query = Query::parse(&text).unwrap();
        let options = SearchOptions { spans_of_set: 100, ..SearchOptions::default() };
        let found = query.search(&Parts(parts), &options).unwrap();
        let mut ids = Ids::new();
        for trace in &found.traces {
            let id = u128::from_str_radix(&trace.trace_id, 16).unwrap();
            for span in trace.sets.iter().flat_map(|set| &set.spans) {
                ids.insert((id, u64::from_str_radix(&span.span_id, 16).unwrap()));
            }
        }
        prop_assert_eq!(ids, wanted, "{}", text);
        let starts: Vec<_> = found.traces.iter().map(|trace| trace.start_nanos).collect();
        prop_assert!(starts.is_sorted_by(|one, other| one >= other));
    }
}
