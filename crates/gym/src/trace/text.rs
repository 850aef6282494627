//! Durations, columns and colours of the text views.

use lens_store::trace::Resource;
use std::collections::{BTreeMap, BTreeSet};

use crate::printer::Printer;

/// What is drawn on.
#[derive(Debug, Clone, Copy)]
pub struct Canvas {
    /// Columns of the terminal; `None` in a pipe, where nothing is cut off.
    pub width: Option<usize>,
    /// Whether colours are understood.
    pub colour: bool,
}

impl Canvas {
    /// What stdout is.
    pub fn of(printer: &Printer) -> Self {
        Self { width: printer.width().map(usize::from), colour: printer.colours_data() }
    }

    /// A pipe or file.
    #[cfg(test)]
    pub const PLAIN: Self = Self { width: None, colour: false };

    /// Failures.
    pub fn red(&self, text: &str) -> String {
        self.paint("31", text)
    }

    /// What holds things together and says little.
    pub fn dim(&self, text: &str) -> String {
        self.paint("2", text)
    }

    /// Headings.
    pub fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Processes and bars.
    pub fn cyan(&self, text: &str) -> String {
        self.paint("36", text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// `850µs`, `4.2ms`, `31ms`, `4.21s`, `2m03s`, `1h02m`.
pub fn duration_text(nanos: u64) -> String {
    const MICRO: u64 = 1_000;
    const MILLI: u64 = 1_000_000;
    const SECOND: u64 = 1_000_000_000;
    // The bounds are where rounding would show `1000` of the smaller unit.
    if nanos < MICRO {
        return format!("{nanos}ns");
    }
    if nanos < MILLI - 500 {
        return format!("{}µs", (nanos + 500) / MICRO);
    }
    if nanos < 10 * MILLI - 50_000 {
        let tenths = (nanos + 50_000) / 100_000;
        return format!("{}.{}ms", tenths / 10, tenths % 10);
    }
    if nanos < SECOND - 500_000 {
        return format!("{}ms", (nanos + 500_000) / MILLI);
    }
    if nanos < 60 * SECOND - 5_000_000 {
        let hundredths = (nanos + 5_000_000) / 10_000_000;
        return format!("{}.{:02}s", hundredths / 100, hundredths % 100);
    }
    let seconds = (nanos + SECOND / 2) / SECOND;
    if seconds < 3600 {
        return format!("{}m{:02}s", seconds / 60, seconds % 60);
    }
    format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60)
}

/// Number of columns.
pub fn columns(text: &str) -> usize {
    text.chars().count()
}

/// Cut to `width` columns, with an ellipsis where something is missing.
pub fn cut(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        cut.push('…');
    }
    cut
}

/// Blanks up to `width` columns after a text.
pub fn padding(text: &str, width: usize) -> String {
    " ".repeat(width.saturating_sub(columns(text)))
}

/// How the processes of a view are called: by role where a role has one instance, as people
/// speak; by instance where it would be ambiguous.
#[derive(Debug, Default)]
pub struct ProcessLabels {
    instances: BTreeMap<&'static str, BTreeSet<String>>,
}

impl ProcessLabels {
    /// For the processes of these resources.
    pub fn new<'a>(resources: impl Iterator<Item = &'a Resource>) -> Self {
        let mut labels = Self::default();
        for resource in resources {
            if let Some(role) = resource.role {
                let instances = labels.instances.entry(role).or_default();
                if !instances.contains(&resource.instance) {
                    instances.insert(resource.instance.clone());
                }
            }
        }
        labels
    }

    /// The label of a process.
    pub fn of<'a>(&self, resource: &'a Resource) -> &'a str {
        match resource.role {
            Some(role) if self.instances.get(role).is_some_and(|names| names.len() == 1) => role,
            _ => &resource.instance,
        }
    }

    /// Role and instance of every role that stands for its instance.
    pub fn legend(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.instances
            .iter()
            .filter(|(_, names)| names.len() == 1)
            .filter_map(|(role, names)| Some((*role, names.first()?.as_str())))
    }
}

/// How a cell is aligned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table with two blanks between columns. A narrow terminal cuts the column `flexible`.
pub fn table(
    canvas: &Canvas,
    header: &[(&str, Align)],
    rows: &[Vec<String>],
    flexible: usize,
) -> String {
    let mut widths: Vec<usize> = header.iter().map(|(title, _)| columns(title)).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(columns(cell));
        }
    }
    if let Some(available) = canvas.width {
        let total: usize = widths.iter().sum::<usize>() + 2 * (widths.len() - 1);
        let excess = total.saturating_sub(available);
        widths[flexible] = widths[flexible].saturating_sub(excess).max(12.min(widths[flexible]));
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for ((cell, width), (_, align)) in cells.zip(&widths).zip(header) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            let cell = cut(cell, *width);
            let blanks = padding(&cell, *width);
            match align {
                Align::Left => line.extend([cell, blanks]),
                Align::Right => line.extend([blanks, cell]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    };
    let mut text = canvas.bold(&line(&mut header.iter().map(|(title, _)| *title)));
    text.push('\n');
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits_and_the_unit_that_fits() {
        let texts = [
            0,
            850,
            850_000,
            999_499,
            999_500,
            4_240_000,
            9_949_999,
            9_950_000,
            31_000_000,
            999_499_999,
            999_500_000,
            4_214_000_000,
            59_994_999_999,
            59_995_000_000,
            123_000_000_000,
            3_720_000_000_000,
        ]
        .map(duration_text);
        assert_eq!(
            texts.join(" "),
            "0ns 850ns 850µs 999µs 1.0ms 4.2ms 9.9ms 10ms 31ms 999ms 1.00s 4.21s 59.99s 1m00s 2m03s 1h02m"
        );
    }

    #[test]
    fn cutting_keeps_the_width_and_shows_that_something_is_missing() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcdef", 0), "");
    }
}
