//! OTLP receiver and query API over a trace store.
//!
//! The receiver knows nothing of stores: it hands over what it receives to an [`Intake`].

mod api;
mod intake;
mod keeper;
pub mod pages;
pub mod prometheus;
pub mod receiver;

pub use api::{Api, LEFT_OUT};
pub use intake::{Accepted, Compression, Encoding, Format, Incoming, Intake, Refused, Signal};
pub use keeper::{Keeper, TICK};
pub use pages::Pages;
pub use receiver::Receiver;
