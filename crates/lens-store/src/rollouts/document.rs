//! A row as a JSON document: what is served, and what a client reads back.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::row::{Kept, RolloutRow};
use crate::ids::{SpanId, TraceId};
use crate::{Band, Bands};

/// Fields of a row, in the order in which they are written.
#[derive(Serialize, Deserialize)]
struct Document {
    run: String,
    task_index: Option<i64>,
    rollout_index: Option<i64>,
    attempt_index: i64,
    rollout_id: String,
    agent: String,
    outcome: String,
    error_type: String,
    trace_id: String,
    root_span_id: String,
    start_unix_nano: u64,
    wall_nanos: u64,
    duration_nanos: u64,
    admission_nanos: u64,
    spans: u32,
    errors: u32,
    retries: u32,
    truncated: bool,
    timings_scaled: bool,
    clock_corrected: bool,
    time_suspect: bool,
    bands: BTreeMap<String, u64>,
    ingest_seq: u64,
    kept: String,
}

impl Kept {
    const ALL: [Self; 5] = [Self::Undecided, Self::Notable, Self::Slow, Self::Sampled, Self::LetGo];

    /// As documents and files call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Undecided => "undecided",
            Self::Notable => "notable",
            Self::Slow => "slow",
            Self::Sampled => "sampled",
            Self::LetGo => "let_go",
        }
    }

    /// By its name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kept| kept.name() == name)
    }
}

impl Serialize for RolloutRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bands = self.bands.iter().filter(|(_, nanos)| *nanos > 0);
        Document {
            run: self.run.to_string(),
            task_index: self.task_index,
            rollout_index: self.rollout_index,
            attempt_index: self.attempt_index,
            rollout_id: self.rollout_id.to_string(),
            agent: self.agent.to_string(),
            outcome: self.outcome.to_string(),
            error_type: self.error_type.to_string(),
            trace_id: self.trace_id.to_string(),
            root_span_id: self.root_span_id.to_string(),
            start_unix_nano: self.start_nanos,
            wall_nanos: self.wall_nanos,
            duration_nanos: self.duration_nanos(),
            admission_nanos: self.admission_nanos,
            spans: self.spans,
            errors: self.errors,
            retries: self.retries,
            truncated: self.is_truncated,
            timings_scaled: self.timings_scaled,
            clock_corrected: self.clock_corrected,
            time_suspect: self.time_suspect,
            bands: bands.map(|(band, nanos)| (band.name().to_owned(), nanos)).collect(),
            ingest_seq: self.ingest_seq,
            kept: self.kept.name().to_owned(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RolloutRow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let row = Document::deserialize(deserializer)?;
        let mut bands = Bands::default();
        for (name, nanos) in &row.bands {
            let band = Band::ALL.into_iter().find(|band| band.name() == name);
            bands[band.ok_or_else(|| D::Error::custom(format!("no band {name:?}")))?] = *nanos;
        }
        let text = |text: String| Arc::<str>::from(text);
        Ok(Self {
            run: text(row.run),
            task_index: row.task_index,
            rollout_index: row.rollout_index,
            attempt_index: row.attempt_index,
            rollout_id: text(row.rollout_id),
            agent: text(row.agent),
            outcome: text(row.outcome),
            error_type: text(row.error_type),
            trace_id: TraceId::parse(&row.trace_id)
                .ok_or_else(|| D::Error::custom("no trace id"))?,
            root_span_id: SpanId::parse(&row.root_span_id)
                .ok_or_else(|| D::Error::custom("no span id"))?,
            start_nanos: row.start_unix_nano,
            wall_nanos: row.wall_nanos,
            admission_nanos: row.admission_nanos,
            spans: row.spans,
            errors: row.errors,
            retries: row.retries,
            is_truncated: row.truncated,
            timings_scaled: row.timings_scaled,
            clock_corrected: row.clock_corrected,
            time_suspect: row.time_suspect,
            bands,
            ingest_seq: row.ingest_seq,
            kept: Kept::parse(&row.kept).ok_or_else(|| D::Error::custom("no such mark"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_survives_its_document() {
        let mut bands = Bands::default();
        bands[Band::Decode] = 7;
        bands[Band::Other] = u64::MAX / 2;
        let row = RolloutRow {
            run: "r".into(),
            task_index: Some(3),
            rollout_index: None,
            attempt_index: 1,
            rollout_id: "3-0-a1".into(),
            agent: "a".into(),
            outcome: "failure".into(),
            error_type: "500".into(),
            trace_id: TraceId::from_bytes(&[1; 16]).unwrap(),
            root_span_id: SpanId::from_bytes(&[2; 8]).unwrap(),
            start_nanos: u64::MAX,
            wall_nanos: 10,
            admission_nanos: 4,
            spans: 12,
            errors: 1,
            retries: 2,
            is_truncated: true,
            timings_scaled: false,
            clock_corrected: true,
            time_suspect: false,
            bands,
            ingest_seq: 9,
            kept: Kept::LetGo,
        };
        let text = serde_json::to_string(&row).unwrap();
        assert!(text.contains("\"duration_nanos\":6"), "{text}");
        assert_eq!(serde_json::from_str::<RolloutRow>(&text).unwrap(), row);
        assert!(serde_json::from_str::<RolloutRow>(&text.replace("let_go", "x")).is_err());
    }
}
