//! Quantiles of the durations of spans, by their fields: a scan of a few columns.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{BooleanArray, Int64Array};

use super::coded::{Coded, Field, Value};
use super::file::column;
use super::{SegmentError, SpanReader};

/// Durations of one group that are all kept.
const MAX_EXACT: usize = 1_000_000;
/// Bits below the highest that tell buckets apart: an answer is off by less than 0.4 %.
const SUB_BITS: u32 = 7;
const SUB: u64 = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) << SUB_BITS;
/// Combinations of values that a table is made for.
const DENSE: usize = 1 << 20;

/// Durations of one group, in nanoseconds.
#[derive(Clone, Debug)]
pub enum Durations {
    /// All of them.
    Exact(Vec<u64>),
    /// How many are in each bucket, and in all.
    Histogram(Box<[u64]>, u64),
}

impl Default for Durations {
    fn default() -> Self {
        Self::Exact(Vec::new())
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < SUB {
        return nanos as usize;
    }
    let exponent = 63 - nanos.leading_zeros();
    let octave = (exponent - SUB_BITS + 1) as usize;
    octave << SUB_BITS | ((nanos >> (exponent - SUB_BITS)) & (SUB - 1)) as usize
}

fn middle(bucket: usize) -> u64 {
    let octave = (bucket >> SUB_BITS) as u32;
    if octave == 0 {
        return bucket as u64;
    }
    let shift = octave - 1;
    let low = (SUB | bucket as u64 & (SUB - 1)) << shift;
    low + (1_u64 << shift >> 1)
}

impl Durations {
    /// Takes in a duration.
    #[inline]
    pub fn add(&mut self, nanos: u64) {
        match self {
            Self::Exact(all) if all.len() < MAX_EXACT => all.push(nanos),
            Self::Exact(_) => {
                self.condense();
                self.add(nanos);
            }
            Self::Histogram(buckets, count) => {
                buckets[bucket(nanos)] += 1;
                *count += 1;
            }
        }
    }

    /// Takes up what another part of the spans has.
    pub fn merge(&mut self, mut other: Self) {
        if self.count() + other.count() > MAX_EXACT as u64 {
            self.condense();
            other.condense();
        }
        match (self, other) {
            (Self::Exact(all), Self::Exact(more)) => all.extend(more),
            (Self::Histogram(buckets, count), Self::Histogram(more, added)) => {
                buckets.iter_mut().zip(more).for_each(|(own, more)| *own += more);
                *count += added;
            }
            // Both were condensed, or neither.
            _ => {}
        }
    }

    #[cold]
    fn condense(&mut self) {
        if let Self::Exact(all) = self {
            let mut buckets = vec![0; BUCKETS].into_boxed_slice();
            all.iter().for_each(|nanos| buckets[bucket(*nanos)] += 1);
            *self = Self::Histogram(buckets, all.len() as u64);
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        match self {
            Self::Exact(all) => all.len() as u64,
            Self::Histogram(_, count) => *count,
        }
    }

    /// Whether quantiles are exact.
    pub fn is_exact(&self) -> bool {
        matches!(self, Self::Exact(_))
    }

    /// The shortest that at least this share of all are not above; nothing of none.
    pub fn at(&mut self, share: f64) -> Option<u64> {
        let count = self.count();
        let above = (share * count as f64).ceil() as u64;
        let rank = (count > 0).then(|| above.clamp(1, count) - 1)?;
        match self {
            Self::Exact(all) => Some(*all.select_nth_unstable(rank as usize).1),
            Self::Histogram(buckets, _) => {
                let mut left = rank;
                let mut counts = buckets.iter().enumerate();
                let hit = counts.find(|(_, count)| {
                    let is_hit = left < **count;
                    left -= if is_hit { 0 } else { **count };
                    is_hit
                });
                hit.map(|(bucket, _)| middle(bucket))
            }
        }
    }
}

/// Spans that agree in the fields that were asked for.
#[derive(Clone, Debug)]
pub struct Group {
    /// Their values, in the order of the fields.
    pub by: Vec<Option<Value>>,
    /// Their durations; negative ones count as zero.
    pub durations: Durations,
}

/// Durations of the spans of files that start in a range and whose times are believed, by fields. Spans that were
/// received twice and lie in different files count twice. The groups come in no order.
///
/// # Errors
///
/// When a file is damaged.
pub fn durations_by(
    files: &[&SpanReader],
    fields: &[Field],
    starts: &Range<u64>,
    threads: usize,
) -> Result<Vec<Group>, SegmentError> {
    let work: Vec<(&SpanReader, usize)> = files
        .iter()
        .flat_map(|file| (0..file.row_groups()).map(|row_group| (*file, row_group)))
        .collect();
    let next = AtomicUsize::new(0);
    let run = || {
        let mut groups = Groups::default();
        while let Some((file, row_group)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
            groups.scan(file, *row_group, fields, starts)?;
        }
        Ok(groups)
    };
    let done: Vec<Result<Groups, SegmentError>> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.max(1)).map(|_| scope.spawn(run)).collect();
        let own = run();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread
                .join()
                .unwrap_or_else(|_| Err(SegmentError::Damaged("a scan ended early".into())))
        };
        std::iter::once(own).chain(others.into_iter().map(join)).collect()
    });
    let mut all = Groups::default();
    for groups in done {
        for group in groups?.list {
            let at = all.at(group.by);
            all.list[at].durations.merge(group.durations);
        }
    }
    Ok(all.list)
}

/// What [`Value`]s are looked up by.
fn key_of(value: Option<&Value>) -> String {
    match value {
        None => String::new(),
        Some(Value::Text(text)) => format!("t{text}"),
        Some(Value::Int(value)) => format!("i{value}"),
        Some(Value::Double(value)) => format!("d{:x}", value.to_bits()),
        Some(Value::Bool(value)) => format!("b{value}"),
    }
}

#[derive(Default)]
struct Groups {
    places: HashMap<Vec<String>, usize>,
    list: Vec<Group>,
}

impl Groups {
    fn at(&mut self, by: Vec<Option<Value>>) -> usize {
        let key = by.iter().map(|value| key_of(value.as_ref())).collect();
        *self.places.entry(key).or_insert_with(|| {
            self.list.push(Group { by, durations: Durations::default() });
            self.list.len() - 1
        })
    }

    fn scan(
        &mut self,
        file: &SpanReader,
        row_group: usize,
        fields: &[Field],
        starts: &Range<u64>,
    ) -> Result<(), SegmentError> {
        let Some(has_all) = file.overlap(row_group, starts) else { return Ok(()) };
        let mut plain = vec!["duration_nano", "time_suspect"];
        if !has_all {
            plain.push("start_unix_nano");
        }
        let read = file.row_group(row_group, fields, &plain)?;
        let durations: &Int64Array = column(&read.batch, "duration_nano")?;
        let suspect: &BooleanArray = column(&read.batch, "time_suspect")?;
        let begun: Option<&Int64Array> = match has_all {
            true => None,
            false => Some(column(&read.batch, "start_unix_nano")?),
        };
        let mut places = Places::new(&read.fields);
        let has_suspects = suspect.true_count() > 0;
        for (row, nanos) in durations.values().iter().enumerate() {
            let is_left_out = has_suspects && suspect.value(row)
                || begun.is_some_and(|begun| !starts.contains(&(begun.value(row) as u64)));
            if is_left_out {
                continue;
            }
            let place = places.of(row);
            if *place == u32::MAX {
                let by =
                    read.fields.iter().map(|field| field.values[field.codes[row] as usize].clone());
                *place = self.at(by.collect()) as u32;
            }
            self.list[*place as usize].durations.add((*nanos).max(0) as u64);
        }
        Ok(())
    }
}

/// Groups of the combinations of values that a row group has.
struct Places<'a> {
    fields: &'a [Coded],
    dense: Vec<u32>,
    sparse: HashMap<u64, u32>,
}

impl<'a> Places<'a> {
    fn new(fields: &'a [Coded]) -> Self {
        let combinations =
            fields.iter().try_fold(1_usize, |all, field| all.checked_mul(field.values.len()));
        let size = combinations.filter(|all| *all <= DENSE).unwrap_or(0);
        Self { fields, dense: vec![u32::MAX; size], sparse: HashMap::new() }
    }

    #[inline]
    fn of(&mut self, row: usize) -> &mut u32 {
        let mut at = 0_u64;
        for field in self.fields {
            let values = field.values.len() as u64;
            at = at.wrapping_mul(values).wrapping_add(u64::from(field.codes[row]));
        }
        match self.dense.is_empty() {
            false => &mut self.dense[at as usize],
            true => self.sparse.entry(at).or_insert(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_middle_and_buckets_are_narrow() {
        for shift in 0..64 {
            for nanos in [1_u64 << shift, (1 << shift) + (1 << shift) / 3, u64::MAX >> shift] {
                let (at, middle) = (bucket(nanos), middle(bucket(nanos)));
                assert!(at < BUCKETS);
                assert_eq!(bucket(middle), at, "{nanos}");
                assert!(middle.abs_diff(nanos) as f64 <= nanos as f64 / 255.0, "{nanos}");
            }
        }
    }

    #[test]
    fn more_than_a_million_durations_are_counted_in_buckets() {
        let mut durations = Durations::default();
        (0..MAX_EXACT as u64).for_each(|nanos| durations.add(nanos));
        assert!(durations.is_exact());
        assert_eq!(durations.at(0.5), Some(499_999));
        let mut more = Durations::default();
        more.add(1 << 40);
        durations.merge(more);
        assert!(!durations.is_exact());
        assert_eq!(durations.count(), 1_000_001);
        let median = durations.at(0.5).unwrap();
        assert!(median.abs_diff(500_000) < 2_000, "{median}");
        assert!(durations.at(1.0).unwrap().abs_diff(1 << 40) < 1 << 33);
        assert_eq!(Durations::default().at(0.5), None);
    }
}
