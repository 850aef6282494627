//! What is said of many rollouts, where it is known what should be said.

use std::sync::Arc;

use proptest::prelude::*;

use super::compare::Measure;
use super::filter::slowest_first;
use super::runs::runs;
use super::shared::{Trait, Traits, shared};
use super::stragglers::{Rule, stragglers};
use super::*;
use crate::ids::{SpanId, TraceId};
use crate::{Band, Bands};

const MILLI: u64 = 1_000_000;

/// Rollout `at` of a task; times in milliseconds.
fn row(task: i64, at: i64, bands: &[(Band, u64)]) -> RolloutRow {
    let mut all = Bands::default();
    for (band, millis) in bands {
        all[*band] += millis * MILLI;
    }
    let text = |text: &str| -> Arc<str> { text.into() };
    let number = (task + 1) as u128 * 1000 + at as u128 + 1;
    RolloutRow {
        run: text("0123456789ab"),
        task_index: Some(task),
        rollout_index: Some(at),
        attempt_index: 0,
        rollout_id: format!("{task}-{at}").into(),
        agent: text("simple_agent"),
        outcome: text("success"),
        error_type: text(""),
        trace_id: TraceId::from_bytes(&number.to_be_bytes()).unwrap(),
        root_span_id: SpanId::from_bytes(&[1; 8]).unwrap(),
        start_nanos: 1_767_323_045_000_000_000 + at as u64 * MILLI,
        wall_nanos: all.total_nanos(),
        admission_nanos: all[Band::Admission],
        spans: 20,
        errors: 0,
        retries: 0,
        is_truncated: false,
        timings_scaled: false,
        clock_corrected: false,
        time_suspect: false,
        bands: all,
        ingest_seq: 1,
        kept: Kept::Undecided,
    }
}

/// Numbers that look random and are always the same.
fn noise(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

fn usual(count: i64, seed: u64) -> Vec<RolloutRow> {
    let mut next = noise(seed);
    (0..count)
        .map(|at| {
            let bands = [
                (Band::Admission, next(50)),
                (Band::Decode, 500 + next(200)),
                (Band::Tool, 20 + next(20)),
                (Band::Verify, 30 + next(10)),
            ];
            row(at / 4, at % 4, &bands)
        })
        .collect()
}

#[test]
fn suspect_times_are_in_no_sum_and_no_percentile_and_what_was_let_go_counts() {
    let mut rows = vec![
        row(0, 0, &[(Band::Tool, 10), (Band::Agent, 30)]),
        row(0, 1, &[(Band::Tool, 60)]),
        row(0, 2, &[(Band::Tool, 1_000_000_000)]),
    ];
    rows[1].kept = Kept::LetGo;
    rows[2].time_suspect = true;
    let all = Aggregate::of(&rows);
    assert_eq!((all.rollouts, all.time_suspect, all.let_go), (3, 1, 1));
    assert_eq!((all.wall_nanos.total, all.wall_nanos.max), (100 * MILLI, 60 * MILLI));
    let told: Vec<_> = all
        .bands
        .iter()
        .map(|share| (share.band, share.share, share.nanos.p50, share.most_in))
        .collect();
    assert_eq!(told, [(Band::Tool, 0.7, 10 * MILLI, 1), (Band::Agent, 0.3, 0, 0)]);
    assert_eq!(Aggregate::of(&[]), Aggregate::default());
}

#[test]
fn a_filter_takes_what_all_of_it_says() {
    let rows = usual(40, 1);
    let filter = Filter {
        run: Some("0123".into()),
        task: Some(3),
        agent: Some("simple_agent".into()),
        ..Filter::default()
    };
    let found: Vec<_> = rows.iter().filter(|row| filter.matches(row)).collect();
    assert_eq!(found.len(), 4);
    for none in [
        Filter { run: Some("9".into()), ..Filter::default() },
        Filter { outcome: Some("failure".into()), ..Filter::default() },
        Filter { min_duration_nanos: Some(MILLI * 100_000), ..Filter::default() },
        Filter { max_duration_nanos: Some(1), ..Filter::default() },
        Filter { rollout: Some("1-".into()), ..Filter::default() },
        Filter { trace: Some("ffff".into()), ..Filter::default() },
    ] {
        assert!(!rows.iter().any(|row| none.matches(row)), "{none:?}");
    }
}

#[test]
fn the_slowest_are_sorted_by_duration_and_the_unbelievable_are_last() {
    let mut rows = vec![
        row(0, 0, &[(Band::Admission, 900), (Band::Tool, 10)]),
        row(0, 1, &[(Band::Tool, 20)]),
        row(0, 2, &[(Band::Tool, 999_999)]),
    ];
    rows[2].time_suspect = true;
    slowest_first(&mut rows);
    let ids: Vec<_> = rows.iter().map(|row| &*row.rollout_id).collect();
    assert_eq!(ids, ["0-1", "0-0", "0-2"]);
}

#[test]
fn runs_count_tasks_rollouts_and_attempts() {
    let mut rows = usual(8, 1);
    rows.push(RolloutRow { attempt_index: 1, rollout_id: "0-0-a1".into(), ..rows[0].clone() });
    rows.push(RolloutRow { run: "other".into(), start_nanos: 5, ..rows[0].clone() });
    let runs = runs(&rows);
    let told: Vec<_> =
        runs.iter().map(|run| (&*run.id, run.tasks, run.rollouts, run.all.rollouts)).collect();
    assert_eq!(told, [("0123456789ab", 2, 8, 9), ("other", 1, 1, 1)]);
}

#[test]
fn a_planted_straggler_is_found_with_what_explains_it_and_nothing_else_is() {
    let mut rows = usual(400, 7);
    let slow = 4 * 31 + 2;
    rows[slow] = row(31, 2, &[(Band::Decode, 600), (Band::Tool, 5_000), (Band::Verify, 31)]);
    // Waiting for a slot makes no straggler.
    rows[17] = row(4, 1, &[(Band::Admission, 60_000), (Band::Decode, 600)]);
    let all = stragglers(&rows, &Rule::default());
    assert_eq!((all.groups, all.small_groups, all.without_group), (100, 0, 0));
    let [found] = all.found.as_slice() else { panic!("one: {:?}", all.found) };
    assert_eq!((found.row, found.group, found.band), (slow, 4, Band::Tool));
    assert!(found.factor > 7.0 && found.explains > 0.95, "{found:?}");
}

#[test]
fn groups_that_vary_by_nature_small_groups_and_the_nameless_have_no_stragglers() {
    // One takes four times the median, and the others are as far from each other.
    let wide = [100, 200, 300, 500, 700, 1_200];
    let mut rows: Vec<RolloutRow> =
        (0..).zip(wide).map(|(at, millis)| row(0, at, &[(Band::Model, millis)])).collect();
    rows.push(row(1, 0, &[(Band::Model, 1)]));
    rows.push(row(1, 1, &[(Band::Model, 1_000)]));
    rows.push(RolloutRow { task_index: None, ..row(2, 0, &[(Band::Model, 9_000)]) });
    let all = stragglers(&rows, &Rule::default());
    assert_eq!(all.found, []);
    assert_eq!((all.groups, all.small_groups, all.without_group), (1, 1, 1));
}

#[test]
fn like_against_like_is_empty() {
    let rows = usual(2_000, 3);
    assert!(Comparison::of(&rows, &rows).is_empty());
    for seed in 10..20 {
        let comparison = Comparison::of(&usual(500, seed), &usual(700, seed + 100));
        assert!(comparison.is_empty(), "{:?}", comparison.differences());
    }
    assert!(Comparison::of(&[], &rows).is_empty(), "nothing is nothing to compare with");
}

#[test]
fn what_usually_takes_longer_is_a_shift_and_what_rarely_does_is_a_tail() {
    let before = usual(1_000, 3);
    let mut after = usual(1_000, 4);
    for (at, row) in after.iter_mut().enumerate() {
        row.bands[Band::Verify] += 20 * MILLI;
        if at % 10 == 0 {
            row.bands[Band::Tool] += 3_000 * MILLI;
            row.outcome = "timeout".into();
        }
        row.wall_nanos = row.bands.total_nanos();
    }
    let comparison = Comparison::of(&before, &after);
    let told: Vec<_> = comparison
        .differences()
        .iter()
        .map(|change| (change.measure, change.is_shift(), change.is_tail()))
        .collect();
    assert_eq!(
        told,
        [
            (Measure::Duration, true, true),
            (Measure::Band(Band::Tool), false, true),
            (Measure::Band(Band::Verify), true, false),
        ]
    );
    let tool = comparison.differences()[1];
    assert!((tool.means.difference / 3e8 - 1.0).abs() < 0.05, "a tenth of three seconds");
    let (low, high) = tool.means.bounds;
    assert!(low > 0.0 && low < 3e8 && high > 3e8, "{low} {high}");
    let outcomes: Vec<_> =
        comparison.outcome_differences().iter().map(|one| (&*one.outcome, one.a, one.b)).collect();
    assert_eq!(outcomes, [("success", 1_000, 900), ("timeout", 0, 100)]);
}

#[test]
fn what_the_slow_share_is_told_once_with_what_says_the_same() {
    let mut next = noise(5);
    let mut traits = |slow: bool| -> Traits {
        let one = |key: &str, value: String| Trait { key: key.into(), value: value.into() };
        let mut all = Traits::from([
            one("server", "agent".to_owned()),
            one("shard", next(4).to_string()),
            one("colour", format!("c{}", next(3))),
            one("random", next(1_000_000).to_string()),
        ]);
        if slow || next(100) < 3 {
            all.insert(one("host.name", "node-7".to_owned()));
            all.insert(one("server", "search".to_owned()));
        }
        all
    };
    let slow: Vec<Traits> = (0..40).map(|_| traits(true)).collect();
    let rest: Vec<Traits> = (0..400).map(|_| traits(false)).collect();
    let found = shared(&slow, &rest);
    let [one] = found.as_slice() else { panic!("one: {found:?}") };
    assert_eq!((&*one.what.key, &*one.what.value), ("server", "search"));
    assert_eq!(one.same.iter().map(|same| &*same.value).collect::<Vec<_>>(), ["node-7"]);
    assert_eq!((one.some, one.of_some, one.of_rest), (40, 40, 400));
    assert!(one.lift > 10.0 && one.chance < 1e-9, "{one:?}");
    assert_eq!(shared(&rest[..200], &rest[200..]), []);
    assert_eq!(shared(&[], &rest), []);
}

proptest! {
    /// Guarantees: shares of bands add up to one, and the totals to the wall clocks, whatever the rows are.
    #[test]
    fn bands_of_any_selection_add_up(
        rows in prop::collection::vec((0_i64..5, 0_u64..100, 0_u64..100, 0_u64..100), 0..60),
    ) {
        let rows: Vec<RolloutRow> = (0..)
            .zip(rows)
            .map(|(at, (task, admission, model, other))| {
                row(task, at, &[(Band::Admission, admission), (Band::Model, model), (Band::Other, other)])
            })
            .collect();
        let all = Aggregate::of(&rows);
        let total: u64 = all.bands.iter().map(|share| share.nanos.total).sum();
        prop_assert_eq!(total, all.wall_nanos.total);
        if total > 0 {
            let shares: f64 = all.bands.iter().map(|share| share.share).sum();
            prop_assert!((shares - 1.0).abs() < 1e-9);
        }
        prop_assert!(Comparison::of(&rows, &rows).is_empty());
        let found = stragglers(&rows, &Rule::default());
        prop_assert!(found.found.iter().all(|one| one.factor > 3.0 && one.explains > 0.0 && one.explains <= 1.0));
    }
}
