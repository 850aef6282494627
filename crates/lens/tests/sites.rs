//! What instrumented code does, seen as spans.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::Once;
use std::task::Poll;
use std::time::Duration;

use lens::{Context, Group, InSpan as _, Span, SpanKind, Value, managed_span, span, trace_fn};
use lens_otlp::encode::StatusCode;
use lens_testing::{CollectedSpan, TreeOptions, collect, collect_groups, render_tree};

static WORK: Group = Group::new("work");
static OTHER: Group = Group::new("other");
static GROUPS: &[&Group] = &[&WORK, &OTHER];
const SIZE: &str = "test.size";
const ROLLOUT: &str = "test.rollout.id";
const TASK_INDEX: &str = "test.task.index";

fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        lens::register("test", GROUPS, &[("default", &["work"])]);
        lens::promote_baggage_keys(&[ROLLOUT, TASK_INDEX]);
    });
}

fn tree(spans: &[CollectedSpan]) -> String {
    let options = TreeOptions {
        status: true,
        events: true,
        kinds: true,
        attributes: &[SIZE],
        ..TreeOptions::default()
    };
    render_tree(spans, &options)
}

fn named<'a>(spans: &'a [CollectedSpan], name: &str) -> &'a CollectedSpan {
    let found = spans.iter().find(|span| span.name == name);
    found.unwrap_or_else(|| panic!("no span {name:?} in\n{}", tree(spans)))
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(future)
}

#[derive(Debug)]
struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("it broke")
    }
}

#[derive(Debug, PartialEq)]
struct Mute;

#[test]
fn guards_nest_and_the_last_value_of_a_key_wins() {
    register();
    let ((), spans) = collect(|| {
        let mut outer = managed_span!(WORK, "outer", SIZE = 1, "literal.key" = "x");
        outer.set(SIZE, 2);
        let _inner = managed_span!(OTHER, "inner");
        let _always = span!("always", SIZE = 3_u64);
    });
    insta::assert_snapshot!(tree(&spans), @"
    outer test.size=2
      inner
        always test.size=3
    ");
    assert!(spans.iter().all(|span| span.repeated_keys.is_empty()));
    assert_eq!(named(&spans, "outer").text("literal.key"), "x");
    assert_eq!(named(&spans, "outer").scope, "test");
}

#[test]
fn no_attribute_is_evaluated_when_the_group_is_off() {
    register();
    let evaluated = Cell::new(0);
    let count = || {
        evaluated.set(evaluated.get() + 1);
        1
    };
    let (value, spans) = collect_groups("other", || {
        let guard = managed_span!(WORK, format!("{}", count()), SIZE = count());
        drop(guard);
        managed_span!(WORK, "expression", SIZE = count() => 7)
    });
    assert_eq!((value, evaluated.get(), spans.len()), (7, 0, 0));
}

#[test]
fn expression_form_records_errors_and_passes_other_values() {
    register();
    let ((), spans) = collect(|| {
        let plain: i32 = managed_span!(WORK, "plain", SIZE = 1 => 40 + 2);
        assert_eq!(plain, 42);
        let failed: Result<(), Broken> = managed_span!(WORK, "failed" => Err(Broken));
        assert!(failed.is_err());
        let mute: Result<(), Mute> = managed_span!(WORK, "mute", SIZE = 2, => Err(Mute));
        assert_eq!(mute, Err(Mute));
        let fine: Result<u8, Broken> = managed_span!(WORK, "fine" => Ok(3));
        assert!(fine.is_ok());
        managed_span!(WORK, "unit" => {});
    });
    insta::assert_snapshot!(tree(&spans), @"
    plain test.size=1
    failed ERROR(it broke) !exception
    mute ERROR test.size=2 !exception
    fine
    unit
    ");
    let exception = &named(&spans, "failed").events[0];
    assert_eq!(exception.attributes["exception.type"], "sites::Broken");
    assert_eq!(exception.attributes["exception.message"], "it broke");
}

#[test]
fn future_forms_record_errors_and_pass_other_values() {
    register();
    let ((), spans) = collect(|| {
        block_on(async {
            let failed: Result<(), Broken> =
                managed_span!(WORK, "failed", SIZE = 1 => async { Err(Broken) }).await;
            assert!(failed.is_err());
            let inside = managed_span!(WORK, "mute", SIZE = 2, => async move {
                drop(managed_span!(OTHER, "inside"));
                Err::<(), Mute>(Mute)
            });
            assert_eq!(inside.await, Err(Mute));
            assert_eq!(managed_span!(WORK, "plain" => async { 42 }).await, 42);
            let awaited = managed_span!(WORK, "awaited", SIZE = 3 => async { 7 }.await);
            assert_eq!(awaited, 7, "an expression that awaits is still one");
            let chained = std::future::ready(Err::<u8, _>(Broken));
            assert!(chained.try_in_span(Span::start(&WORK, "chained")).await.is_err());
            let fine = std::future::ready(Ok::<_, Broken>(3));
            assert!(fine.try_in_span(Span::start(&WORK, "fine")).await.is_ok());
        });
    });
    insta::assert_snapshot!(tree(&spans), @"
    failed ERROR(it broke) test.size=1 !exception
    mute ERROR test.size=2 !exception
      inside
    plain
    awaited test.size=3
    chained ERROR(it broke) !exception
    fine
    ");
}

#[test]
fn future_form_evaluates_nothing_and_runs_all_the_same_when_the_group_is_off() {
    register();
    let evaluated = Cell::new(0);
    let count = || {
        evaluated.set(evaluated.get() + 1);
        1
    };
    let (value, spans) = collect_groups("other", || {
        block_on(managed_span!(WORK, format!("{}", count()), SIZE = count() => async { 7 }))
    });
    assert_eq!((value, evaluated.get(), spans.len()), (7, 0, 0));
}

#[test]
fn panic_through_a_guard_is_an_exception_and_context_is_restored() {
    register();
    let ((), spans) = collect(|| {
        let outcome = std::panic::catch_unwind(|| {
            let _guard = managed_span!(WORK, "panicking");
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(outcome.is_err());
        assert!(!Context::current().span_context().is_valid());
        drop(managed_span!(WORK, "after"));
    });
    insta::assert_snapshot!(tree(&spans), @"
    panicking ERROR(the scope was left by a panic) !exception
    after
    ");
}

#[trace_fn(group = WORK)]
fn traced_by_its_own_name(text: &str) -> &str {
    &text[1..]
}

#[trace_fn(group = WORK, name = "renamed")]
fn traced_generic<T, const N: usize>(items: [T; N]) -> Result<Vec<T>, Broken>
where
    T: Clone,
{
    if N == 0 {
        return Err(Broken);
    }
    Ok(items.to_vec())
}

struct Counter(u32);

impl Counter {
    #[trace_fn(group = WORK, name = "bump")]
    fn bump(&mut self) -> &mut u32 {
        self.0 += 1;
        drop(managed_span!(WORK, "inside"));
        &mut self.0
    }

    #[trace_fn(group = WORK, name = "fetch")]
    async fn fetch(&self, fail: bool) -> Result<u32, Box<dyn std::error::Error + Send + Sync>> {
        tokio::task::yield_now().await;
        drop(managed_span!(WORK, "inside"));
        if fail {
            Err("refused")?;
        }
        Ok(self.0)
    }

    #[trace_fn(group = WORK, name = "iterate")]
    fn iterate(&self) -> impl Iterator<Item = u32> {
        0..self.0
    }

    #[trace_fn(group = WORK, name = "nothing")]
    async fn nothing(&self) {}
}

#[test]
fn traced_functions_keep_their_behaviour() {
    register();
    let ((), spans) = collect(|| {
        assert_eq!(traced_by_its_own_name("abc"), "bc");
        assert_eq!(traced_generic([1, 2]).map_err(|_| ()), Ok(vec![1, 2]));
        assert!(traced_generic::<u8, 0>([]).is_err());
        let mut counter = Counter(0);
        *counter.bump() += 1;
        assert_eq!(counter.iterate().count(), 2);
        block_on(async {
            assert!(matches!(counter.fetch(false).await, Ok(2)));
            assert!(counter.fetch(true).await.is_err());
            counter.nothing().await;
        });
    });
    insta::assert_snapshot!(tree(&spans), @"
    traced_by_its_own_name
    renamed
    renamed ERROR(it broke) !exception
    bump
      inside
    iterate
    fetch
      inside
    fetch ERROR(refused) !exception
      inside
    nothing
    ");
}

#[test]
fn traced_functions_are_silent_when_the_group_is_off() {
    register();
    let (value, spans) = collect_groups("other", || block_on(Counter(5).fetch(false)));
    assert_eq!((value.ok(), spans.len()), (Some(5), 0));
}

#[test]
fn traced_async_function_stays_send() {
    fn assert_send<T: Send>(value: T) -> T {
        value
    }
    let counter = Counter(1);
    drop(assert_send(counter.fetch(true)));
    drop(assert_send(std::future::ready(1).in_span(Span::disabled())));
    drop(assert_send(std::future::ready(1).in_context(Context::empty())));
}

#[test]
fn context_never_leaks_between_tasks_of_one_thread() {
    register();
    let ((), spans) = collect(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let tasks = tokio::task::LocalSet::new();
        runtime.block_on(tasks.run_until(async {
            let task = |parent: &'static str, child: &'static str| {
                async move {
                    for _ in 0..3 {
                        tokio::task::yield_now().await;
                        drop(managed_span!(WORK, child));
                    }
                }
                .in_span(Span::start(&WORK, parent))
            };
            let first = tokio::task::spawn_local(task("first", "first child"));
            let second = tokio::task::spawn_local(task("second", "second child"));
            tokio::task::yield_now().await;
            drop(managed_span!(WORK, "outside"));
            assert!(first.await.is_ok() && second.await.is_ok());
        }));
    });
    insta::assert_snapshot!(tree(&spans), @"
    first
      first child
      first child
      first child
    second
      second child
      second child
      second child
    outside
    ");
}

#[test]
fn span_ends_when_its_future_is_done_not_when_it_is_dropped() {
    register();
    let (ended_first, spans) = collect(|| {
        let mut future = Box::pin(std::future::ready(()).in_span(Span::start(&WORK, "done")));
        block_on(future.as_mut());
        let _later = managed_span!(WORK, "later");
        drop(future);
        lens::now_unix_nanos()
    });
    let done = named(&spans, "done");
    assert!(done.end_nanos <= named(&spans, "later").start_nanos);
    assert!(done.end_nanos < ended_first);
    assert!(!done.attributes.contains_key(lens::semconv::CANCELLED));
}

#[test]
fn dropped_future_ends_its_span_as_cancelled() {
    register();
    let ((), spans) = collect(|| {
        block_on(async {
            let never = std::future::pending::<()>().in_span(Span::start(&WORK, "never"));
            let waited = tokio::time::timeout(Duration::from_millis(1), never).await;
            assert!(waited.is_err());
        });
        drop(std::future::ready(()).in_span(Span::start(&WORK, "unpolled")));
    });
    for name in ["never", "unpolled"] {
        assert_eq!(named(&spans, name).attributes[lens::semconv::CANCELLED], true, "{name}");
    }
}

#[test]
fn future_that_panics_ends_its_span_with_an_exception() {
    register();
    let ((), spans) = collect(|| {
        let future = std::future::poll_fn(|_| -> Poll<()> {
            std::panic::resume_unwind(Box::new("on purpose"))
        });
        let future = future.in_span(Span::start(&WORK, "panicking"));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| block_on(future)));
        assert!(outcome.is_err());
        assert!(!Context::current().span_context().is_valid());
    });
    let span = named(&spans, "panicking");
    assert_eq!(span.status, StatusCode::Error);
    assert!(!span.attributes.contains_key(lens::semconv::CANCELLED));
}

#[test]
fn span_may_end_on_another_thread() {
    register();
    let ((), spans) = collect(|| {
        let span = Span::start(&WORK, "moved");
        let context = Context::current().with_span(&span);
        std::thread::spawn(move || {
            let _context = context.attach();
            drop(managed_span!(WORK, "there"));
            span.end();
        })
        .join()
        .expect("no panic");
    });
    insta::assert_snapshot!(tree(&spans), @"
    moved
      there
    ");
}

#[test]
fn promoted_baggage_is_on_every_span_below_and_own_attributes_win() {
    register();
    let ((), spans) = collect(|| {
        let entries = [(ROLLOUT, "7-1".to_owned()), (TASK_INDEX, "7".to_owned())];
        let context =
            Context::current().with_baggage(&entries).with_baggage(&[("plain", "x".to_owned())]);
        assert_eq!(context.baggage(ROLLOUT), Some("7-1"));
        let _attached = context.attach();
        let _outer = managed_span!(WORK, "outer");
        drop(managed_span!(WORK, "inner", ROLLOUT = "other"));
        block_on(std::future::ready(()).in_span(Span::start(&WORK, "future")));
    });
    for name in ["outer", "future"] {
        let span = named(&spans, name);
        assert_eq!(span.text(ROLLOUT), "7-1", "{name}");
        assert_eq!(span.attributes[TASK_INDEX], 7, "{name}");
        assert!(!span.attributes.contains_key("plain"), "{name}");
    }
    let inner = named(&spans, "inner");
    assert_eq!(inner.text(ROLLOUT), "other");
    assert!(inner.repeated_keys.is_empty());
}

#[test]
fn remote_parent_flows_through_a_span_whose_group_is_off() {
    register();
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let (header, spans) = collect_groups("work", || {
        let remote = Context::extract(|name| match name {
            "traceparent" => Some(PARENT),
            "baggage" => Some("test.rollout.id=9"),
            _ => None,
        });
        let server = Span::build(&OTHER, "server").kind(SpanKind::Server).parent(&remote).start();
        let header = Rc::new(Cell::new(String::new()));
        let seen = Rc::clone(&header);
        block_on(
            async move {
                Context::current().inject(|name, value| {
                    if name == "traceparent" {
                        seen.set(value.to_owned());
                    }
                });
                drop(managed_span!(WORK, "below"));
            }
            .in_span(server),
        );
        header.take()
    });
    assert_eq!(header, PARENT);
    let below = named(&spans, "below");
    assert_eq!(below.parent_id.as_deref(), Some("b7ad6b7169203331"));
    assert_eq!(below.text(ROLLOUT), "9");
    assert_eq!(below.flags, 0x301, "sampled, parent known to be remote");
}

#[test]
fn unsampled_parent_is_honoured_and_passed_on() {
    register();
    let (header, spans) = collect(|| {
        let remote = Context::extract(|name| {
            (name == "traceparent")
                .then_some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
        });
        let span = Span::build(&WORK, "unsampled").parent(&remote).start();
        assert!(!span.is_recording());
        let mut header = String::new();
        remote.with_span(&span).inject(|_, value| header = value.to_owned());
        header
    });
    assert!(spans.is_empty());
    assert!(header.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && header.ends_with("-00"));
    assert!(
        !header.contains("b7ad6b7169203331"),
        "the unsampled span has an id of its own: {header}"
    );
}

/// What the third of three servers is sent when the first is sent `flags`.
fn through_three_servers(flags: &str) -> String {
    let mut header = format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
    for _ in 0..3 {
        let remote = Context::extract(|name| (name == "traceparent").then_some(header.as_str()));
        let server = Span::build(&WORK, "server").kind(SpanKind::Server).parent(&remote).start();
        let server = remote.with_span(&server).attach();
        let client = Span::build(&WORK, "client").kind(SpanKind::Client).start();
        Context::current().with_span(&client).inject(|_, value| header = value.to_owned());
        drop((client, server));
    }
    header
}

#[test]
fn decision_of_the_first_is_kept_through_three_servers() {
    register();
    for (flags, recorded) in [("00", 0), ("01", 6), ("02", 0), ("03", 6)] {
        let (header, spans) = collect(|| through_three_servers(flags));
        assert!(header.ends_with(&format!("-{flags}")), "{flags}: {header}");
        assert_eq!(spans.len(), recorded, "{flags}");
    }
}

#[test]
fn builder_sets_kind_root_links_and_times() {
    register();
    let ((), spans) = collect(|| {
        let outer = managed_span!(WORK, "outer");
        let link = outer.context();
        let mut root = Span::build(&WORK, "root")
            .kind(SpanKind::Client)
            .root()
            .link(link)
            .start_nanos(1_000)
            .start();
        root.event_at("tried", 1_500, &[(SIZE, 3.into()), (SIZE, Value::from("last"))]);
        root.update_name("renamed");
        root.set_ok();
        root.set_error("too late: OK is final");
        root.end_at(2_000);
        Span::build(&WORK, "backwards").start_nanos(5_000).start().end_at(4_000);
    });
    let (outer, root) = (named(&spans, "outer"), named(&spans, "renamed"));
    assert_ne!(outer.trace_id, root.trace_id);
    assert_eq!((root.kind, root.start_nanos, root.end_nanos), ("CLIENT", 1_000, 2_000));
    assert_eq!(root.parent_id, None);
    assert_eq!(
        (&root.links[0].trace_id, &root.links[0].span_id),
        (&outer.trace_id, &outer.span_id)
    );
    assert_eq!(
        (root.events[0].unix_nanos, &root.events[0].attributes[SIZE]),
        (1_500, &"last".into())
    );
    assert_eq!(root.status, StatusCode::Ok);
    assert_eq!(named(&spans, "backwards").end_nanos, 5_000, "a span never ends before it starts");
}

#[test]
fn redaction_hides_values_and_drops_arrays() {
    register();
    let ((), spans) = collect(|| {
        let mut span = Span::start(&WORK, "redacted");
        let attributes = [
            ("Password".to_owned(), Value::from("hunter2")),
            ("count".to_owned(), Value::from(3)),
            ("list".to_owned(), Value::from(vec![1_i64, 2])),
        ];
        span.set_attributes_redacted(attributes.clone(), None);
        span.end();
        let mut span = Span::start(&WORK, "chosen");
        span.set_attributes_redacted(attributes, Some(&["count"]));
    });
    let redacted = named(&spans, "redacted");
    assert_eq!(redacted.text("Password"), lens::semconv::REDACTED);
    assert_eq!(redacted.attributes["count"], 3);
    assert!(!redacted.attributes.contains_key("list"));
    let chosen = named(&spans, "chosen");
    assert_eq!(
        (chosen.text("Password"), chosen.text("count")),
        ("hunter2", lens::semconv::REDACTED)
    );
}

#[test]
fn events_and_links_beyond_their_limit_are_counted() {
    register();
    let ((), spans) = collect(|| {
        let mut span = Span::start(&WORK, "full");
        let link = span.context();
        for _ in 0..130 {
            span.event("again", &[]);
            span.link(link);
        }
        for at in 0..130 {
            let key: &'static str = format!("key.{at}").leak();
            span.set(key, at);
        }
    });
    let span = named(&spans, "full");
    assert_eq!((span.attributes.len(), span.events.len(), span.links.len()), (128, 128, 128));
    assert_eq!(span.dropped, (2, 2, 2));
}

#[test]
fn every_kind_of_value_arrives() {
    register();
    let ((), spans) = collect(|| {
        let mut span = Span::start(&WORK, "values");
        span.set("str", "text");
        span.set("string", String::from("owned"));
        span.set("int", -3_i32);
        span.set("huge", u64::MAX);
        span.set("double", 0.5);
        span.set("bool", true);
        span.set("list", vec!["a", "b"]);
        span.set("some", Some(1_usize));
        span.set("none", None::<&str>);
        span.set("nan", f64::NAN);
    });
    let attributes = serde_json::to_string(&named(&spans, "values").attributes).expect("JSON");
    insta::assert_snapshot!(attributes, @r#"{"bool":true,"double":0.5,"huge":9223372036854775807,"int":-3,"list":["a","b"],"nan":"NaN","some":1,"str":"text","string":"owned"}"#);
}
