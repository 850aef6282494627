//! State per session, bounded.

use std::collections::{BTreeMap, HashMap};

/// Values by session; beyond the capacity, the session idle longest is forgotten.
#[derive(Debug)]
pub struct Sessions<T> {
    by_id: HashMap<Box<str>, Entry<T>>,
    /// Session ids by the tick of their last use.
    by_use: BTreeMap<u64, Box<str>>,
    tick: u64,
    capacity: usize,
}

#[derive(Debug)]
struct Entry<T> {
    value: T,
    used: u64,
}

impl<T> Sessions<T> {
    /// An empty store for `capacity` sessions, at least one.
    pub fn new(capacity: usize) -> Self {
        Self { by_id: HashMap::new(), by_use: BTreeMap::new(), tick: 0, capacity: capacity.max(1) }
    }

    /// The value of a session that is known; counts as a use.
    pub fn get(&mut self, id: &str) -> Option<&mut T> {
        let entry = self.by_id.get_mut(id)?;
        self.tick += 1;
        if let Some(id) = self.by_use.remove(&entry.used) {
            self.by_use.insert(self.tick, id);
        }
        entry.used = self.tick;
        Some(&mut entry.value)
    }

    /// The value of a session, `first` when it is new; counts as a use.
    pub fn get_or_insert(&mut self, id: &str, first: T) -> &mut T {
        if !self.by_id.contains_key(id) {
            if self.by_id.len() >= self.capacity
                && let Some((_, idle)) = self.by_use.pop_first()
            {
                self.by_id.remove(&idle);
            }
            // The tick of the insertion is replaced by that of the use below.
            self.tick += 1;
            self.by_use.insert(self.tick, id.into());
            self.by_id.insert(id.into(), Entry { value: first, used: self.tick });
        }
        self.get(id).expect("the session was inserted above")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_keeps_its_first_value() {
        let mut sessions = Sessions::new(2);
        assert_eq!(sessions.get("a"), None);
        *sessions.get_or_insert("a", 1) += 5;
        assert_eq!(sessions.get_or_insert("a", 100), &6);
    }

    #[test]
    fn the_session_idle_longest_is_forgotten() {
        let mut sessions = Sessions::new(2);
        sessions.get_or_insert("a", 1);
        sessions.get_or_insert("b", 2);
        sessions.get("a");
        sessions.get_or_insert("c", 3);
        assert_eq!(sessions.get("b"), None);
        assert_eq!(sessions.get("a"), Some(&mut 1));
        assert_eq!(sessions.get("c"), Some(&mut 3));
        assert_eq!(sessions.by_id.len(), sessions.by_use.len());
    }
}
