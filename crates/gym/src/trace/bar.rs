//! The bar of one span on the time scale of its section.
//!
//! `█` is time of the span's own, `─` time that its children cover, so that the eye finds where
//! the time went without reading numbers.

use lens_store::trace::Tree;

/// The scale of a section.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// What the first column stands for.
    pub start_nanos: u64,
    /// What the last column ends with.
    pub end_nanos: u64,
    /// Columns.
    pub width: usize,
}

impl Scale {
    /// The bar of a node, `width` columns, blanks included.
    pub fn bar(&self, tree: &Tree, node: usize) -> String {
        let span = &tree.nodes[node];
        let mut own = vec![0_u128; self.width];
        let mut covered = vec![0_u128; self.width];
        self.spread(span.start_nanos, span.end_nanos, &mut own);
        let mut reached = span.start_nanos;
        let mut children: Vec<(u64, u64)> = tree
            .children(node)
            .map(|child| (tree.nodes[child].start_nanos, tree.nodes[child].end_nanos))
            .collect();
        children.sort_unstable();
        for (start, end) in children {
            let (start, end) = (start.max(reached), end.min(span.end_nanos));
            if start < end {
                self.spread(start, end, &mut covered);
                reached = end;
            }
        }

        let half_cell = self.cell_nanos() / 2;
        let mut bar: Vec<char> = own
            .iter()
            .zip(&covered)
            .map(|(&own, &covered)| match own {
                0 => ' ',
                own if own < half_cell => ' ',
                own if covered * 2 > own => '─',
                _ => '█',
            })
            .collect();
        if bar.iter().all(|cell| *cell == ' ') && self.width > 0 {
            // Shorter than half a column: still somewhere.
            let middle = span.start_nanos.midpoint(span.end_nanos);
            bar[self.column(middle)] = '▏';
        }
        bar.into_iter().collect()
    }

    /// Time per column, scaled by the width so that no precision is lost.
    fn cell_nanos(&self) -> u128 {
        u128::from(self.end_nanos.saturating_sub(self.start_nanos)).max(1)
    }

    fn column(&self, nanos: u64) -> usize {
        let offset = u128::from(nanos.saturating_sub(self.start_nanos));
        let column = offset * self.width as u128 / self.cell_nanos();
        usize::try_from(column).unwrap_or(usize::MAX).min(self.width - 1)
    }

    /// Adds the scaled overlap of an interval with each column.
    fn spread(&self, start: u64, end: u64, cells: &mut [u128]) {
        let width = self.width as u128;
        let offset = |nanos: u64| {
            u128::from(nanos.clamp(self.start_nanos, self.end_nanos) - self.start_nanos) * width
        };
        let (start, end) = (offset(start), offset(end));
        let cell = self.cell_nanos();
        let first = usize::try_from(start / cell).unwrap_or(usize::MAX);
        for (at, filled) in cells.iter_mut().enumerate().skip(first) {
            let (from, to) = (at as u128 * cell, (at as u128 + 1) * cell);
            if from >= end {
                break;
            }
            *filled += end.min(to).saturating_sub(start.max(from));
        }
    }
}
