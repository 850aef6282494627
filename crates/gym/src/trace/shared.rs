//! What some rollouts share that the rest do not have.

use lens_store::rollouts::RolloutRow;
use lens_store::rollouts::shared::{Shared, Trait, Traits, shared, traits_of};
use serde_json::{Value, json};

use super::source::{Source, SourceError};
use super::text::{Align, Canvas, table};

/// So many rollouts are looked into on each side; of the rest every nth.
const LOOKED_INTO: usize = 1000;
/// Lines of the table.
const SHOWN: usize = 8;
/// Traits that say the same and are named.
const NAMED: usize = 3;

/// What `some` share that the `rest` does not have.
pub fn shared_of(
    source: &Source,
    some: &[RolloutRow],
    rest: &[RolloutRow],
) -> Result<Vec<Shared>, SourceError> {
    let sample = |rows: &[RolloutRow]| -> Result<Vec<Traits>, SourceError> {
        let step = rows.len().div_ceil(LOOKED_INTO).max(1);
        let rows: Vec<&RolloutRow> = rows.iter().step_by(step).collect();
        let traces = source.traces(rows.iter().map(|row| row.trace_id))?;
        let found = rows.iter().filter_map(|row| {
            let (trace, rollout) = traces.find_rollout(row.trace_id, row.root_span_id)?;
            Some(traits_of(&traces, trace, rollout, row))
        });
        Ok(found.collect())
    };
    Ok(shared(&sample(some)?, &sample(rest)?))
}

fn text(what: &Trait) -> String {
    match &*what.key {
        "span" => what.value.to_string(),
        key => format!("{key} = {}", what.value),
    }
}

/// As a table with its heading.
pub fn shared_table(shared: &[Shared], these: &str, canvas: &Canvas) -> String {
    if shared.is_empty() {
        return "they share nothing that the rest do not have as often\n".to_owned();
    }
    let header = [
        ("WHAT THEY SHARE", Align::Left),
        (these, Align::Right),
        ("THE REST", Align::Right),
        ("TIMES MORE", Align::Right),
        ("BY CHANCE", Align::Left),
    ];
    let cells: Vec<Vec<String>> = shared
        .iter()
        .take(SHOWN)
        .map(|one| {
            let mut what = text(&one.what);
            let same: Vec<String> = one.same.iter().take(NAMED).map(text).collect();
            if !same.is_empty() {
                let more = one.same.len() - same.len();
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                what.push_str(&format!(" (also {}{more})", same.join(", ")));
            }
            let least = if one.rest == 0 { "> " } else { "" };
            vec![
                what,
                format!("{} of {}", one.some, one.of_some),
                format!("{} of {}", one.rest, one.of_rest),
                if one.lift < 10.0 {
                    format!("{least}{:.1}", one.lift)
                } else {
                    format!("{least}{:.0}", one.lift)
                },
                chance_text(one.chance),
            ]
        })
        .collect();
    table(canvas, &header, &cells, 0)
}

/// `1 in 2,000`, in words that need no statistics.
pub fn chance_text(chance: f64) -> String {
    if chance < 1e-9 {
        return "< 1 in a billion".to_owned();
    }
    if chance > 0.5 {
        return "likely".to_owned();
    }
    let one_in = 1.0 / chance;
    match one_in {
        n if n < 1e3 => format!("1 in {n:.0}"),
        n if n < 1e6 => format!("1 in {:.0} thousand", n / 1e3),
        n => format!("1 in {:.0} million", n / 1e6),
    }
}

/// As JSON.
pub fn shared_value(shared: &[Shared]) -> Value {
    let one = |what: &Trait| json!({ "key": &*what.key, "value": &*what.value });
    shared
        .iter()
        .map(|shared| {
            json!({
                "what": one(&shared.what),
                "same": shared.same.iter().map(one).collect::<Vec<Value>>(),
                "these": shared.some,
                "of_these": shared.of_some,
                "rest": shared.rest,
                "of_rest": shared.of_rest,
                "lift": shared.lift,
                "chance": shared.chance,
            })
        })
        .collect()
}
