//! The built-in agent, model and resources servers.

pub mod assets;
pub mod scripted_model;
