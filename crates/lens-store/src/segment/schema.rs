//! The columns of a file of spans.

use gym_telemetry::semconv;

use super::column::Stats;
use super::table::{Field, Leaf};

/// Version of the schema, in the files' metadata.
pub(super) const VERSION: &str = "1";

/// Attribute keys with a column of their own, which then hold every value of that type; a value of another type is in
/// its map. Only what queries ask for belongs here: each costs a few bytes in every page.
pub(super) const PROMOTED: &[(&str, Leaf)] = &[
    (semconv::COLLECTION_ID, Leaf::Text),
    (semconv::ROLLOUT_ID, Leaf::Text),
    (semconv::TASK_INDEX, Leaf::Int),
    (semconv::ROLLOUT_INDEX, Leaf::Int),
    (semconv::ATTEMPT_INDEX, Leaf::Int),
    (semconv::ROLLOUT_OUTCOME, Leaf::Text),
    (semconv::HTTP_RESPONSE_STATUS_CODE, Leaf::Int),
    (semconv::HTTP_ROUTE, Leaf::Text),
    (semconv::ERROR_TYPE, Leaf::Text),
    (semconv::GEN_AI_REQUEST_MODEL, Leaf::Text),
    (semconv::GEN_AI_USAGE_INPUT_TOKENS, Leaf::Int),
    (semconv::GEN_AI_USAGE_OUTPUT_TOKENS, Leaf::Int),
];

/// Texts longer than this are in a map of their own, which no query reads that does not ask for it.
pub(super) const LONG_TEXT_BYTES: usize = 8 * 1_024;

/// Numbers of leaf columns, in the order of [`fields`].
pub(super) mod leaf {
    pub const TRACE_ID: usize = 0;
    pub const SPAN_ID: usize = 1;
    pub const PARENT_SPAN_ID: usize = 2;
    pub const START: usize = 3;
    pub const DURATION: usize = 4;
    pub const NAME: usize = 5;
    pub const KIND: usize = 6;
    pub const STATUS_CODE: usize = 7;
    pub const SERVICE_NAME: usize = 8;
    pub const SCOPE_NAME: usize = 9;
    pub const STATUS_MESSAGE: usize = 10;
    pub const TRACE_STATE: usize = 11;
    pub const SCOPE_VERSION: usize = 12;
    pub const RESOURCE: usize = 13;
    /// Key and value of each of the maps.
    pub const MAPS: usize = 14;
    pub const EVENT_NAME: usize = 26;
    pub const EVENT_OFFSET: usize = 27;
    pub const EVENT_ATTRIBUTES: usize = 28;
    pub const EVENT_DROPPED: usize = 29;
    pub const LINK_TRACE_ID: usize = 30;
    pub const LINK_SPAN_ID: usize = 31;
    pub const LINK_TRACE_STATE: usize = 32;
    pub const LINK_ATTRIBUTES: usize = 33;
    pub const LINK_FLAGS: usize = 34;
    pub const LINK_DROPPED: usize = 35;
    pub const DROPPED_ATTRIBUTES: usize = 36;
    pub const DROPPED_EVENTS: usize = 37;
    pub const DROPPED_LINKS: usize = 38;
    pub const FLAGS: usize = 39;
    pub const INGEST_SEQ: usize = 40;
    pub const TIME_SUSPECT: usize = 41;
    pub const ORIGIN: usize = 42;
    pub const OTLP: usize = 43;
    /// The first promoted key.
    pub const PROMOTED: usize = 44;
}

/// Numbers of the counts of entries, in the order of [`fields`].
pub(super) mod entries {
    pub const PARENT_SPAN_ID: usize = 0;
    pub const STATUS_MESSAGE: usize = 1;
    pub const TRACE_STATE: usize = 2;
    pub const SCOPE_VERSION: usize = 3;
    pub const MAPS: usize = 4;
    pub const EVENTS: usize = 10;
    pub const LINKS: usize = 11;
    pub const OTLP: usize = 12;
    pub const PROMOTED: usize = 13;
}

/// The maps of attributes by type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Map {
    Text,
    Int,
    Double,
    Bool,
    /// Arrays, lists of keys and values, bytes and no value, as JSON.
    Json,
    LongText,
}

impl Map {
    pub(super) const COUNT: usize = 6;
    pub(super) const NAMES: [&'static str; 6] =
        ["attr_str", "attr_int", "attr_f64", "attr_bool", "attr_json", "attr_text"];
}

const EVENT: &[(&str, Leaf)] = &[
    ("name", Leaf::Text),
    ("offset_nano", Leaf::Int),
    ("attributes", Leaf::Text),
    ("dropped_attributes", Leaf::Word),
];
const LINK: &[(&str, Leaf)] = &[
    ("trace_id", Leaf::Text),
    ("span_id", Leaf::Text),
    ("trace_state", Leaf::Text),
    ("attributes", Leaf::Text),
    ("flags", Leaf::Word),
    ("dropped_attributes", Leaf::Word),
];

/// The columns of spans.
pub(super) fn fields() -> Vec<Field> {
    use Field::{List, Optional, Required};
    let [text, int, double, boolean, json, long] = Map::NAMES;
    let mut fields = vec![
        Required("trace_id", Leaf::TraceId, Stats::Pages),
        Required("span_id", Leaf::SpanId, Stats::None),
        Optional("parent_span_id".to_owned(), Leaf::SpanId, Stats::None),
        Required("start_unix_nano", Leaf::Deltas, Stats::Pages),
        Required("duration_nano", Leaf::Deltas, Stats::Pages),
        Required("name", Leaf::Text, Stats::Chunk),
        Required("kind", Leaf::Key, Stats::Chunk),
        Required("status_code", Leaf::Key, Stats::Chunk),
        Required("service_name", Leaf::Key, Stats::Chunk),
        Required("scope_name", Leaf::Key, Stats::Chunk),
        Optional("status_message".to_owned(), Leaf::Text, Stats::None),
        Optional("trace_state".to_owned(), Leaf::Text, Stats::None),
        Optional("scope_version".to_owned(), Leaf::Key, Stats::Chunk),
        Required("resource", Leaf::Key, Stats::None),
        Field::Map(text, Leaf::Text),
        Field::Map(int, Leaf::Int),
        Field::Map(double, Leaf::Double),
        Field::Map(boolean, Leaf::Bool),
        Field::Map(json, Leaf::Text),
        Field::Map(long, Leaf::PlainText),
        List("events", EVENT),
        List("links", LINK),
        Required("dropped_attributes", Leaf::Word, Stats::None),
        Required("dropped_events", Leaf::Word, Stats::None),
        Required("dropped_links", Leaf::Word, Stats::None),
        Required("flags", Leaf::Word, Stats::None),
        Required("ingest_seq", Leaf::Deltas, Stats::Chunk),
        Required("time_suspect", Leaf::Bool, Stats::None),
        Required("origin_otlp", Leaf::KeyBytes, Stats::None),
        Optional("otlp".to_owned(), Leaf::PlainBytes, Stats::None),
    ];
    let promoted =
        PROMOTED.iter().map(|(key, leaf)| Optional((*key).to_owned(), *leaf, Stats::Chunk));
    fields.extend(promoted);
    fields
}

/// The keys with a column of their own, as the metadata of files tells them.
pub(super) fn promoted_json() -> String {
    let keys: Vec<&str> = PROMOTED.iter().map(|(key, _)| *key).collect();
    serde_json::to_string(&keys).unwrap_or_default()
}
