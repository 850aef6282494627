//! Finding a name among a fixed few, with one comparison.

const SLOTS: usize = 256;
const EMPTY: u8 = u8::MAX;

/// Names with a hash, chosen when compiling, under which no two collide.
#[derive(Debug)]
pub(super) struct Names<const N: usize> {
    names: [&'static str; N],
    slots: [u8; SLOTS],
    factor: u32,
}

impl<const N: usize> Names<N> {
    /// Looks for a hash. Fails to compile when there is none.
    pub const fn new(names: [&'static str; N]) -> Self {
        let mut factor = 0x9e37_79b1_u32;
        loop {
            let mut slots = [EMPTY; SLOTS];
            let mut at = 0;
            while at < N {
                let slot = slot(names[at].as_bytes(), factor);
                if slots[slot] != EMPTY {
                    break;
                }
                slots[slot] = at as u8;
                at += 1;
            }
            if at == N {
                return Names { names, slots, factor };
            }
            factor = factor.wrapping_mul(0x2c92_77b5).wrapping_add(0xac56_4b05) | 1;
        }
    }

    /// The index of a name.
    #[inline]
    pub fn find(&self, name: &str) -> Option<usize> {
        let at = usize::from(self.slots[slot(name.as_bytes(), self.factor)]);
        (self.names.get(at).copied() == Some(name)).then_some(at)
    }
}

/// Length, first, last and middle byte tell the names of our schemas apart.
#[inline]
const fn slot(name: &[u8], factor: u32) -> usize {
    let length = name.len();
    if length == 0 {
        return 0;
    }
    let word = u32::from_le_bytes([name[0], name[length / 2], name[length - 1], length as u8]);
    (word.wrapping_mul(factor) >> 24) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_others_are_not() {
        static NAMES: Names<3> = Names::new(["a", "input", "inputs"]);
        assert_eq!(
            ["a", "input", "inputs"].map(|name| NAMES.find(name)),
            [Some(0), Some(1), Some(2)]
        );
        assert_eq!(["", "b", "inpux", "inputsx"].map(|name| NAMES.find(name)), [None; 4]);
    }
}
