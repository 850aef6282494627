//! The receiver over real connections.

mod asked;
mod bounds;
mod child;
mod hostile;
mod interop;
mod listening;
mod scrape;
mod stored;
mod support;
mod wire;
