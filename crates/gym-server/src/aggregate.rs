//! Aggregate metrics of a run: what `POST /aggregate_metrics` answers by default.
//!
//! Every numeric member of a result (booleans as 0 and 1, the usage's members too) is a column. Each column is
//! described by `mean`, `max`, `min`, `median` and `std` (of the sample), per task and over everything.
//! Missing values are left out; so are descriptions that do not exist, such as the deviation of one value, unless no
//! column has one: then it is 0.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value, json};

const TASK_INDEX: &str = "_ng_task_index";
const ROLLOUT_INDEX: &str = "_ng_rollout_index";
const MEAN_PREFIX: &str = "mean/";

/// The reply of `/aggregate_metrics`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AggregateMetrics {
    /// One entry per task, in the order of the task indices.
    pub group_level_metrics: Vec<Map<String, Value>>,
    /// The descriptions over all results.
    pub agent_metrics: Map<String, Value>,
    /// The headline: by default the means.
    pub key_metrics: Map<String, Value>,
}

/// Why results cannot be aggregated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AggregateError {
    /// The body is not `{"verify_responses": [{…}, …]}`.
    #[error("the body is not {{\"verify_responses\": [...]}}")]
    Body(#[source] serde_json::Error),
}

/// Aggregates the results in the body of an `/aggregate_metrics` request.
///
/// # Errors
///
/// [`AggregateError::Body`] when the body is not such a request.
pub fn aggregate(body: &[u8]) -> Result<AggregateMetrics, AggregateError> {
    #[derive(Deserialize)]
    struct Request<'a> {
        #[serde(borrow)]
        verify_responses: Vec<Row<'a>>,
    }
    let request: Request = serde_json::from_slice(body).map_err(AggregateError::Body)?;
    if request.verify_responses.is_empty() {
        return Ok(AggregateMetrics::default());
    }
    let table = Table::from_rows(&request.verify_responses);
    let mut tasks: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (index, record) in table.records.iter().enumerate() {
        tasks.entry(record.task).or_default().push(index);
    }
    let group_level_metrics =
        tasks.iter().map(|(task, records)| table.group_entry(*task, records)).collect();
    let everything: Vec<usize> = (0..table.records.len()).collect();
    let agent_metrics = table.describe(&everything);
    let key_metrics = key_metrics(&agent_metrics);
    Ok(AggregateMetrics { group_level_metrics, agent_metrics, key_metrics })
}

/// The means among descriptions.
#[must_use]
pub fn key_metrics(agent_metrics: &Map<String, Value>) -> Map<String, Value> {
    agent_metrics
        .iter()
        .filter(|(key, _)| key.starts_with(MEAN_PREFIX))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Columns by first appearance, one record per result.
struct Table {
    columns: Vec<String>,
    records: Vec<Record>,
}

struct Record {
    task: i64,
    rollout: i64,
    values: Vec<(usize, Number)>,
}

impl Table {
    fn from_rows(rows: &[Row]) -> Table {
        let mut columns = Vec::new();
        let mut positions: HashMap<String, usize> = HashMap::new();
        let mut records = Vec::with_capacity(rows.len());
        for row in rows {
            let mut record = Record { task: 0, rollout: 0, values: Vec::new() };
            for (name, number) in &row.0 {
                match name.as_ref() {
                    TASK_INDEX => record.task = number.as_i64().unwrap_or_default(),
                    ROLLOUT_INDEX => record.rollout = number.as_i64().unwrap_or_default(),
                    name => {
                        let column = *positions.entry(name.to_owned()).or_insert_with(|| {
                            columns.push(name.to_owned());
                            columns.len() - 1
                        });
                        // A member of the usage wins over one of the result.
                        record.values.retain(|(present, _)| *present != column);
                        record.values.push((column, number.clone()));
                    }
                }
            }
            records.push(record);
        }
        Table { columns, records }
    }

    /// The descriptions of some records, all columns of one statistic after the other.
    fn describe(&self, records: &[usize]) -> Map<String, Value> {
        let mut columns: Vec<Vec<f64>> = vec![Vec::new(); self.columns.len()];
        for &record in records {
            for (column, number) in &self.records[record].values {
                columns[*column].push(number.as_f64().unwrap_or(f64::NAN));
            }
        }
        let stats: Vec<Stats> = columns.iter_mut().map(|values| Stats::of(values)).collect();
        let no_deviation = stats.iter().all(|stats| stats.std.is_none());
        let mut described = Map::new();
        let mut put = |statistic: &str, value: &dyn Fn(usize) -> Option<f64>| {
            for (column, name) in self.columns.iter().enumerate() {
                if let Some(number) = value(column).and_then(Number::from_f64) {
                    described.insert(format!("{statistic}/{name}"), Value::Number(number));
                }
            }
        };
        put("mean", &|column| stats[column].mean);
        put("max", &|column| stats[column].max);
        put("min", &|column| stats[column].min);
        put("median", &|column| stats[column].median);
        put("std", &|column| {
            let complete = columns[column].len() == records.len();
            stats[column].std.or((no_deviation && complete).then_some(0.0))
        });
        described
    }

    fn group_entry(&self, task: i64, records: &[usize]) -> Map<String, Value> {
        let mut entry = self.describe(records);
        let infos: Vec<Value> =
            records.iter().map(|&record| self.rollout_info(&self.records[record])).collect();
        entry.insert("sample".to_owned(), json!({"agent_ref": {"name": "agent"}}));
        entry.insert("num_rollouts".to_owned(), json!(records.len()));
        entry.insert("expected_num_rollouts".to_owned(), json!(records.len()));
        entry.insert("missing_num_rollouts".to_owned(), json!(0));
        entry.insert("reward_profile_completion_pct".to_owned(), json!(100.0));
        entry.insert("rollout_infos".to_owned(), Value::Array(infos));
        entry.insert(TASK_INDEX.to_owned(), json!(task));
        entry
    }

    fn rollout_info(&self, record: &Record) -> Value {
        let mut info = Map::new();
        info.insert("rollout_id".to_owned(), json!(format!("{}:{}", record.task, record.rollout)));
        info.insert(TASK_INDEX.to_owned(), json!(record.task));
        info.insert(ROLLOUT_INDEX.to_owned(), json!(record.rollout));
        for (column, number) in &record.values {
            info.insert(self.columns[*column].clone(), Value::Number(number.clone()));
        }
        Value::Object(info)
    }
}

#[derive(Debug, Default)]
struct Stats {
    mean: Option<f64>,
    max: Option<f64>,
    min: Option<f64>,
    median: Option<f64>,
    std: Option<f64>,
}

impl Stats {
    /// Sorts the values to find their middle.
    fn of(values: &mut [f64]) -> Stats {
        let count = values.len();
        if count == 0 {
            return Stats::default();
        }
        let mean = exact_sum(values.iter().copied()) / count as f64;
        values.sort_by(f64::total_cmp);
        let middle = count / 2;
        let median = if count % 2 == 1 {
            values[middle]
        } else {
            (values[middle - 1] + values[middle]) / 2.0
        };
        let std = (count > 1).then(|| {
            let squares = values.iter().map(|value| (value - mean) * (value - mean));
            (exact_sum(squares) / (count - 1) as f64).sqrt()
        });
        Stats {
            mean: Some(mean),
            max: values.last().copied(),
            min: values.first().copied(),
            median: Some(median),
            std,
        }
    }
}

/// A sum that does not depend on how many small values follow a large one (Neumaier's).
fn exact_sum(values: impl Iterator<Item = f64>) -> f64 {
    let mut sum = 0.0;
    let mut lost = 0.0;
    for value in values {
        let next: f64 = sum + value;
        lost += if f64::abs(sum) >= f64::abs(value) {
            (sum - next) + value
        } else {
            (value - next) + sum
        };
        sum = next;
    }
    sum + lost
}

/// The numeric members of one result and of its usage.
struct Row<'a>(Vec<(Cow<'a, str>, Number)>);

impl<'de: 'a, 'a> Deserialize<'de> for Row<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Vec<(Cow<'de, str>, Number)>;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut numbers = Vec::new();
                let mut usage = Vec::new();
                while let Some(Key(key)) = map.next_key()? {
                    let value: &RawValue = map.next_value()?;
                    if key == "response" {
                        usage = usage_numbers(value.get());
                    } else if let Some(number) = number(value.get()) {
                        numbers.push((key, number));
                    }
                }
                numbers.extend(usage);
                Ok(numbers)
            }
        }
        deserializer.deserialize_map(Object).map(Row)
    }
}

fn usage_numbers(response: &str) -> Vec<(Cow<'static, str>, Number)> {
    #[derive(Deserialize)]
    struct Response {
        #[serde(default)]
        usage: Option<Map<String, Value>>,
    }
    let usage = serde_json::from_str(response).ok().and_then(|response: Response| response.usage);
    let numbers = usage.into_iter().flatten().filter_map(|(key, value)| match value {
        Value::Number(number) => Some((Cow::Owned(key), number)),
        Value::Bool(value) => Some((Cow::Owned(key), Number::from(u8::from(value)))),
        _ => None,
    });
    numbers.collect()
}

fn number(text: &str) -> Option<Number> {
    match text {
        "true" => Some(Number::from(1)),
        "false" => Some(Number::from(0)),
        text if text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
            serde_json::from_str(text).ok()
        }
        _ => None,
    }
}

struct Key<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Key<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Cow<'de, str>;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(text))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(text.to_owned()))
            }
        }
        deserializer.deserialize_str(Text).map(Key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: Value) -> AggregateMetrics {
        aggregate(json!({"verify_responses": rows}).to_string().as_bytes()).expect("a request")
    }

    #[test]
    fn every_numeric_member_is_described_all_means_first() {
        let metrics = of(json!([
            {"reward": 1.0, "ok": true, "name": "x", "_ng_task_index": 0, "_ng_rollout_index": 0},
            {"reward": 0.0, "ok": false, "_ng_task_index": 0, "_ng_rollout_index": 1},
        ]));
        let keys: Vec<&str> = metrics.agent_metrics.keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            [
                "mean/reward",
                "mean/ok",
                "max/reward",
                "max/ok",
                "min/reward",
                "min/ok",
                "median/reward",
                "median/ok",
                "std/reward",
                "std/ok"
            ]
        );
        assert_eq!(metrics.agent_metrics["std/reward"], json!(0.5_f64.sqrt()));
        assert_eq!(Value::Object(metrics.key_metrics), json!({"mean/reward": 0.5, "mean/ok": 0.5}));
    }

    #[test]
    fn one_rollout_has_deviation_zero_where_every_value_is_known() {
        let metrics = of(json!([{"reward": 3, "_ng_task_index": 1, "_ng_rollout_index": 4}]));
        assert_eq!(metrics.agent_metrics["std/reward"], json!(0.0));
        let group = &metrics.group_level_metrics[0];
        assert_eq!(
            group["rollout_infos"][0],
            json!({"rollout_id": "1:4", "_ng_task_index": 1, "_ng_rollout_index": 4, "reward": 3})
        );
        assert_eq!(group["_ng_task_index"], json!(1));
        assert_eq!(group["num_rollouts"], json!(1));
    }

    #[test]
    fn missing_values_are_left_out() {
        let metrics = of(json!([
            {"reward": 1, "tokens": 10, "_ng_task_index": 0},
            {"reward": 2, "_ng_task_index": 0},
            {"reward": 4, "_ng_task_index": 7},
        ]));
        assert_eq!(metrics.agent_metrics["mean/tokens"], json!(10.0));
        assert_eq!(metrics.agent_metrics.get("std/tokens"), None);
        assert_eq!(metrics.group_level_metrics[1]["_ng_task_index"], json!(7));
        assert_eq!(metrics.group_level_metrics[1].get("mean/tokens"), None);
        assert_eq!(metrics.group_level_metrics[1]["std/reward"], json!(0.0));
        assert_eq!(metrics.agent_metrics["median/reward"], json!(2.0));
    }

    #[test]
    fn usage_counts_as_members_of_the_result() {
        let metrics = of(json!([
            {"reward": 1, "response": {"usage": {"input_tokens": 5, "details": {"cached": 1}}}},
            {"reward": 1, "response": {"usage": null}},
        ]));
        assert_eq!(metrics.agent_metrics["mean/input_tokens"], json!(5.0));
        assert!(!metrics.agent_metrics.keys().any(|key| key.contains("details")));
    }

    #[test]
    fn no_results_give_an_empty_reply_and_a_wrong_body_an_error() {
        assert_eq!(of(json!([])), AggregateMetrics::default());
        for body in ["{}", "[]", "", "{\"verify_responses\": [1]}"] {
            assert!(aggregate(body.as_bytes()).is_err(), "{body}");
        }
    }
}
