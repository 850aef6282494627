//! What can be asked of a store's folder.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Say what a store holds.
    Info(StoreInfoArgs),
    /// List exactly the files that count: what to give to other engines.
    Files(StoreFilesArgs),
    /// Read every file and compare it with what the manifest says.
    Verify(StoreVerifyArgs),
    /// Merge small files now; no `gym observe` may write the store meanwhile.
    Compact(StoreCompactArgs),
    /// Send what a store holds to another backend, over OTLP.
    Replay(StoreReplayArgs),
}

#[derive(Clone, Debug, Args)]
pub struct StoreInfoArgs {
    /// The store's folder.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct StoreFilesArgs {
    /// The store's folder.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct StoreVerifyArgs {
    /// The store's folder.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct StoreCompactArgs {
    /// The store's folder.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// How OTLP is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReplayProtocol {
    /// gRPC.
    Grpc,
    /// Protobuf over HTTP.
    #[value(name = "http/protobuf")]
    HttpProtobuf,
    /// JSON over HTTP.
    #[value(name = "http/json")]
    HttpJson,
}

/// What is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReplaySignal {
    /// Spans.
    Traces,
    /// Log records.
    Logs,
    /// Points of metrics.
    Metrics,
}

impl ReplaySignal {
    /// As commands and OTLP paths call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Logs => "logs",
            Self::Metrics => "metrics",
        }
    }
}

#[derive(Clone, Debug, Args)]
pub struct StoreReplayArgs {
    /// The store's folder.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Base URL of the receiver.
    #[arg(long, value_name = "URL")]
    pub to: String,
    /// How to speak to it.
    #[arg(long, value_enum, default_value_t = ReplayProtocol::Grpc)]
    pub protocol: ReplayProtocol,
    /// What to send, separated by commas; everything unless given.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_values_t = [ReplaySignal::Traces, ReplaySignal::Logs, ReplaySignal::Metrics]
    )]
    pub signals: Vec<ReplaySignal>,
    /// Compress what is sent.
    #[arg(long)]
    pub gzip: bool,
    /// Give a request up after so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
}
