//! Checks an environment against the contract of its servers.
//!
//! [`check`] drives rows through a fleet that runs: seed, tools and verification are called
//! directly so that the hop at fault is named, then the whole rollout through the agent.

mod contract;
mod drive;
mod environment;
mod report;

use gym_server::client::{Client, ClientConfig};

use drive::Driver;
pub use environment::{Environment, EnvironmentError, Row, find, rows};
pub use report::Report;

/// Drives `rows` through `environment`, one after the other.
pub async fn check(environment: &Environment, rows: &[Row], expects_every_tool: bool) -> Report {
    let client = Client::new(ClientConfig::default());
    let driver = Driver { client: &client, environment, expects_every_tool };
    let mut report = Report {
        resources_server: environment.resources.name().to_owned(),
        agent: environment.agent.name().to_owned(),
        rows: Vec::with_capacity(rows.len()),
    };
    for row in rows {
        report.rows.push(driver.check(row).await);
    }
    report
}
