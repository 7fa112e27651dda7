//! A walk over a JSON object's members that keeps their raw text and collects every problem instead of stopping at the first.
//!
//! It knows no particular document; those are in `submission_body` and `tokens`.

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::error::InvalidMember;
use crate::protocol::heng::json::{self, PROBLEMS_MAX, Value, push_member};

/// The longest id, in characters.
const ID_CHARACTERS_MAX: usize = 128;

/// Longer names of members are cut in paths, so that an answer never grows with its request.
const NAME_CHARACTERS_MAX: usize = 64;

/// The members of one object, and what is wrong with them so far.
pub(super) struct Members<'a> {
    path: String,
    members: Vec<(String, &'a RawValue)>,
    problems: Vec<InvalidMember>,
}

/// The members in the order in which they were written, repeated ones included.
struct Written<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Written<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Written<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry::<String, &'de RawValue>()? {
                    members.push(member);
                }
                Ok(Written(members))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

impl<'a> Members<'a> {
    /// The members of the object at `path`, of which only `known` ones may be there, each once.
    ///
    /// The error is the one problem of a value that is no object.
    pub(super) fn of(raw: &'a RawValue, path: &str, known: &[&str]) -> Result<Self, InvalidMember> {
        let Ok(Written(members)) = serde_json::from_str(raw.get()) else {
            let is_object = raw.get().starts_with('{');
            let rule = if is_object { "must have names that are valid Unicode" } else { "must be an object" };
            return Err(InvalidMember::new(path, rule));
        };
        let mut walk = Members { path: path.to_owned(), members, problems: Vec::new() };
        let unknown_rule = format!("is not a member of this object; it takes {}", known.join(", "));
        // Counted, not compared pairwise: a body of nothing but members must not take quadratic time.
        let mut seen: HashMap<String, usize> = HashMap::new();
        for (name, _) in walk.members.clone() {
            let before = seen.entry(name.clone()).or_default();
            *before += 1;
            match *before {
                1 if !known.contains(&&*name) => walk.report(&name, unknown_rule.clone()),
                2 => walk.report(&name, "must appear only once in its object"),
                _ => {}
            }
        }
        Ok(walk)
    }

    /// The path of a member.
    pub(super) fn path_of(&self, name: &str) -> String {
        let mut path = self.path.clone();
        let shown: String = name.chars().take(NAME_CHARACTERS_MAX).collect();
        push_member(&mut path, &shown);
        path
    }

    /// Adds a problem of a member. So many are listed one by one; an answer must not grow with the nonsense in its request.
    pub(super) fn report(&mut self, name: &str, rule: impl Into<String>) {
        if self.problems.len() == PROBLEMS_MAX {
            return;
        }
        self.problems.push(InvalidMember::new(self.path_of(name), rule));
    }

    pub(super) fn report_all(&mut self, problems: Vec<InvalidMember>) {
        self.problems.extend(problems);
    }

    /// Everything that was wrong with them.
    pub(super) fn into_problems(self) -> Vec<InvalidMember> {
        self.problems
    }

    /// The raw text of a member; a member that is null counts as missing.
    pub(super) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        let (_, raw) = self.members.iter().find(|(key, _)| key == name)?;
        (raw.get() != "null").then_some(*raw)
    }

    /// The raw text of a member that must be there.
    pub(super) fn required_raw(&mut self, name: &str) -> Option<&'a RawValue> {
        let raw = self.raw(name);
        if raw.is_none() {
            self.report(name, "must be given");
        }
        raw
    }

    /// A text.
    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        let raw = self.raw(name)?;
        match json::parse(raw.get().as_bytes()) {
            Ok(Value::String(text)) => match text.as_str() {
                Some(text) => return Some(text.to_owned()),
                None => self.report(name, "must not hold half of a surrogate pair"),
            },
            _ => self.report(name, "must be a string"),
        }
        None
    }

    /// A text that follows the rules of an id.
    pub(super) fn id(&mut self, name: &str) -> Option<String> {
        let text = self.text(name)?;
        match id_problem(&text) {
            Some(rule) => {
                self.report(name, rule);
                None
            }
            None => Some(text),
        }
    }

    /// An id that must be there.
    pub(super) fn required_id(&mut self, name: &str) -> Option<String> {
        self.required_raw(name).and_then(|_| self.id(name))
    }
}

/// The rule that an id breaks.
pub(super) fn id_problem(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        Some("must not be empty")
    } else if text.chars().count() > ID_CHARACTERS_MAX {
        Some("must have at most 128 characters")
    } else if text.chars().any(char::is_control) {
        Some("must not hold control characters")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        serde_json::from_str(text).expect("JSON")
    }

    fn paths(problems: Vec<InvalidMember>) -> Vec<String> {
        problems.into_iter().map(|problem| problem.path).collect()
    }

    #[test]
    fn unknown_and_repeated_members_are_reported_once_each() {
        let document = raw(r#"{"a":1,"b":2,"b":3,"a":4,"a":5}"#);
        let members = Members::of(&document, "$", &["a"]).expect("an object");
        assert_eq!(paths(members.into_problems()), ["$.b", "$.b", "$.a"]);
    }

    #[test]
    fn a_body_of_nothing_but_nonsense_gets_a_bounded_answer() {
        let document =
            raw(&format!("{{{}}}", (0..50_000).map(|n| format!("\"m{n}\":1")).collect::<Vec<_>>().join(",")));
        let members = Members::of(&document, "$", &["a"]).expect("an object");
        assert_eq!(members.into_problems().len(), PROBLEMS_MAX);
    }

    #[test]
    fn only_objects_have_members() {
        for text in ["[]", "1", "null", "\"a\""] {
            let document = raw(text);
            assert_eq!(Members::of(&document, "$.x", &[]).err().expect("refused").path, "$.x", "{text}");
        }
    }

    #[test]
    fn ids_are_short_printable_texts() {
        let document = raw(
            "{\"empty\":\"\",\"null\":null,\"number\":1,\"zero\":\"a\\u0000\",\"tab\":\"\\t\",\"half\":\"\\ud800\",\"fine\":\"é\"}",
        );
        let known = ["empty", "null", "number", "zero", "tab", "half", "fine", "missing"];
        let mut members = Members::of(&document, "$", &known).expect("an object");
        let found: Vec<Option<String>> = known.iter().map(|name| members.required_id(name)).collect();
        assert_eq!(found.iter().flatten().collect::<Vec<_>>(), ["é"]);
        let expected = ["$.empty", "$.null", "$.number", "$.zero", "$.tab", "$.half", "$.missing"];
        assert_eq!(paths(members.into_problems()), expected);
    }

    #[test]
    fn the_length_of_an_id_counts_characters() {
        assert_eq!(id_problem(&"é".repeat(128)), None);
        assert!(id_problem(&"e".repeat(129)).is_some());
    }
}
