//! What a program hooked to the end of its spans.

use std::sync::atomic::{AtomicUsize, Ordering};

use lens::{Group, Span};
use lens_testing::collect_groups;

static WORK: Group = Group::new("work");
static GROUPS: &[&Group] = &[&WORK];
const SEEN: &str = "test.seen";

static CALLS: AtomicUsize = AtomicUsize::new(0);

fn count(span: &mut Span) {
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    assert!(call != 1, "the second call fails");
    span.set(SEEN, call);
}

/// Guarantees: the hook sees every recorded span while it is there, may add to it, and costs none by failing.
#[test]
fn a_hook_adds_to_spans_that_end_until_it_is_taken_away() {
    lens::register("test", GROUPS, &[("default", &["work"])]);
    // The fault is the hook's own.
    std::panic::set_hook(Box::new(|_| {}));
    let ((), spans) = collect_groups("work", || {
        Span::start(&WORK, "before").end();
        lens::on_span_end(Some(count));
        Span::start(&WORK, "first").end();
        Span::start(&WORK, "second").end();
        drop(Span::start(&WORK, "dropped"));
        std::thread::spawn(|| Span::start(&WORK, "elsewhere").end()).join().unwrap();
        Span::disabled().end();
        lens::on_span_end(None);
        Span::start(&WORK, "after").end();
    });
    let _ = std::panic::take_hook();
    let seen: Vec<(&str, Option<u64>)> = spans
        .iter()
        .map(|span| (span.name.as_str(), span.attributes.get(SEEN).and_then(|seen| seen.as_u64())))
        .collect();
    let find = |name| seen.iter().find(|(known, _)| *known == name).unwrap().1;
    assert_eq!(seen.len(), 6, "{seen:?}");
    assert_eq!((find("before"), find("after")), (None, None));
    assert_eq!((find("first"), find("second")), (Some(0), None));
    assert_eq!((find("dropped"), find("elsewhere")), (Some(2), Some(3)));
    assert_eq!(CALLS.load(Ordering::Relaxed), 4);
}
