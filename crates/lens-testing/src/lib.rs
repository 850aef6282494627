//! Test doubles: an OTLP sink, trees of spans as text.
