//! `gym config show`: every telemetry setting and every limit, its value and who decided it.

use gym_telemetry::{Row, environment, resolve, telemetry_config_from_global_config};
use serde_json::Value;

use crate::args::ConfigShowArgs;
use crate::exit::ExitStatus;
use crate::limits::{self, Limit};
use crate::printer::Printer;
use crate::settings;

pub fn run(args: &ConfigShowArgs, printer: &Printer) -> Result<ExitStatus, anyhow::Error> {
    let flags = settings::model_overrides(&args.model);
    let config = settings::load_data(&args.source, flags, printer)?;
    let block = telemetry_config_from_global_config(&config.resolved()?)?;
    for warning in &block.warnings {
        printer.warn(warning);
    }
    let settings = resolve(&environment(), &block);
    if let Some(warning) = settings.off_warning() {
        printer.warn(&warning);
    }
    for warning in settings.ignored_warnings() {
        printer.warn(&warning);
    }
    let rows = settings.rows();
    let limits = limits::of(&config, printer)?;
    let text = if args.json {
        let rows = rows.iter().map(Row::to_json);
        let rows: Vec<Value> = rows.chain(limits.iter().map(Limit::to_json)).collect();
        serde_json::to_string_pretty(&rows)?
    } else {
        let lines = rows.iter().map(of_row).chain(limits.iter().map(of_limit)).collect::<Vec<_>>();
        table(&lines, args.origin)
    };
    printer.data(&text)?;
    Ok(ExitStatus::Done)
}

/// Name, value and origin.
type Line<'a> = (&'a str, &'a str, String);

fn of_row(row: &Row) -> Line<'_> {
    (&row.name, &row.value, row.origin.to_string())
}

fn of_limit(limit: &Limit) -> Line<'_> {
    (limit.name, &limit.value, limit.origin.clone())
}

fn table(lines: &[Line<'_>], with_origin: bool) -> String {
    let width = |of: fn(&Line<'_>) -> usize| lines.iter().map(of).max().unwrap_or(0);
    let names = width(|(name, ..)| name.chars().count());
    let values = width(|(_, value, _)| value.chars().count()).min(48);
    let mut text = String::new();
    for (name, value, origin) in lines {
        let line = if with_origin {
            format!("{name:names$}  {value:values$}  {origin}")
        } else {
            format!("{name:names$}  {value}")
        };
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_setting_is_shown_with_its_origin_and_no_secret() {
        let env = BTreeMap::from([
            ("NEMO_LENS_ENABLED".to_owned(), "1".to_owned()),
            ("OTEL_EXPORTER_OTLP_HEADERS".to_owned(), "authorization=Bearer abc".to_owned()),
        ]);
        let config = serde_json::json!({"telemetry": {"exporter": "console"}});
        let block = telemetry_config_from_global_config(&config).expect("a block");
        let rows = resolve(&env, &block).rows();
        let text = table(&rows.iter().map(of_row).collect::<Vec<_>>(), true);
        let line = |name: &str| {
            let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
            line.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        assert_eq!(line("enabled").as_deref(), Some("enabled true NEMO_LENS_ENABLED"));
        assert_eq!(line("exporter").as_deref(), Some("exporter console `telemetry:` block"));
        assert_eq!(line("service_name").as_deref(), Some("service_name nemo-gym default"));
        assert!(!text.contains("Bearer abc"), "{text}");
    }
}
