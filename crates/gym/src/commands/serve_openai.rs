//! `gym serve-openai`: a scripted model behind the OpenAI API, as a process of its own.

use std::cell::RefCell;
use std::io;

use anyhow::Context;
use gym_envs::scripted_model::ScriptedModelConfig;
use gym_envs::serve_openai::{OpenAiOptions, ServeOpenAiError, serve_openai};
use gym_server::config::{GlobalConfig, string_override};
use serde_json::Value;

use crate::args::{ConfigSource, ServeOpenaiArgs};
use crate::exit::ExitStatus;
use crate::fleet::FleetError;
use crate::printer::Printer;
use crate::settings;

/// Where the overrides are put while they are read as those of a config.
const KEY: &str = "serve_openai";

pub fn run(args: &ServeOpenaiArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    let config =
        model_config(args, printer).context("the settings of the scripted model are not valid")?;
    let options = OpenAiOptions { config, api_key: args.api_key.clone(), workers: args.workers };
    let printed: RefCell<io::Result<()>> = RefCell::new(Ok(()));
    let served = serve_openai(args.listen, options, |address| {
        printer.say("Serving a scripted model; Ctrl-C ends it");
        *printed.borrow_mut() = printer.data(&format!("http://{address}/v1"));
    });
    match served {
        Err(ServeOpenAiError::Bind(error)) if error.port_is_taken() => {
            return Err(FleetError::listen_taken(args.listen).into());
        }
        served => served?,
    }
    printed.into_inner()?;
    Ok(ExitStatus::Done)
}

fn model_config(
    args: &ServeOpenaiArgs,
    printer: &Printer,
) -> Result<ScriptedModelConfig, anyhow::Error> {
    let mut settings = match &args.config {
        None => Value::Object(serde_json::Map::new()),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("failed to read {path:?}"))?;
            GlobalConfig::from_yaml_text(&text, gym_telemetry::environment())?.resolved()?
        }
    };
    let latency = args.latency.iter().map(|spec| string_override("latency", spec));
    let seed = args.seed.iter().map(|seed| format!("++seed={seed}"));
    let tokens: Vec<String> = latency.chain(seed).chain(args.overrides.iter().cloned()).collect();
    let overrides = tokens.iter().map(|token| below_key(token)).collect();
    let source = ConfigSource { overrides, ..ConfigSource::default() };
    if let Some(over) = settings::load_data(&source, Vec::new(), printer)?.try_get(KEY)? {
        merge(&mut settings, over);
    }
    Ok(ScriptedModelConfig::from_value(settings)?)
}

/// `++a.b=c` as `++serve_openai.a.b=c`.
fn below_key(token: &str) -> String {
    let plain = token.trim_start_matches('+');
    format!("{}{KEY}.{plain}", &token[..token.len() - plain.len()])
}

fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}
