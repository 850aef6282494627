//! The demo's input: the example rows of an environment, as often as it takes.

use gym_envs::assets;

/// Names of the environments whose example rows are in this binary.
pub fn environments() -> Vec<&'static str> {
    assets::FILES.iter().filter_map(|file| environment_of(file.path)).collect()
}

/// `count` rows of an environment's examples, one after the other and again.
pub fn input(environment: &str, count: usize) -> Option<String> {
    let file = assets::FILES.iter().find(|file| environment_of(file.path) == Some(environment))?;
    let text = std::str::from_utf8(file.bytes).ok()?;
    let rows: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if rows.is_empty() {
        return None;
    }
    Some(rows.iter().cycle().take(count).flat_map(|row| [row, "\n"]).collect())
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
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 12);
        assert_eq!(rows[0], rows[5], "there are five example rows");
        assert_ne!(rows[0], rows[1]);
    }

    #[test]
    fn an_environment_without_example_rows_has_no_input() {
        assert_eq!(input("nowhere", 3), None);
        assert!(environments().contains(&"example_multi_step"));
    }
}
