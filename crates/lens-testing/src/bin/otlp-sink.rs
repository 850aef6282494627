//! An OTLP receiver that acknowledges and counts.
//!
//! Prints its endpoints as one JSON line, serves until stdin ends, then prints what it counted as another.

use std::io::{self, Read as _, Write as _};

use lens_testing::OtlpSink;

fn main() -> io::Result<()> {
    let sink = OtlpSink::ack_only()?;
    let mut stdout = io::stdout().lock();
    let endpoints =
        serde_json::json!({ "grpc": sink.grpc_endpoint(), "http": sink.http_endpoint() });
    writeln!(stdout, "{endpoints}")?;
    stdout.flush()?;
    io::stdin().lock().read_to_end(&mut Vec::new())?;
    let counts = sink.counts();
    let counts = serde_json::json!({
        "requests": counts.requests,
        "spans": counts.spans,
        "metrics": counts.metrics,
        "logs": counts.logs,
        "bytes": counts.bytes,
    });
    writeln!(stdout, "{counts}")
}
