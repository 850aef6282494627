//! A trace or rollout, top to bottom, one line per span.

use lens_store::trace::{
    Kind, Node, Root, Section, Span, Status, Traces, Tree, foreign, scalar_text, timestamp,
};
use std::collections::BTreeSet;
use std::fmt::Write as _;

use gym_telemetry::semconv;
use serde_json::{Map, Value};

use super::bar::Scale;
use super::read::counted;
use super::text::{Canvas, ProcessLabels, columns, cut, duration_text, padding};

/// Below this width the tree is drawn with a column for each level, to leave room for bars.
const WIDE_COLUMNS: usize = 100;
/// Names are not cut shorter than this, and than the second for the sake of bars.
const LEAST_NAMES: [usize; 2] = [16, 28];
/// The width that is drawn for when nobody says.
const PIPE_COLUMNS: usize = 120;
const BAR_WIDTHS: std::ops::RangeInclusive<usize> = 16..=60;
/// Shorter waits for a slot are not worth a word.
const WAIT_WORTH_SAYING_NANOS: u64 = 1_000_000;
/// Clocks that differ by less are not worth a word.
const SHIFT_WORTH_SAYING_NANOS: u64 = 1_000_000;

/// Draws a section, header first.
pub fn timeline(traces: &Traces, section: Section, canvas: &Canvas) -> String {
    let trace = &traces.traces[section.trace];
    let tree = &trace.tree;
    let nodes = &tree.nodes[section.first..section.end];
    let span_of = |node: &Node| &traces.spans[node.span];
    let labels = ProcessLabels::new(nodes.iter().map(|node| &*span_of(node).resource));

    let mut text = header(traces, section, canvas);
    let roles: Vec<String> =
        labels.legend().map(|(role, instance)| format!("{role} = {instance}")).collect();
    for role in roles {
        writeln!(text, "{}", canvas.dim(&format!("  {role}"))).ok();
    }
    text.push('\n');

    let lines: Vec<Line> = (section.first..section.end)
        .map(|at| {
            let process = labels.of(&span_of(&tree.nodes[at]).resource);
            Line::new(traces, section, at, process, canvas)
        })
        .collect();
    let layout = Layout::new(&lines, canvas);
    let start_nanos = nodes.iter().map(|node| node.start_nanos).min().unwrap_or(0);
    let end_nanos = nodes.iter().map(|node| node.end_nanos).max().unwrap_or(0);
    let scale = Scale { start_nanos, end_nanos, width: layout.bar };
    for (at, line) in (section.first..section.end).zip(&lines) {
        let bar = (layout.bar > 0).then(|| scale.bar(tree, at));
        text.push_str(&layout.draw(line, bar.as_deref(), canvas));
        text.push('\n');
    }
    text
}

fn header(traces: &Traces, section: Section, canvas: &Canvas) -> String {
    let trace = &traces.traces[section.trace];
    let nodes = &trace.tree.nodes[section.first..section.end];
    let rollouts: Vec<_> = trace
        .rollouts
        .iter()
        .filter(|rollout| (section.first..section.end).contains(&rollout.node))
        .collect();
    let mut parts = Vec::new();
    match rollouts.as_slice() {
        [] => {}
        [one] => {
            if let Some(id) = &one.id {
                parts.push(canvas.bold(&format!("rollout {id}")));
            }
        }
        many => parts.push(canvas.bold(&format!("{} rollouts", many.len()))),
    }
    parts.push(format!("trace {}", trace.trace_id));
    match rollouts.as_slice() {
        [one] if one.admission_nanos >= WAIT_WORTH_SAYING_NANOS => parts.push(format!(
            "{} after {} of waiting for a slot",
            duration_text(one.duration_nanos),
            duration_text(one.admission_nanos)
        )),
        [one] => parts.push(duration_text(one.duration_nanos)),
        _ => {
            let start = nodes.iter().map(|node| node.start_nanos).min().unwrap_or(0);
            let end = nodes.iter().map(|node| node.end_nanos).max().unwrap_or(0);
            parts.push(duration_text(end - start));
        }
    }
    let spans = || nodes.iter().map(|node| &traces.spans[node.span]);
    let processes: BTreeSet<&str> = spans().map(|span| &*span.resource.process_key).collect();
    parts.push(format!(
        "{} in {}",
        counted(nodes.len(), "span", "spans"),
        counted(processes.len(), "process", "processes")
    ));
    let errors = spans().filter(|span| span.status == Status::Error).count();
    if errors > 0 {
        parts.push(canvas.red(&counted(errors, "error", "errors")));
    }
    let folded: usize = nodes.iter().map(|node| node.folded).sum();
    if folded > 0 {
        parts.push(format!("{folded} ASGI events left out"));
    }
    if let Some(first) = nodes.first() {
        parts.push(format!("{} UTC", timestamp::to_readable(first.start_nanos)));
    }
    format!("{}\n", parts.join(&canvas.dim(" · ")))
}

/// One span, not yet laid out.
struct Line<'a> {
    branches: String,
    name: &'a str,
    process: &'a str,
    duration: String,
    failed: bool,
    notes: Vec<String>,
}

impl<'a> Line<'a> {
    fn new(
        traces: &'a Traces,
        section: Section,
        at: usize,
        process: &'a str,
        canvas: &Canvas,
    ) -> Self {
        let is_narrow = canvas.width.is_some_and(|width| width < WIDE_COLUMNS);
        let tree = &traces.traces[section.trace].tree;
        let span = traces.span(section.trace, at);
        Self {
            branches: branches(tree, section, at, is_narrow),
            name: &span.name,
            process,
            duration: duration_text(tree.nodes[at].duration_nanos()),
            failed: span.status == Status::Error,
            notes: notes(traces, section, at),
        }
    }
}

/// `│  └─ ` before a name. The last child of each ancestor is found from the subtree's end.
fn branches(tree: &Tree, section: Section, at: usize, is_narrow: bool) -> String {
    let top = tree.nodes[section.first].depth;
    let mut parts = Vec::new();
    let mut node = at;
    while node != section.first
        && let Some(parent) = tree.nodes[node].parent
    {
        let is_last = tree.nodes[node].end == tree.nodes[parent].end;
        parts.push(match (is_narrow, node == at, is_last) {
            (false, true, true) => "└─ ",
            (false, true, false) => "├─ ",
            (false, false, true) => "   ",
            (false, false, false) => "│  ",
            (true, true, true) => "└ ",
            (true, true, false) => "├ ",
            (true, false, true) => " ",
            (true, false, false) => "│",
        });
        node = parent;
        if parts.len() > MAX_DRAWN_DEPTH {
            return format!("⋯ {} deep ─ ", tree.nodes[at].depth.saturating_sub(top));
        }
    }
    parts.reverse();
    parts.concat()
}

/// Deeper spans say how deep they are instead of drawing it.
const MAX_DRAWN_DEPTH: usize = 24;

/// What else is worth knowing, most important first.
fn notes(traces: &Traces, section: Section, at: usize) -> Vec<String> {
    let tree = &traces.traces[section.trace].tree;
    let node = &tree.nodes[at];
    let span = traces.span(section.trace, at);
    let attributes = span.attributes();
    let mut notes = Vec::new();

    let status = status_code(&attributes);
    if span.status == Status::Error {
        notes.push(format!("✗ {}", failure(span, &attributes, status)));
    } else if let Some(status) = status.filter(|code| *code >= 400) {
        notes.push(format!("status {status}"));
    }
    if attributes.get(semconv::CANCELLED) == Some(&Value::Bool(true)) {
        notes.push("cancelled".to_owned());
    }
    if span.is_truncated {
        notes.push("truncated (was still open)".to_owned());
    }
    match node.root {
        Some(Root::ParentMissing(parent)) => notes.push(format!("parent {parent} not found")),
        Some(Root::Circle) => notes.push("its own ancestor".to_owned()),
        _ => {}
    }
    if let Some(attempts) = attempts(span) {
        notes.push(attempts);
    }
    for (key, label) in [
        (semconv::HTTP_BACKOFF_NANOS, "back-off"),
        (semconv::HTTP_POOL_WAIT_NANOS, "waited for a connection"),
    ] {
        let nanos = attributes.get(key).and_then(Value::as_u64).unwrap_or(0);
        // A wait that explains nothing is no news.
        if nanos > 0 && nanos.saturating_mul(20) >= node.duration_nanos() {
            notes.push(format!("{label} {}", duration_text(nanos)));
        }
    }
    if span.kind == Kind::Client {
        let answered =
            tree.children(at).any(|child| traces.span(section.trace, child).kind == Kind::Server);
        if !answered && let Some(target) = target(&attributes) {
            notes.push(format!("→ {target}"));
        }
    }
    let correction = match node.parent {
        Some(parent) => node.shift_nanos - tree.nodes[parent].shift_nanos,
        None => 0,
    };
    if correction.unsigned_abs() >= SHIFT_WORTH_SAYING_NANOS {
        let direction = if correction > 0 { "later" } else { "earlier" };
        let by = duration_text(correction.unsigned_abs());
        notes.push(format!("clock differs, drawn {by} {direction}"));
    }
    notes
}

fn status_code(attributes: &Map<String, Value>) -> Option<u64> {
    [semconv::HTTP_RESPONSE_STATUS_CODE, foreign::LEGACY_HTTP_STATUS_CODE]
        .iter()
        .find_map(|key| attributes.get(*key)?.as_u64())
}

/// Status code, type and description of a failure, each once.
fn failure(span: &Span, attributes: &Map<String, Value>, status: Option<u64>) -> String {
    let status = status.map(|code| code.to_string());
    let exception = || {
        span.events().into_iter().rev().find_map(|event| {
            (event.get("name")?.as_str()? == lens::semconv::EXCEPTION_EVENT).then(|| {
                event.get("attributes")?.get(lens::semconv::EXCEPTION_TYPE).map(scalar_text)
            })?
        })
    };
    let error_type = attributes.get(semconv::ERROR_TYPE).map(scalar_text).or_else(exception);
    let description = span.status_description().map(lens_store::trace::printable);
    let mut parts: Vec<String> = Vec::new();
    for part in [status, error_type, description].into_iter().flatten() {
        if !parts.iter().any(|known| part.contains(known.as_str()) || known.contains(&part)) {
            parts.push(part);
        } else if let Some(shorter) = parts.iter_mut().find(|known| part.contains(known.as_str())) {
            *shorter = part;
        }
    }
    if parts.is_empty() { "error".to_owned() } else { parts.join(" ") }
}

/// `3 attempts (429, 503)`, when there was more than one.
fn attempts(span: &Span) -> Option<String> {
    let events = span.events();
    let attempts: Vec<&Value> = events
        .iter()
        .filter(|event| event.get("name").is_some_and(|name| name == semconv::event::HTTP_ATTEMPT))
        .collect();
    let (_, failed) = attempts.split_last()?;
    if failed.is_empty() {
        return None;
    }
    let mut reasons: Vec<String> = Vec::new();
    for event in failed {
        let attributes = event.get("attributes").and_then(Value::as_object);
        let reason = attributes.and_then(|attributes| {
            let status = attributes.get(semconv::HTTP_RESPONSE_STATUS_CODE);
            status.or_else(|| attributes.get(semconv::HTTP_ATTEMPT_REASON)).map(scalar_text)
        });
        if let Some(reason) = reason
            && !reasons.contains(&reason)
        {
            reasons.push(reason);
        }
    }
    let why = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
    Some(format!("{} attempts{why}", attempts.len()))
}

/// Where a request went, for requests whose other side is not in the trace.
fn target(attributes: &Map<String, Value>) -> Option<String> {
    if let Some(url) = attributes.get(semconv::URL_FULL).map(scalar_text) {
        let url = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
        let end = url.find(['?', '#']).unwrap_or(url.len());
        return Some(url[..end].to_owned());
    }
    let address = attributes.get(semconv::SERVER_ADDRESS).map(scalar_text)?;
    match attributes.get(semconv::SERVER_PORT) {
        Some(port) => Some(format!("{address}:{port}")),
        None => Some(address),
    }
}

/// Widths of the columns.
struct Layout {
    name: usize,
    process: usize,
    duration: usize,
    /// 0: no bars.
    bar: usize,
    /// Room for notes; `None`: as much as they want.
    notes: Option<usize>,
}

impl Layout {
    fn new(lines: &[Line<'_>], canvas: &Canvas) -> Self {
        let widest = |width: fn(&Line<'_>) -> usize| lines.iter().map(width).max().unwrap_or(0);
        let mut name = widest(|line| columns(&line.branches) + columns(line.name));
        let process = widest(|line| columns(line.process));
        let duration = widest(|line| columns(&line.duration)).max(6);
        let notes = widest(|line| line.notes.iter().map(|note| columns(note) + 2).sum());
        if let Some(width) = canvas.width {
            // Two blanks after the name, two after the process.
            let room = width.saturating_sub(process + duration + 4);
            let bar = BAR_WIDTHS.start() + 2;
            let [least, with_bars] = LEAST_NAMES;
            let room = if room >= with_bars + bar { room - bar } else { room };
            name = name.min(room.max(least));
        }
        let available = canvas.width.unwrap_or(PIPE_COLUMNS);
        let rest = available.saturating_sub(name + process + duration + 4);
        let mut bar = 0;
        if rest >= BAR_WIDTHS.start() + 2 {
            // What is worth knowing is worth more than long bars.
            let most =
                if available < WIDE_COLUMNS { rest - 2 - BAR_WIDTHS.start() } else { rest / 3 };
            let wanted = rest - 2 - notes.min(most);
            bar = wanted.clamp(*BAR_WIDTHS.start(), *BAR_WIDTHS.end());
        }
        let taken = if bar > 0 { bar + 2 } else { 0 };
        let notes = canvas.width.is_some().then(|| rest.saturating_sub(taken));
        Self { name, process, duration, bar, notes }
    }

    fn draw(&self, line: &Line<'_>, bar: Option<&str>, canvas: &Canvas) -> String {
        let branches = cut(&line.branches, self.name.saturating_sub(4));
        let name = cut(line.name, self.name - columns(&branches));
        let blanks = padding(&format!("{branches}{name}"), self.name);
        let name = if line.failed { canvas.red(&name) } else { name };
        let mut text = format!(
            "{}{name}{blanks}  {}{}  {}{}",
            canvas.dim(&branches),
            canvas.cyan(line.process),
            padding(line.process, self.process),
            padding(&line.duration, self.duration),
            line.duration,
        );
        let notes = line.notes.join("  ");
        let notes = match self.notes {
            Some(room) if room < 4 => String::new(),
            Some(room) => cut(&notes, room - 2),
            None => notes,
        };
        if let Some(bar) = bar {
            let bar = if notes.is_empty() { bar.trim_end() } else { bar };
            let bar = if line.failed { canvas.red(bar) } else { canvas.cyan(bar) };
            write!(text, "  {bar}").ok();
        }
        if !notes.is_empty() {
            let notes = if line.failed { canvas.red(&notes) } else { canvas.dim(&notes) };
            write!(text, "  {notes}").ok();
        }
        text
    }
}
