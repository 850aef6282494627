//! Routes of a server: what exists, under which name, and who handles it.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::Method;

use super::meters::RouteMeters;
use super::{Call, HttpError, Reply};
use crate::instance::ServerType;
use crate::session::RolloutSessions;

/// What a handler returns.
pub type HandlerFuture = Pin<Box<dyn Future<Output = Result<Reply, HttpError>> + Send>>;
type Handler = Box<dyn Fn(Call, Bytes) -> HandlerFuture + Send + Sync>;

/// One route with its handler and the names that telemetry gives it.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) handler: Handler,
    /// `http.route`. Routes are made once per process, so their names are leaked.
    pub(crate) template: &'static str,
    /// Name of the SERVER span.
    pub(crate) span_name: &'static str,
    /// What the SERVER spans of all its requests say.
    pub(crate) attributes: OnceLock<lens::AttributeSet>,
    pub(crate) meters: RouteMeters,
}

/// Result of a look-up.
pub(crate) enum Lookup {
    Found(Arc<Route>),
    WrongMethod,
    Unknown,
}

/// The routes of one server.
pub struct Service {
    pub(crate) server_type: ServerType,
    /// `<implementation>___<instance>`: names the session cookie and the server in messages.
    pub(crate) cookie_name: String,
    /// Shared by the shards.
    pub(crate) sessions: RolloutSessions,
    routes: HashMap<String, Vec<Arc<Route>>>,
    catch_all: Option<Arc<Route>>,
}

impl Service {
    /// A server with `GET /` alone.
    #[must_use]
    pub fn new(server_type: ServerType, cookie_name: String) -> Self {
        let mut service = Self {
            server_type,
            cookie_name,
            sessions: RolloutSessions::default(),
            routes: HashMap::new(),
            catch_all: None,
        };
        service.route(Method::GET, "/", |_, _| async {
            Ok(Reply::json_bytes(&br#"{"status":"ok"}"#[..]))
        });
        service
    }

    /// Adds a route.
    pub fn route<F, Fut>(&mut self, method: Method, path: &str, handler: F)
    where
        F: Fn(Call, Bytes) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Reply, HttpError>> + Send + 'static,
    {
        let route = make(method, path, handler);
        self.routes.entry(path.to_owned()).or_default().push(route);
    }

    /// Handles every POST that no route takes.
    pub fn catch_all<F, Fut>(&mut self, handler: F)
    where
        F: Fn(Call, Bytes) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Reply, HttpError>> + Send + 'static,
    {
        self.catch_all = Some(make(Method::POST, "/{path}", handler));
    }

    /// Paths of every route, sorted.
    #[must_use]
    pub fn paths(&self) -> Vec<&str> {
        let mut paths: Vec<&str> = self.routes.keys().map(String::as_str).collect();
        paths.sort_unstable();
        paths
    }

    pub(crate) fn find(&self, method: &Method, path: &str) -> Lookup {
        if let Some(routes) = self.routes.get(path) {
            // HEAD is not served: the reference answers 405 too.
            return match routes.iter().find(|route| route.method == *method) {
                Some(route) => Lookup::Found(Arc::clone(route)),
                None => Lookup::WrongMethod,
            };
        }
        match &self.catch_all {
            Some(route) if *method == Method::POST => Lookup::Found(Arc::clone(route)),
            Some(_) => Lookup::WrongMethod,
            None => Lookup::Unknown,
        }
    }

    /// Whether a rollout prefix before `path` is taken off.
    pub(crate) fn strips_prefix(&self, path: &str) -> bool {
        match self.server_type {
            ServerType::ResourcesServers | ServerType::ResponsesApiModels => true,
            // Agents have twins of this one route only.
            ServerType::ResponsesApiAgents => path == "/v1/responses",
        }
    }
}

fn make<F, Fut>(method: Method, path: &str, handler: F) -> Arc<Route>
where
    F: Fn(Call, Bytes) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Reply, HttpError>> + Send + 'static,
{
    let span_name: &'static str = Box::leak(format!("{method} {path}").into_boxed_str());
    let template = &span_name[method.as_str().len() + 1..];
    Arc::new(Route {
        method,
        handler: Box::new(move |call, body| Box::pin(handler(call, body))),
        template,
        span_name,
        attributes: OnceLock::new(),
        meters: RouteMeters::default(),
    })
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("server_type", &self.server_type)
            .field("paths", &self.paths())
            .finish_non_exhaustive()
    }
}

/// A service shared by the shards that run it.
pub type SharedService = Arc<Service>;
