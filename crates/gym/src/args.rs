//! What can be typed: clap types and nothing else.
//!
//! Flags are sugar for config overrides (`+key=value`, `++key=value`), which
//! every command that reads a config also takes as they are.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

mod store;
mod trace;

pub use store::*;
pub use trace::*;

/// Runs environments for language models and shows where every rollout spent its time.
#[derive(Debug, Parser)]
#[command(
    name = "gym",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// Say more, here and in the servers (config key `verbose`).
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Print only data, warnings and errors.
    #[arg(short, long, global = true)]
    pub quiet: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "one value per process")]
pub enum Command {
    /// Environments: start, look at, resolve, test.
    #[command(subcommand)]
    Env(EnvCommand),
    /// Evaluation: collect rollouts.
    #[command(subcommand)]
    Eval(EvalCommand),
    /// Traces: list, show, report, compare, find stragglers, export.
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Runs: list, show.
    #[command(subcommand)]
    Run(RunCommand),
    /// Settings and where they come from.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Telemetry that outlived its process or its receiver: list, recover.
    #[command(subcommand)]
    Spool(SpoolCommand),
    /// Receive and store the telemetry of fleets, and answer for it.
    Observe(ObserveArgs),
    /// Stores of telemetry: look into, check, merge, send elsewhere.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Say whether telemetry arrives, and what to change when it does not.
    Doctor(DoctorArgs),
    /// Show what telemetry is on, what it costs, and how it does in running processes.
    Telemetry(TelemetryArgs),
    /// Start an example environment, collect rollouts, show where the time went.
    Demo(DemoArgs),
    /// Serve a scripted, deterministic model over the OpenAI API.
    ServeOpenai(ServeOpenaiArgs),
    /// Serve one built-in server as the environment says (started by the supervisor).
    #[command(hide = true)]
    ServeInstance,
    /// Run a program and end it when stdin closes (started by the supervisor).
    #[command(hide = true)]
    Guard(GuardArgs),
}

#[derive(Debug, Subcommand)]
pub enum EnvCommand {
    /// Start the servers of a config and keep them running.
    Start(EnvStartArgs),
    /// Show the servers of a running fleet.
    Status(EnvStatusArgs),
    /// Print the merged and resolved config, secrets masked.
    Resolve(EnvResolveArgs),
    /// Drive an environment's example rows with a scripted model and check its contract.
    Test(EnvTestArgs),
}

#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    /// Collect rollouts.
    Run(EvalRunArgs),
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print every telemetry setting.
    Show(ConfigShowArgs),
}

#[derive(Debug, Subcommand)]
pub enum SpoolCommand {
    /// List what running processes hold and dead ones left.
    List(SpoolListArgs),
    /// Send what dead processes left.
    Recover(SpoolRecoverArgs),
}

/// Where a config comes from.
#[derive(Clone, Debug, Default, Args)]
pub struct ConfigSource {
    /// A config file; may be given several times.
    #[arg(long = "config", value_name = "PATH")]
    pub config: Vec<String>,
    /// A benchmark by name: benchmarks/NAME/FLAVOR.yaml.
    #[arg(long, value_name = "NAME[/FLAVOR]")]
    pub benchmark: Option<String>,
    /// An environment by name: environments/NAME/FLAVOR.yaml.
    #[arg(long, value_name = "NAME[/FLAVOR]")]
    pub environment: Option<String>,
    /// A resources server by name: resources_servers/NAME/configs/FLAVOR.yaml.
    #[arg(long, value_name = "NAME[/FLAVOR]")]
    pub resources_server: Option<String>,
    /// A model server by name: responses_api_models/NAME/configs/FLAVOR.yaml.
    #[arg(long, value_name = "NAME[/FLAVOR]")]
    pub model_type: Option<String>,
    /// A directory to look for servers and configs in, before the current one; may be given several times.
    #[arg(long = "search-dir", value_name = "DIR")]
    pub search_dir: Vec<PathBuf>,
    /// Config overrides: +key=value adds, ++key=value adds or replaces.
    #[arg(value_name = "+KEY=VALUE", value_parser = override_token)]
    pub overrides: Vec<String>,
}

/// The policy model behind an environment.
#[derive(Clone, Debug, Default, Args)]
pub struct ModelFlags {
    /// Name of the policy model (key `policy_model_name`).
    #[arg(short, long, value_name = "NAME")]
    pub model: Option<String>,
    /// Base URL of the policy model's endpoint (key `policy_base_url`).
    #[arg(long, value_name = "URL")]
    pub model_url: Option<String>,
    /// API key of the policy model's endpoint (key `policy_api_key`).
    #[arg(long, value_name = "KEY")]
    pub model_api_key: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub struct EnvStartArgs {
    #[command(flatten)]
    pub source: ConfigSource,
    #[command(flatten)]
    pub model: ModelFlags,
    /// Receive and store the telemetry of this fleet in DIR (gym-store unless given), and answer for it.
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, default_missing_value = "gym-store")]
    pub observe: Option<PathBuf>,
    /// Append the output of every server to DIR/<instance>.log (key `nemo_gym_log_dir`).
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub struct EnvStatusArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub source: ConfigSource,
}

#[derive(Clone, Debug, Args)]
pub struct EnvResolveArgs {
    #[command(flatten)]
    pub source: ConfigSource,
    #[command(flatten)]
    pub model: ModelFlags,
    /// Print JSON instead of YAML.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct EnvTestArgs {
    #[command(flatten)]
    pub source: ConfigSource,
    /// Replies of the model, one JSON object a line; without it the model calls each declared tool once.
    #[arg(long, value_name = "PATH")]
    pub script: Option<PathBuf>,
    /// Rows to drive instead of the environment's example rows.
    #[arg(short, long, value_name = "PATH")]
    pub input: Option<PathBuf>,
    /// Drive only the first N rows.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Append the output of every server to DIR/<instance>.log.
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct EvalRunArgs {
    #[command(flatten)]
    pub source: ConfigSource,
    #[command(flatten)]
    pub model: ModelFlags,
    /// Use the servers of a running `gym env start` instead of starting them.
    #[arg(long)]
    pub no_serve: bool,
    /// Receive and store the telemetry of this fleet in DIR (gym-store unless given), and answer for it.
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, conflicts_with = "no_serve", default_missing_value = "gym-store")]
    pub observe: Option<PathBuf>,
    /// Input rows (key `input_jsonl_fpath`).
    #[arg(short, long, value_name = "PATH")]
    pub input: Option<PathBuf>,
    /// Output rows (key `output_jsonl_fpath`).
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// Agent instance for rows that name none (key `agent_name`).
    #[arg(short, long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Use the datasets of this split when no input is given (key `split`).
    #[arg(long, value_name = "SPLIT", value_parser = ["train", "validation", "benchmark", "example"])]
    pub split: Option<String>,
    /// Take only the first N input rows; 0 takes all (key `limit`).
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Rollouts per input row (key `num_repeats`).
    #[arg(long, value_name = "N")]
    pub num_repeats: Option<u64>,
    /// Rollouts in flight at a time (key `num_samples_in_parallel`).
    #[arg(long, value_name = "N")]
    pub concurrency: Option<u64>,
    /// Template that builds the input of every row (key `prompt_config`).
    #[arg(long, value_name = "PATH")]
    pub prompt_config: Option<PathBuf>,
    /// Sampling temperature (key `responses_create_params.temperature`).
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub temperature: Option<f64>,
    /// Nucleus sampling mass (key `responses_create_params.top_p`).
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub top_p: Option<f64>,
    /// Limit of generated tokens per model call (key `responses_create_params.max_output_tokens`).
    #[arg(long, value_name = "N")]
    pub max_output_tokens: Option<u64>,
    /// Continue an interrupted collection (key `resume_from_cache`).
    #[arg(long)]
    pub resume: bool,
    /// Do not aggregate metrics at the end (key `disable_aggregation`).
    #[arg(long)]
    pub disable_aggregation: bool,
    /// Append the output of every server to DIR/<instance>.log (key `nemo_gym_log_dir`).
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
    /// Print the summary as JSON (key `json`).
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct ConfigShowArgs {
    #[command(flatten)]
    pub source: ConfigSource,
    #[command(flatten)]
    pub model: ModelFlags,
    /// Say where each value comes from.
    #[arg(long)]
    pub origin: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct SpoolListArgs {
    #[command(flatten)]
    pub source: ConfigSource,
    /// Look for buffers below DIR (variable `NEMO_GYM_OTEL_SPOOL_DIR`).
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct SpoolRecoverArgs {
    #[command(flatten)]
    pub source: ConfigSource,
    /// Look for buffers below DIR (variable `NEMO_GYM_OTEL_SPOOL_DIR`).
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Give up after so many seconds; what was not sent by then stays where it is.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub timeout: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct ObserveArgs {
    /// The store: a directory that is made when it is missing. One process may write to it at a time.
    #[arg(long, value_name = "DIR", default_value = "gym-store")]
    pub dir: PathBuf,
    /// Address for OTLP over gRPC, port 0 picks a free one; may be given several times.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:4317")]
    pub listen_grpc: Vec<String>,
    /// Address for OTLP over HTTP, for queries and for /metrics; may be given several times.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:4318")]
    pub listen_http: Vec<String>,
    /// Remove what was received more than so many days ago.
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u64).range(1..))]
    pub keep_days: Option<u64>,
    /// Remove the oldest files while all of them have more bytes than this.
    #[arg(long, value_name = "BYTES")]
    pub keep_bytes: Option<u64>,
    /// Of rollouts that neither failed nor are slow, keep the spans of this share (0 to 1); rows of all of them stay.
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub keep_share: Option<f64>,
    /// With --keep-share: rollouts of each task whose spans are kept because they are its slowest.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "keep_share")]
    pub keep_slowest: usize,
    /// Acknowledge only what survives a loss of power too.
    #[arg(long)]
    pub fsync: bool,
    /// File that holds the token which every request must bring (`authorization: Bearer …`).
    #[arg(long, value_name = "PATH")]
    pub token_file: Option<PathBuf>,
    /// Listen on addresses that other hosts reach without asking for a token.
    #[arg(long)]
    pub allow_unauthenticated_remote: bool,
    /// Print the addresses as a line of JSON once they are listened on.
    #[arg(long)]
    pub json: bool,
    /// End when standard input does (used by whoever starts it beside a fleet).
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub source: ConfigSource,
    #[command(flatten)]
    pub model: ModelFlags,
    /// Wait so many seconds for an answer at most.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub timeout: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct TelemetryArgs {
    #[command(flatten)]
    pub source: ConfigSource,
    #[command(flatten)]
    pub model: ModelFlags,
    /// Look for buffers below DIR (variable `NEMO_GYM_OTEL_SPOOL_DIR`).
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// How many rollouts to collect.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub rollouts: usize,
    /// Rollouts in flight at a time.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub concurrency: usize,
    /// The example environment to run.
    #[arg(long, value_name = "NAME", default_value = "example_single_tool_call")]
    pub environment: String,
    /// Where to leave rows, logs and traces; a fresh temporary directory when not given.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Seed of the scripted model's latencies and replies.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
}

#[derive(Clone, Debug, Args)]
pub struct ServeOpenaiArgs {
    /// Address to listen on; port 0 picks a free one. The base URL is printed.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8000")]
    pub listen: SocketAddr,
    /// Key that clients must send.
    #[arg(long, value_name = "KEY")]
    pub api_key: Option<String>,
    /// Threads that serve.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub workers: usize,
    /// How long replies take in milliseconds: MS, uniform:MIN,MAX or lognormal:MEDIAN,SIGMA.
    #[arg(long, value_name = "SPEC")]
    pub latency: Option<String>,
    /// Seed of everything that is drawn.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// A YAML file with settings of the scripted model, as in its config block.
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,
    /// Settings of the scripted model: +answer=hello, +errors={…}, …
    #[arg(value_name = "+KEY=VALUE", value_parser = override_token)]
    pub overrides: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub struct GuardArgs {
    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

fn override_token(token: &str) -> Result<String, String> {
    if token.starts_with(['+', '~']) || token.contains('=') {
        Ok(token.to_owned())
    } else {
        Err("not a flag and not an override; overrides look like +key=value".to_owned())
    }
}

/// A number from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "not a number from 0 to 1".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn overrides_may_stand_between_flags() {
        let cli = Cli::try_parse_from([
            "gym",
            "env",
            "start",
            "+a=1",
            "--config",
            "c.yaml",
            "++b.c=[x,y]",
        ]);
        let Ok(Cli { command: Command::Env(EnvCommand::Start(args)), .. }) = cli else {
            panic!("not read as env start: {cli:?}");
        };
        assert_eq!(args.source.overrides, ["+a=1", "++b.c=[x,y]"]);
        assert_eq!(args.source.config, ["c.yaml"]);
    }

    #[test]
    fn a_word_that_is_neither_flag_nor_override_is_refused() {
        let error =
            Cli::try_parse_from(["gym", "env", "start", "demo"]).expect_err("not an override");
        assert!(error.to_string().contains("overrides look like +key=value"), "{error}");
    }

    #[test]
    fn a_mistyped_flag_is_answered_with_the_closest_one() {
        let error = Cli::try_parse_from(["gym", "env", "start", "--model-typ", "x"])
            .expect_err("unknown flag");
        assert!(error.to_string().contains("--model-type"), "{error}");
    }
}
