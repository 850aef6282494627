//! The demo's input: the example rows of an environment, as often as it takes.

use gym_envs::assets;
use serde_json::Value;

/// Names of the environments whose example rows are in this binary.
pub fn environments() -> Vec<&'static str> {
    assets::FILES.iter().filter_map(|file| environment_of(file.path)).collect()
}

/// `count` rows of an environment's examples, one after the other and again. Each is numbered in
/// its metadata: a scripted model draws its latency from what it is asked, and rows that are asked
/// again would take the same time again.
pub fn input(environment: &str, count: usize) -> Option<String> {
    let file = assets::FILES.iter().find(|file| environment_of(file.path) == Some(environment))?;
    let text = std::str::from_utf8(file.bytes).ok()?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let rows: Vec<Value> = lines.map(serde_json::from_str).collect::<Result<_, _>>().ok()?;
    if rows.is_empty() {
        return None;
    }
    let numbered = rows.into_iter().cycle().take(count).enumerate().map(|(number, mut row)| {
        row["responses_create_params"]["metadata"]["demo_row"] = number.to_string().into();
        format!("{row}\n")
    });
    Some(numbered.collect())
}

fn environment_of(path: &str) -> Option<&str> {
    path.strip_prefix("resources_servers/")?.strip_suffix("/data/example.jsonl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_repeated_until_there_are_enough() {
        let text = input("example_single_tool_call", 12).unwrap();
        let rows: Vec<Value> = text.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
        assert_eq!(rows.len(), 12);
        let input = |at: usize| &rows[at]["responses_create_params"]["input"];
        assert_eq!(input(0), input(5), "there are five example rows");
        assert_ne!(input(0), input(1));
        assert_ne!(rows[0], rows[5], "no two rows are asked alike");
    }

    #[test]
    fn an_environment_without_example_rows_has_no_input() {
        assert_eq!(input("nowhere", 3), None);
        assert!(environments().contains(&"example_multi_step"));
    }
}
