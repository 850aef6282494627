//! OTLP receiver and query API over a trace store.
//!
//! The receiver knows nothing of stores: it hands over what it receives to an [`Intake`].

mod intake;
pub mod pages;
pub mod prometheus;
pub mod receiver;
mod store_intake;

pub use intake::{Accepted, Compression, Form, Incoming, Intake, Refused, Signal};
pub use pages::Pages;
pub use receiver::Receiver;
