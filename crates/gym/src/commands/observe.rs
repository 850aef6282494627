//! `gym observe`: receives and stores telemetry until it is told to stop, and answers for it.

use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use lens_observe::receiver::{ListenAddress, Options, Token};
use lens_observe::{Keeper, Receiver, TICK};
use lens_store::store::{self, Damage, Durability, Policy, Retention, Store};
use tokio::sync::oneshot;

use crate::args::ObserveArgs;
use crate::commands::block_on;
use crate::exit::ExitStatus;
use crate::fleet::interrupted;
use crate::observe::Ready;
use crate::printer::Printer;
use crate::render::Advise as _;

pub fn run(args: &ObserveArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    gym_server::program::raise_descriptor_limit();
    crate::allocator::take_small_pages();
    crate::allocator::keep_freed_memory();
    let notices = printer.clone();
    let mut options = Options {
        grpc: addresses("--listen-grpc", &args.listen_grpc)?,
        http: addresses("--listen-http", &args.listen_http)?,
        token: args.token_file.as_deref().map(token).transpose()?,
        allow_unauthenticated_remote: args.allow_unauthenticated_remote,
        notify: Arc::new(move |notice| notices.warn(&notice.to_string())),
        ..Options::default()
    };
    let store = Store::open(&args.dir, store_options(args))
        .with_context(|| format!("cannot open the store {}", args.dir.display()))?;
    let keeper = Arc::new(Keeper::new(store));
    let mut told = Told::default();
    told.tell(&keeper, printer);
    options.pages = Some(Arc::new(lens_observe::Api::new(Arc::clone(&keeper))));
    options.more_metrics = vec![Arc::clone(&keeper) as _];
    let receiver = Receiver::start(options, Arc::clone(&keeper) as _)?;
    let ready = Ready {
        dir: args.dir.canonicalize().unwrap_or_else(|_| args.dir.clone()),
        grpc: receiver.grpc_addresses().iter().map(base_url).collect(),
        http: receiver.http_addresses().iter().map(base_url).collect(),
    };
    tell(&ready, args.json, printer)?;
    block_on(async {
        let mut tick = tokio::time::interval(TICK);
        let ended = ended(args.until_stdin_closes);
        tokio::pin!(ended);
        loop {
            tokio::select! {
                result = &mut ended => break result,
                _ = tick.tick() => {
                    keeper.tick();
                    told.tell(&keeper, printer);
                }
            }
        }
    })?;
    receiver.stop();
    told.tell(&keeper, printer);
    let keeper = Arc::try_unwrap(keeper)
        .map_err(|_| anyhow::anyhow!("a request is still being worked on"))?;
    keeper.into_store().close().context("what arrived last may not survive a loss of power")?;
    printer.say("stored; nothing is received any more");
    Ok(ExitStatus::Done)
}

/// What was said of the store's trouble.
#[derive(Default)]
struct Told {
    damage: Vec<Damage>,
    /// Why requests were refused when that was looked at last.
    refusal: Option<String>,
}

impl Told {
    /// Tells what is new.
    fn tell(&mut self, keeper: &Keeper, printer: &Printer) {
        let damage = keeper.store().damage();
        for damaged in damage.iter().filter(|damaged| !self.damage.contains(damaged)) {
            printer.warn(&damaged.to_string());
        }
        self.damage = damage;
        let refusal = keeper.take_refusal();
        if let Some(why) = &refusal
            && self.refusal != refusal
        {
            printer.warn(&format!("requests are refused: {why}"));
        }
        self.refusal = refusal;
    }
}

fn store_options(args: &ObserveArgs) -> store::Options {
    let day = Duration::from_secs(24 * 60 * 60);
    let days = |days: u64| day.saturating_mul(u32::try_from(days).unwrap_or(u32::MAX));
    store::Options {
        durability: if args.fsync { Durability::Power } else { Durability::Process },
        retention: Retention { max_age: args.keep_days.map(days), max_bytes: args.keep_bytes },
        policy: args.keep_share.map(|share| Policy {
            share,
            slowest_per_task: args.keep_slowest,
            ..Policy::default()
        }),
        ..store::Options::default()
    }
}

fn addresses(option: &str, texts: &[String]) -> Result<Vec<ListenAddress>, anyhow::Error> {
    let read = |text: &String| text.parse().with_context(|| format!("{option} {text:?}"));
    texts.iter().map(read).collect()
}

fn token(path: &Path) -> Result<Token, anyhow::Error> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the token in {}", path.display()))?;
    Token::new(&text)
        .with_context(|| format!("{} does not hold a token", path.display()))
        .advise(|| "a token is one line of printable characters without spaces".to_owned())
}

fn base_url(address: &SocketAddr) -> String {
    format!("http://{address}")
}

fn tell(ready: &Ready, json: bool, printer: &Printer) -> Result<(), anyhow::Error> {
    if json {
        printer.data(&serde_json::to_string(ready)?)?;
    }
    let grpc = ready.grpc.join(", ");
    let http = ready.http.join(", ");
    printer.say(&format!("OTLP/gRPC {grpc}"));
    printer.say(&format!("OTLP/HTTP {http} (also queries and /metrics)"));
    printer.say(&format!("Store     {}", ready.dir.display()));
    if let (Some(grpc), Some(http)) = (ready.grpc.first(), ready.http.first()) {
        printer.say(&format!(
            "Send with OTEL_EXPORTER_OTLP_ENDPOINT={grpc}; look with `gym run list {http}`"
        ));
    }
    Ok(())
}

/// Resolves at Ctrl-C or SIGTERM, or when whoever started it is gone.
async fn ended(with_stdin: bool) -> Result<(), anyhow::Error> {
    let (closed, stdin_closed) = oneshot::channel();
    if with_stdin {
        std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            let _ = io::copy(&mut io::stdin().lock().by_ref(), &mut io::sink());
            let _ = closed.send(());
        })?;
        tokio::select! {
            _ = stdin_closed => Ok(()),
            result = interrupted() => Ok(result?),
        }
    } else {
        Ok(interrupted().await?)
    }
}
