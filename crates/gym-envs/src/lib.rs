//! The built-in agent, model and resources servers.
