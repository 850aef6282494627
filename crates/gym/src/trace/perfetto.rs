//! Trace events, as ui.perfetto.dev and chrome://tracing open them.
//!
//! A process is one of ours; what overlaps in it without being nested lies on threads of its own. An arrow leads from a
//! span to one that it caused in another process.

use std::collections::HashMap;
use std::io::{self, Write};

use lens_store::trace::{Resource, Root, Section, Status, Traces};
use serde_json::{Value, json};

/// Writes one document; returns how many spans it has.
pub fn write(traces: &Traces, sections: &[Section], out: &mut impl Write) -> io::Result<usize> {
    let mut processes = Processes::default();
    let mut events = Events { out, count: 0 };
    events.out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    let mut spans = 0;
    for section in sections {
        spans += section.end - section.first;
        put_section(traces, *section, &mut processes, &mut events)?;
    }
    for (name, pid) in processes.names() {
        events.put(
            &json!({ "ph": "M", "pid": pid, "name": "process_name", "args": { "name": name } }),
        )?;
    }
    events.out.write_all(b"\n]}\n")?;
    events.out.flush()?;
    Ok(spans)
}

struct Events<'a, W> {
    out: &'a mut W,
    count: usize,
}

impl<W: Write> Events<'_, W> {
    fn put(&mut self, event: &Value) -> io::Result<()> {
        let separator: &[u8] = if self.count == 0 { b"\n" } else { b",\n" };
        self.count += 1;
        self.out.write_all(separator)?;
        serde_json::to_writer(&mut *self.out, event).map_err(io::Error::from)
    }
}

fn put_section<W: Write>(
    traces: &Traces,
    section: Section,
    processes: &mut Processes,
    events: &mut Events<'_, W>,
) -> io::Result<()> {
    let tree = &traces.traces[section.trace].tree;
    let trace_id = traces.traces[section.trace].trace_id;
    let mut order: Vec<usize> = (section.first..section.end).collect();
    order.sort_by_key(|&at| {
        let node = &tree.nodes[at];
        (node.start_nanos, std::cmp::Reverse(node.end_nanos), at)
    });
    let mut tracks: HashMap<usize, (usize, usize)> = HashMap::new();
    for at in order {
        let node = &tree.nodes[at];
        let span = traces.span(section.trace, at);
        // The nearest span above it in its own process: below that it may be drawn.
        let pid = processes.of(&span.resource);
        let mut above = node.parent;
        while let Some(parent) = above
            && processes.of(&traces.span(section.trace, parent).resource) != pid
        {
            above = tree.nodes[parent].parent;
        }
        let tid = processes.thread(
            pid,
            (section.trace, at),
            above.map(|at| (section.trace, at)),
            (node.start_nanos, node.end_nanos),
        );
        tracks.insert(at, (pid, tid));
        let mut args = span.attributes();
        args.insert("trace_id".to_owned(), json!(trace_id.to_string()));
        args.insert("span_id".to_owned(), json!(span.raw.span_id.to_string()));
        args.insert("kind".to_owned(), json!(span.kind.name()));
        if span.status == Status::Error {
            args.insert("status".to_owned(), json!(span.status_description().unwrap_or("ERROR")));
        }
        for (mark, is) in [
            ("truncated", span.is_truncated),
            ("parent missing", matches!(node.root, Some(Root::ParentMissing(_)))),
        ] {
            if is {
                args.insert(mark.to_owned(), json!(true));
            }
        }
        events.put(&json!({
            "ph": "X",
            "name": &*span.name,
            "cat": span.kind.name(),
            "pid": pid,
            "tid": tid,
            "ts": micros(node.start_nanos),
            "dur": micros(node.duration_nanos()),
            "args": args,
        }))?;
        if let Some(parent) = node.parent
            && let Some(&(from_pid, from_tid)) = tracks.get(&parent)
            && from_pid != pid
        {
            let id = format!("{}", span.raw.span_id);
            let ends = [("s", from_pid, from_tid, None), ("f", pid, tid, Some("e"))];
            for (ph, pid, tid, bp) in ends {
                let mut flow = json!({
                    "ph": ph, "id": id, "name": "calls", "cat": "calls",
                    "pid": pid, "tid": tid, "ts": micros(node.start_nanos),
                });
                if let Some(bp) = bp {
                    flow["bp"] = json!(bp);
                }
                events.put(&flow)?;
            }
        }
    }
    Ok(())
}

/// The format counts microseconds; the fraction keeps nanoseconds.
fn micros(nanos: u64) -> Value {
    let text = format!("{}.{:03}", nanos / 1000, nanos % 1000);
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

/// A node of a trace.
type Place = (usize, usize);

/// What is open on a thread, the innermost last.
type Thread = Vec<(Place, u64)>;

/// Numbers of processes, and what is on their threads.
#[derive(Default)]
struct Processes {
    by_key: HashMap<String, usize>,
    names: Vec<String>,
    threads: Vec<Vec<Thread>>,
}

impl Processes {
    fn of(&mut self, resource: &Resource) -> usize {
        if let Some(pid) = self.by_key.get(&resource.process_key) {
            return *pid;
        }
        let pid = self.names.len() + 1;
        self.names.push(resource.instance.clone());
        self.threads.push(Vec::new());
        self.by_key.insert(resource.process_key.clone(), pid);
        pid
    }

    fn names(&self) -> impl Iterator<Item = (&str, usize)> {
        self.names.iter().enumerate().map(|(at, name)| (name.as_str(), at + 1))
    }

    /// The first thread on which a span is either alone or inside of the span above it.
    fn thread(
        &mut self,
        pid: usize,
        place: Place,
        above: Option<Place>,
        (start_nanos, end_nanos): (u64, u64),
    ) -> usize {
        let threads = &mut self.threads[pid - 1];
        for (at, open) in threads.iter_mut().enumerate() {
            while open.last().is_some_and(|(_, end)| *end <= start_nanos) {
                open.pop();
            }
            let fits = match open.last() {
                None => above.is_none(),
                Some((inner, end)) => Some(*inner) == above && end_nanos <= *end,
            };
            if fits {
                open.push((place, end_nanos));
                return at + 1;
            }
        }
        threads.push(vec![(place, end_nanos)]);
        threads.len()
    }
}
