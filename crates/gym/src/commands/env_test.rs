//! `gym env test`: drives an environment's rows with a model that plays a script.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use gym_envs::scripted_model::ScriptedModelConfig;

use crate::args::{ConfigSource, EnvTestArgs};
use crate::commands::block_on;
use crate::env_test::{self, Report};
use crate::exit::ExitStatus;
use crate::fleet::{Fleet, FleetOptions};
use crate::printer::Printer;
use crate::settings::{self, Ports};

const SCRIPTED_MODEL: &str = "scripted_model";

pub fn run(args: &EnvTestArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    let script = args.script.as_deref().map(ScriptConfig::write).transpose()?;
    let source = source(&args.source, script.as_ref());
    let is_scripted = source.model_type.as_deref() == Some(SCRIPTED_MODEL);
    let config = settings::load(&source, Vec::new(), Ports::Assign, printer)?;
    let environments = env_test::find(&config, args.source.resources_server.as_deref())?;
    let input = args.input.as_ref().map(|path| path.to_string_lossy());
    let tests = environments
        .into_iter()
        .map(|environment| {
            let rows = env_test::rows(&config, &environment, input.as_deref(), args.limit)?;
            Ok((environment, rows))
        })
        .collect::<Result<Vec<_>, env_test::EnvironmentError>>()?;

    let options = FleetOptions {
        log_dir: args.log_dir.clone(),
        // stdout is for the table.
        forwards_stdout: false,
        announces: false,
        ..FleetOptions::default()
    };
    let expects_every_tool = is_scripted && script.is_none();
    let reports = block_on(async {
        let fleet = Fleet::start(config, options, printer).await?;
        let check = async {
            let mut reports = Vec::new();
            for (environment, rows) in &tests {
                reports.push(env_test::check(environment, rows, expects_every_tool).await);
            }
            reports
        };
        let reports = tokio::select! {
            reports = check => Ok(Some(reports)),
            died = fleet.wait_for_failure() => Err(died),
            interrupt = crate::fleet::interrupted() => interrupt.map(|()| None),
        };
        fleet.stop().await;
        Ok(reports?)
    })?;
    let Some(reports) = reports else {
        printer.say("interrupted before every row was driven");
        return Ok(ExitStatus::Interrupted);
    };
    print(&reports, args.json, printer)?;
    let passed = reports.iter().all(Report::passed);
    Ok(if passed { ExitStatus::Done } else { ExitStatus::Negative })
}

/// What was typed, with the scripted model where no other was asked for.
fn source(typed: &ConfigSource, script: Option<&ScriptConfig>) -> ConfigSource {
    let mut source = typed.clone();
    source.model_type.get_or_insert_with(|| SCRIPTED_MODEL.to_owned());
    if let Some(script) = script {
        source.config.push(script.path.display().to_string());
    }
    source
}

fn print(reports: &[Report], as_json: bool, printer: &Printer) -> Result<(), anyhow::Error> {
    if as_json {
        for report in reports {
            printer.data(&report.to_json().to_string())?;
        }
        return Ok(());
    }
    for report in reports {
        printer.say(&format!("{} through {}", report.resources_server, report.agent));
        printer.data(&report.to_table())?;
        let passed = report.rows.iter().filter(|row| row.passed()).count();
        printer.say(&format!("{passed} of {} rows keep the contract", report.rows.len()));
    }
    Ok(())
}

/// A script as a config file of its own, removed when dropped.
struct ScriptConfig {
    path: PathBuf,
}

impl ScriptConfig {
    fn write(script: &Path) -> Result<Self, anyhow::Error> {
        let text = std::fs::read_to_string(script)
            .with_context(|| format!("failed to read the script {script:?}"))?;
        let replies = replies(&text)?;
        ScriptedModelConfig::from_value(replies.clone().into())
            .with_context(|| format!("the script {script:?} cannot be played"))?;
        let config = json!({
            "policy_model": {"responses_api_models": {SCRIPTED_MODEL: {"script": replies}}}
        });
        let path = std::env::temp_dir().join(format!("gym-script-{}.yaml", std::process::id()));
        // JSON is YAML.
        std::fs::File::create(&path)
            .and_then(|mut file| file.write_all(config.to_string().as_bytes()))
            .with_context(|| format!("failed to write {path:?}"))?;
        Ok(Self { path })
    }
}

impl Drop for ScriptConfig {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn replies(text: &str) -> Result<Vec<Value>, anyhow::Error> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            serde_json::from_str(line)
                .with_context(|| format!("line {} of the script is not JSON", index + 1))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read_line_by_line() {
        let script = "{\"text\":\"a\"}\n\n{\"text\":\"b\"}\n";
        assert_eq!(replies(script).expect("valid").len(), 2);
        let error = replies("{}\nnope\n").expect_err("not JSON");
        assert_eq!(error.to_string(), "line 2 of the script is not JSON");
    }

    #[test]
    fn the_model_is_scripted_unless_another_is_asked_for() {
        let typed = ConfigSource::default();
        assert_eq!(source(&typed, None).model_type.as_deref(), Some(SCRIPTED_MODEL));
        let typed =
            ConfigSource { model_type: Some("vllm_model".to_owned()), ..ConfigSource::default() };
        assert_eq!(source(&typed, None).model_type.as_deref(), Some("vllm_model"));
    }
}
