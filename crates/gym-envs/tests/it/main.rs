//! Built-in servers over HTTP, as their callers see them.

mod examples;
mod fake;
mod host;
mod simple_agent;
