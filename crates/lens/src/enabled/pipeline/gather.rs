//! From slots to request bodies: frames in the order in which slots were claimed, by scope.

use std::collections::BTreeMap;

use lens_otlp::encode::{Scope, put_request};
use lens_otlp::wire;

use crate::enabled::group;
use crate::enabled::raw::mapping::Mapping;
use crate::enabled::raw::ring::{FRAME_HEADER, Published, Reader};

/// Items of one request, by scope.
#[derive(Default)]
pub(in crate::enabled) struct Gathered {
    scopes: BTreeMap<u16, Vec<u8>>,
    bytes: usize,
    pub(in crate::enabled) items: usize,
}

impl Gathered {
    /// Adds one item.
    pub(in crate::enabled) fn add(&mut self, scope: u16, item: &[u8]) {
        wire::put_bytes(self.scopes.entry(scope).or_default(), 2, item);
        self.bytes += item.len();
        self.items += 1;
    }

    pub(in crate::enabled) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes the request to the end of `request`, with `name_of` giving the name and version of a scope, and begins
    /// anew with the buffers as they are.
    pub(in crate::enabled) fn take_request(
        &mut self,
        request: &mut Vec<u8>,
        resource: &[u8],
        name_of: impl Fn(u16) -> (String, String),
    ) {
        request.reserve(self.bytes + self.items * 4 + resource.len() + 256);
        let named: Vec<_> = (self.scopes.iter())
            .filter(|(_, items)| !items.is_empty())
            .map(|(scope, items)| (name_of(*scope), items))
            .collect();
        let scopes = named.iter().map(|((name, version), items)| {
            (Scope { name: name.as_str(), version: version.as_str() }, items.as_slice())
        });
        put_request(request, resource, scopes);
        self.scopes.values_mut().for_each(Vec::clear);
        (self.bytes, self.items) = (0, 0);
    }
}

/// The name and version of a scope of this process.
pub(super) fn own_scope(scope: u16) -> (String, String) {
    let (name, version) = group::scope(scope);
    (name.to_owned(), version.to_owned())
}

/// Up to where a slot was gathered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gain {
    pub(super) slot: u32,
    pub(super) sequence: u64,
    pub(super) to: u32,
    pub(super) items: u32,
}

/// What was published at one moment, gathered piece by piece.
#[derive(Debug, Default)]
pub(super) struct Round {
    targets: Vec<Published>,
    next: usize,
    from: u32,
}

impl Round {
    /// Everything that is published now and not acknowledged. Nothing may be gathered and unacknowledged meanwhile.
    pub(super) fn begin(&mut self, reader: &mut Reader<Mapping>) {
        reader.published(&mut self.targets);
        self.next = 0;
        self.from = self.targets.first().map_or(0, |target| target.acknowledged);
    }

    pub(super) fn is_done(&self) -> bool {
        self.next >= self.targets.len()
    }

    /// Gathers the next request into `gathered`; what it took of each slot goes to `gains`.
    pub(super) fn gather(
        &mut self,
        reader: &Reader<Mapping>,
        max_bytes: usize,
        max_items: usize,
        gathered: &mut Gathered,
        gains: &mut Vec<Gain>,
    ) {
        while let Some(target) = self.targets.get(self.next).copied() {
            let mut items = 0;
            let took = reader.read(target, self.from, |bytes| {
                let mut at = 0;
                while let Some((scope, item, len)) = frame(&bytes[at..]) {
                    let full =
                        gathered.bytes() + item.len() > max_bytes || gathered.items >= max_items;
                    if full && gathered.items > 0 {
                        break;
                    }
                    gathered.add(scope, item);
                    items += 1;
                    at += len;
                }
                (at, at == bytes.len())
            });
            let (took, is_done) = took.unwrap_or((0, true));
            self.from += took as u32;
            if items > 0 {
                let Published { slot, sequence, .. } = target;
                gains.push(Gain { slot, sequence, to: self.from, items });
            }
            if !is_done {
                break;
            }
            self.next += 1;
            self.from = self.targets.get(self.next).map_or(0, |target| target.acknowledged);
        }
    }
}

/// The first frame: scope, content, and bytes with its header.
pub(in crate::enabled) fn frame(bytes: &[u8]) -> Option<(u16, &[u8], usize)> {
    let (header, rest) = bytes.split_first_chunk::<FRAME_HEADER>()?;
    let header = u64::from_le_bytes(*header);
    let len = header as u32 as usize;
    Some(((header >> 32) as u16, rest.get(..len)?, len + FRAME_HEADER))
}
