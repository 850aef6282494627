//! What the files of log records and points say of where an item comes from.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use gym_telemetry::semconv;
use lens_otlp::DecodeError;
use lens_otlp::json::put_plain_attributes;
use lens_otlp::view::{AnyValue, Attributes};
use lens_otlp::wire::Fields;

use super::column::{Column, Stats};
use super::span_columns::origin_message;
use super::table::{Field, Leaf};
use crate::raw::Origin;

/// The columns, in the order of [`OriginTexts::put`].
pub(super) fn fields() -> [Field; 5] {
    [
        Field::Required("service_name", Leaf::Key, Stats::Chunk),
        Field::Required("scope_name", Leaf::Key, Stats::Chunk),
        Field::Required("scope_version", Leaf::Key, Stats::None),
        Field::Required("resource", Leaf::Key, Stats::None),
        Field::Required("origin_otlp", Leaf::KeyBytes, Stats::None),
    ]
}

/// Origins that were met, as texts.
#[derive(Default)]
pub(super) struct OriginTexts {
    known: HashMap<usize, [Vec<u8>; 5]>,
    /// Keeps their addresses from being used again.
    alive: Vec<Arc<Origin>>,
}

impl OriginTexts {
    pub(super) fn put(
        &mut self,
        origin: &Arc<Origin>,
        columns: &mut [Column],
    ) -> Result<(), DecodeError> {
        let address = Arc::as_ptr(origin) as usize;
        let texts = match self.known.entry(address) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let texts = place.insert(texts(origin)?);
                self.alive.push(Arc::clone(origin));
                texts
            }
        };
        for (column, text) in columns.iter_mut().zip(texts) {
            column.push_text(text);
        }
        Ok(())
    }
}

fn texts(origin: &Origin) -> Result<[Vec<u8>; 5], DecodeError> {
    let (mut name, mut version, mut service) = (&[][..], &[][..], "");
    for field in Fields::new(&origin.scope) {
        match field? {
            (1, content) => name = content.bytes()?,
            (2, content) => version = content.bytes()?,
            _ => {}
        }
    }
    let resource = Attributes::new(&origin.resource.message, 1);
    for pair in resource {
        if let (semconv::SERVICE_NAME, AnyValue::String(text)) = pair? {
            service = text;
        }
    }
    let mut json = String::new();
    put_plain_attributes(&mut json, resource)?;
    Ok([
        service.as_bytes().to_vec(),
        name.to_vec(),
        version.to_vec(),
        json.into_bytes(),
        origin_message(origin),
    ])
}
