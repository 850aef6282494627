//! Reading of traces: console lines and OTLP JSON to timelines.
