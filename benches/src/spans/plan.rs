//! Which cases there are, in the order of the table.

/// One child process and its row.
#[derive(Clone, Debug)]
pub struct Row {
    pub label: &'static str,
    /// Arguments behind `case`.
    pub case: Vec<String>,
}

/// Which figures a section shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A site that is off.
    Off,
    /// A span that ended.
    Cost,
    /// Spans end to end.
    Wire,
    /// Producers beside an exporter.
    Load,
}

#[derive(Clone, Debug)]
pub struct Section {
    pub title: &'static str,
    pub shape: Shape,
    pub rows: Vec<Row>,
}

/// Rows whose subject is ours have this label or begin with it.
pub const OURS: &str = "lens";

const OFF: &[(&str, &str)] = &[
    ("empty", "empty loop"),
    ("lens", "lens, group off"),
    ("lens-not-set-up", "lens, never set up"),
    ("tracing-no-subscriber", "tracing, no subscriber"),
    ("tracing-off", "tracing, LevelFilter::OFF"),
    ("fastrace-no-parent", "fastrace, no local parent"),
    ("otel-always-off", "opentelemetry_sdk, AlwaysOff"),
];

const LENS: (&str, &str) = ("lens", "lens");
const LENS_SHARED: (&str, &str) = ("lens-shared", "lens, buffer in a file on tmpfs");
const FASTRACE: (&str, &str) = ("fastrace", "fastrace");
const FASTRACE_OTEL: (&str, &str) = ("fastrace-otel", "fastrace + fastrace-opentelemetry");
const OTEL: (&str, &str) = ("otel", "opentelemetry_sdk, child current");
const OTEL_EXPLICIT: (&str, &str) = ("otel-explicit", "opentelemetry_sdk, parent by hand");
const TRACING_OTEL: (&str, &str) = ("tracing-otel", "tracing-opentelemetry, trimmed");

fn section(
    title: &'static str,
    shape: Shape,
    kind: &str,
    variant: &str,
    subjects: &[(&str, &'static str)],
) -> Section {
    let row = |(subject, label): &(&str, &'static str)| Row {
        label,
        case: [kind, subject, variant].into_iter().map(String::from).collect(),
    };
    Section { title, shape, rows: subjects.iter().map(row).collect() }
}

/// The one table.
pub fn table() -> Vec<Section> {
    let all = &[LENS, LENS_SHARED, FASTRACE, FASTRACE_OTEL, OTEL, OTEL_EXPLICIT, TRACING_OTEL];
    let most = &[LENS, FASTRACE, FASTRACE_OTEL, OTEL, TRACING_OTEL];
    let four = &[LENS, FASTRACE, OTEL, TRACING_OTEL];
    let wire = &[LENS, FASTRACE_OTEL, OTEL, TRACING_OTEL];
    use Shape::{Cost, Off, Wire};
    vec![
        section("disabled site, 0 attributes", Off, "off", "0", OFF),
        section("disabled site, 4 attributes", Off, "off", "4", OFF),
        section("ended span, 0 attributes, root + 9 children", Cost, "warm", "0", all),
        section("ended span, 4 attributes, root + 9 children", Cost, "warm", "4", all),
        section("ended span, 8 attributes, root + 9 children", Cost, "warm", "8", all),
        section("ended span, 4 attributes and the 5 ids of a rollout", Cost, "warm", "9", all),
        section("two threads at once, 4 attributes", Cost, "threads", "4", most),
        section("after walking 1 MiB before each operation, 4 attributes", Cost, "cold", "4", four),
        section(
            "async span over 3 awaits, 4 attributes, less the bare task",
            Cost,
            "awaits",
            "4",
            four,
        ),
        section("end to end over HTTP/protobuf, 4 attributes", Wire, "wire", "http", wire),
        section("end to end over gRPC, 4 attributes", Wire, "wire", "grpc", wire),
    ]
}

/// `--paced`.
pub fn paced() -> Vec<Section> {
    let title = "1,000,000 spans/s from two threads for 10 s, 4 attributes, HTTP/protobuf";
    vec![section(title, Shape::Load, "paced", "http", &[LENS, LENS_SHARED, OTEL])]
}

/// `--flat-out`.
pub fn flat_out() -> Vec<Section> {
    let subjects = &[LENS, LENS_SHARED, FASTRACE_OTEL, OTEL, TRACING_OTEL];
    let title = "two threads flat out for 2 s, 4 attributes, HTTP/protobuf";
    vec![section(title, Shape::Load, "flat-out", "http", subjects)]
}

/// `--slow-sink`.
pub fn slow_sink() -> Vec<Section> {
    let title =
        "two threads flat out for 8 s against a receiver of 1 MB/s, 4 attributes, HTTP/protobuf";
    vec![section(title, Shape::Load, "slow-sink", "http", &[LENS, LENS_SHARED, OTEL])]
}
