//! Spans, metrics and logs that cost nothing when off.
