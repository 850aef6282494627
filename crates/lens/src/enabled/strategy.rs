//! Which processes export: strategies by name, the four built-in ones and those of the program.
//!
//! It is asked once, when telemetry is set up. What cannot be asked (no such name, a strategy that panics) exports:
//! too much telemetry is seen, too little is not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use super::lock;
use crate::config::{ExportCandidate, LensConfig};

type Decide = Arc<dyn Fn(&ExportCandidate) -> bool + Send + Sync>;

static REGISTERED: Mutex<Vec<(String, Decide)>> = Mutex::new(Vec::new());

/// Makes a strategy known by name, any case; one of the same name is replaced, a built-in one too.
///
/// Call it before telemetry is set up.
pub fn register_export_strategy(
    name: &str,
    decide: impl Fn(&ExportCandidate) -> bool + Send + Sync + 'static,
) {
    let name = name.trim().to_ascii_lowercase();
    let mut registered = lock(&REGISTERED);
    registered.retain(|(known, _)| *known != name);
    registered.push((name, Arc::new(decide)));
}

type BuiltIn = (&'static str, fn(&ExportCandidate) -> bool);

const BUILT_IN: [BuiltIn; 4] = [
    ("all_ranks", |_| true),
    ("single_rank", is_named),
    ("sampled", is_drawn),
    ("first_rank_per_node", |candidate| candidate.local_rank == 0),
];

fn is_named(candidate: &ExportCandidate) -> bool {
    let rank = match candidate.export_rank {
        from_last @ ..0 => i64::from(candidate.world_size) + from_last,
        rank => rank,
    };
    i64::from(candidate.rank) == rank
}

/// Every process draws for itself, and the same each time: nobody has to be asked.
fn is_drawn(candidate: &ExportCandidate) -> bool {
    let rank = candidate.rank.to_le_bytes();
    let parts = [candidate.run_id.as_bytes(), candidate.service_name.as_bytes(), &rank];
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        for byte in part.iter().chain(&[0xff]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    // The high bits of that hash are not spread well.
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^= hash >> 29;
    ((hash >> 11) as f64) < candidate.sample_rate * (1_u64 << 53) as f64
}

/// Whether a process with this config would export, and what is wrong with the strategy.
pub fn export_decision(config: &LensConfig) -> (bool, Option<String>) {
    decide(config)
}

/// Whether this process exports, and what is wrong with the strategy.
pub(super) fn decide(config: &LensConfig) -> (bool, Option<String>) {
    let candidate = ExportCandidate {
        rank: config.rank,
        world_size: config.world_size,
        local_rank: config.local_rank,
        export_rank: config.export.rank,
        sample_rate: config.export.sample_rate,
        service_name: config.service_name.clone(),
        run_id: config.spool.run_id.clone(),
    };
    let name = config.export.strategy.trim().to_ascii_lowercase();
    let registered = lock(&REGISTERED).iter().find(|(known, _)| *known == name).cloned();
    if let Some((_, decide)) = registered {
        return match catch_unwind(AssertUnwindSafe(|| decide(&candidate))) {
            Ok(exports) => (exports, None),
            Err(_) => (true, Some(format!("the export strategy {name:?} panicked; it exports"))),
        };
    }
    match BUILT_IN.iter().find(|(known, _)| *known == name) {
        Some((_, decide)) => (decide(&candidate), None),
        None => (true, Some(unknown(&name))),
    }
}

fn unknown(name: &str) -> String {
    let mut known: Vec<String> = BUILT_IN.iter().map(|(name, _)| (*name).to_owned()).collect();
    known.extend(lock(&REGISTERED).iter().map(|(name, _)| name.clone()));
    format!(
        "there is no export strategy {name:?}, so every process exports; known are {}",
        known.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ExportSettings;

    fn config(strategy: &str, rank: u32, world_size: u32) -> LensConfig {
        let export = ExportSettings { strategy: strategy.to_owned(), ..ExportSettings::default() };
        LensConfig { export, rank, world_size, ..LensConfig::default() }
    }

    fn exporting(strategy: &str, change: impl Fn(&mut LensConfig)) -> Vec<u32> {
        let exports = |rank: &u32| {
            let mut config = config(strategy, *rank, 8);
            config.local_rank = rank % 4;
            change(&mut config);
            let (exports, warning) = decide(&config);
            assert_eq!(warning, None);
            exports
        };
        (0..8).filter(exports).collect()
    }

    #[test]
    fn built_in_strategies_choose_their_ranks() {
        assert_eq!(exporting("all_ranks", |_| {}), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(exporting(" Single_Rank ", |_| {}), [7], "the last");
        assert_eq!(exporting("single_rank", |config| config.export.rank = 2), [2]);
        assert_eq!(exporting("single_rank", |config| config.export.rank = -3), [5]);
        assert_eq!(exporting("single_rank", |config| config.export.rank = 8), [0_u32; 0]);
        assert_eq!(exporting("first_rank_per_node", |_| {}), [0, 4]);
    }

    #[test]
    fn sampled_ranks_are_about_their_share_and_always_the_same() {
        let drawn = |rate: f64, run: &str| {
            let drawn = |rank: &u32| {
                let mut config = config("sampled", *rank, 4_000);
                config.export.sample_rate = rate;
                config.spool.run_id = run.to_owned();
                decide(&config).0
            };
            (0..4_000).filter(drawn).collect::<Vec<u32>>()
        };
        assert_eq!((drawn(0.0, "a").len(), drawn(1.0, "a").len()), (0, 4_000));
        let quarter = drawn(0.25, "a");
        assert!((900..1_100).contains(&quarter.len()), "{} of 4000", quarter.len());
        assert_eq!(quarter, drawn(0.25, "a"));
        assert_ne!(quarter, drawn(0.25, "b"), "another run draws anew");
    }

    #[test]
    fn strategy_of_the_program_is_found_by_name() {
        register_export_strategy("Even_Ranks", |candidate| candidate.rank % 2 == 0);
        assert_eq!(exporting("even_ranks", |_| {}), [0, 2, 4, 6]);
        register_export_strategy("broken", |_| panic!("a strategy's own fault"));
        let (exports, warning) = decide(&config("broken", 0, 1));
        assert!(exports && warning.is_some_and(|warning| warning.contains("broken")));
    }

    #[test]
    fn unknown_strategy_exports_and_is_told() {
        let (exports, warning) = decide(&config("one_of_them", 3, 8));
        assert!(exports);
        let warning = warning.unwrap_or_default();
        assert!(warning.contains("one_of_them") && warning.contains("first_rank_per_node"));
    }
}
