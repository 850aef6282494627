//! What a server process knows about itself and about its neighbours.
//!
//! An *instance* is one configured server. Its type is the first key of its block, its
//! implementation the first key below that; everything else is the implementation's own
//! configuration.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use http::HeaderValue;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::client::Meters;

/// The three kinds of Gym server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ServerType {
    /// Tools and verification.
    ResourcesServers,
    /// Language-model endpoints.
    ResponsesApiModels,
    /// The loop between a model and its resources.
    ResponsesApiAgents,
}

impl ServerType {
    /// Every type, in the order in which messages list them.
    pub const ALL: [ServerType; 3] =
        [Self::ResourcesServers, Self::ResponsesApiModels, Self::ResponsesApiAgents];

    /// The name used as a config key, a directory and a resource attribute.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ResourcesServers => "resources_servers",
            Self::ResponsesApiModels => "responses_api_models",
            Self::ResponsesApiAgents => "responses_api_agents",
        }
    }
}

impl fmt::Display for ServerType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A string that names none of the three server types.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a server type")]
pub struct UnknownServerType(pub String);

impl FromStr for ServerType {
    type Err = UnknownServerType;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|server_type| server_type.as_str() == text)
            .ok_or_else(|| UnknownServerType(text.to_owned()))
    }
}

/// Why an instance's block cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstanceError {
    /// A field of the block is missing or of the wrong type.
    #[error("{instance}.{path} is not valid: {reason}")]
    Field {
        /// Instance that holds the field.
        instance: String,
        /// Dotted path of the field inside the implementation's block.
        path: String,
        /// What was expected.
        reason: String,
    },
    /// A reference names no instance of the merged config.
    #[error("{instance}.{field} refers to {target:?}, which is not an instance of this config")]
    UnknownReference {
        /// Instance that holds the reference.
        instance: String,
        /// Field of the reference.
        field: String,
        /// Name that was looked for.
        target: String,
    },
}

/// One instance as its own process sees it.
#[derive(Clone, Debug)]
pub struct InstanceConfig {
    /// Name of the instance.
    pub name: String,
    /// Its type.
    pub server_type: ServerType,
    /// Its implementation, e.g. `simple_agent`.
    pub implementation: String,
    /// Address to bind.
    pub host: String,
    /// Port to bind; 0 lets the system choose.
    pub port: u16,
    /// Shards (threads with a runtime each) that serve it; at least 1.
    pub workers: usize,
    /// The implementation's block with interpolations resolved, plus `name`.
    pub block: Map<String, Value>,
    /// The whole merged config.
    pub global: Arc<Value>,
}

impl InstanceConfig {
    /// Reads the implementation's own configuration from the block.
    ///
    /// # Errors
    ///
    /// [`InstanceError::Field`] names the field that does not fit.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, InstanceError> {
        serde_path_to_error::deserialize(Value::Object(self.block.clone())).map_err(|error| {
            InstanceError::Field {
                instance: self.name.clone(),
                path: error.path().to_string(),
                reason: error.into_inner().to_string(),
            }
        })
    }

    /// Where the instance named by the reference in `field` (`{type, name}`) listens.
    ///
    /// # Errors
    ///
    /// When the field is no reference, or names no instance.
    pub fn endpoint_of(&self, field: &str) -> Result<Endpoint, InstanceError> {
        let target = self
            .block
            .get(field)
            .and_then(|reference| reference.get("name"))
            .and_then(Value::as_str)
            .ok_or_else(|| InstanceError::Field {
                instance: self.name.clone(),
                path: field.to_owned(),
                reason: "expected a reference {type, name}".to_owned(),
            })?;
        endpoint_in(&self.global, target).ok_or_else(|| InstanceError::UnknownReference {
            instance: self.name.clone(),
            field: field.to_owned(),
            target: target.to_owned(),
        })
    }

    /// Where this instance itself listens.
    #[must_use]
    pub fn own_endpoint(&self) -> Endpoint {
        Endpoint::gym(&self.name, &self.host, self.port)
    }

    /// A top-level value of the merged config.
    #[must_use]
    pub fn global_value(&self, key: &str) -> Option<&Value> {
        self.global.get(key)
    }
}

/// Where the instance `name` of a merged config listens, if it has a host and a port.
#[must_use]
pub fn endpoint_in(global: &Value, name: &str) -> Option<Endpoint> {
    let (_, by_implementation) = global.get(name)?.as_object()?.iter().next()?;
    let (_, block) = by_implementation.as_object()?.iter().next()?;
    let host = block.get("host")?.as_str()?;
    let port = block.get("port")?.as_u64()?;
    Some(Endpoint::gym(name, host, u16::try_from(port).ok()?))
}

/// A destination of outbound requests.
///
/// Gym servers receive the trace context and the rollout's baggage; model endpoints receive the
/// trace context; other third parties receive nothing.
#[derive(Clone, Debug)]
pub struct Endpoint(Arc<EndpointParts>);

/// What a destination is to the Gym.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointKind {
    /// An instance of the merged config.
    Gym,
    /// A model endpoint that a model server calls.
    Model,
    /// Anybody else.
    External,
}

#[derive(Debug)]
struct EndpointParts {
    kind: EndpointKind,
    name: String,
    host: String,
    port: u16,
    tls: bool,
    /// Scheme and authority: what connections are shared by.
    pool_key: (bool, String),
    host_header: HeaderValue,
    base_path: String,
    /// What every CLIENT span of a request to it says.
    attributes: OnceLock<lens::AttributeSet>,
    /// What requests to it are measured with.
    meters: Meters,
}

/// A URL that cannot be called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url:?} is not a usable URL: {reason}")]
pub struct InvalidUrl {
    /// The URL as it was given.
    pub url: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl Endpoint {
    /// An instance of the merged config.
    #[must_use]
    pub fn gym(name: &str, host: &str, port: u16) -> Self {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        // A wildcard bind address is not a destination.
        let host = match host {
            "0.0.0.0" => "127.0.0.1",
            "::" => "::1",
            other => other,
        };
        Self(Arc::new(EndpointParts {
            kind: EndpointKind::Gym,
            name: name.to_owned(),
            host: host.to_owned(),
            port,
            tls: false,
            host_header: host_header(&authority(host, port)),
            pool_key: (false, authority(host, port)),
            base_path: String::new(),
            attributes: OnceLock::new(),
            meters: Meters::default(),
        }))
    }

    /// A model endpoint, by its base URL, e.g. `http://host:8000/v1`.
    ///
    /// # Errors
    ///
    /// [`InvalidUrl`] when the URL has no `http` or `https` scheme or no host.
    pub fn model(url: &str) -> Result<Self, InvalidUrl> {
        Self::parse(url, EndpointKind::Model)
    }

    /// A third party, by its base URL.
    ///
    /// # Errors
    ///
    /// As for [`Endpoint::model`].
    pub fn external(url: &str) -> Result<Self, InvalidUrl> {
        Self::parse(url, EndpointKind::External)
    }

    fn parse(url: &str, kind: EndpointKind) -> Result<Self, InvalidUrl> {
        let fail = |reason| InvalidUrl { url: url.to_owned(), reason };
        let uri: http::Uri = url.trim().parse().map_err(|_| fail("it does not parse"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) => return Err(fail("expected the scheme http or https")),
            None => return Err(fail("it has no scheme, expected http:// or https://")),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| fail("no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        // Credentials in a URL are not for the Host header.
        let authority = match uri.authority() {
            Some(authority) => authority.as_str().rsplit('@').next().unwrap_or_default().to_owned(),
            None => authority(host, port),
        };
        Ok(Self(Arc::new(EndpointParts {
            kind,
            name: host.to_owned(),
            host: host.to_owned(),
            port,
            tls,
            host_header: host_header(&authority),
            pool_key: (tls, authority),
            base_path: uri.path().trim_end_matches('/').to_owned(),
            attributes: OnceLock::new(),
            meters: Meters::default(),
        })))
    }

    /// What this destination is.
    #[must_use]
    pub fn kind(&self) -> EndpointKind {
        self.0.kind
    }

    /// Instance name of a Gym server, else the host.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Host to connect to, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.0.host
    }

    /// Port to connect to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.0.port
    }

    /// Whether the connection is TLS.
    #[must_use]
    pub fn tls(&self) -> bool {
        self.0.tls
    }

    /// `host:port` as it stands in the `Host` header.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.0.pool_key.1
    }

    pub(crate) fn host_header(&self) -> &HeaderValue {
        &self.0.host_header
    }

    /// Attributes of the spans of requests to it, made by `make` when they are first asked for.
    pub(crate) fn attributes(
        &self,
        make: impl FnOnce() -> lens::AttributeSet,
    ) -> &lens::AttributeSet {
        self.0.attributes.get_or_init(make)
    }

    pub(crate) fn meters(&self) -> &Meters {
        &self.0.meters
    }

    pub(crate) fn pool_key(&self) -> &(bool, String) {
        &self.0.pool_key
    }

    /// Path that is put before the path of every request, without a trailing slash.
    #[must_use]
    pub fn base_path(&self) -> &str {
        &self.0.base_path
    }

    /// Base URL, without a trailing slash.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.0.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.0.base_path)
    }
}

fn host_header(authority: &str) -> HeaderValue {
    // A host that is no header value cannot be connected to either.
    HeaderValue::from_str(authority).unwrap_or(HeaderValue::from_static("invalid"))
}

fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_of_a_url_keeps_path_and_default_port() {
        let endpoint = Endpoint::model("https://user:pw@example.org/v1/").expect("a URL");
        assert_eq!((endpoint.host(), endpoint.port(), endpoint.tls()), ("example.org", 443, true));
        assert_eq!(endpoint.url(), "https://example.org/v1");
        let v6 = Endpoint::model("http://[::1]:8000/v1").expect("a URL");
        assert_eq!((v6.host(), v6.authority()), ("::1", "[::1]:8000"));
    }

    #[test]
    fn a_url_without_scheme_is_refused_with_the_reason() {
        let error = Endpoint::model("127.0.0.1:8000/v1").expect_err("no scheme");
        assert!(error.to_string().contains("127.0.0.1:8000/v1"), "{error}");
    }

    #[test]
    fn a_reference_is_resolved_through_the_first_keys() {
        let global = serde_json::json!({
            "tools": {"resources_servers": {"weather": {"host": "0.0.0.0", "port": 7}}}
        });
        let endpoint = endpoint_in(&global, "tools").expect("an instance");
        assert_eq!(endpoint.url(), "http://127.0.0.1:7");
        assert!(endpoint_in(&global, "tool").is_none());
    }
}
