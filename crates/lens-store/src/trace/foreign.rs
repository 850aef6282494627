//! Names that other producers write and this reader understands; nothing here is emitted.

/// Marks the per-event spans of Python's ASGI instrumentation.
pub const ASGI_EVENT_TYPE: &str = "asgi.event.type";
/// Legacy form of `http.response.status_code`.
pub const LEGACY_HTTP_STATUS_CODE: &str = "http.status_code";
/// Legacy form of the request's path and query.
pub const LEGACY_HTTP_TARGET: &str = "http.target";
/// Path segment in front of a rollout's id.
pub const ROLLOUT_PATH_PREFIX: &str = "/ng-rollout/";
