//! Numbers of the spans of files by the values of their fields, from a few columns: no span is looked at by itself.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{Array, BinaryViewArray, Int64Array};

use super::coded::Coded;
use super::file::column;
use super::{SegmentError, SpanReader};
use crate::query::columns::{Columns, Gathered, LEFT_OUT, REFUSED};

/// Combinations of values that a table is made for.
const DENSE: u64 = 1 << 20;
/// The place of a combination of values that nobody has looked at yet.
const UNKNOWN: u32 = u32::MAX - 2;

/// A file, the part of a source that it is, and the starts that are believed of its spans.
pub(crate) type File<'a> = (usize, &'a SpanReader, Range<u64>);

/// Counts the spans of files. Spans that were received twice and lie in different files count twice.
pub(crate) fn measure(
    files: &[File<'_>],
    columns: &Columns<'_>,
    threads: usize,
) -> Result<Gathered, SegmentError> {
    let work: Vec<(&File<'_>, usize)> = files
        .iter()
        .flat_map(|file| (0..file.1.row_groups()).map(move |row_group| (file, row_group)))
        .collect();
    let threads = threads.min(work.len()).max(1);
    let next = AtomicUsize::new(0);
    let run = || {
        let mut gathered = Gathered::default();
        while let Some((file, row_group)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
            scan(file, *row_group, columns, &mut gathered)?;
            gathered.bound_numbers(threads);
        }
        Ok(gathered)
    };
    let done: Vec<Result<Gathered, SegmentError>> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let own = run();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread
                .join()
                .unwrap_or_else(|_| Err(SegmentError::Damaged("a scan ended early".into())))
        };
        std::iter::once(own).chain(others.into_iter().map(join)).collect()
    });
    let mut all = Gathered::default();
    for gathered in done {
        all.merge(gathered?);
    }
    if all.refused > 0 {
        // Threads may have refused different groups; whoever looks at spans one by one refuses whole ones.
        return Ok(Gathered::left(files.iter().map(|(part, ..)| *part)));
    }
    Ok(all)
}

fn scan(
    (part, file, believed): &File<'_>,
    row_group: usize,
    columns: &Columns<'_>,
    gathered: &mut Gathered,
) -> Result<(), SegmentError> {
    let Some(has_all) = file.overlap(row_group, columns.starts()) else { return Ok(()) };
    // Where a start may be suspect, and where columns do not say everything, each span is looked at.
    if file.overlap(row_group, believed) != Some(true) {
        gathered.left.push((*part, Some(row_group)));
        return Ok(());
    }
    // Of spans that are all counted, first and last start are known already.
    let is_known = has_all && columns.takes_all() && file.has_no_negative_duration(row_group);
    let seen = is_known.then(|| file.starts(row_group)).flatten();
    let mut plain = vec!["duration_nano", "otlp"];
    if seen.is_none() {
        plain.push("start_unix_nano");
    }
    let read = file.row_group(row_group, columns.coded(), &plain)?;
    let as_they_came: &BinaryViewArray = column(&read.batch, "otlp")?;
    let combinations = read
        .fields
        .iter()
        .try_fold(1_u64, |all, field| all.checked_mul(field.values.len() as u64))
        .filter(|_| as_they_came.null_count() == as_they_came.len());
    let Some(combinations) = combinations else {
        gathered.left.push((*part, Some(row_group)));
        return Ok(());
    };
    let durations: &Int64Array = column(&read.batch, "duration_nano")?;
    gathered.looked += durations.len() as u64;
    let mut places = Places::new(&read.fields, combinations);
    let mut place_of = |row: usize| {
        let place = places.of(row);
        if *place == UNKNOWN {
            let values: Vec<_> = read.fields.iter().map(|field| field.value(row)).collect();
            let group = columns.group(&values);
            *place = group.map_or(LEFT_OUT, |group| gathered.place(group).unwrap_or(REFUSED));
        }
        *place
    };
    let seen = match seen {
        Some(seen) => {
            let places: Vec<u32> = (0..durations.len()).map(&mut place_of).collect();
            gathered.take(&places, durations.values(), columns.function());
            Some(seen)
        }
        None => {
            let starts: &Int64Array = column(&read.batch, "start_unix_nano")?;
            let mut seen: Option<(u64, u64)> = None;
            let mut places = Vec::with_capacity(durations.len());
            for (row, (start, nanos)) in starts.values().iter().zip(durations.values()).enumerate()
            {
                let start_nanos = *start as u64;
                let is_in_time = has_all || columns.starts().contains(&start_nanos);
                let place = if is_in_time { place_of(row) } else { LEFT_OUT };
                if place < REFUSED && *nanos >= 0 {
                    let (first, last) = seen.unwrap_or((start_nanos, start_nanos));
                    seen = Some((first.min(start_nanos), last.max(start_nanos)));
                }
                places.push(place);
            }
            gathered.take(&places, durations.values(), columns.function());
            seen
        }
    };
    gathered.see(seen);
    Ok(())
}

/// Groups of the combinations of values that a row group has.
struct Places<'a> {
    fields: &'a [Coded],
    dense: Vec<u32>,
    sparse: HashMap<u64, u32>,
}

impl<'a> Places<'a> {
    fn new(fields: &'a [Coded], combinations: u64) -> Self {
        let size = if combinations <= DENSE { combinations as usize } else { 0 };
        Self { fields, dense: vec![UNKNOWN; size], sparse: HashMap::new() }
    }

    #[inline]
    fn of(&mut self, row: usize) -> &mut u32 {
        let mut at = 0_u64;
        for field in self.fields {
            let values = field.values.len() as u64;
            at = at * values + u64::from(field.codes[row]);
        }
        match self.dense.is_empty() {
            false => &mut self.dense[at as usize],
            true => self.sparse.entry(at).or_insert(UNKNOWN),
        }
    }
}
