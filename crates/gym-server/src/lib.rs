//! Config, HTTP server base, HTTP client and server traits of the Gym.
//!
//! A server of one's own implements one of the traits [`resources::ResourcesServer`],
//! [`model::ModelServer`] and [`agent::AgentServer`] and calls the function of the same kind in
//! [`program`] from `main`. Sessions, routes, failure shapes, trace context, spans, metrics and
//! the end of the process come with it.

pub mod agent;
pub mod aggregate;
pub mod api;
pub mod client;
pub mod config;
pub mod http;
pub mod instance;
pub mod model;
pub mod program;
pub mod resources;
pub mod rollout;
pub mod sandbox;
pub mod session;
mod stream;
mod telemetry;
pub mod typed;
