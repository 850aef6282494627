//! What is said about the servers: progress while they start, who they are when they are ready.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::head::ServerInstance;
use crate::printer::Printer;

const NOTE_EVERY: Duration = Duration::from_secs(10);

/// Progress of the start: a line that is redrawn on a terminal, else a line every ten seconds.
#[derive(Debug)]
pub struct Progress {
    printer: Printer,
    bar: Option<ProgressBar>,
    noted: Option<Instant>,
}

impl Progress {
    /// Starts showing.
    pub fn new(printer: &Printer) -> Self {
        let bar = printer.is_interactive().then(|| {
            let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})");
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = style {
                bar.set_style(style);
            }
            bar
        });
        printer.attach_bar(bar.clone());
        Self { printer: printer.clone(), bar, noted: None }
    }

    /// Shows how far it is.
    pub fn show(&mut self, ready: usize, total: usize, waiting: &[&str]) {
        let line = format!(
            "{ready} / {total} servers ready. Waiting for servers to spin up: [{}]",
            quoted(waiting)
        );
        if let Some(bar) = &self.bar {
            bar.set_message(line);
            bar.tick();
        } else if self.noted.is_none_or(|noted| noted.elapsed() >= NOTE_EVERY) {
            self.printer.say(&format!("Checking for HTTP server statuses\n{line}"));
            self.noted = Some(Instant::now());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            self.printer.attach_bar(None);
        }
    }
}

/// The block that lists the servers of a ready fleet.
pub fn ready_block(instances: &[ServerInstance]) -> String {
    let rule = "#".repeat(100);
    let total = instances.len();
    let mut text = format!(
        "All {total} / {total} servers ready! Polling every 60s\n\n{rule}\n#\n# Server Instances\n#\n{rule}\n\n"
    );
    for (index, instance) in instances.iter().enumerate() {
        let name = |field: &Option<String>| field.clone().unwrap_or_default();
        text.push_str(&format!(
            "[{}] {} ({}/{})\n",
            index + 1,
            name(&instance.process_name),
            name(&instance.server_type),
            name(&instance.name)
        ));
        let text_of = |field: &Option<String>| {
            field.as_deref().map_or_else(|| "None".to_owned(), |value| format!("'{value}'"))
        };
        let number =
            |field: Option<u64>| field.map_or_else(|| "None".to_owned(), |value| value.to_string());
        let rows = [
            ("config_path", text_of(&instance.config_path)),
            ("dir_path", text_of(&instance.dir_path)),
            ("entrypoint", text_of(&instance.entrypoint)),
            ("host", text_of(&instance.host)),
            ("name", text_of(&instance.name)),
            ("pid", number(instance.pid.map(u64::from))),
            ("port", number(instance.port.map(u64::from))),
            ("process_name", text_of(&instance.process_name)),
            ("server_type", text_of(&instance.server_type)),
            ("url", text_of(&instance.url)),
        ];
        for (row, (key, value)) in rows.iter().enumerate() {
            let open = if row == 0 { '{' } else { ' ' };
            let close = if row + 1 == rows.len() { '}' } else { ',' };
            text.push_str(&format!("{open}'{key}': {value}{close}\n"));
        }
    }
    text.push_str(&rule);
    text
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_of_a_ready_fleet_lists_every_server() {
        let instance = ServerInstance {
            config_path: Some("policy_model".to_owned()),
            entrypoint: Some("app.py".to_owned()),
            host: Some("127.0.0.1".to_owned()),
            name: Some("vllm_model".to_owned()),
            pid: Some(42),
            port: Some(10001),
            process_name: Some("policy_model".to_owned()),
            server_type: Some("responses_api_models".to_owned()),
            url: Some("http://127.0.0.1:10001".to_owned()),
            ..ServerInstance::default()
        };
        let block = ready_block(&[instance]);
        let rule = "#".repeat(100);
        insta::assert_snapshot!(block.replace(&rule, "#…#"), @r"
        All 1 / 1 servers ready! Polling every 60s

        #…#
        #
        # Server Instances
        #
        #…#

        [1] policy_model (responses_api_models/vllm_model)
        {'config_path': 'policy_model',
         'dir_path': None,
         'entrypoint': 'app.py',
         'host': '127.0.0.1',
         'name': 'vllm_model',
         'pid': 42,
         'port': 10001,
         'process_name': 'policy_model',
         'server_type': 'responses_api_models',
         'url': 'http://127.0.0.1:10001'}
        #…#
        ");
    }
}
