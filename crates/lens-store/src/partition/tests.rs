use proptest::prelude::*;

use super::*;
use crate::{Timings, Wait};

const AGENT: Make = Make::Known(Band::Agent);
const CLIENT: Make = Make::Client { to_model: false };
const TO_MODEL: Make = Make::Client { to_model: true };

fn piece(parent: usize, from: u64, to: u64, make: Make) -> Piece {
    let is_server = matches!(make, Make::Known(_));
    Piece {
        parent,
        start_nanos: from,
        end_nanos: to,
        span_id: from + 1,
        make,
        is_server,
        waits: Vec::new(),
        timings: None,
    }
}

fn told(partition: &Partition) -> Vec<(&'static str, u64, u64)> {
    let tell = |segment: &Segment| (segment.band.name(), segment.from_nanos, segment.to_nanos);
    partition.segments.iter().map(tell).collect()
}

/// The whole shape of a rollout in preset `default`, computed by hand.
#[test]
fn a_rollout_is_what_it_waited_for() {
    let mut call = piece(1, 20, 95, CLIENT);
    call.waits = vec![
        Wait { from_nanos: 20, to_nanos: 24, band: Band::Pool },
        Wait { from_nanos: 24, to_nanos: 26, band: Band::Retry },
    ];
    let pieces = [
        piece(0, 0, 100, Make::Attempt),
        piece(0, 10, 98, CLIENT),
        piece(1, 12, 97, AGENT),
        piece(2, 13, 15, CLIENT),
        piece(3, 14, 15, Make::Known(Band::Setup)),
        Piece { parent: 2, ..call },
        piece(5, 30, 90, Make::Known(Band::Tool)),
    ];
    let partition = partition(&pieces);
    let expected = [
        ("admission", 0, 10),
        ("network", 10, 12),
        ("agent", 12, 13),
        ("network", 13, 14),
        ("setup", 14, 15),
        ("agent", 15, 20),
        ("pool", 20, 24),
        ("retry", 24, 26),
        ("network", 26, 30),
        ("tool", 30, 90),
        ("network", 90, 95),
        ("agent", 95, 97),
        ("network", 97, 98),
        ("other", 98, 100),
    ];
    assert_eq!(told(&partition), expected);
    assert_eq!(partition.bands().total_nanos(), 100);
    assert!(partition.unanswered.is_empty());
}

#[test]
fn of_children_that_run_at_once_the_one_that_ends_last_counts() {
    let pieces = [
        piece(0, 0, 100, AGENT),
        piece(0, 10, 60, Make::Known(Band::Tool)),
        piece(0, 20, 90, Make::Known(Band::Verify)),
        piece(0, 5, 20, Make::Known(Band::Sandbox)),
    ];
    let expected = [("agent", 0, 5), ("sandbox", 5, 20), ("verify", 20, 90), ("agent", 90, 100)];
    assert_eq!(told(&partition(&pieces)), expected);
}

#[test]
fn what_sticks_out_of_its_parent_is_clipped_and_what_begins_after_it_is_off() {
    let pieces = [
        piece(0, 100, 200, AGENT),
        piece(0, 50, 120, Make::Known(Band::Tool)),
        piece(0, 190, 300, Make::Known(Band::Verify)),
        piece(0, 210, 220, Make::Known(Band::Setup)),
        piece(3, 100, 200, Make::Known(Band::Setup)),
    ];
    let expected = [("tool", 100, 120), ("agent", 120, 190), ("verify", 190, 200)];
    assert_eq!(told(&partition(&pieces)), expected);
}

#[test]
fn a_request_whose_other_side_is_missing_is_other_and_said() {
    let pieces = [piece(0, 0, 100, AGENT), piece(0, 10, 90, CLIENT)];
    let partition = partition(&pieces);
    assert_eq!(told(&partition), [("agent", 0, 10), ("other", 10, 90), ("agent", 90, 100)]);
    assert_eq!(partition.unanswered, [1]);
}

#[test]
fn a_call_of_a_model_is_model_and_spans_of_others_below_it_too() {
    let pieces = [
        piece(0, 0, 100, AGENT),
        piece(0, 10, 90, TO_MODEL),
        Piece { is_server: true, ..piece(1, 20, 80, Make::Unknown) },
        piece(2, 30, 70, Make::Unknown),
    ];
    let expected = [
        ("agent", 0, 10),
        ("network", 10, 20),
        ("model", 20, 30),
        ("model", 30, 70),
        ("model", 70, 80),
        ("network", 80, 90),
        ("agent", 90, 100),
    ];
    assert_eq!(told(&partition(&pieces)), expected);
}

fn model_call(timings: Timings) -> Vec<Piece> {
    let mut server = piece(1, 20, 90, Make::Known(Band::Model));
    server.timings = Some(timings);
    vec![piece(0, 0, 100, AGENT), piece(0, 10, 95, CLIENT), server, piece(2, 25, 85, TO_MODEL)]
}

#[test]
fn engine_timings_end_with_the_reply_in_the_order_of_the_stages() {
    let timings = Timings { queue_nanos: 5, prefill_nanos: 10, decode_nanos: 35 };
    let partition = partition(&model_call(timings));
    let expected = [
        ("agent", 0, 10),
        ("network", 10, 20),
        ("model", 20, 25),
        ("model", 25, 35),
        ("queue", 35, 40),
        ("prefill", 40, 50),
        ("decode", 50, 85),
        ("model", 85, 90),
        ("network", 90, 95),
        ("agent", 95, 100),
    ];
    assert_eq!(told(&partition), expected);
    assert!(!partition.timings_scaled);
}

#[test]
fn timings_that_do_not_fit_are_scaled_and_said() {
    let timings = Timings { queue_nanos: 100, prefill_nanos: 100, decode_nanos: 200 };
    let partition = partition(&model_call(timings));
    assert!(partition.timings_scaled);
    let bands = partition.bands();
    // 65 nanoseconds of model before the reply: a quarter, a quarter, a half.
    assert_eq!((bands[Band::Queue], bands[Band::Prefill], bands[Band::Decode]), (16, 16, 32));
    assert_eq!(bands.total_nanos(), 100);
}

#[test]
fn timings_are_told_once_by_the_deepest_span_that_has_them() {
    let timings = Timings { queue_nanos: 5, prefill_nanos: 10, decode_nanos: 35 };
    let mut pieces = model_call(timings);
    let mut inner = piece(2, 22, 88, Make::Known(Band::Model));
    inner.timings = Some(timings);
    pieces.insert(3, inner);
    pieces[4].parent = 3;
    let bands = partition(&pieces).bands();
    assert_eq!((bands[Band::Queue], bands[Band::Prefill], bands[Band::Decode]), (5, 10, 35));
}

#[test]
fn an_attempt_without_requests_says_itself_how_long_it_waited() {
    let mut attempt = piece(0, 0, 100, Make::Attempt);
    attempt.waits = vec![Wait { from_nanos: 0, to_nanos: 40, band: Band::Admission }];
    assert_eq!(told(&partition(&[attempt])), [("admission", 0, 40), ("other", 40, 100)]);
}

#[test]
fn deep_chains_and_many_siblings_are_walked_without_recursion() {
    let deep: Vec<Piece> = (0..70_000)
        .map(|at: u64| piece(at.saturating_sub(1) as usize, at, 200_000 - at, AGENT))
        .collect();
    assert_eq!(partition(&deep).bands().total_nanos(), 200_000);
    let mut wide = vec![piece(0, 0, 100_000, AGENT)];
    wide.extend((0..50_000).map(|at| piece(0, 2 * at, 2 * at + 1, Make::Known(Band::Tool))));
    let bands = partition(&wide).bands();
    assert_eq!((bands[Band::Tool], bands[Band::Agent]), (50_000, 50_000));
}

/// Guarantees: calls are looked at one by one, however many a rollout has.
#[test]
fn thousands_of_calls_have_their_own_timings() {
    let timings = Timings { queue_nanos: 1, prefill_nanos: 2, decode_nanos: 3 };
    let mut pieces = vec![piece(0, 0, 200_000, AGENT)];
    for at in 0..20_000 {
        let mut call = piece(0, 10 * at, 10 * at + 8, Make::Known(Band::Model));
        call.timings = Some(timings);
        pieces.push(call);
    }
    let bands = partition(&pieces).bands();
    let calls = 20_000;
    assert_eq!((bands[Band::Queue], bands[Band::Prefill]), (calls, 2 * calls));
    assert_eq!((bands[Band::Decode], bands[Band::Model]), (3 * calls, 2 * calls));
}

fn make() -> impl Strategy<Value = Make> {
    prop_oneof![
        Just(Make::Attempt),
        Just(CLIENT),
        Just(TO_MODEL),
        Just(Make::Unknown),
        (0..Band::ALL.len()).prop_map(|at| Make::Known(Band::ALL[at])),
    ]
}

/// Steps up, start, end, make, serving side, timings, waits.
pub(crate) type Drawn = (usize, u64, u64, Make, bool, Option<(u64, u64, u64)>, Vec<(u64, u64)>);

pub(crate) fn any_piece() -> impl Strategy<Value = Drawn> {
    let timings = proptest::option::of((0_u64..200, 0_u64..200, 0_u64..200));
    let waits = proptest::collection::vec((0_u64..300, 0_u64..300), 0..3);
    (0_usize..64, 0_u64..300, 0_u64..300, make(), any::<bool>(), timings, waits)
}

/// A tree in pre-order of whatever was drawn: each piece hangs below the one before it or one of its ancestors.
pub(crate) fn tree(drawn: &[Drawn]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (at, (up, start, end, make, is_server, timings, waits)) in drawn.iter().enumerate() {
        let mut parent = at.saturating_sub(1);
        for _ in 0..up % 4 {
            parent = if parent == 0 { 0 } else { pieces[parent].parent };
        }
        let waits = waits.iter().map(|&(from_nanos, to_nanos)| Wait {
            from_nanos,
            to_nanos,
            band: Band::Pool,
        });
        pieces.push(Piece {
            is_server: *is_server,
            waits: waits.collect(),
            timings: timings.map(|(queue_nanos, prefill_nanos, decode_nanos)| Timings {
                queue_nanos,
                prefill_nanos,
                decode_nanos,
            }),
            ..piece(parent, *start, *end.max(start), *make)
        });
    }
    pieces
}

proptest! {
    /// Guarantees: whatever spans say, the segments follow each other without gap or overlap from begin to end.
    #[test]
    fn bands_add_up_to_the_wall_clock(drawn in proptest::collection::vec(any_piece(), 1..40)) {
        let pieces = tree(&drawn);
        let partition = partition(&pieces);
        let mut at = pieces[0].start_nanos;
        for segment in &partition.segments {
            prop_assert_eq!(segment.from_nanos, at);
            prop_assert!(segment.to_nanos > at);
            at = segment.to_nanos;
        }
        prop_assert_eq!(at, pieces[0].end_nanos);
        prop_assert_eq!(partition.bands().total_nanos(), pieces[0].end_nanos - pieces[0].start_nanos);
    }
}
