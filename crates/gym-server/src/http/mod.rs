//! The HTTP side of a server: routes, sessions, failure shapes, SERVER spans.

mod body;
mod call;
mod connection;
mod meters;
mod reply;
mod respond;
mod router;
mod server;
mod span;

pub use call::{BAGGAGE, Call, ERROR_TYPE, TRACEPARENT, TRACESTATE};
pub use reply::{Delivery, HttpError, Reply};
pub(crate) use respond::respond_locally;
pub use router::{HandlerFuture, Service, SharedService};
pub(crate) use server::Shard;
pub use server::{BindError, ServeOptions, Server};
