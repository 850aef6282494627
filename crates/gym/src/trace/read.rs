//! Files, directories and standard input to spans.
//!
//! Lines are taken one by one, so that a log of gigabytes needs memory for its spans only.
//! A file that is one pretty-printed document is read whole.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lens_store::raw::{Origin, RawSpan};
use lens_store::trace::{self, Span};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Deserializer, Map, Value};

use super::console_line::{ConsoleRecord, Sorted, Source};
use super::{encode, otlp_json};

/// Longest line and largest multi-line document that are looked at.
const MAX_RECORD_BYTES: u64 = 256 * 1024 * 1024;
/// Deepest directory that is entered.
const MAX_DIRECTORY_DEPTH: usize = 16;
/// Files of a directory that may hold spans.
const EXTENSIONS: [&str; 5] = ["log", "jsonl", "ndjson", "json", "txt"];

/// Why paths could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Nothing is there.
    #[error("no such file or directory: {}", .path.display())]
    Missing {
        /// As it was given.
        path: PathBuf,
    },
    /// It is there, but cannot be read.
    #[error("cannot read {}", .path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A directory without any file that could hold spans.
    #[error("no .log, .jsonl, .ndjson, .json or .txt file in {}", .path.display())]
    EmptyDirectory {
        /// As it was given.
        path: PathBuf,
    },
}

/// What was found, and what was passed over.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ReadReport {
    /// Files, standard input included.
    pub files: usize,
    /// Lines, or documents of a file that has no lines.
    pub records: usize,
    /// Different spans.
    pub spans: usize,
    /// Spans that were there before.
    pub duplicates: usize,
    /// Metric records.
    pub metrics: usize,
    /// Log records.
    pub logs: usize,
    /// Other text.
    pub other: usize,
    /// Records that looked like spans and were not, with the place of the first.
    pub broken: usize,
    /// Where the first broken record is: `file:line`.
    pub first_broken: Option<String>,
    /// Last lines without an end that could not be read: a writer was cut off.
    pub torn: usize,
}

impl ReadReport {
    /// One line about what was read.
    pub fn sentence(&self) -> String {
        let mut text = format!(
            "read {} from {}",
            counted(self.spans, "span", "spans"),
            counted(self.files, "file", "files")
        );
        let passed: Vec<String> = [
            (self.duplicates, "duplicate span", "duplicate spans"),
            (self.metrics, "metric record", "metric records"),
            (self.logs, "log record", "log records"),
            (self.other, "other line", "other lines"),
            (self.broken, "unreadable record", "unreadable records"),
            (self.torn, "torn last line", "torn last lines"),
        ]
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, many)| counted(count, one, many))
        .collect();
        if !passed.is_empty() {
            text.push_str("; skipped ");
            text.push_str(&passed.join(", "));
        }
        if let Some(place) = &self.first_broken {
            text.push_str(&format!(" (first at {place})"));
        }
        text
    }
}

/// `1 span`, `2 spans`.
pub fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Spans and the report about them.
#[derive(Debug, Default)]
pub struct Reading {
    /// In the order of their ids, each once.
    pub spans: Vec<Span>,
    /// What was found.
    pub report: ReadReport,
}

/// Reads files, directories (their files that may hold spans, deeper ones too) and `-`.
pub fn read(paths: &[PathBuf]) -> Result<Reading, ReadError> {
    let mut intake = Intake::default();
    let mut seen = HashSet::new();
    for path in paths {
        if path.as_os_str() == "-" {
            let unreadable = |source| ReadError::Unreadable { path: path.clone(), source };
            intake.stream(io::stdin().lock(), "standard input").map_err(unreadable)?;
            continue;
        }
        for file in files_of(path)? {
            // A file named twice, or inside a directory that is named too, is read once.
            let identity = file.canonicalize().unwrap_or_else(|_| file.clone());
            if !seen.insert(identity) {
                continue;
            }
            let unreadable = |source| ReadError::Unreadable { path: file.clone(), source };
            let reader =
                BufReader::with_capacity(256 * 1024, File::open(&file).map_err(unreadable)?);
            intake.stream(reader, &file.display().to_string()).map_err(unreadable)?;
        }
    }
    Ok(intake.finish())
}

fn files_of(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(ReadError::Missing { path: path.to_owned() });
        }
        Err(source) => return Err(ReadError::Unreadable { path: path.to_owned(), source }),
    };
    if !metadata.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    let mut directories = vec![(path.to_owned(), 0)];
    while let Some((directory, depth)) = directories.pop() {
        let unreadable = |source| ReadError::Unreadable { path: directory.clone(), source };
        for entry in std::fs::read_dir(&directory).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let path = entry.path();
            // Links to directories are not followed: they may lead back up.
            let kind = entry.file_type().map_err(unreadable)?;
            if kind.is_dir() && depth < MAX_DIRECTORY_DEPTH {
                directories.push((path, depth + 1));
            } else if path.extension().is_some_and(|e| EXTENSIONS.iter().any(|known| e == *known))
                && path.is_file()
            {
                files.push(path);
            }
        }
    }
    if files.is_empty() {
        return Err(ReadError::EmptyDirectory { path: path.to_owned() });
    }
    files.sort();
    Ok(files)
}

/// A scope of a process: name, version, and the origin of its spans.
type KnownScope = (Box<str>, Box<str>, Arc<Origin>);

/// Collects spans, sharing what is equal among them.
#[derive(Default)]
struct Intake {
    spans: Vec<Span>,
    reader: trace::Reader,
    /// By the text of the resource.
    origins: HashMap<Box<str>, Vec<KnownScope>>,
    report: ReadReport,
}

impl Intake {
    fn finish(mut self) -> Reading {
        self.report.duplicates = trace::distinct(&mut self.spans);
        self.report.spans = self.spans.len();
        Reading { spans: self.spans, report: self.report }
    }

    fn stream(&mut self, mut reader: impl BufRead, name: &str) -> io::Result<()> {
        self.report.files += 1;
        let mut head = Vec::new();
        while head.trim_ascii().is_empty() {
            if reader.by_ref().take(MAX_RECORD_BYTES).read_until(b'\n', &mut head)? == 0 {
                return Ok(());
            }
        }
        if starts_document(&head) {
            reader.take(MAX_RECORD_BYTES).read_to_end(&mut head)?;
            // Else a log whose first line was cut off.
            return if self.document(&head) { Ok(()) } else { self.lines(head.as_slice(), name) };
        }
        self.lines(head.as_slice().chain(reader), name)
    }

    fn lines(&mut self, mut reader: impl BufRead, name: &str) -> io::Result<()> {
        let mut line = Vec::new();
        for number in 1_usize.. {
            line.clear();
            if reader.by_ref().take(MAX_RECORD_BYTES).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            self.report.records += 1;
            let complete = line.last() == Some(&b'\n');
            match self.line(line.trim_ascii()) {
                Line::Read => {}
                Line::Other => self.report.other += 1,
                Line::Broken if !complete => self.report.torn += 1,
                Line::Broken => self.broken(|| format!("{name}:{number}")),
            }
        }
        Ok(())
    }

    fn broken(&mut self, place: impl FnOnce() -> String) {
        self.report.broken += 1;
        self.report.first_broken.get_or_insert_with(place);
    }

    fn line(&mut self, line: &[u8]) -> Line {
        // `(instance) {…}` and other text before the record.
        let Some(start) = line.iter().position(|byte| *byte == b'{') else { return Line::Other };
        let json = &line[start..];
        let Ok(text) = std::str::from_utf8(json) else {
            return if looks_like_span(json) { Line::Broken } else { Line::Other };
        };
        if !looks_like_telemetry(json) {
            return Line::Other;
        }
        match self.values(text) {
            Ok(read) => read,
            Err(_) => {
                // A writer that died mid-line and one that went on where it stopped.
                let restart = ["{\"type\":\"span\"", "{\"name\": \""]
                    .iter()
                    .filter_map(|start| text[1..].rfind(start))
                    .max();
                if let Some(restart) = restart
                    && matches!(self.values(&text[1 + restart..]), Ok(Line::Read))
                {
                    self.report.torn += 1;
                    return Line::Read;
                }
                if looks_like_span(json) { Line::Broken } else { Line::Other }
            }
        }
    }

    /// All JSON values of a line; usually one.
    fn values(&mut self, text: &str) -> Result<Line, serde_json::Error> {
        if text.contains("\"resourceSpans\"") {
            let mut found = Line::Other;
            for document in Deserializer::from_str(text).into_iter::<&RawValue>() {
                found = found.and(self.otlp(document?.get()));
            }
            return Ok(found);
        }
        if text.starts_with("{\"traces\":") && self.document(text.as_bytes()) {
            return Ok(Line::Read);
        }
        let mut found = Line::Other;
        for record in Deserializer::from_str(text).into_iter::<ConsoleRecord<'_>>() {
            found = found.and(self.record(record?));
        }
        Ok(found)
    }

    fn record(&mut self, record: ConsoleRecord<'_>) -> Line {
        match record.sort() {
            Sorted::Span(draft, source) => {
                let origin = self.origin(&source);
                self.add(draft.encode(origin))
            }
            Sorted::Metric => {
                self.report.metrics += 1;
                Line::Read
            }
            Sorted::Log => {
                self.report.logs += 1;
                Line::Read
            }
            Sorted::BrokenSpan => Line::Broken,
            Sorted::Other => Line::Other,
        }
    }

    fn otlp(&mut self, document: &str) -> Line {
        let Ok(decoded) = otlp_json::decode(document) else { return Line::Broken };
        let mut found = if decoded.refused > 0 { Line::Broken } else { Line::Read };
        for span in decoded.spans {
            found = found.and(self.add(span));
        }
        found
    }

    /// A file that is no sequence of lines: pretty-printed values, or an array of them.
    /// False, and nothing taken, when it is not JSON to its end.
    fn document(&mut self, bytes: &[u8]) -> bool {
        let values = Deserializer::from_slice(bytes).into_iter::<Value>();
        let Ok(mut pending) = values.collect::<Result<Vec<Value>, _>>() else { return false };
        pending.reverse();
        while let Some(value) = pending.pop() {
            match value {
                Value::Array(values) => pending.extend(values.into_iter().rev()),
                // What `gym trace show --json` prints.
                Value::Object(mut fields) if fields.contains_key("traces") => {
                    pending.extend(fields.remove("traces"));
                }
                Value::Object(mut fields) if fields.contains_key("spans") => {
                    pending.extend(fields.remove("spans"));
                }
                value => {
                    self.report.records += 1;
                    match self.values(&value.to_string()) {
                        Ok(Line::Read) => {}
                        Ok(Line::Other) => self.report.other += 1,
                        Ok(Line::Broken) | Err(_) => self.report.broken += 1,
                    }
                }
            }
        }
        true
    }

    fn origin(&mut self, source: &Source<'_>) -> Arc<Origin> {
        let scopes = match self.origins.get_mut(source.resource) {
            Some(known) => known,
            None => self.origins.entry(source.resource.into()).or_default(),
        };
        let (name, version) = (&*source.scope_name, &*source.scope_version);
        let is_known = |known: &&KnownScope| (&*known.0, &*known.1) == (name, version);
        if let Some((.., origin)) = scopes.iter().find(is_known) {
            return Arc::clone(origin);
        }
        let map: Map<String, Value> = serde_json::from_str(source.resource).unwrap_or_default();
        let origin = Arc::new(encode::origin(&map, Some((name, version))));
        scopes.push((name.into(), version.into(), Arc::clone(&origin)));
        origin
    }

    fn add(&mut self, raw: RawSpan) -> Line {
        match self.reader.read(raw) {
            Ok(span) => {
                self.spans.push(span);
                Line::Read
            }
            Err(_) => Line::Broken,
        }
    }
}

enum Line {
    Read,
    Other,
    Broken,
}

impl Line {
    /// What a line with two values is.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Broken, _) | (_, Self::Broken) => Self::Broken,
            (Self::Read, _) | (_, Self::Read) => Self::Read,
            _ => Self::Other,
        }
    }
}

fn looks_like_span(json: &[u8]) -> bool {
    contains(json, b"\"trace_id\"") && contains(json, b"\"span_id\"")
        || contains(json, b"\"resourceSpans\"")
}

fn looks_like_telemetry(json: &[u8]) -> bool {
    looks_like_span(json)
        || contains(json, b"\"resource_metrics\"")
        || contains(json, b"\"type\":\"metric\"")
        || contains(json, b"\"type\":\"log\"")
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    memchr::memmem::find(haystack, needle).is_some()
}

/// Whether a first line opens a value that goes on in the next line, or an array of records.
fn starts_document(line: &[u8]) -> bool {
    let text = line.trim_ascii();
    match text.first() {
        Some(b'[') => text == b"[" || serde_json::from_slice::<Vec<&RawValue>>(text).is_ok(),
        // Long lines are records, and need not be parsed twice to know.
        Some(b'{') if text.len() < 4096 => {
            serde_json::from_slice::<IgnoredAny>(text).is_err_and(|error| error.is_eof())
        }
        _ => false,
    }
}
