//! What a test of an environment found, as a table and as JSON.

use serde_json::{Value, json};

/// Outcome of one hop of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// An earlier hop failed.
    #[default]
    NotReached,
    Passed,
    Failed,
}

impl Mark {
    fn as_str(self) -> &'static str {
        match self {
            Self::NotReached => "-",
            Self::Passed => "ok",
            Self::Failed => "FAIL",
        }
    }

    fn to_json(self) -> Value {
        match self {
            Self::NotReached => Value::Null,
            Self::Passed => Value::Bool(true),
            Self::Failed => Value::Bool(false),
        }
    }
}

/// What was found about one row.
#[derive(Clone, Debug, Default)]
pub struct RowReport {
    /// Line of the row in its file, from 1.
    pub row: usize,
    pub seed: Mark,
    /// Tool calls that kept the contract.
    pub tools_passed: usize,
    pub tools_called: usize,
    pub verify: Mark,
    pub reward: Option<f64>,
    /// The whole rollout through the agent.
    pub rollout: Mark,
    /// Every fault, in the order of the hops.
    pub faults: Vec<String>,
}

impl RowReport {
    /// Whether the row kept the contract.
    pub fn passed(&self) -> bool {
        self.faults.is_empty()
    }

    fn to_json(&self) -> Value {
        json!({
            "row": self.row,
            "seed": self.seed.to_json(),
            "tools": {"called": self.tools_called, "passed": self.tools_passed},
            "verify": self.verify.to_json(),
            "reward": self.reward,
            "rollout": self.rollout.to_json(),
            "passed": self.passed(),
            "faults": self.faults,
        })
    }
}

/// What was found about one environment.
#[derive(Clone, Debug)]
pub struct Report {
    pub resources_server: String,
    pub agent: String,
    pub rows: Vec<RowReport>,
}

impl Report {
    /// Whether every row kept the contract.
    pub fn passed(&self) -> bool {
        self.rows.iter().all(RowReport::passed)
    }

    /// One object with a list of rows.
    pub fn to_json(&self) -> Value {
        json!({
            "resources_server": self.resources_server,
            "agent": self.agent,
            "passed": self.passed(),
            "rows": self.rows.iter().map(RowReport::to_json).collect::<Vec<_>>(),
        })
    }

    /// Columns for a person; faults beyond a row's first stand below it.
    pub fn to_table(&self) -> String {
        const HEADER: [&str; 7] = ["row", "seed", "tools", "verify", "reward", "rollout", "result"];
        let mut lines: Vec<([String; 7], &[String])> =
            vec![(HEADER.map(str::to_owned), &[] as &[String])];
        for row in &self.rows {
            let result = match row.faults.first() {
                None => "pass".to_owned(),
                Some(fault) => format!("fail: {fault}"),
            };
            let cells = [
                row.row.to_string(),
                row.seed.as_str().to_owned(),
                format!("{}/{}", row.tools_passed, row.tools_called),
                row.verify.as_str().to_owned(),
                row.reward.map_or_else(|| "-".to_owned(), |reward| format!("{reward:?}")),
                row.rollout.as_str().to_owned(),
                result,
            ];
            lines.push((cells, row.faults.get(1..).unwrap_or_default()));
        }
        let mut widths = [0; 7];
        for (cells, _) in &lines {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let before_result = widths[..6].iter().map(|width| width + 2).sum::<usize>();
        let mut table = String::new();
        for (cells, more) in &lines {
            let mut line = String::new();
            for (cell, width) in cells.iter().zip(widths) {
                line.push_str(&format!("{cell:<width$}  "));
            }
            table.push_str(line.trim_end());
            table.push('\n');
            for fault in *more {
                table.push_str(&format!("{:before_result$}      {fault}\n", ""));
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let good = RowReport {
            row: 1,
            seed: Mark::Passed,
            tools_passed: 2,
            tools_called: 2,
            verify: Mark::Passed,
            reward: Some(1.0),
            rollout: Mark::Passed,
            faults: Vec::new(),
        };
        let bad = RowReport {
            row: 2,
            tools_passed: 1,
            verify: Mark::Failed,
            reward: None,
            faults: vec![
                "tool \"add\": status 404, expected 2xx: {}".to_owned(),
                "verify: `reward` is a string, expected a number".to_owned(),
            ],
            ..good.clone()
        };
        Report {
            resources_server: "calculator".to_owned(),
            agent: "calculator_simple_agent".to_owned(),
            rows: vec![good, bad],
        }
    }

    #[test]
    fn the_table_names_every_fault() {
        insta::assert_snapshot!(report().to_table(), @r#"
        row  seed  tools  verify  reward  rollout  result
        1    ok    2/2    ok      1.0     ok       pass
        2    ok    1/2    FAIL    -       ok       fail: tool "add": status 404, expected 2xx: {}
                                                         verify: `reward` is a string, expected a number
        "#);
    }

    #[test]
    fn one_bad_row_fails_the_environment() {
        let report = report();
        assert!(!report.passed());
        assert_eq!(report.to_json()["rows"][1]["seed"], Value::Bool(true));
        assert_eq!(report.to_json()["rows"][0]["passed"], Value::Bool(true));
    }
}
