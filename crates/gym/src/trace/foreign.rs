//! Names that other producers write and this reader understands; nothing here is emitted.

/// Marks the per-event spans of Python's ASGI instrumentation.
pub const ASGI_EVENT_TYPE: &str = "asgi.event.type";
/// Legacy form of `http.response.status_code`.
pub const LEGACY_HTTP_STATUS_CODE: &str = "http.status_code";
/// Legacy form of the request's path and query.
pub const LEGACY_HTTP_TARGET: &str = "http.target";
/// Marks a span that was closed for its owner, which was gone or shutting down.
pub const SPAN_TRUNCATED: &str = "nemo.span.truncated";
/// The event of a recorded exception.
pub const EXCEPTION_EVENT: &str = "exception";
/// The type in an [`EXCEPTION_EVENT`].
pub const EXCEPTION_TYPE: &str = "exception.type";
/// Name of the machine in a resource.
pub const HOST_NAME: &str = "host.name";
/// Id of the process in a resource.
pub const SERVICE_INSTANCE_ID: &str = "service.instance.id";
/// Path segment in front of a rollout's id.
pub const ROLLOUT_PATH_PREFIX: &str = "/ng-rollout/";
