//! Config, HTTP server base, HTTP client and server traits of the Gym.

pub mod aggregate;
pub mod api;
pub mod config;
pub mod instance;
pub mod model;
