//! A `gym observe` of one's own: the receiver and store of a fleet that was started with `--observe`.
//!
//! It is a process of its own, so that what is received cannot slow the supervisor down and survives it. It ends when
//! its standard input does, after it has stored what had arrived: a supervisor that is killed takes it along.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gym_server::config::{GlobalConfig, string_override};
use gym_telemetry::TelemetryConfig;
use serde::{Deserialize, Serialize};

use crate::printer::Printer;

/// How long it may take to store what arrived last.
const STOP_LIMIT: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);

/// Settings as `gym config show` calls them.
const TRACES_ENABLED: &str = "traces_enabled";
const TRACES_EXPORTER: &str = "traces.exporter";
const TRACES_ENDPOINT: &str = "traces.otlp_endpoint";

/// What `gym observe --json` prints once it listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Its store.
    pub dir: PathBuf,
    /// Base URLs for OTLP over gRPC.
    pub grpc: Vec<String>,
    /// Base URLs for OTLP over HTTP, the query API and `/metrics`.
    pub http: Vec<String>,
}

/// Why it does not observe.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The process did not start.
    #[error("cannot start `gym observe`")]
    Start(#[source] std::io::Error),
    /// It ended before it listened; it has said why.
    #[error("`gym observe` did not start")]
    Ended,
}

/// A running `gym observe`.
#[derive(Debug)]
pub struct Observer {
    child: Child,
    stdin: Option<ChildStdin>,
    ready: Ready,
}

impl Observer {
    /// Starts it on free ports of this host, and waits until it listens.
    ///
    /// # Errors
    ///
    /// When it does not.
    pub fn start(dir: &Path) -> Result<Self, ObserveError> {
        let program = std::env::current_exe().map_err(ObserveError::Start)?;
        let mut command = Command::new(program);
        command.args(["--quiet", "observe", "--json", "--until-stdin-closes"]);
        command.args(["--listen-grpc", "127.0.0.1:0", "--listen-http", "127.0.0.1:0"]);
        command.arg("--dir").arg(dir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C at the terminal is for the supervisor: servers still have something to say when it comes.
        command.process_group(0);
        let mut child = command.spawn().map_err(ObserveError::Start)?;
        let stdin = child.stdin.take();
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or(ObserveError::Ended)?;
        let read = BufReader::new(stdout).read_line(&mut line);
        match read.ok().and_then(|_| serde_json::from_str(&line).ok()) {
            Some(ready) => Ok(Self { child, stdin, ready }),
            None => {
                drop(stdin);
                let _ = child.wait();
                Err(ObserveError::Ended)
            }
        }
    }

    /// Config overrides that send a fleet's telemetry here. A variable of the environment still decides otherwise, as
    /// it does for every key of the block.
    pub fn overrides(&self) -> Vec<String> {
        let endpoint = self.ready.grpc.first().map_or("", String::as_str);
        vec![
            "++telemetry.enabled=true".to_owned(),
            string_override("telemetry.exporter", "otlp"),
            string_override("telemetry.otlp_protocol", "grpc"),
            string_override("telemetry.otlp_endpoint", endpoint),
        ]
    }

    /// Says where to look, and warns when telemetry goes elsewhere, or nowhere.
    pub fn announce(&self, config: &GlobalConfig, printer: &Printer) {
        let url = self.ready.http.first().map_or("", String::as_str);
        let dir = self.ready.dir.display();
        printer.say(&format!("Observing: gym run watch {url} (stored in {dir})"));
        let block = config
            .resolved()
            .ok()
            .and_then(|config| gym_telemetry::telemetry_config_from_global_config(&config).ok());
        if let Some(reason) = block.and_then(|block| self.elsewhere(&block)) {
            printer.warn(&format!("--observe will see no spans: {reason}"));
        }
    }

    /// What decided that spans do not come here.
    fn elsewhere(&self, block: &TelemetryConfig) -> Option<String> {
        let settings = gym_telemetry::resolve(&gym_telemetry::environment(), block);
        if !settings.is_enabled() {
            return Some(format!("telemetry is off ({})", settings.enabled.origin));
        }
        let wanted = [
            (TRACES_ENABLED, "true"),
            (TRACES_EXPORTER, "otlp"),
            (TRACES_ENDPOINT, self.ready.grpc.first().map_or("", String::as_str)),
        ];
        let rows = settings.rows();
        wanted.into_iter().find_map(|(name, value)| {
            let row = rows.iter().find(|row| row.name == name)?;
            (row.value != value).then(|| format!("{name} is {} ({})", row.value, row.origin))
        })
    }

    /// Ends it once everything that arrived is stored.
    pub fn stop(mut self, printer: &Printer) {
        drop(self.stdin.take());
        let deadline = Instant::now() + STOP_LIMIT;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => thread::sleep(POLL),
                Ok(Some(_)) | Err(_) => return,
                Ok(None) => break,
            }
        }
        // What was acknowledged is in its log; the next one that opens the store finds it there.
        printer.warn("`gym observe` takes long to end; it goes on by itself");
    }
}
