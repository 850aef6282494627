//! Where rollouts and traces come from, as commands ask for them: files, a store, or a `gym observe` that runs.
//!
//! Files are read whole at once. A store and a `gym observe` are asked for what a command needs: rows of rollouts, and
//! the spans of single traces; only who wants all traces gets no more than the newest of them.

use std::cell::{Cell, OnceCell};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lens_otlp::DecodeError;
use lens_store::ids::TraceId;
use lens_store::query::{self, Loaded, Measured, Query, Search, SearchOptions, Stored, Window};
use lens_store::raw::{self, RawSpan};
use lens_store::rollouts::{Filter, RolloutRow, rows_of};
use lens_store::store::{Clock as _, Snapshot, Store, StoreError, SystemClock};
use lens_store::trace::{Reader, Traces};
use serde::Deserialize;
use serde_json::{Value, json};

use super::json::report_value;
use super::read::{ReadError, ReadReport, Reading, counted, read};
use super::select::{NotFound, nothing_found};
use crate::exit::ExitStatus;
use crate::observe::{Remote, RemoteError};
use crate::printer::Printer;

/// The newest traces that are looked at where all of a store are wanted, and their spans.
const ALL: (usize, u64) = (10_000, 1_000_000);
/// Those that are listed.
const LISTED: (usize, u64) = (500, 1_000_000);
/// Traces that are asked for at a time: their ids stand in a URL.
const IDS_OF_A_QUESTION: usize = 100;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A file or folder cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A store cannot be read.
    #[error("cannot read the store {}", .folder.display())]
    Store {
        /// Its folder.
        folder: PathBuf,
        /// Why.
        source: StoreError,
    },
    /// A `gym observe` does not answer.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// What a `gym observe` answers cannot be understood.
    #[error("{base} answers what this version does not understand")]
    Answer {
        /// Where it was asked.
        base: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Several, and one of them is a store or a URL.
    #[error("{path} is a store of its own; it cannot be read together with others")]
    Alone {
        /// The first that has to be alone.
        path: String,
    },
}

/// Spans to ask.
pub struct Source {
    kind: Kind,
    /// Older traces that were left out where all were wanted.
    left_out: Cell<u64>,
}

enum Kind {
    Files {
        paths: Vec<PathBuf>,
        traces: Arc<Traces>,
        /// In order of time; made for the first command that wants them.
        rows: OnceCell<Vec<RolloutRow>>,
        report: ReadReport,
    },
    Store {
        folder: PathBuf,
        snapshot: Box<Snapshot>,
    },
    Remote(Remote),
}

/// A query and its bounds.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The query as it was typed.
    pub text: &'a str,
    /// Only spans that started in so long a time until now.
    pub last_nanos: Option<u64>,
    /// Traces at most.
    pub limit: usize,
    /// Length of a step of time; zero is one step for all.
    pub step_nanos: u64,
}

/// What a query came to.
#[derive(Debug)]
pub enum Answer {
    /// Numbers.
    Measured(Measured),
    /// Traces.
    Found(Search),
}

/// What is answered to a question for rollouts.
#[derive(Deserialize)]
struct Rollouts {
    rollouts: Vec<RolloutRow>,
}

impl Source {
    /// Opens what was named and has it asked. What is damaged in it, so that the answer lacks it, is told whatever the
    /// answer is, and an answer that lacks something is not a plain yes.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or the question fails.
    pub fn ask(
        paths: &[PathBuf],
        printer: &Printer,
        question: impl FnOnce(&Self) -> Result<ExitStatus, anyhow::Error>,
    ) -> Result<ExitStatus, anyhow::Error> {
        let source = Self::open(paths)?;
        let answered = question(&source);
        let damage = source.damage();
        for damaged in &damage {
            printer.warn(&format!("the answer lacks what was in {damaged}"));
        }
        match answered? {
            ExitStatus::Done if !damage.is_empty() => Ok(ExitStatus::Negative),
            status => Ok(status),
        }
    }

    /// What was found to be damaged so far, a file and its fault each.
    fn damage(&self) -> Vec<String> {
        match &self.kind {
            Kind::Files { .. } => Vec::new(),
            Kind::Store { snapshot, .. } => {
                snapshot.damage().iter().map(ToString::to_string).collect()
            }
            Kind::Remote(remote) => {
                #[derive(Deserialize)]
                struct Status {
                    damage: Vec<String>,
                }
                // One that was just asked and does not answer any more has said what it could.
                let status = remote.json("status", &[]).ok();
                let status = status.and_then(|it| serde_json::from_slice::<Status>(&it.body).ok());
                status.map(|status| status.damage).unwrap_or_default()
            }
        }
    }

    /// Opens what was named.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn open(paths: &[PathBuf]) -> Result<Self, SourceError> {
        for path in paths {
            let kind = match Remote::parse(&path.to_string_lossy()) {
                Some(remote) => Some(Kind::Remote(remote?)),
                None if Store::is_in(path) => Some(Self::store(path)?),
                None => None,
            };
            if let Some(kind) = kind {
                if paths.len() > 1 {
                    return Err(SourceError::Alone { path: path.display().to_string() });
                }
                return Ok(Self { kind, left_out: Cell::new(0) });
            }
        }
        Ok(Self::of(read(paths)?, paths.to_vec()))
    }

    fn store(folder: &Path) -> Result<Kind, SourceError> {
        let store = Store::open_read_only(folder)
            .map_err(|source| SourceError::Store { folder: folder.to_owned(), source })?;
        Ok(Kind::Store { folder: folder.to_owned(), snapshot: Box::new(store.snapshot()) })
    }

    /// Of what was read.
    pub fn of(Reading { spans, report }: Reading, paths: Vec<PathBuf>) -> Self {
        let traces = Traces::assemble(spans);
        let rows = OnceCell::new();
        let kind = Kind::Files { paths, traces: Arc::new(traces), rows, report };
        Self { kind, left_out: Cell::new(0) }
    }

    /// The rollouts that are meant, in order of time.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub fn rows(&self, filter: &Filter) -> Result<Vec<RolloutRow>, SourceError> {
        match &self.kind {
            Kind::Files { rows, traces, .. } => {
                let rows = rows.get_or_init(|| {
                    let mut rows = rows_of(traces, None);
                    rows.sort_by_key(|row| (row.start_nanos, row.trace_id, row.root_span_id));
                    rows
                });
                Ok(rows.iter().filter(|row| filter.matches(row)).cloned().collect())
            }
            Kind::Store { folder, snapshot } => {
                snapshot.rollout_rows(filter).map_err(unreadable(folder))
            }
            Kind::Remote(remote) => {
                let answered = remote.json("rollouts", &borrowed(&parameters(filter)))?;
                let answered: Rollouts =
                    serde_json::from_slice(&answered.body).map_err(misunderstood(remote))?;
                Ok(answered.rollouts)
            }
        }
    }

    /// Traces, these among them, whole.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub fn traces(&self, ids: impl Iterator<Item = TraceId>) -> Result<Arc<Traces>, SourceError> {
        let mut known = HashSet::new();
        let ids = ids.filter(|id| known.insert(*id));
        match &self.kind {
            Kind::Files { traces, .. } => Ok(Arc::clone(traces)),
            Kind::Store { folder, snapshot } => {
                let ids: Vec<TraceId> = ids.collect();
                Ok(assembled(snapshot.traces(&ids).map_err(unreadable(folder))?))
            }
            Kind::Remote(remote) => {
                let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
                let mut spans = Vec::new();
                for ids in ids.chunks(IDS_OF_A_QUESTION) {
                    let named: Vec<(&str, &str)> =
                        ids.iter().map(|id| ("id", id.as_str())).collect();
                    let answered = remote.spans("traces", &named)?;
                    spans.extend(decoded(remote, &answered.body)?);
                }
                Ok(assembled(spans))
            }
        }
    }

    /// All traces; of a store the newest.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub fn all(&self) -> Result<Arc<Traces>, SourceError> {
        self.newest(ALL)
    }

    /// As many as are of use in a list: all of files, else the newest.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub fn listed(&self) -> Result<Arc<Traces>, SourceError> {
        self.newest(LISTED)
    }

    fn newest(&self, (most, most_spans): (usize, u64)) -> Result<Arc<Traces>, SourceError> {
        match &self.kind {
            Kind::Files { traces, .. } => Ok(Arc::clone(traces)),
            Kind::Store { folder, snapshot } => {
                let rows = snapshot.trace_rows().map_err(unreadable(folder))?;
                let mut spans = 0;
                let newest = rows.iter().rev().take(most).take_while(|row| {
                    let before = spans;
                    spans += u64::from(row.spans);
                    before == 0 || spans <= most_spans
                });
                let newest: Vec<TraceId> = newest.map(|row| row.trace_id).collect();
                self.left_out.set((rows.len() - newest.len()) as u64);
                self.traces(newest.into_iter())
            }
            Kind::Remote(remote) => {
                let answered = remote.spans("traces", &[("newest", &most.to_string())])?;
                self.left_out.set(answered.left_out);
                Ok(assembled(decoded(remote, &answered.body)?))
            }
        }
    }

    /// Ids of traces that begin with these hex digits: all of them in files, else no more than a few.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub fn trace_ids(&self, prefix: &str) -> Result<Vec<TraceId>, SourceError> {
        const FEW: usize = 100;
        match &self.kind {
            Kind::Files { traces, .. } => {
                let ids = traces.traces.iter().map(|trace| trace.trace_id);
                Ok(ids.filter(|id| id.to_string().starts_with(prefix)).collect())
            }
            Kind::Store { folder, snapshot } if prefix.is_empty() => {
                let rows = snapshot.trace_rows().map_err(unreadable(folder))?;
                Ok(rows.iter().rev().take(FEW).map(|row| row.trace_id).collect())
            }
            Kind::Store { folder, snapshot } => {
                snapshot.find_by_prefix(prefix, FEW).map_err(unreadable(folder))
            }
            Kind::Remote(remote) => {
                #[derive(Deserialize)]
                struct Ids {
                    ids: Vec<String>,
                }
                let answered = remote.json("trace-ids", &[("prefix", prefix)])?;
                let found: Ids =
                    serde_json::from_slice(&answered.body).map_err(misunderstood(remote))?;
                Ok(found.ids.iter().filter_map(|id| TraceId::parse(id)).collect())
            }
        }
    }

    /// What a query finds or measures.
    ///
    /// # Errors
    ///
    /// When spans cannot be read.
    pub fn search(&self, query: &Query, asked: &Asked<'_>) -> Result<Answer, SourceError> {
        let now_nanos = SystemClock.now_nanos();
        let from_nanos = asked.last_nanos.map_or(0, |last| now_nanos.saturating_sub(last));
        match &self.kind {
            Kind::Files { traces, .. } => {
                let spans = traces.spans.iter().map(|span| span.raw.clone()).collect();
                let Ok(answer) = answer(query, asked, from_nanos, &Loaded::new(spans, now_nanos));
                Ok(answer)
            }
            Kind::Store { folder, snapshot } => {
                answer(query, asked, from_nanos, &Stored::new(snapshot, now_nanos))
                    .map_err(unreadable(folder))
            }
            Kind::Remote(remote) => {
                let numbers = [
                    ("start_nanos", from_nanos),
                    ("limit", asked.limit as u64),
                    ("step_nanos", asked.step_nanos),
                ]
                .map(|(name, number)| (name, number.to_string()));
                let mut question = vec![("q", asked.text)];
                question.extend(numbers.iter().map(|(name, number)| (*name, number.as_str())));
                let answered = remote.json("search", &question)?;
                let read = |body: &[u8]| {
                    Ok::<Answer, serde_json::Error>(if query.metric().is_some() {
                        Answer::Measured(serde_json::from_slice(body)?)
                    } else {
                        Answer::Found(serde_json::from_slice(body)?)
                    })
                };
                read(&answered.body).map_err(misunderstood(remote))
            }
        }
    }

    /// What to answer when there is no span.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn is_empty(&self) -> Result<Option<NotFound>, SourceError> {
        if let Kind::Files { paths, traces, report, .. } = &self.kind {
            return Ok(traces.traces.is_empty().then(|| nothing_found(paths, report)));
        }
        let is_empty = self.trace_ids("")?.is_empty();
        Ok(is_empty.then(|| NotFound::NoSpans {
            paths: self.name(),
            report: match self.damage().is_empty() {
                true => "nothing has been received yet",
                false => "what was received cannot be read",
            }
            .to_owned(),
        }))
    }

    fn name(&self) -> String {
        match &self.kind {
            Kind::Files { paths, .. } => {
                let names: Vec<String> =
                    paths.iter().map(|path| path.display().to_string()).collect();
                names.join(", ")
            }
            Kind::Store { folder, .. } => folder.display().to_string(),
            Kind::Remote(remote) => remote.base(),
        }
    }

    /// What was read, as a sentence.
    pub fn sentence(&self) -> String {
        let mut text = self.read_text();
        let left_out = usize::try_from(self.left_out.get()).unwrap_or(usize::MAX);
        if left_out > 0 {
            text.push_str(&format!(
                "; left out {}",
                counted(left_out, "older trace", "older traces")
            ));
        }
        text
    }

    fn read_text(&self) -> String {
        match &self.kind {
            Kind::Files { report, .. } => report.sentence(),
            Kind::Store { folder, snapshot } => {
                let stored = snapshot.manifest().spans();
                let fresh = snapshot.memory_span_count();
                let stored = usize::try_from(stored).unwrap_or(usize::MAX);
                let mut text = format!(
                    "read the store {}: {} in files",
                    folder.display(),
                    counted(stored, "span", "spans")
                );
                if fresh > 0 {
                    text.push_str(&format!(", {fresh} in its log"));
                }
                let lost = snapshot.manifest().removed.segments_damaged;
                if lost > 0 {
                    let lost = usize::try_from(lost).unwrap_or(usize::MAX);
                    let lost = counted(lost, "damaged segment", "damaged segments");
                    text.push_str(&format!("; {lost} set aside"));
                }
                text
            }
            Kind::Remote(remote) => format!("asked {}", remote.base()),
        }
    }

    /// What was read, as JSON.
    pub fn read_value(&self) -> Value {
        match &self.kind {
            Kind::Files { report, .. } => report_value(report),
            Kind::Store { folder, snapshot } => json!({
                "store": folder,
                "spans_in_files": snapshot.manifest().spans(),
                "spans_in_log": snapshot.memory_span_count(),
                "damage": self.damage(),
            }),
            Kind::Remote(remote) => json!({ "asked": remote.base(), "damage": self.damage() }),
        }
    }
}

fn answer<S: query::Source>(
    query: &Query,
    asked: &Asked<'_>,
    from_nanos: u64,
    source: &S,
) -> Result<Answer, S::Error> {
    let starts = from_nanos..u64::MAX;
    let window = Window { range: starts.clone(), step_nanos: asked.step_nanos };
    if let Some(measured) = query.measure(source, &window)? {
        return Ok(Answer::Measured(measured));
    }
    let options = SearchOptions { starts, limit: asked.limit, ..SearchOptions::default() };
    query.search(source, &options).map(Answer::Found)
}

fn unreadable(folder: &Path) -> impl FnOnce(StoreError) -> SourceError + use<> {
    let folder = folder.to_owned();
    |source| SourceError::Store { folder, source }
}

fn misunderstood<E: std::error::Error + Send + Sync + 'static>(
    remote: &Remote,
) -> impl FnOnce(E) -> SourceError + use<E> {
    let base = remote.base();
    |source| SourceError::Answer { base, source: source.into() }
}

fn decoded(remote: &Remote, body: &bytes::Bytes) -> Result<Vec<RawSpan>, SourceError> {
    Ok(raw::decode(body, 0).map_err(misunderstood::<DecodeError>(remote))?.spans)
}

fn assembled(spans: Vec<RawSpan>) -> Arc<Traces> {
    let mut reader = Reader::default();
    // What was stored has been checked before.
    Arc::new(Traces::assemble(spans.into_iter().filter_map(|raw| reader.read(raw).ok()).collect()))
}

/// A filter as a question has it.
fn parameters(filter: &Filter) -> Vec<(&'static str, String)> {
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let all = [
        ("run", filter.run.clone()),
        ("task", filter.task.map(|task| task.to_string())),
        ("rollout", filter.rollout.clone()),
        ("trace", filter.trace.clone()),
        ("agent", filter.agent.clone()),
        ("outcome", filter.outcome.clone()),
        ("min_duration_nanos", number(filter.min_duration_nanos)),
        ("max_duration_nanos", number(filter.max_duration_nanos)),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn borrowed<'a>(parameters: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    parameters.iter().map(|(name, value)| (*name, value.as_str())).collect()
}
