//! OTLP receiver and query API over a trace store.
