//! The HTTP side of a server: routes, sessions, failure shapes, SERVER spans.

mod body;
mod call;
mod reply;
mod respond;
mod router;
mod server;
mod span;

pub use call::{BAGGAGE, Call, Carrier, TRACEPARENT, TRACESTATE};
pub use reply::{Delivery, HttpError, Reply};
pub use router::{HandlerFuture, Service, SharedService};
pub use server::{BindError, ServeOptions, Server};
