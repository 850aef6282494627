//! `gym spool list`: buffers of processes, and files of what could not be delivered.

use serde_json::{Value, json};

use crate::args::SpoolListArgs;
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::spool::{Kept, Place};
use crate::trace::{Align, Canvas, duration_text, table};

pub fn run(args: &SpoolListArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    let place = Place::find(&args.source, args.dir.as_deref(), printer)?;
    let kept = place.look();
    let now_nanos = lens::now_unix_nanos();
    if args.json {
        printer.data(&serde_json::to_string_pretty(&document(&kept, now_nanos))?)?;
    } else if kept.is_empty() {
        printer.say(&format!("nothing in {}", place.names()));
    } else {
        printer.data(&text(&kept, now_nanos, &Canvas::of(printer)))?;
    }
    Ok(ExitStatus::Done)
}

fn signal(is_logs: bool) -> &'static str {
    if is_logs { "logs" } else { "spans" }
}

fn state(is_alive: bool) -> &'static str {
    if is_alive { "alive" } else { "dead" }
}

fn text(kept: &Kept, now_nanos: u64, canvas: &Canvas) -> String {
    let mut text = String::new();
    if !kept.buffers.is_empty() {
        let rows = kept.buffers.iter().map(|buffer| {
            vec![
                buffer.run_id.clone(),
                buffer.pid.to_string(),
                signal(buffer.is_logs).to_owned(),
                state(buffer.is_alive).to_owned(),
                buffer.waiting.to_string(),
                buffer.open.to_string(),
                duration_text(now_nanos.saturating_sub(buffer.seen_nanos)),
            ]
        });
        let header = [
            ("RUN", Align::Left),
            ("PID", Align::Right),
            ("SIGNAL", Align::Left),
            ("PROCESS", Align::Left),
            ("WAITING", Align::Right),
            ("OPEN", Align::Right),
            ("SEEN AGO", Align::Right),
        ];
        text.push_str(&table(canvas, &header, &rows.collect::<Vec<_>>(), 0));
    }
    if !kept.files.is_empty() {
        if !text.is_empty() {
            text.push('\n');
        }
        let rows = kept.files.iter().map(|file| {
            vec![
                file.run_id.clone(),
                signal(file.is_logs).to_owned(),
                state(file.is_alive).to_owned(),
                file.items.to_string(),
                file.bytes.to_string(),
                file.path.display().to_string(),
            ]
        });
        let header = [
            ("RUN", Align::Left),
            ("SIGNAL", Align::Left),
            ("PROCESS", Align::Left),
            ("WAITING", Align::Right),
            ("BYTES", Align::Right),
            ("FILE", Align::Left),
        ];
        text.push_str(&table(canvas, &header, &rows.collect::<Vec<_>>(), 5));
    }
    text
}

fn document(kept: &Kept, now_nanos: u64) -> Value {
    let buffers = kept.buffers.iter().map(|buffer| {
        json!({
            "run_id": buffer.run_id,
            "pid": buffer.pid,
            "signal": signal(buffer.is_logs),
            "alive": buffer.is_alive,
            "waiting": buffer.waiting,
            "open": buffer.open,
            "seen_ago_nanos": now_nanos.saturating_sub(buffer.seen_nanos),
            "path": buffer.path,
        })
    });
    let files = kept.files.iter().map(|file| {
        json!({
            "run_id": file.run_id,
            "signal": signal(file.is_logs),
            "alive": file.is_alive,
            "waiting": file.items,
            "bytes": file.bytes,
            "path": file.path,
        })
    });
    json!({ "buffers": buffers.collect::<Vec<_>>(), "files": files.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use lens::{Leftover, Spool};

    use super::*;

    const SECOND_NANOS: u64 = 1_000_000_000;

    fn kept() -> Kept {
        let buffer = Spool {
            path: "/dev/shm/nemo-gym/0a1b2c3d4e5f/policy_model-spans-77-0011aabb.ring".into(),
            run_id: "0a1b2c3d4e5f".to_owned(),
            pid: 77,
            is_alive: false,
            is_logs: false,
            waiting: 1_204,
            open: 3,
            seen_nanos: 100 * SECOND_NANOS,
        };
        let living = Spool {
            pid: 123_456,
            is_alive: true,
            is_logs: true,
            waiting: 0,
            open: 0,
            seen_nanos: 160 * SECOND_NANOS,
            ..buffer.clone()
        };
        let file = Leftover {
            path: "/home/me/cache/spool/0a1b2c3d4e5f/agent-spans-78-22/0017-000001.otlp".into(),
            run_id: "0a1b2c3d4e5f".to_owned(),
            is_alive: false,
            is_logs: false,
            items: 512,
            bytes: 131_072,
        };
        Kept { buffers: vec![buffer, living], files: vec![file] }
    }

    #[test]
    fn buffers_come_before_files_and_the_dead_are_told_from_the_living() {
        insta::assert_snapshot!(text(&kept(), 160 * SECOND_NANOS + 40_000_000, &Canvas::PLAIN), @r"
        RUN              PID  SIGNAL  PROCESS  WAITING  OPEN  SEEN AGO
        0a1b2c3d4e5f      77  spans   dead        1204     3     1m00s
        0a1b2c3d4e5f  123456  logs    alive          0     0      40ms

        RUN           SIGNAL  PROCESS  WAITING   BYTES  FILE
        0a1b2c3d4e5f  spans   dead         512  131072  /home/me/cache/spool/0a1b2c3d4e5f/agent-spans-78-22/0017-000001.otlp
        ");
    }

    #[test]
    fn json_says_the_same() {
        let document = document(&kept(), 160 * SECOND_NANOS);
        assert_eq!(document["buffers"][0]["alive"], false);
        assert_eq!(document["buffers"][0]["seen_ago_nanos"], 60 * SECOND_NANOS);
        assert_eq!(document["buffers"][1]["signal"], "logs");
        assert_eq!(document["files"][0]["waiting"], 512);
    }
}
