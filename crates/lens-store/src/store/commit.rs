//! The commit: the manifest is replaced, then the state that snapshots are made of, then what nobody needs is removed.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::carried::Carried;
use super::error::StoreError;
use super::segments::Segment;
use super::{Shared, locked, read_manifest};
use crate::manifest::{Manifest, SegmentEntry};

/// Who changes the segments; one at a time.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// Also past what failed commits used.
    pub(super) next_number: u64,
    /// Replaced by a manifest that may not survive a loss of power yet.
    pub(super) replaced: Vec<Arc<Segment>>,
    /// Not before this time again, Unix nanoseconds: it failed.
    pub(super) retry_at_nanos: u64,
    /// How it failed.
    pub(super) failures: u32,
    pub(super) carried: Carried,
}

/// A change of the segments.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) added: Vec<SegmentEntry>,
    /// Numbers of segments that go.
    pub(super) gone: Vec<u64>,
    /// The frozen part of memory is in the added segments.
    pub(super) is_flush: bool,
    /// Spans of the segments that go are in no segment afterwards.
    pub(super) loses_spans: bool,
}

impl Shared {
    /// Makes a change count. Either all of it does when this returns, or nothing.
    pub(super) fn commit(
        &self,
        upkeep: &mut Upkeep,
        change: Change,
        more: impl FnOnce(&mut Manifest),
    ) -> Result<(), StoreError> {
        let vfs = &self.options.vfs;
        let opened = self.open_added(&change.added);
        let (mut manifest, mut segments, frozen) = {
            let state = self.state();
            let frozen = state.frozen.clone().filter(|_| change.is_flush);
            ((*state.manifest).clone(), (*state.segments).clone(), frozen)
        };
        manifest.generation += 1;
        manifest.next_number = upkeep.next_number;
        manifest.segments.retain(|entry| !change.gone.contains(&entry.number));
        manifest.segments.extend(change.added.iter().cloned());
        if let Some(frozen) = &frozen {
            manifest.watermark = manifest.watermark.max(frozen.stats().last_seq);
        }
        more(&mut manifest);

        let written = manifest.write(vfs, &self.folder);
        if let Err(source) = &written {
            // The name may be there although something failed after that: then it counts, and for ever if nothing
            // else happens, so its files stay and so do those that it replaced.
            let found = read_manifest(&self.folder);
            let is_there = found.as_ref().is_ok_and(|found| {
                found.as_ref().is_some_and(|found| found.generation == manifest.generation)
            });
            if !is_there {
                if found.is_ok() {
                    change.added.iter().for_each(|e| Segment::remove_files(vfs, &self.folder, e));
                }
                let reason = super::segments::reason(source);
                return Err(StoreError::Commit { path: self.folder.clone(), reason });
            }
        }

        if change.loses_spans {
            self.carry(upkeep, Carried::default());
        }
        segments.retain(|segment| {
            let is_gone = change.gone.contains(&segment.entry().number);
            if is_gone {
                upkeep.replaced.push(Arc::clone(segment));
            }
            !is_gone
        });
        segments.extend(opened);
        let watermark = manifest.watermark;
        {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            state.manifest = Arc::new(manifest);
            state.segments = Arc::new(segments);
            if frozen.is_some() {
                state.frozen = None;
            }
        }
        if written.is_ok() {
            upkeep.replaced.drain(..).for_each(|segment| segment.replace());
            self.sync.committed(watermark);
            if let Some(log) = &self.log {
                locked(log).drop_through(watermark);
            }
        }
        Ok(())
    }

    pub(super) fn carry(&self, upkeep: &mut Upkeep, carried: Carried) {
        self.carried_bytes.store(carried.bytes() as u64, Ordering::Relaxed);
        upkeep.carried = carried;
    }

    fn open_added(&self, added: &[SegmentEntry]) -> Vec<Arc<Segment>> {
        let open = |entry: &SegmentEntry| {
            let opened = Segment::open(&self.options.vfs, &self.folder, entry.clone());
            opened.map(Arc::new).map_err(|error| self.report(entry, &error)).ok()
        };
        added.iter().filter_map(open).collect()
    }

    /// Names a segment that cannot be opened.
    pub(super) fn report(&self, entry: &SegmentEntry, error: &dyn std::error::Error) {
        locked(&self.damage).push(unreadable(&self.folder, entry, error));
    }
}

pub(super) fn unreadable(
    store: &Path,
    entry: &SegmentEntry,
    error: &dyn std::error::Error,
) -> super::Damage {
    let table = entry.files.first().map_or(crate::manifest::Table::Spans, |file| file.table);
    let reason = super::segments::reason(error);
    super::Damage { path: store.join(entry.path(table)), reason }
}
