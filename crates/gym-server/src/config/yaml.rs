//! YAML text to a value, with the place of every node kept for messages.

use std::collections::HashMap;
use std::sync::Arc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput, Tag};
use serde_json::{Map, Value};

use super::error::{ConfigError, Origin};
use super::marks::{Marks, Path};
use super::scalar::{resolve_plain, resolve_tagged};

const MAX_DEPTH: usize = 100;
const MAX_NODES: usize = 1_000_000;

/// A parsed document and the places of its nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Document {
    pub(super) value: Value,
    pub(super) marks: Marks,
}

/// Parses one document; an empty one is `null`.
pub(super) fn parse(text: &str, file: &str) -> Result<Document, ConfigError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut composer = Composer {
        parser: Parser::new_from_str(text),
        file: file.into(),
        anchors: HashMap::new(),
        nodes: 0,
    };
    let root = composer.document()?;
    let mut marks = Marks::default();
    let value = root
        .map_or(Value::Null, |node| node.into_value(&composer.file, &mut Path::root(), &mut marks));
    Ok(Document { value, marks })
}

/// Parses a config file: a mapping, or nothing.
pub(super) fn parse_config(text: &str, file: &str) -> Result<Document, ConfigError> {
    let mut document = parse(text, file)?;
    match document.value {
        Value::Object(_) => {}
        Value::Null => document.value = Value::Object(Map::new()),
        _ => {
            return Err(ConfigError::Yaml {
                at: Origin::File { path: file.into(), line: 1, column: 1 },
                reason: "expected a mapping at the top of a config file".to_owned(),
                hint: Some("write `key: value` lines"),
            });
        }
    }
    Ok(document)
}

#[derive(Clone)]
struct Node {
    line: u32,
    column: u32,
    content: Content,
}

#[derive(Clone)]
enum Content {
    Scalar(Value),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Node {
    fn into_value(self, file: &Arc<str>, path: &mut Path, marks: &mut Marks) -> Value {
        let origin = Origin::File { path: file.clone(), line: self.line, column: self.column };
        marks.set(path, origin);
        match self.content {
            Content::Scalar(value) => value,
            Content::List(items) => items
                .into_iter()
                .enumerate()
                .map(|(index, item)| {
                    path.with_index(index, |path| item.into_value(file, path, marks))
                })
                .collect(),
            Content::Map(entries) => entries
                .into_iter()
                .map(|(key, node)| {
                    let value = path.with_key(&key, |path| node.into_value(file, path, marks));
                    (key, value)
                })
                .collect::<Map<_, _>>()
                .into(),
        }
    }
}

struct Composer<'a> {
    parser: Parser<'a, StrInput<'a>>,
    file: Arc<str>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl<'a> Composer<'a> {
    fn at(&self, mark: Marker) -> Origin {
        let (line, column) = place(mark);
        Origin::File { path: self.file.clone(), line, column }
    }

    fn fail<T>(
        &self,
        mark: Marker,
        reason: impl Into<String>,
        hint: Option<&'static str>,
    ) -> Result<T, ConfigError> {
        Err(ConfigError::Yaml { at: self.at(mark), reason: reason.into(), hint })
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), ConfigError> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => {
                let reason = format!("malformed YAML: {}", error.info());
                self.fail(*error.marker(), reason, advice(error.info()))
            }
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn document(&mut self) -> Result<Option<Node>, ConfigError> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(root),
                Event::DocumentStart(_) if root.is_some() => {
                    return self.fail(
                        span.start,
                        "expected a single document, found another",
                        Some("split the file at the `---` line"),
                    );
                }
                Event::Nothing
                | Event::StreamStart
                | Event::DocumentStart(_)
                | Event::DocumentEnd => {}
                event => root = Some(self.node(event, span, 0)?),
            }
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, ConfigError> {
        if depth > MAX_DEPTH {
            return self.fail(span.start, format!("nested deeper than {MAX_DEPTH} levels"), None);
        }
        self.count(1, span.start)?;
        let (anchor, content) = match event {
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    return self.fail(span.start, "an alias inside its own anchor", None);
                };
                self.count(size(&node), span.start)?;
                return Ok(node);
            }
            Event::Scalar(text, style, anchor, tag) => {
                (anchor, Content::Scalar(self.scalar(&text, style, tag.as_deref(), span.start)?))
            }
            Event::SequenceStart(anchor, _) => {
                let mut items = Vec::new();
                loop {
                    let (event, span) = self.next()?;
                    if event == Event::SequenceEnd {
                        break;
                    }
                    items.push(self.node(event, span, depth + 1)?);
                }
                (anchor, Content::List(items))
            }
            Event::MappingStart(anchor, _) => (anchor, Content::Map(self.mapping(depth)?)),
            _ => return self.fail(span.start, "malformed YAML: unexpected end", None),
        };
        let (line, column) = place(span.start);
        let node = Node { line, column, content };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn count(&mut self, nodes: usize, mark: Marker) -> Result<(), ConfigError> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            return self.fail(
                mark,
                format!("more than {MAX_NODES} values after expanding aliases"),
                None,
            );
        }
        Ok(())
    }

    fn mapping(&mut self, depth: usize) -> Result<Vec<(String, Node)>, ConfigError> {
        let mut own: Vec<(String, Node)> = Vec::new();
        let mut lines: HashMap<String, usize> = HashMap::new();
        let mut merged: Vec<(String, Node)> = Vec::new();
        loop {
            let (event, span) = self.next()?;
            let (key, plain) = match event {
                Event::MappingEnd => break,
                Event::Scalar(key, style, _, _) => (key.into_owned(), style == ScalarStyle::Plain),
                _ => return self.fail(span.start, "expected a string as key", None),
            };
            let (event, value_span) = self.next()?;
            let mut node = self.node(event, value_span, depth + 1)?;
            if key == "<<" && plain {
                self.merge_key(node, &mut merged, value_span.start)?;
                continue;
            }
            if let Some(first) = lines.insert(key.clone(), span.start.line()) {
                return self.fail(
                    span.start,
                    format!("duplicate key {key:?}, first on line {first}"),
                    Some("keep one of the two, or rename one"),
                );
            }
            // A block is best pointed at by its key.
            if !matches!(node.content, Content::Scalar(_)) {
                (node.line, node.column) = place(span.start);
            }
            own.push((key, node));
        }
        if merged.is_empty() {
            return Ok(own);
        }
        for (key, node) in own {
            match merged.iter_mut().find(|(merged_key, _)| *merged_key == key) {
                Some(entry) => entry.1 = node,
                None => merged.push((key, node)),
            }
        }
        Ok(merged)
    }

    fn merge_key(
        &self,
        node: Node,
        merged: &mut Vec<(String, Node)>,
        mark: Marker,
    ) -> Result<(), ConfigError> {
        let sources = match node.content {
            Content::List(items) => items,
            content => vec![Node { content, ..node }],
        };
        for source in sources {
            let Content::Map(entries) = source.content else {
                return self.fail(
                    mark,
                    "expected a mapping, or a list of mappings, after `<<:`",
                    None,
                );
            };
            for (key, node) in entries {
                if !merged.iter().any(|(known, _)| *known == key) {
                    merged.push((key, node));
                }
            }
        }
        Ok(())
    }

    fn scalar(
        &self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Tag>,
        mark: Marker,
    ) -> Result<Value, ConfigError> {
        match tag {
            Some(tag) if is_supported(tag) => match resolve_tagged(&tag.suffix, text) {
                Some(value) => Ok(value),
                None => self.fail(mark, format!("{text:?} is no !!{}", tag.suffix), None),
            },
            Some(tag) if !tag.suffix.is_empty() => {
                self.fail(mark, format!("the tag {tag} is not supported"), Some("remove the tag"))
            }
            _ if style == ScalarStyle::Plain => Ok(resolve_plain(text)),
            _ => Ok(Value::String(text.to_owned())),
        }
    }
}

/// Line and column, both from 1.
fn place(mark: Marker) -> (u32, u32) {
    let narrow = |position: usize| u32::try_from(position).unwrap_or(u32::MAX);
    (narrow(mark.line()), narrow(mark.col().saturating_add(1)))
}

fn is_supported(tag: &Tag) -> bool {
    let types = ["str", "int", "float", "bool", "null"];
    tag.is_yaml_core_schema() && types.contains(&tag.suffix.as_str())
}

/// The usual cause of a scanner's complaint.
fn advice(complaint: &str) -> Option<&'static str> {
    if complaint.starts_with("mapping values") {
        Some("quote a value that contains `: `")
    } else if complaint.starts_with("tabs") {
        Some("indent with spaces")
    } else if complaint.contains("unknown anchor") {
        Some("quote a value that starts with `*`")
    } else if complaint.contains("unexpected end of stream") || complaint.contains("expected ','") {
        Some("close the quote or bracket that opens here")
    } else {
        None
    }
}

fn size(node: &Node) -> usize {
    match &node.content {
        Content::Scalar(_) => 1,
        Content::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        Content::Map(entries) => 1 + entries.iter().map(|(_, node)| size(node)).sum::<usize>(),
    }
}
