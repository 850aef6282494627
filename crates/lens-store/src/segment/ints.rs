//! Integers that repeat, for a dictionary.

/// Distinct integers of a row group up to which they are worth a dictionary.
const DICTIONARY_INTS: usize = 4_096;

/// Integers as numbers of distinct ones.
#[derive(Default)]
pub(super) struct Ints {
    pub(super) distinct: Vec<i64>,
    /// Number plus one of a distinct integer, or zero.
    table: Vec<u32>,
}

impl Ints {
    /// `false` when they are too many for a dictionary.
    pub(super) fn encode(&mut self, values: &[i64], codes: &mut Vec<u32>) -> bool {
        self.distinct.clear();
        self.table.clear();
        self.table.resize(DICTIONARY_INTS * 4, 0);
        codes.clear();
        let mask = self.table.len() - 1;
        let mut last = None;
        for value in values {
            if let Some((known, code)) = last
                && known == *value
            {
                codes.push(code);
                continue;
            }
            let mut at = (*value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 40 & mask;
            let code = loop {
                match self.table[at] {
                    0 => {
                        if self.distinct.len() == DICTIONARY_INTS {
                            return false;
                        }
                        self.distinct.push(*value);
                        self.table[at] = self.distinct.len() as u32;
                        break self.distinct.len() as u32 - 1;
                    }
                    found if self.distinct[found as usize - 1] == *value => break found - 1,
                    _ => at = (at + 1) & mask,
                }
            };
            codes.push(code);
            last = Some((*value, code));
        }
        !values.is_empty()
    }
}
