//! An object that is being put together from JSON texts.

use std::borrow::Cow;

use super::json;

/// Members in order; a member that is set again keeps its place.
#[derive(Debug, Clone, Default)]
pub struct Object<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Object<'a> {
    /// The members of an object's text; none when it is something else.
    pub fn parse(text: &'a str) -> Self {
        let mut object = Object::default();
        for (key, value) in json::members(text).into_iter().flatten().flatten() {
            object.set(key, value);
        }
        object
    }

    /// The JSON text of a member.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, raw)| &**raw)
    }

    /// Sets a member.
    pub fn set(&mut self, key: impl Into<Cow<'a, str>>, raw: impl Into<Cow<'a, str>>) {
        let (key, raw) = (key.into(), raw.into());
        match self.0.iter_mut().find(|(name, _)| *name == key) {
            Some((_, old)) => *old = raw,
            None => self.0.push((key, raw)),
        }
    }

    /// Sets a member that is not there.
    pub fn set_default(&mut self, key: impl Into<Cow<'a, str>>, raw: impl Into<Cow<'a, str>>) {
        let key = key.into();
        if self.get(&key).is_none() {
            self.0.push((key, raw.into()));
        }
    }

    /// Takes a member out.
    pub fn remove(&mut self, key: &str) -> Option<Cow<'a, str>> {
        let at = self.0.iter().position(|(name, _)| name == key)?;
        Some(self.0.remove(at).1)
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The members, in order.
    pub fn into_members(self) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> {
        self.0.into_iter()
    }

    /// The object as JSON text.
    pub fn to_json(&self) -> Vec<u8> {
        let length: usize = self.0.iter().map(|(key, raw)| key.len() + raw.len() + 4).sum();
        let mut out = Vec::with_capacity(length + 2);
        out.push(b'{');
        for (key, raw) in &self.0 {
            json::write_member(&mut out, key, raw);
        }
        out.push(b'}');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_places() {
        let mut object = Object::parse(r#"{"a":1,"b":[2]}"#);
        object.set("a", "3");
        object.set_default("b", "4");
        object.set_default("c", "5");
        assert_eq!(object.remove("x"), None);
        assert_eq!(String::from_utf8(object.to_json()).expect("utf-8"), r#"{"a":3,"b":[2],"c":5}"#);
    }
}
