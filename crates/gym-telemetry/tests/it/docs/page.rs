//! Generated parts of a page, and its cells that are written by hand.

use std::{collections::BTreeMap, fs, path::PathBuf};

/// What stands in a cell that nobody has written yet.
pub const UNWRITTEN: &str = "?";

pub struct Page {
    path: PathBuf,
    text: String,
    written: String,
}

impl Page {
    /// A page of `docs/reference`.
    pub fn open(name: &str) -> Page {
        let path = super::source::crates().join("../docs/reference").join(name);
        let text = fs::read_to_string(&path).expect("the reference page");
        Page { path, written: text.clone(), text }
    }

    /// The cells of every row of a table, by the first cell.
    pub fn rows(&self) -> BTreeMap<String, Vec<String>> {
        let rows = self.text.lines().filter_map(|line| {
            let cells = line.strip_prefix("| ")?.strip_suffix(" |")?;
            let mut cells = cells.split(" | ").map(str::to_owned);
            Some((cells.next()?, cells.collect()))
        });
        rows.collect()
    }

    /// What goes between the two marks of a part.
    pub fn set(&mut self, part: &str, content: &str) {
        let (begin, end) = (format!("<!-- {part}: begin -->\n"), format!("<!-- {part}: end -->"));
        let (head, rest) = self.written.split_once(&begin).expect("the part's begin");
        let (_, tail) = rest.split_once(&end).expect("the part's end");
        self.written = format!("{head}{begin}{content}{end}{tail}");
    }

    /// Guarantees: the page cannot go stale. `UPDATE_DOCS=1` writes it anew.
    pub fn holds(self) {
        let cell = format!("| {UNWRITTEN} |");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&self.path, &self.written).expect("a writable page");
        } else {
            // One line tells more than two pages.
            let differs = self.text.lines().zip(self.written.lines()).find(|(old, new)| old != new);
            let name = self.path.display();
            assert_eq!(differs, None, "{name}: run this test once with UPDATE_DOCS=1");
            assert_eq!(self.text.len(), self.written.len(), "{name}: likewise");
        }
        let unwritten: Vec<_> = self.written.lines().filter(|line| line.contains(&cell)).collect();
        let name = self.path.display();
        assert!(unwritten.is_empty(), "write the cells `{UNWRITTEN}` of {name}: {unwritten:#?}");
    }
}

/// Cells that are kept from the page, from the `from`th behind the first.
pub fn kept<const N: usize>(
    rows: &BTreeMap<String, Vec<String>>,
    key: &str,
    from: usize,
) -> [String; N] {
    let old = rows.get(key);
    std::array::from_fn(|nth| {
        let cell = old.and_then(|cells| cells.get(from + nth)).cloned();
        cell.unwrap_or_else(|| UNWRITTEN.to_owned())
    })
}

/// Names in backticks.
pub fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}
