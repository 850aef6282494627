//! A built-in server inside the test process.

use std::net::SocketAddr;
use std::sync::Arc;

use gym_envs::builtin;
use gym_server::client::{Client, ClientConfig, ClientReply, Policy};
use gym_server::http::{ServeOptions, Server};
use gym_server::instance::{Endpoint, InstanceConfig, ServerType};
use gym_server::session::CookieJar;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

/// A running server; it ends when this is dropped.
pub struct Host {
    pub endpoint: Endpoint,
    client: Client,
    stop: Option<watch::Sender<bool>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Host {
    /// Serves `implementation` with `block`; `others` are the instances it can refer to.
    pub fn start(
        server_type: ServerType,
        implementation: &str,
        block: Value,
        others: &[(&str, SocketAddr)],
    ) -> Host {
        let server = Server::bind("127.0.0.1", 0).expect("a free port");
        let mut global = Map::new();
        for (name, address) in others {
            let block = json!({"host": "127.0.0.1", "port": address.port()});
            global.insert((*name).to_owned(), json!({"any_type": {"any_implementation": block}}));
        }
        let Value::Object(block) = block else { panic!("a block is an object") };
        if let Some(observed) = block.get("observability_enabled") {
            global.insert("observability_enabled".to_owned(), observed.clone());
        }
        let instance = InstanceConfig {
            name: "under_test".to_owned(),
            server_type,
            implementation: implementation.to_owned(),
            host: "127.0.0.1".to_owned(),
            port: server.address().port(),
            workers: 1,
            block,
            global: Arc::new(Value::Object(global)),
        };
        let service = builtin::service(&instance).expect("built in, with a valid block");
        let (stop, stopped) = watch::channel(false);
        let thread = std::thread::spawn(move || {
            server
                .serve(Arc::new(service), &ServeOptions::default(), stopped)
                .expect("the server serves");
        });
        Host {
            endpoint: instance.own_endpoint(),
            client: Client::new(ClientConfig::default()),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub async fn post(&self, path: &str, body: &str, cookies: &CookieJar) -> ClientReply {
        self.client
            .post(&self.endpoint, path)
            .body(body.to_owned())
            .cookies(cookies)
            .policy(Policy::Once)
            .send()
            .await
            .expect("an answer")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let joined = thread.join();
            if !std::thread::panicking() {
                joined.expect("the server did not panic");
            }
        }
    }
}

/// The body of a reply as JSON.
pub fn json_of(reply: &ClientReply) -> Value {
    serde_json::from_slice(&reply.body).expect("a JSON body")
}
