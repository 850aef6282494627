//! What a field may hold: the quick test, and the slow one that names every fault or coerces as pydantic does.

use std::borrow::Cow;

use super::detail::{Detail, Loc};
use super::item;
use super::json::{self, Cursor, Kind, kind};

/// The shape of one field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Shape {
    Bool,
    Int,
    Float,
    Text,
    TextList,
    TextMap,
    Map,
    List,
    MapList,
    Any,
    OneOf(&'static [&'static str]),
    OnlyFalse,
    Input,
    Tools,
    ToolChoice,
}

/// The shape of `include`.
pub(super) const INCLUDE: Shape = Shape::TextList;

const INCLUDABLE: &[&str] = &[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
];

const TOOL_CHOICES: &[&str] = &["none", "auto", "required"];

impl Shape {
    /// Whether `raw` has this shape as it is, without coercion.
    pub(super) fn holds(self, raw: &str) -> bool {
        match self {
            Shape::Any => true,
            Shape::Bool => kind(raw) == Kind::Bool,
            Shape::Int => kind(raw) == Kind::Number && is_integer(raw),
            Shape::Float => kind(raw) == Kind::Number,
            Shape::Text => kind(raw) == Kind::String,
            Shape::Map => kind(raw) == Kind::Object,
            Shape::List => kind(raw) == Kind::Array,
            Shape::OnlyFalse => raw == "false",
            Shape::OneOf(options) => {
                json::string(raw).is_some_and(|text| options.contains(&&*text))
            }
            Shape::TextList => {
                every_element(raw, |element| Shape::OneOf(INCLUDABLE).holds(element))
            }
            Shape::MapList => every_element(raw, |element| kind(element) == Kind::Object),
            Shape::TextMap => json::members(raw).is_some_and(|mut all| {
                all.all(|entry| entry.is_ok_and(|(_, value)| kind(value) == Kind::String))
            }),
            Shape::Input => kind(raw) == Kind::String || every_element(raw, item::is_valid),
            Shape::Tools => every_element(raw, is_tool),
            Shape::ToolChoice => Shape::OneOf(TOOL_CHOICES).holds(raw) || has_type(raw),
        }
    }

    /// Takes the value in front, and tells whether it has this shape as it is. Lists are entered, so that a walk looks
    /// at everything once; `None` when a precise look is needed.
    pub(super) fn take<'a>(self, cursor: &mut Cursor<'a>) -> Option<(&'a str, bool)> {
        let take_element = match self {
            Shape::Input => item::take,
            Shape::Tools => take_tool,
            Shape::MapList => take_map,
            _ => {
                let value = cursor.value()?;
                return Some((value, self.holds(value)));
            }
        };
        if cursor.peek() != b'[' {
            let value = cursor.value()?;
            return Some((value, self == Shape::Input && kind(value) == Kind::String));
        }
        let start = cursor.at();
        let mut holds = true;
        cursor.enter(b'[')?;
        let mut first = true;
        while cursor.element(&mut first)? {
            holds &= take_element(cursor)?;
        }
        Some((cursor.since(start), holds))
    }

    /// The slow way: what `raw` is coerced to, or every fault.
    pub(super) fn coerce(self, raw: &str, loc: &[Loc]) -> Result<Cow<'static, str>, Vec<Detail>> {
        if self.holds(raw) {
            return Ok(Cow::Owned(raw.to_owned()));
        }
        let text = json::string(raw);
        let one = |error_type, msg| Err(vec![fault(error_type, loc, msg, raw)]);
        match self {
            Shape::Any => Ok(Cow::Owned(raw.to_owned())),
            Shape::Text => one("string_type", "Input should be a valid string"),
            Shape::Map => one("dict_type", "Input should be a valid dictionary"),
            Shape::List => one("list_type", "Input should be a valid list"),
            Shape::Bool => coerce_bool(raw, text.as_deref(), loc),
            Shape::Int => coerce_int(raw, text.as_deref(), loc),
            Shape::Float => match (kind(raw), text) {
                (Kind::Bool, _) => Ok(if raw == "true" { "1.0".into() } else { "0.0".into() }),
                (_, Some(text)) => match text.trim().parse::<f64>() {
                    Ok(number) if number.is_finite() => Ok(format!("{number:?}").into()),
                    _ => one(
                        "float_parsing",
                        "Input should be a valid number, unable to parse string as a number",
                    ),
                },
                _ => one("float_type", "Input should be a valid number"),
            },
            Shape::OnlyFalse => match raw {
                "0" | "0.0" => Ok("false".into()),
                _ => Err(vec![literal(loc, "False".into(), raw)]),
            },
            Shape::OneOf(options) => Err(vec![literal(loc, expected(options), raw)]),
            Shape::TextList => each_element(raw, loc, |element, loc| {
                Shape::OneOf(INCLUDABLE).coerce(element, loc).err().unwrap_or_default()
            }),
            Shape::MapList => each_element(raw, loc, |element, loc| {
                Shape::Map.coerce(element, loc).err().unwrap_or_default()
            }),
            Shape::TextMap => {
                let Some(entries) = json::members(raw) else {
                    return one("dict_type", "Input should be a valid dictionary");
                };
                let faults = entries.flatten().filter_map(|(key, value)| {
                    let loc = extend(loc, [key.into_owned().into()]);
                    Shape::Text.coerce(value, &loc).err()
                });
                Err(faults.flatten().collect())
            }
            Shape::Input => Err(input_faults(raw, loc)),
            Shape::Tools => each_element(raw, loc, tool_faults),
            Shape::ToolChoice => Err(tool_choice_faults(raw, loc)),
        }
    }
}

/// Whether a number is written as an integer, or as a float without a fraction (which pydantic takes).
fn is_integer(raw: &str) -> bool {
    let (whole, fraction) = raw.split_once('.').unwrap_or((raw, "0"));
    whole.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
        && fraction.bytes().all(|byte| byte == b'0')
}

fn coerce_bool(
    raw: &str,
    text: Option<&str>,
    loc: &[Loc],
) -> Result<Cow<'static, str>, Vec<Detail>> {
    let lower = text.map(str::to_ascii_lowercase);
    match lower.as_deref().unwrap_or(raw) {
        "0" | "0.0" | "off" | "f" | "false" | "n" | "no" => Ok("false".into()),
        "1" | "1.0" | "on" | "t" | "true" | "y" | "yes" => Ok("true".into()),
        _ if matches!(kind(raw), Kind::String | Kind::Number) => Err(vec![fault(
            "bool_parsing",
            loc,
            "Input should be a valid boolean, unable to interpret input",
            raw,
        )]),
        _ => Err(vec![fault("bool_type", loc, "Input should be a valid boolean", raw)]),
    }
}

fn coerce_int(
    raw: &str,
    text: Option<&str>,
    loc: &[Loc],
) -> Result<Cow<'static, str>, Vec<Detail>> {
    match (kind(raw), text) {
        (Kind::Bool, _) => Ok(if raw == "true" { "1".into() } else { "0".into() }),
        (Kind::Number, _) => match raw.parse::<f64>() {
            Ok(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                Ok(format!("{number:.0}").into())
            }
            _ => {
                let msg = "Input should be a valid integer, got a number with a fractional part";
                Err(vec![fault("int_from_float", loc, msg, raw)])
            }
        },
        (_, Some(text)) => match text.trim().trim_start_matches('+').parse::<i128>() {
            Ok(number) => Ok(number.to_string().into()),
            Err(_) => {
                let msg = "Input should be a valid integer, unable to parse string as an integer";
                Err(vec![fault("int_parsing", loc, msg, raw)])
            }
        },
        _ => Err(vec![fault("int_type", loc, "Input should be a valid integer", raw)]),
    }
}

fn every_element(raw: &str, test: impl Fn(&str) -> bool) -> bool {
    json::elements(raw).is_some_and(|mut all| all.all(|element| element.is_ok_and(&test)))
}

fn each_element(
    raw: &str,
    loc: &[Loc],
    faults: impl Fn(&str, &[Loc]) -> Vec<Detail>,
) -> Result<Cow<'static, str>, Vec<Detail>> {
    let Some(elements) = json::elements(raw) else {
        return Err(vec![fault("list_type", loc, "Input should be a valid list", raw)]);
    };
    let all = elements
        .flatten()
        .enumerate()
        .flat_map(|(at, element)| faults(element, &extend(loc, [at.into()])));
    Err(all.collect())
}

fn has_type(raw: &str) -> bool {
    json::member(raw, "type").is_some_and(|value| kind(value) == Kind::String)
}

/// Takes a value that should be an object.
fn take_map(cursor: &mut Cursor<'_>) -> Option<bool> {
    cursor.value().map(|value| kind(value) == Kind::Object)
}

/// Takes an element of `tools`.
fn take_tool(cursor: &mut Cursor<'_>) -> Option<bool> {
    cursor.enter(b'{')?;
    let (mut is_function, mut named, mut typed) = (false, false, false);
    let mut first = true;
    while let Some(key) = cursor.member(&mut first)? {
        let value = cursor.value()?;
        match key {
            "type" => {
                typed = kind(value) == Kind::String;
                is_function = value == "\"function\"";
            }
            "name" => named = kind(value) == Kind::String,
            "parameters" if !matches!(kind(value), Kind::Object | Kind::Null) => return None,
            _ => {}
        }
    }
    Some(typed && (named || !is_function))
}

pub(super) fn is_tool(raw: &str) -> bool {
    let Some(entries) = json::members(raw) else { return false };
    let (mut is_function, mut named, mut typed) = (false, false, false);
    for (key, value) in entries.flatten() {
        match &*key {
            "type" => {
                typed = kind(value) == Kind::String;
                is_function = value == "\"function\"";
            }
            "name" => named = kind(value) == Kind::String,
            "parameters" if !matches!(kind(value), Kind::Object | Kind::Null) => return false,
            _ => {}
        }
    }
    typed && (named || !is_function)
}

fn tool_faults(raw: &str, loc: &[Loc]) -> Vec<Detail> {
    if is_tool(raw) {
        return Vec::new();
    }
    let arm = extend(loc, ["FunctionToolParam".into()]);
    if kind(raw) != Kind::Object {
        return Shape::Map.coerce(raw, &arm).err().unwrap_or_default();
    }
    let mut faults = Vec::new();
    require(&mut faults, raw, "name", Shape::Text, &arm);
    if let Some(value) = json::member(raw, "parameters").filter(|value| !json::is_null(value)) {
        faults.extend(
            Shape::Map
                .coerce(value, &extend(&arm, ["parameters".into()]))
                .err()
                .unwrap_or_default(),
        );
    }
    require(&mut faults, raw, "type", Shape::OneOf(&["function"]), &arm);
    faults
}

fn tool_choice_faults(raw: &str, loc: &[Loc]) -> Vec<Detail> {
    let words = extend(loc, ["literal['none','auto','required']".into()]);
    let mut faults = vec![literal(&words, expected(TOOL_CHOICES), raw)];
    let arm = extend(loc, ["ToolChoiceFunctionParam".into()]);
    match kind(raw) {
        Kind::Object => require(&mut faults, raw, "type", Shape::Text, &arm),
        _ => faults.extend(Shape::Map.coerce(raw, &arm).err().unwrap_or_default()),
    }
    faults
}

fn input_faults(raw: &str, loc: &[Loc]) -> Vec<Detail> {
    let words = extend(loc, ["str".into()]);
    let list = extend(loc, [item::UNION.into()]);
    let mut faults = vec![fault("string_type", &words, "Input should be a valid string", raw)];
    faults.extend(each_element(raw, &list, item::faults).err().unwrap_or_default());
    faults
}

/// Adds the faults of a required member.
pub(super) fn require(
    faults: &mut Vec<Detail>,
    object: &str,
    name: &'static str,
    shape: Shape,
    loc: &[Loc],
) {
    let loc = extend(loc, [name.into()]);
    match json::member(object, name) {
        None => faults.push(fault("missing", &loc, "Field required", object)),
        Some(value) => faults.extend(shape.coerce(value, &loc).err().unwrap_or_default()),
    }
}

pub(super) fn fault(
    error_type: &'static str,
    loc: &[Loc],
    msg: impl Into<Cow<'static, str>>,
    input: &str,
) -> Detail {
    Detail {
        error_type,
        loc: loc.to_vec(),
        msg: msg.into(),
        input: input.to_owned(),
        ctx: None,
        url: false,
    }
}

fn literal(loc: &[Loc], expected: String, raw: &str) -> Detail {
    let mut detail = fault("literal_error", loc, format!("Input should be {expected}"), raw);
    detail.ctx = Some(("expected", expected.into()));
    detail
}

/// `'a', 'b' or 'c'`
fn expected(options: &[&str]) -> String {
    let quoted: Vec<String> = options.iter().map(|option| format!("'{option}'")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

pub(super) fn extend<const N: usize>(loc: &[Loc], steps: [Loc; N]) -> Vec<Loc> {
    let mut all = loc.to_vec();
    all.extend(steps);
    all
}
