//! What is on, and who decided it.

use gym_telemetry::{Exporter, Resolved, Signal};
use serde_json::{Value, json};

use crate::trace::Canvas;

/// Three lines and a heading.
pub fn text(settings: &Resolved, canvas: &Canvas) -> String {
    let mut text = canvas.bold(&format!(
        "telemetry is {} ({})",
        if settings.is_enabled() { "on" } else { "off" },
        settings.enabled.origin
    ));
    text.push('\n');
    for fault in &settings.faults {
        text.push_str(&format!("  {fault}\n"));
    }
    for signal in Signal::ALL {
        let (asked, otlp) = (settings.signal(signal), settings.otlp.of(signal));
        let name = signal.as_str();
        let line = match (asked.enabled.value, asked.exporter.value) {
            (false, _) => format!("{name:8} off ({})", asked.enabled.origin),
            (true, Exporter::Otlp) => format!(
                "{name:8} to {} ({}) over {} ({})",
                otlp.endpoint.value.without_credentials(),
                otlp.endpoint.origin,
                otlp.protocol.value,
                otlp.protocol.origin
            ),
            (true, exporter) => format!("{name:8} to the {exporter} ({})", asked.exporter.origin),
        };
        text.push_str(&format!("  {line}\n"));
    }
    text
}

/// The same for a program.
pub fn document(settings: &Resolved) -> Value {
    let signals = Signal::ALL.map(|signal| {
        let (asked, otlp) = (settings.signal(signal), settings.otlp.of(signal));
        json!({
            "signal": signal.as_str(),
            "on": asked.enabled.value,
            "origin": asked.enabled.origin.to_string(),
            "exporter": asked.exporter.value.to_string(),
            "exporter_origin": asked.exporter.origin.to_string(),
            "endpoint": otlp.endpoint.value.without_credentials(),
            "endpoint_origin": otlp.endpoint.origin.to_string(),
            "protocol": otlp.protocol.value.to_string(),
            "protocol_origin": otlp.protocol.origin.to_string(),
        })
    });
    json!({
        "on": settings.is_enabled(),
        "origin": settings.enabled.origin.to_string(),
        "faults": settings.faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "signals": signals,
    })
}
