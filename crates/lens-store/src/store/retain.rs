//! What goes because it is old, or because there is too much: whole segments, oldest first.

use std::sync::Arc;

use super::commit::Change;
use super::error::StoreError;
use super::segments::Segment;
use super::{Shared, locked};
use crate::manifest::Table;

impl Shared {
    /// Removes what retention does not allow any more; returns how many segments that were.
    pub(super) fn retain(&self) -> Result<usize, StoreError> {
        let limits = self.options.retention;
        let mut segments: Vec<Arc<Segment>> = self.state().segments.to_vec();
        segments.sort_by_key(|segment| (segment.entry().arrived_nanos, segment.entry().number));
        let now_nanos = self.options.clock.now_nanos();
        let max_age_nanos = limits
            .max_age
            .map_or(u64::MAX, |age| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
        let mut bytes: u64 = segments.iter().map(|segment| segment.entry().bytes()).sum();
        let (mut gone, mut spans) = (Vec::new(), 0);
        for segment in segments {
            let entry = segment.entry();
            let is_old = now_nanos.saturating_sub(entry.arrived_nanos) > max_age_nanos;
            let is_too_much = limits.max_bytes.is_some_and(|most| bytes > most);
            if !is_old && !is_too_much {
                break;
            }
            bytes -= entry.bytes();
            spans += entry.file(Table::Spans).map_or(0, |file| file.rows);
            gone.push(entry.number);
        }
        if gone.is_empty() {
            return Ok(0);
        }
        let count = gone.len();
        let change = Change { gone, loses_spans: true, ..Change::default() };
        self.commit(&mut locked(&self.upkeep), change, |manifest| {
            manifest.removed.segments_expired += count as u64;
            manifest.removed.spans_expired += spans;
        })?;
        Ok(count)
    }

    /// Takes segments out that turned out to be damaged, and keeps their files for who wants to look at them.
    pub(super) fn set_damaged_aside(&self) -> Result<(), StoreError> {
        let segments = Arc::clone(&self.state().segments);
        let damaged: Vec<_> = segments.iter().filter(|segment| segment.is_damaged()).collect();
        if damaged.is_empty() {
            return Ok(());
        }
        for segment in &damaged {
            // Readers that have them open go on; after a death in between they are missing, which is damage too.
            super::open::move_aside(&self.options.vfs, &self.folder, segment.entry());
        }
        let gone: Vec<u64> = damaged.iter().map(|segment| segment.entry().number).collect();
        let count = gone.len() as u64;
        let change = Change { gone, loses_spans: true, ..Change::default() };
        self.commit(&mut locked(&self.upkeep), change, |manifest| {
            manifest.removed.segments_damaged += count;
        })
    }
}
