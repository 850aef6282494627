//! Telemetry lines of Python servers, brought into the form of our own.
//!
//! The Python console exporters print a span with its ids under `context`
//! (`0x…`), `SpanKind.` before the kind, all metrics of a process on one line,
//! and a `(<instance>) ` prefix. Our readers take that too; the recipe
//! `grep '"trace_id"' *.log | jq .trace_id` does not. Lines that are no
//! telemetry pass unchanged, byte for byte.

use serde_json::{Map, Value, json};

/// Translates the telemetry lines of a block of whole lines.
pub fn translate_block(block: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(block.len());
    for line in block.split_inclusive(|byte| *byte == b'\n') {
        match translate(line) {
            Some(translated) => {
                for value in translated {
                    out.extend_from_slice(value.to_string().as_bytes());
                    out.push(b'\n');
                }
            }
            None => out.extend_from_slice(line),
        }
    }
    out
}

/// The lines that stand for a telemetry line; `None` for any other line.
fn translate(line: &[u8]) -> Option<Vec<Value>> {
    let line = without_prefix(line.trim_ascii());
    if !line.starts_with(b"{") {
        return None;
    }
    let text = std::str::from_utf8(line).ok()?;
    let is_candidate =
        ["\"trace_id\"", "\"resource_metrics\""].iter().any(|key| text.contains(key));
    if !is_candidate {
        return None;
    }
    let text = quoted_exemplar_ids(text);
    let value: Value = serde_json::from_str(&text)
        .or_else(|_| serde_json::from_str(&quoted_non_finite(&text)))
        .ok()?;
    let Value::Object(object) = value else { return None };
    if object.contains_key("resource_metrics") {
        metrics(&object)
    } else if object.get("context").is_some_and(|context| context.get("trace_id").is_some()) {
        span(object).map(|span| vec![span])
    } else if object.contains_key("severity_number") && !object.contains_key("type") {
        Some(vec![log(object)])
    } else {
        None
    }
}

fn without_prefix(line: &[u8]) -> &[u8] {
    let Some(rest) = line.strip_prefix(b"(") else { return line };
    match rest.windows(3).position(|window| window == b") {") {
        Some(end) => &rest[end + 2..],
        None => line,
    }
}

fn span(mut old: Map<String, Value>) -> Option<Value> {
    let context = old.remove("context")?;
    let start_time = old.remove("start_time").unwrap_or(Value::Null);
    let end_time = old.remove("end_time").unwrap_or(Value::Null);
    let duration_millis = match (micros(&start_time), micros(&end_time)) {
        (Some(start), Some(end)) => json!((end - start) as f64 / 1000.0),
        _ => Value::Null,
    };
    let links: Vec<Value> = array(old.remove("links"))
        .into_iter()
        .map(|mut link| {
            let context = link["context"].take();
            json!({
                "trace_id": hex(&context["trace_id"]),
                "span_id": hex(&context["span_id"]),
                "attributes": link["attributes"].take(),
            })
        })
        .collect();
    let mut new = Map::new();
    let mut put = |key: &str, value: Value| new.insert(key.to_owned(), value);
    put("type", "span".into());
    put("name", old.remove("name").unwrap_or(Value::Null));
    put("trace_id", hex(&context["trace_id"]));
    put("span_id", hex(&context["span_id"]));
    put("parent_id", old.remove("parent_id").as_ref().map_or(Value::Null, hex));
    put("kind", kind(old.remove("kind")));
    put("start_time", start_time);
    put("end_time", end_time);
    put("duration_ms", duration_millis);
    for key in ["status", "attributes"] {
        put(key, old.remove(key).unwrap_or_else(|| json!({})));
    }
    put("events", Value::Array(array(old.remove("events"))));
    put("links", Value::Array(links));
    put("resource", resource(old.remove("resource")));
    new.extend(old);
    Some(Value::Object(new))
}

fn log(mut old: Map<String, Value>) -> Value {
    let name = old
        .remove("event_name")
        .filter(|name| name.as_str().is_some_and(|name| !name.is_empty()))
        .or_else(|| old["attributes"].get("code.function.name").cloned())
        .unwrap_or_else(|| "log".into());
    let mut new = Map::new();
    new.insert("type".to_owned(), "log".into());
    new.insert("name".to_owned(), name);
    for key in ["trace_id", "span_id"] {
        let id = old.remove(key).as_ref().map_or(Value::Null, hex);
        // An invalid id is all zeros in Python; ours are absent.
        let is_zero = id.as_str().is_some_and(|id| id.bytes().all(|byte| byte == b'0'));
        new.insert(key.to_owned(), if is_zero { Value::Null } else { id });
    }
    for key in ["severity_text", "severity_number", "body", "attributes"] {
        new.insert(key.to_owned(), old.remove(key).unwrap_or(Value::Null));
    }
    let resource = resource(old.remove("resource"));
    new.extend(old);
    new.insert("resource".to_owned(), resource);
    Value::Object(new)
}

fn metrics(old: &Map<String, Value>) -> Option<Vec<Value>> {
    let mut lines = Vec::new();
    for of_resource in old.get("resource_metrics")?.as_array()? {
        let resource = resource(of_resource.get("resource").cloned());
        for of_scope in of_resource.get("scope_metrics")?.as_array()? {
            for metric in of_scope.get("metrics")?.as_array()? {
                let mut data = metric.get("data").cloned().unwrap_or_else(|| json!({}));
                rename_exemplar_ids(&mut data);
                lines.push(json!({
                    "type": "metric",
                    "name": metric.get("name"),
                    "unit": metric.get("unit"),
                    "description": metric.get("description"),
                    "data": data,
                    "scope": of_scope.get("scope").and_then(|scope| scope.get("name")),
                    "resource": resource,
                }));
            }
        }
    }
    Some(lines)
}

/// A metric line never has the key `trace_id`; Python writes ids of exemplars as decimal numbers.
fn rename_exemplar_ids(data: &mut Value) {
    for point in data["data_points"].as_array_mut().into_iter().flatten() {
        for exemplar in point["exemplars"].as_array_mut().into_iter().flatten() {
            let Some(exemplar) = exemplar.as_object_mut() else { continue };
            for (from, to, width) in
                [("trace_id", "exemplar_trace_id", 32), ("span_id", "exemplar_span_id", 16)]
            {
                if let Some(id) = exemplar.remove(from) {
                    let number = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
                    let id =
                        number.parse::<u128>().map_or(id, |id| format!("{id:0width$x}").into());
                    exemplar.insert(to.to_owned(), id);
                }
            }
        }
    }
}

fn resource(old: Option<Value>) -> Value {
    json!({"attributes": old.and_then(|mut old| Some(old.get_mut("attributes")?.take()))})
}

fn array(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(values)) => values,
        _ => Vec::new(),
    }
}

fn hex(id: &Value) -> Value {
    id.as_str().map_or(Value::Null, |id| id.trim_start_matches("0x").into())
}

fn kind(kind: Option<Value>) -> Value {
    match kind {
        Some(Value::String(kind)) => kind.trim_start_matches("SpanKind.").into(),
        _ => "INTERNAL".into(),
    }
}

/// Microseconds since the epoch of `YYYY-MM-DDTHH:MM:SS.ffffffZ`.
fn micros(time: &Value) -> Option<i64> {
    let time = time.as_str()?.strip_suffix('Z')?;
    let (date, clock) = time.split_once('T')?;
    let mut date = date.splitn(3, '-').map(str::parse::<i64>);
    let (year, month, day) = (date.next()?.ok()?, date.next()?.ok()?, date.next()?.ok()?);
    let mut clock = clock.splitn(3, ':');
    let (hour, minute) = (clock.next()?.parse::<i64>().ok()?, clock.next()?.parse::<i64>().ok()?);
    let (second, fraction) =
        clock.next().map(|second| second.split_once('.').unwrap_or((second, "0")))?;
    let second = second.parse::<i64>().ok()?;
    let fraction = format!("{fraction:0<6}").get(..6)?.parse::<i64>().ok()?;
    // Days from the civil calendar, counted from March so that the leap day is last.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let era_day = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let seconds = (era_day - 719_468) * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(seconds * 1_000_000 + fraction)
}

/// Quotes the decimal trace ids of exemplars: 128 bits do not fit a JSON number here.
fn quoted_exemplar_ids(text: &str) -> std::borrow::Cow<'_, str> {
    const KEY: &str = "\"trace_id\": ";
    let mut out = String::new();
    let mut done = 0;
    for (at, _) in text.match_indices(KEY) {
        let start = at + KEY.len();
        let len = text[start..].bytes().take_while(u8::is_ascii_digit).count();
        if len > 0 {
            out.push_str(&text[done..start]);
            out.push_str(&format!("\"{}\"", &text[start..start + len]));
            done = start + len;
        }
    }
    if done == 0 {
        return text.into();
    }
    out.push_str(&text[done..]);
    out.into()
}

/// Python writes non-finite numbers as bare words, which is not JSON.
fn quoted_non_finite(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text;
    let mut in_string = false;
    while let Some(byte) = rest.bytes().next() {
        let word = ["NaN", "Infinity", "-Infinity"].into_iter().find(|word| rest.starts_with(word));
        let len = match (byte, word) {
            (b'"', _) => {
                in_string = !in_string;
                1
            }
            (b'\\', _) if in_string => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            (_, Some(word)) if !in_string => {
                out.push('"');
                out.push_str(word);
                out.push('"');
                rest = &rest[word.len()..];
                continue;
            }
            _ => rest.chars().next().map_or(1, char::len_utf8),
        };
        out.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLLOUT: &str = include_str!("../../tests/fixtures/python_rollout_stdout.txt");
    const METRICS: &str = include_str!("../../tests/fixtures/python_metrics.jsonl");
    const LOGS: &str = include_str!("../../tests/fixtures/python_logs.jsonl");

    fn translated(text: &str) -> Vec<Value> {
        String::from_utf8(translate_block(text.as_bytes()))
            .expect("text")
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    #[test]
    fn spans_of_the_reference_get_their_ids_at_the_top() {
        let spans = translated(ROLLOUT);
        assert_eq!(spans.len(), ROLLOUT.lines().count());
        for span in &spans {
            assert_eq!(span["type"], "span");
            assert_eq!(span["trace_id"], "56df3a62b30ceeba4e2593603ed363ba");
            assert_eq!(span["span_id"].as_str().map(str::len), Some(16));
            assert!(!span["kind"].as_str().expect("a kind").contains("SpanKind"));
            assert!(span["resource"]["attributes"]["service.name"].is_string());
            assert!(span.get("context").is_none());
        }
        let run = spans.iter().find(|span| span["name"] == "POST /run").expect("the agent's span");
        assert_eq!(run["kind"], "SERVER");
        assert!(run["duration_ms"].as_f64().expect("a duration") > 0.0);
    }

    #[test]
    fn every_metric_of_the_reference_gets_a_line_and_no_line_has_a_trace_id() {
        let lines = translated(METRICS);
        assert!(lines.iter().any(|line| line["name"] == "gym.rollout.duration_ms"));
        for line in &lines {
            assert_eq!(line["type"], "metric");
            assert!(line["name"].is_string());
            assert!(!line.to_string().contains("\"trace_id\""), "{line}");
        }
    }

    #[test]
    fn ids_of_exemplars_are_written_in_hex_under_keys_of_their_own() {
        let line = r#"{"resource_metrics": [{"resource": {"attributes": {}}, "scope_metrics": [{"scope": {"name": "s"}, "metrics": [{"name": "m", "data": {"data_points": [{"value": 1, "exemplars": [{"value": 1, "span_id": 255, "trace_id": 115164298423411229826637713137226967283}]}]}}]}]}]}"#;
        let exemplar = &translated(line)[0]["data"]["data_points"][0]["exemplars"][0];
        assert_eq!(exemplar["exemplar_trace_id"], "56a3d64b4144fafb8eca2dcdc5cb68f3");
        assert_eq!(exemplar["exemplar_span_id"], "00000000000000ff");
    }

    #[test]
    fn log_records_of_the_reference_get_a_name_and_plain_ids() {
        let lines = translated(LOGS);
        assert_eq!(lines[0]["type"], "log");
        assert_eq!(lines[0]["trace_id"], "c24c3c74f98b05aebbbf0199f650a998");
        assert_eq!(lines[0]["name"], "<module>");
        assert!(lines.iter().any(|line| line["trace_id"].is_null()), "one is outside any span");
    }

    #[test]
    fn lines_that_are_no_telemetry_pass_byte_for_byte() {
        let text = "INFO:  started\n(x) {not json \"trace_id\"\n{\"type\":\"span\",\"trace_id\":\"ab\"}\n\r\n";
        assert_eq!(translate_block(text.as_bytes()), text.as_bytes());
    }

    #[test]
    fn bare_non_finite_numbers_become_strings_and_text_that_looks_like_them_stays() {
        let line = r#"{"name": "a NaN \" Infinity", "context": {"trace_id": "0x1", "span_id": "0x2"}, "attributes": {"a": NaN, "b": [-Infinity, Infinity]}}"#;
        let span = &translated(line)[0];
        assert_eq!(span["name"], "a NaN \" Infinity");
        assert_eq!(span["attributes"], json!({"a": "NaN", "b": ["-Infinity", "Infinity"]}));
    }

    #[test]
    fn a_time_is_read_to_the_microsecond() {
        assert_eq!(micros(&json!("1970-01-01T00:00:01.5Z")), Some(1_500_000));
        assert_eq!(micros(&json!("2024-02-29T12:00:00.000001Z")), Some(1_709_208_000_000_001));
        assert_eq!(micros(&json!("yesterday")), None);
    }
}
