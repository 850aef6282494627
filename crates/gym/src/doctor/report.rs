//! What the doctor found, as one screen of text or as JSON.

use gym_telemetry::{Row, Signal};
use lens::{Delivery, Probe};
use serde_json::{Value, json};

use super::{Found, Report, SignalReport, SpoolReport};
use crate::trace::{Canvas, duration_text};

const YES: char = '✓';
const NO: char = '✗';
const NEITHER: char = '–';

/// The report for a person.
pub fn text(report: &Report, canvas: &Canvas) -> String {
    let mut lines = Vec::new();
    match &report.switch {
        None => lines.push(format!("telemetry {YES} on ({})", report.because)),
        Some(switch) => {
            lines.push(canvas.red(&format!("telemetry {NO} off ({})", report.because)));
            lines.push(format!("          do    {switch}"));
        }
    }
    for row in &report.settings {
        lines.push(format!("          {} = {} ({})", row.name, row.value, row.origin));
    }
    if report.is_on {
        let groups =
            if report.groups.is_empty() { "none".to_owned() } else { report.groups.join(", ") };
        lines.push(format!("          span groups: {groups}"));
    }
    for signal in &report.signals {
        signal_lines(signal, canvas, &mut lines);
    }
    spool_lines(&report.spool, canvas, &mut lines);
    lines.extend(report.warnings.iter().map(|warning| format!("warning   {NO} {warning}")));
    let verdict = if report.is_delivered() {
        "everything that is recorded arrives".to_owned()
    } else {
        canvas.red("not everything arrives")
    };
    lines.push(verdict);
    lines.join("\n")
}

fn signal_lines(signal: &SignalReport, canvas: &Canvas, lines: &mut Vec<String>) {
    let name = format!("{:9}", signal.signal.as_str());
    let place = format!("{} over {}", signal.endpoint, signal.protocol);
    match &signal.found {
        Found::Off(origin) => lines.push(format!("{name} {NEITHER} off ({origin})")),
        Found::NotSent => {
            lines.push(format!("{name} {NEITHER} not sent; would go to {place}"));
        }
        Found::Console(origin) => {
            let place = "one JSON object a line on the stdout of each process";
            lines.push(format!("{name} {YES} {place} ({origin})"));
        }
        Found::Sent(probe) if probe.delivery == Delivery::Delivered => {
            let took = duration_text(nanos(probe));
            lines.push(format!("{name} {YES} delivered to {place} in {took}"));
            if signal.signal == Signal::Traces {
                lines.push(format!("          look for trace {}", probe.trace_id));
            }
        }
        Found::Sent(probe) => {
            let what = match probe.delivery {
                Delivery::Rejected => "refused",
                Delivery::Unusable => "not sent",
                Delivery::Delivered | Delivery::Failed => "not delivered",
            };
            lines.push(canvas.red(&format!("{name} {NO} {what}")));
            let (from, spoken) = (signal.endpoint_origin, signal.protocol_origin);
            lines.push(format!("          to    {} ({from})", signal.endpoint));
            lines.push(format!("          over  {} ({spoken})", signal.protocol));
            lines.push(format!("          why   {}", why(probe)));
            if let Some(advice) = &probe.advice {
                lines.push(format!("          do    {advice}"));
            }
        }
    }
}

fn why(probe: &Probe) -> &str {
    probe.trouble.as_deref().unwrap_or("there was no answer in time")
}

fn nanos(probe: &Probe) -> u64 {
    u64::try_from(probe.took.as_nanos()).unwrap_or(u64::MAX)
}

fn spool_lines(spool: &SpoolReport, canvas: &Canvas, lines: &mut Vec<String>) {
    let dir = spool.dir.display();
    match (&spool.trouble, spool.free_bytes) {
        (Some(trouble), _) => {
            lines.push(canvas.red(&format!("spool     {NO} {dir} cannot be written: {trouble}")));
            lines.push(format!(
                "          do    spans of a killed process are lost; set {} to a folder on a memory file system",
                gym_telemetry::env_vars::SPOOL_DIR
            ));
        }
        (None, Some(free)) => {
            lines.push(format!("spool     {YES} {dir} can be written, {} MiB free", free >> 20));
        }
        (None, None) => lines.push(format!("spool     {YES} {dir} can be written")),
    }
    if spool.living > 0 {
        lines.push(format!("          buffers of running processes: {}", spool.living));
    }
    if spool.left > 0 {
        lines.push(format!(
            "          {} spans and log records of dead processes wait: `gym spool list`, `gym spool recover`",
            spool.left
        ));
    }
}

/// The report for a program.
pub fn document(report: &Report) -> Value {
    json!({
        "delivered": report.is_delivered(),
        "telemetry": { "on": report.is_on, "origin": report.because, "advice": report.switch },
        "settings": report.settings.iter().map(Row::to_json).collect::<Vec<_>>(),
        "span_groups": report.groups,
        "signals": report.signals.iter().map(signal_document).collect::<Vec<_>>(),
        "spool": {
            "dir": report.spool.dir,
            "writable": report.spool.trouble.is_none(),
            "trouble": report.spool.trouble,
            "free_bytes": report.spool.free_bytes,
            "running_processes": report.spool.living,
            "left_by_dead_processes": report.spool.left,
        },
        "warnings": report.warnings,
    })
}

fn signal_document(signal: &SignalReport) -> Value {
    let (state, origin, probe) = match &signal.found {
        Found::Off(origin) => ("off", Some(origin.to_string()), None),
        Found::NotSent => ("not_sent", None, None),
        Found::Console(origin) => ("console", Some(origin.to_string()), None),
        Found::Sent(probe) => {
            let state = match probe.delivery {
                Delivery::Delivered => "delivered",
                Delivery::Rejected => "rejected",
                Delivery::Failed => "failed",
                Delivery::Unusable => "unusable",
            };
            (state, None, Some(probe))
        }
    };
    json!({
        "signal": signal.signal.as_str(),
        "state": state,
        "origin": origin,
        "endpoint": signal.endpoint,
        "endpoint_origin": signal.endpoint_origin.to_string(),
        "protocol": signal.protocol.to_string(),
        "protocol_origin": signal.protocol_origin.to_string(),
        "trace_id": probe.map(|probe| &probe.trace_id),
        "took_nanos": probe.map(nanos),
        "trouble": probe.filter(|probe| probe.delivery != Delivery::Delivered).map(why),
        "advice": probe.and_then(|probe| probe.advice.as_deref()),
    })
}
