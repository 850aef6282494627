//! From flags and config keys to the options of a run.

use std::path::PathBuf;
use std::time::Duration;

use gym_server::config::{ConfigError, FoundFile, GlobalConfig, Roots, string_override};
use gym_telemetry::env_vars;
use serde_json::Value;

use super::collate::{collate, parse_yaml, read_prompt};
use super::error::CollectError;
use super::files::RunFiles;
use super::prepare::{NumRepeats, RowOptions};
use super::run::{CollectOptions, DEFAULT_CONCURRENCY, Input, STOP_GRACE};
use super::skills::skills_ref;
use crate::args::EvalRunArgs;
use crate::printer::Printer;

/// Config keys of a collection.
mod key {
    pub const INPUT: &str = "input_jsonl_fpath";
    pub const OUTPUT: &str = "output_jsonl_fpath";
    pub const AGENT: &str = "agent_name";
    pub const SPLIT: &str = "split";
    pub const LIMIT: &str = "limit";
    pub const NUM_REPEATS: &str = "num_repeats";
    pub const ADD_SEED: &str = "num_repeats_add_seed";
    pub const CONCURRENCY: &str = "num_samples_in_parallel";
    pub const PROMPT: &str = "prompt_config";
    pub const SKILLS: &str = "skills.path";
    pub const CREATE_PARAMS: &str = "responses_create_params";
    pub const TEMPERATURE: &str = "responses_create_params.temperature";
    pub const TOP_P: &str = "responses_create_params.top_p";
    pub const MAX_OUTPUT_TOKENS: &str = "responses_create_params.max_output_tokens";
    pub const RESUME: &str = "resume_from_cache";
    pub const NO_AGGREGATION: &str = "disable_aggregation";
    pub const REUSE_DATA: &str = "reuse_existing_data_preparation";
    /// Ours: the reference has no limit.
    pub const ROLLOUT_TIMEOUT: &str = "rollout_timeout_seconds";
}

pub use key::{CONCURRENCY as CONCURRENCY_KEY, ROLLOUT_TIMEOUT as ROLLOUT_TIMEOUT_KEY};

const SPLITS: [&str; 4] = ["train", "validation", "benchmark", "example"];
const DEFAULT_MAX_ATTEMPTS: u32 = 3;

/// The overrides of the command's own flags, in the order in which it declares them.
pub fn overrides(args: &EvalRunArgs) -> Vec<String> {
    let mut overrides = Vec::new();
    let mut text = |key: &str, value: Option<String>| {
        overrides.extend(value.map(|value| string_override(key, &value)));
    };
    text(key::INPUT, args.input.as_ref().map(|path| path.display().to_string()));
    text(key::OUTPUT, args.output.as_ref().map(|path| path.display().to_string()));
    text(key::AGENT, args.agent.clone());
    text(key::SPLIT, args.split.clone());
    text(key::PROMPT, args.prompt_config.as_ref().map(|path| path.display().to_string()));
    let mut plain = |key: &str, value: Option<String>| {
        overrides.extend(value.map(|value| format!("++{key}={value}")));
    };
    plain(key::LIMIT, args.limit.map(|limit| limit.to_string()));
    plain(key::NUM_REPEATS, args.num_repeats.map(|count| count.to_string()));
    plain(key::CONCURRENCY, args.concurrency.map(|count| count.to_string()));
    plain(key::TEMPERATURE, args.temperature.map(|value| value.to_string()));
    plain(key::TOP_P, args.top_p.map(|value| value.to_string()));
    plain(key::MAX_OUTPUT_TOKENS, args.max_output_tokens.map(|count| count.to_string()));
    plain(key::RESUME, args.resume.then(|| true.to_string()));
    plain(key::NO_AGGREGATION, args.disable_aggregation.then(|| true.to_string()));
    overrides
}

/// Why a command line gives no options.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// A value of the config cannot be had.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A setting or a file of the collection is not right.
    #[error(transparent)]
    Collect(#[from] CollectError),
}

impl OptionsError {
    /// The error itself, so that its hint is found.
    pub fn into_inner(self) -> anyhow::Error {
        match self {
            OptionsError::Config(error) => error.into(),
            OptionsError::Collect(error) => error.into(),
        }
    }
}

/// What a run is bounded by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// Rollouts in flight at most.
    pub concurrency: usize,
    /// How long a rollout may take once it is admitted.
    pub rollout_timeout: Option<Duration>,
    /// How long rollouts in flight may go on after a gentle stop.
    pub stop_grace: Duration,
    /// How often a rollout may fail before a resumed run gives it up.
    pub max_attempts: u32,
}

/// Reads the limits of a run from `config`.
pub fn run_limits(config: &GlobalConfig, printer: &Printer) -> Result<RunLimits, OptionsError> {
    let settings = Settings { config };
    Ok(RunLimits {
        concurrency: settings.count(key::CONCURRENCY)?.unwrap_or(DEFAULT_CONCURRENCY),
        rollout_timeout: settings.rollout_timeout()?,
        stop_grace: STOP_GRACE,
        max_attempts: max_attempts(config, printer),
    })
}

/// Reads the options of a run from `config`; the datasets of a split are those of `fleet`.
pub fn options(
    config: &GlobalConfig,
    fleet: &GlobalConfig,
    printer: &Printer,
) -> Result<CollectOptions, OptionsError> {
    let settings = Settings { config };
    let output = settings.text(key::OUTPUT)?.ok_or_else(|| CollectError::Setting {
        key: key::OUTPUT,
        reason: "is not set; give it with --output".to_owned(),
    })?;
    let output = PathBuf::from(output);
    let resume = settings.flag(key::RESUME)?;
    let files = RunFiles::of(&output);
    let can_resume = resume && files.materialized.exists() && files.output.exists();
    let input = if can_resume { None } else { settings.input(fleet, &output, printer)? };
    Ok(CollectOptions {
        rows: settings.rows()?,
        concurrency: settings.count(key::CONCURRENCY)?,
        rollout_timeout: settings.rollout_timeout()?,
        resume,
        max_attempts: max_attempts(config, printer),
        aggregate: !settings.flag(key::NO_AGGREGATION)?,
        ..CollectOptions::new(input, output)
    })
}

fn max_attempts(config: &GlobalConfig, printer: &Printer) -> u32 {
    let name = env_vars::GYM_MAX_ROLLOUT_ATTEMPTS;
    match config.environment().get(name).map(|text| text.trim()).filter(|text| !text.is_empty()) {
        None => DEFAULT_MAX_ATTEMPTS,
        Some(text) => text.parse().ok().filter(|count| *count > 0).unwrap_or_else(|| {
            printer.warn(&format!(
                "{name}={text:?} is no whole number of 1 or more: {DEFAULT_MAX_ATTEMPTS} holds"
            ));
            DEFAULT_MAX_ATTEMPTS
        }),
    }
}

struct Settings<'a> {
    config: &'a GlobalConfig,
}

impl Settings<'_> {
    fn read<T>(
        &self,
        key: &'static str,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, OptionsError> {
        let Some(value) = self.config.try_get(key)? else { return Ok(None) };
        match read(&value) {
            Some(read) => Ok(Some(read)),
            None => {
                let reason = format!("must be {expected}, got {value}");
                Err(CollectError::Setting { key, reason }.into())
            }
        }
    }

    fn text(&self, key: &'static str) -> Result<Option<String>, OptionsError> {
        let text = self.read(key, "text", |value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        })?;
        Ok(text.filter(|text| !text.is_empty()))
    }

    fn flag(&self, key: &'static str) -> Result<bool, OptionsError> {
        Ok(self.read(key, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    /// A count; 0 stands for no limit.
    fn count(&self, key: &'static str) -> Result<Option<usize>, OptionsError> {
        let count =
            self.read(key, "a whole number", |value| usize::try_from(value.as_u64()?).ok())?;
        Ok(count.filter(|count| *count > 0))
    }

    fn rollout_timeout(&self) -> Result<Option<Duration>, OptionsError> {
        self.read(key::ROLLOUT_TIMEOUT, "a number of seconds above 0", |value| {
            let seconds = value.as_f64().filter(|seconds| *seconds > 0.0)?;
            Duration::try_from_secs_f64(seconds).ok()
        })
    }

    fn input(
        &self,
        fleet: &GlobalConfig,
        output: &std::path::Path,
        printer: &Printer,
    ) -> Result<Option<Input>, OptionsError> {
        let roots = self.config.roots();
        if let Some(path) = self.text(key::INPUT)? {
            return Ok(Some(find_input(roots, &path)?));
        }
        let Some(split) = self.text(key::SPLIT)? else { return Err(CollectError::NoInput.into()) };
        if !SPLITS.contains(&split.as_str()) {
            let reason = format!("must be one of {}, got {split:?}", SPLITS.join(", "));
            return Err(CollectError::Setting { key: key::SPLIT, reason }.into());
        }
        let collated = RunFiles::preprocessed(output, &split);
        if self.flag(key::REUSE_DATA)? && collated.exists() {
            return Ok(Some(Input::File(collated)));
        }
        let collated = collate(fleet, roots, &split, output)?;
        printer.say(&format!(
            "{} rows of split {split} from {} in {}",
            collated.rows,
            collated.datasets.join(", "),
            collated.path.display()
        ));
        Ok(Some(Input::File(collated.path)))
    }

    fn rows(&self) -> Result<RowOptions, OptionsError> {
        let params =
            self.read(key::CREATE_PARAMS, "a mapping", |value| value.as_object().cloned())?;
        let num_repeats = self.config.try_get(key::NUM_REPEATS)?.unwrap_or(Value::Null);
        Ok(RowOptions {
            limit: self.count(key::LIMIT)?,
            num_repeats: NumRepeats::from_value(&num_repeats)?,
            add_seed: self.flag(key::ADD_SEED)?,
            agent: self.text(key::AGENT)?,
            create_params: params
                .into_iter()
                .flatten()
                .map(|(key, value)| (key, value.to_string()))
                .collect(),
            prompt: match self.text(key::PROMPT)? {
                None => None,
                Some(path) => {
                    let file =
                        self.config.roots().find(&path).ok_or_else(|| CollectError::Prompt {
                            path: path.clone().into(),
                            reason: "it does not exist".to_owned(),
                        })?;
                    Some(read_prompt(&file)?)
                }
            },
            skills_ref: match self.text(key::SKILLS)? {
                None => None,
                Some(path) => Some(skills_ref(&path, &self.directory(&path), &parse_yaml)?),
            },
        })
    }

    fn directory(&self, path: &str) -> PathBuf {
        let candidates = self.config.roots().dirs().iter().map(|root| root.join(path));
        candidates.into_iter().find(|path| path.is_dir()).unwrap_or_else(|| path.into())
    }
}

/// A file by its path, a pipe too, else one under the search roots.
fn find_input(roots: &Roots, path: &str) -> Result<Input, CollectError> {
    let direct = PathBuf::from(path);
    if direct.exists() && !direct.is_dir() {
        return Ok(Input::File(direct));
    }
    if direct.is_dir() {
        let source = std::io::ErrorKind::IsADirectory.into();
        return Err(CollectError::Read { path: direct, source });
    }
    match roots.find(path) {
        Some(FoundFile::Disk(path)) => Ok(Input::File(path)),
        Some(FoundFile::Embedded(file)) => Ok(Input::Embedded(file.path, file.bytes)),
        None => Err(CollectError::MissingInput { path: direct, roots: roots.describe() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command, EvalCommand};
    use clap::Parser;
    use gym_server::config::{LoadRequest, load};
    use std::collections::BTreeMap;
    use std::path::Path;

    fn args(line: &[&str]) -> EvalRunArgs {
        let cli =
            Cli::try_parse_from(["gym", "eval", "run"].iter().chain(line)).expect("a command line");
        let Command::Eval(EvalCommand::Run(args)) = cli.command else { panic!("not eval run") };
        args
    }

    fn read(
        cwd: &Path,
        line: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<CollectOptions, OptionsError> {
        let args = args(line);
        let mut tokens = overrides(&args);
        tokens.extend(args.source.overrides);
        let request = LoadRequest {
            overrides: tokens,
            cwd: cwd.to_owned(),
            embedded: gym_envs::assets::FILES,
            environment_variables: environment
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>(),
            ..LoadRequest::default()
        };
        let config = load(&request)?;
        options(&config, &config, &Printer::from_terminal().quieted())
    }

    #[test]
    fn flags_and_keys_mean_the_same() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("in.jsonl"), "").unwrap();
        let flags = [
            "-i",
            "in.jsonl",
            "-o",
            "o.jsonl",
            "-a",
            "x",
            "--limit",
            "3",
            "--num-repeats",
            "2",
            "--concurrency",
            "7",
            "--temperature",
            "0.5",
            "--max-output-tokens",
            "9",
            "--disable-aggregation",
        ];
        let keys = [
            "+input_jsonl_fpath=in.jsonl",
            "+output_jsonl_fpath=o.jsonl",
            "+agent_name=x",
            "+limit=3",
            "+num_repeats=2",
            "+num_samples_in_parallel=7",
            "+responses_create_params.temperature=0.5",
            "+responses_create_params.max_output_tokens=9",
            "+disable_aggregation=true",
        ];
        let from_flags = read(dir.path(), &flags, &[]).unwrap();
        let from_keys = read(dir.path(), &keys, &[]).unwrap();
        assert_eq!(format!("{from_flags:?}"), format!("{from_keys:?}"));
        assert_eq!(from_flags.rows.limit, Some(3));
        assert_eq!(from_flags.concurrency, Some(7));
        assert_eq!(from_flags.rows.create_params[0], ("temperature".to_owned(), "0.5".to_owned()));
        assert!(!from_flags.aggregate);
        assert_eq!(from_flags.max_attempts, 3);
    }

    #[test]
    fn zero_means_no_limit_and_repeats_may_be_a_map() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("in.jsonl"), "").unwrap();
        let line =
            ["-i", "in.jsonl", "-o", "o.jsonl", "--limit", "0", "+num_repeats={a: 2, _default: 1}"];
        let options = read(dir.path(), &line, &[("NEMO_GYM_MAX_ROLLOUT_ATTEMPTS", "5")]).unwrap();
        assert_eq!(options.rows.limit, None);
        assert!(matches!(options.rows.num_repeats, NumRepeats::PerAgent { default: Some(1), .. }));
        assert_eq!(options.max_attempts, 5);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let message = |line: &[&str]| read(dir.path(), line, &[]).unwrap_err().to_string();
        assert_eq!(message(&[]), "output_jsonl_fpath is not set; give it with --output");
        assert_eq!(message(&["-o", "o.jsonl"]), "there is nothing to collect: no input");
        assert_eq!(
            message(&["-o", "o.jsonl", "-i", "none.jsonl"]),
            "input file \"none.jsonl\" does not exist"
        );
        assert_eq!(
            message(&["-o", "o.jsonl", "+split=tests"]),
            "split must be one of train, validation, benchmark, example, got \"tests\""
        );
        assert_eq!(
            message(&["-o", "o.jsonl", "+limit=x"]),
            "there is nothing to collect: no input"
        );
        std::fs::write(dir.path().join("in.jsonl"), "").unwrap();
        assert_eq!(
            message(&["-o", "o.jsonl", "-i", "in.jsonl", "+limit=x"]),
            "limit must be a whole number, got \"x\""
        );
    }

    #[test]
    fn example_rows_come_from_the_binary() {
        let dir = tempfile::tempdir().unwrap();
        let path = "resources_servers/example_single_tool_call/data/example.jsonl";
        let options = read(dir.path(), &["-i", path, "-o", "o.jsonl"], &[]).unwrap();
        assert!(matches!(options.input, Some(Input::Embedded(found, _)) if found == path));
    }
}
