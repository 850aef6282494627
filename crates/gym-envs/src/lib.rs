//! The built-in agent, model and resources servers.

pub mod assets;
