//! The receiver over real connections.

mod bounds;
mod child;
mod interop;
mod listening;
mod support;
mod wire;
