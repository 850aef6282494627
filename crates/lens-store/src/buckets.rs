//! Items in buckets, laid out by counting: what takes as many steps as there are items, where comparing takes more.

use std::ops::Range;

/// Fewer items are sorted by comparing them.
const FEW: usize = 24;

/// Items, those of each bucket together and in the order in which they came.
#[derive(Debug)]
pub(crate) struct Buckets<T> {
    items: Vec<T>,
    /// Where each bucket begins, and where the last one ends.
    firsts: Vec<usize>,
}

impl<T: Copy> Buckets<T> {
    /// Puts each item into one of `count` buckets.
    pub(crate) fn new(
        items: impl DoubleEndedIterator<Item = T> + Clone,
        count: usize,
        bucket: impl Fn(T) -> usize,
    ) -> Self {
        let mut firsts = vec![0; count + 1];
        for item in items.clone() {
            firsts[bucket(item)] += 1;
        }
        let mut end = 0;
        for first in &mut firsts {
            end += *first;
            *first = end;
        }
        let mut placed: Vec<T> = items.clone().collect();
        // From the last on, so that the end of each bucket becomes its begin.
        for item in items.rev() {
            let first = &mut firsts[bucket(item)];
            *first -= 1;
            placed[*first] = item;
        }
        Self { items: placed, firsts }
    }

    /// Sorts the items of each bucket.
    pub(crate) fn sort_each_by_key<K: Ord>(&mut self, key: impl Fn(&T) -> K) {
        for bounds in self.firsts.windows(2) {
            self.items[bounds[0]..bounds[1]].sort_unstable_by_key(&key);
        }
    }

    /// Where the items of a bucket are.
    pub(crate) fn range(&self, bucket: usize) -> Range<usize> {
        self.firsts[bucket]..self.firsts[bucket + 1]
    }

    /// The item at a place.
    pub(crate) fn at(&self, place: usize) -> T {
        self.items[place]
    }
}

/// Sorts items that order by a number first. Where the numbers are spread about evenly, as random ids are and the times
/// of a trace, few items share a bucket and little is compared; others, whoever chose them, cost what sorting costs.
pub(crate) fn sort_spread<T: Copy + Ord>(items: &mut Vec<T>, number: impl Fn(T) -> u64) {
    if items.len() < FEW {
        return items.sort_unstable();
    }
    let numbers = items.iter().map(|item| number(*item));
    let (least, most) =
        numbers.fold((u64::MAX, 0), |(least, most), number| (least.min(number), most.max(number)));
    // About one bucket for each item, and no division.
    let count = items.len().next_power_of_two();
    let width_bits = (u64::BITS - (most - least).leading_zeros()).saturating_sub(count.ilog2());
    let bucket = |item| ((number(item) - least) >> width_bits) as usize;
    let mut buckets = Buckets::new(items.iter().copied(), count, bucket);
    buckets.sort_each_by_key(|item| *item);
    *items = buckets.items;
}

/// Sorts large items by a number, those of one number in the order in which they came: each is moved once.
pub(crate) fn sort_large<T>(items: &mut [T], number: impl Fn(&T) -> u64) {
    let mut order: Vec<(u64, usize)> = items.iter().map(number).zip(0..).collect();
    sort_spread(&mut order, |(number, _)| number);
    for first in 0..items.len() {
        // An item that has to leave its place goes to where the next one came from, until that is the first's.
        let mut at = first;
        while order[at].1 != first {
            let from = std::mem::replace(&mut order[at].1, at);
            items.swap(at, from);
            at = from;
        }
        order[at].1 = at;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Numbers that lie close together, far apart, or at the ends of what there is.
    fn any_number() -> impl Strategy<Value = u64> {
        prop_oneof![
            0_u64..50,
            1_767_323_045_000_000_000_u64..1_767_323_045_000_100_000,
            any::<u64>(),
            Just(u64::MAX),
        ]
    }

    proptest! {
        /// Guarantees: whatever the numbers are, the order is that of a sort.
        #[test]
        fn spread_or_not_items_are_sorted(
            numbers in prop::collection::vec((any_number(), 0_u8..4), 0..200),
        ) {
            let (mut sorted, mut expected) = (numbers.clone(), numbers);
            sort_spread(&mut sorted, |item| item.0);
            expected.sort_unstable();
            prop_assert_eq!(sorted, expected);
        }

        /// Guarantees: items are sorted by their numbers alone and otherwise stay in their order.
        #[test]
        fn large_items_are_sorted_and_keep_their_order(
            numbers in prop::collection::vec(any_number(), 0..100),
        ) {
            let mut sorted: Vec<(u64, usize)> = numbers.into_iter().zip(0..).collect();
            let mut expected = sorted.clone();
            sort_large(&mut sorted, |item| item.0);
            expected.sort_by_key(|item| item.0);
            prop_assert_eq!(sorted, expected);
        }

        /// Guarantees: each item is in its bucket, after those that came before it.
        #[test]
        fn buckets_keep_the_order_of_their_items(
            items in prop::collection::vec((0_usize..7, any::<u16>()), 0..60),
        ) {
            let buckets = Buckets::new(items.iter().copied(), 7, |item| item.0);
            for bucket in 0..7 {
                let found = buckets.range(bucket).map(|place| buckets.at(place));
                let expected = items.iter().copied().filter(|item| item.0 == bucket);
                prop_assert!(found.eq(expected));
            }
        }
    }
}
