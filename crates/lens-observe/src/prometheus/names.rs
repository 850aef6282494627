//! Names of OpenTelemetry as Prometheus wants them.
//!
//! The rules of the specification "Prometheus and OpenMetrics Compatibility": characters, suffixes of units, `_total`.
//! One thing more: values in milliseconds, kibibytes and the like are given in the base unit that Prometheus asks for,
//! so a histogram in `ms` is one of `_seconds` here, and `promtool check metrics` has nothing to say.

/// What a family of series is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by upper bound.
    Histogram,
}

impl Kind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A unit as a suffix, and what values are multiplied with to be in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unit {
    /// Empty when there is none.
    pub suffix: &'static str,
    pub factor: f64,
}

const fn unit(suffix: &'static str, factor: f64) -> Unit {
    Unit { suffix, factor }
}

fn main_unit(text: &str) -> Option<Unit> {
    Some(match text {
        "s" => unit("seconds", 1.0),
        "ms" => unit("seconds", 1e-3),
        "us" => unit("seconds", 1e-6),
        "ns" => unit("seconds", 1e-9),
        "min" => unit("seconds", 60.0),
        "h" => unit("seconds", 3600.0),
        "d" => unit("seconds", 86_400.0),
        "By" => unit("bytes", 1.0),
        "KBy" | "kBy" => unit("bytes", 1e3),
        "MBy" => unit("bytes", 1e6),
        "GBy" => unit("bytes", 1e9),
        "TBy" => unit("bytes", 1e12),
        "KiBy" => unit("bytes", 1024.0),
        "MiBy" => unit("bytes", 1_048_576.0),
        "GiBy" => unit("bytes", 1_073_741_824.0),
        "TiBy" => unit("bytes", 1_099_511_627_776.0),
        "m" => unit("meters", 1.0),
        "V" => unit("volts", 1.0),
        "A" => unit("amperes", 1.0),
        "J" => unit("joules", 1.0),
        "W" => unit("watts", 1.0),
        "g" => unit("grams", 1.0),
        "Cel" => unit("celsius", 1.0),
        "Hz" => unit("hertz", 1.0),
        "%" => unit("percent", 1.0),
        _ => return None,
    })
}

fn per_unit(text: &str) -> Option<&'static str> {
    Some(match text {
        "s" => "second",
        "min" => "minute",
        "h" => "hour",
        "d" => "day",
        "w" => "week",
        "mo" => "month",
        "y" => "year",
        _ => return None,
    })
}

/// The name of a family without `_total`, and its unit.
pub(super) fn family(name: &str, ucum: &str, kind: Kind) -> (String, Unit) {
    let mut tokens: Vec<String> = name
        .split(|character: char| !character.is_ascii_alphanumeric())
        .filter(|token| !token.is_empty())
        .map(str::to_owned)
        .collect();
    if tokens.last().is_some_and(|token| token == "total") && kind == Kind::Counter {
        tokens.pop();
    }
    let plain = without_annotations(ucum);
    let (main, per) = plain.split_once('/').map_or((plain.as_str(), None), |(a, b)| (a, Some(b)));
    let mut found = main_unit(main).unwrap_or(unit("", 1.0));
    if main == "1" && kind == Kind::Gauge && per.is_none() {
        found = unit("ratio", 1.0);
    }
    // A name that says its unit already loses it where the value is in another one here.
    if let Some(last) = tokens.last_mut()
        && found.factor != 1.0
        && (is_scaled_word(last, found.suffix) || is_abbreviation(last, main))
    {
        found.suffix.clone_into(last);
    }
    if !found.suffix.is_empty() && !tokens.iter().any(|token| token == found.suffix) {
        tokens.push(found.suffix.to_owned());
    }
    if let Some(per) = per.and_then(per_unit)
        && !tokens.iter().any(|token| token == per)
    {
        if let [.., word, short] = tokens.as_slice()
            && word == "per"
            && per.starts_with(short.as_str())
        {
            tokens.truncate(tokens.len() - 2);
        }
        tokens.extend(["per".to_owned(), per.to_owned()]);
        // The unit of the whole is no longer the suffix.
        found.suffix = "";
    }
    let mut name = tokens.join("_");
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        name.insert(0, '_');
    }
    (name, found)
}

fn is_scaled_word(word: &str, base: &str) -> bool {
    ["milli", "micro", "nano", "kilo", "mega", "giga", "tera", "kibi", "mebi", "gibi", "tebi"]
        .iter()
        .any(|prefix| word.strip_prefix(prefix) == Some(base))
}

/// `ms`, or `mib` for `MiBy`.
fn is_abbreviation(word: &str, unit: &str) -> bool {
    unit.eq_ignore_ascii_case(word)
        || unit.strip_suffix('y').is_some_and(|unit| unit.eq_ignore_ascii_case(word))
}

fn without_annotations(unit: &str) -> String {
    let mut depth = 0_u32;
    unit.chars()
        .filter(|character| {
            match character {
                '{' => depth += 1,
                '}' => {
                    depth = depth.saturating_sub(1);
                    return false;
                }
                _ => {}
            }
            depth == 0
        })
        .collect()
}

/// An attribute key as a label name. What Prometheus or this page uses itself gets `exported_` in front.
pub(super) fn label(key: &str) -> String {
    let mut name: String = key
        .chars()
        .map(|character| if character.is_ascii_alphanumeric() { character } else { '_' })
        .collect();
    if name.starts_with(|first: char| first.is_ascii_digit()) || name.starts_with("__") {
        name.insert_str(0, "key_");
    }
    if name.is_empty() {
        name.push('_');
    }
    if matches!(name.as_str(), "job" | "instance" | "le" | "quantile") {
        name.insert_str(0, "exported_");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_named_by_the_rules_of_the_specification() {
        for (name, ucum, kind, expected) in [
            (
                "http.server.request.duration",
                "s",
                Kind::Histogram,
                "http_server_request_duration_seconds",
            ),
            ("gym.rollout.duration", "ms", Kind::Histogram, "gym_rollout_duration_seconds"),
            ("gym.queue.duration_ms", "ms", Kind::Histogram, "gym_queue_duration_seconds"),
            ("gym.host.memory_used_mib", "MiBy", Kind::Gauge, "gym_host_memory_used_bytes"),
            ("gym.verify.success_rate", "1", Kind::Gauge, "gym_verify_success_rate_ratio"),
            ("cpu.percent", "%", Kind::Gauge, "cpu_percent"),
            ("wait_milliseconds", "ms", Kind::Gauge, "wait_seconds"),
            ("process.memory.usage", "By", Kind::Gauge, "process_memory_usage_bytes"),
            ("gym.rollout.completed", "{rollout}", Kind::Counter, "gym_rollout_completed"),
            ("requests.total", "{request}", Kind::Counter, "requests"),
            ("items.total", "", Kind::Gauge, "items_total"),
            ("cpu.utilization", "1", Kind::Gauge, "cpu_utilization_ratio"),
            ("retries", "1", Kind::Counter, "retries"),
            ("net.io", "By/s", Kind::Gauge, "net_io_bytes_per_second"),
            ("rl.tokens_per_sec", "{token}/s", Kind::Gauge, "rl_tokens_per_second"),
            ("nothing.known", "furlong", Kind::Gauge, "nothing_known"),
            ("disk..bytes_", "By", Kind::Counter, "disk_bytes"),
            ("2xx", "", Kind::Counter, "_2xx"),
            ("ä", "", Kind::Gauge, "_"),
        ] {
            assert_eq!(family(name, ucum, kind).0, expected, "{name} in {ucum}");
        }
        assert_eq!(family("x", "ms", Kind::Gauge).1, unit("seconds", 1e-3));
    }

    #[test]
    fn labels_are_valid_names_and_never_ours() {
        for (key, expected) in [
            ("http.route", "http_route"),
            ("le", "exported_le"),
            ("job", "exported_job"),
            ("1st", "key_1st"),
            ("__name__", "key___name__"),
            ("größe", "gr__e"),
            ("", "_"),
        ] {
            assert_eq!(label(key), expected, "{key}");
        }
    }
}
