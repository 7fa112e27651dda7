//! JSON as JavaScript sees it: the controller signs and forwards what it parsed, so we have to know what it parsed.
//!
//! Not a general JSON library: it knows nothing of typed records, and it keeps what others drop (lone surrogates, the
//! written form of numbers).

mod canonical;
mod parser;
mod printer;
#[cfg(test)]
pub(crate) mod tests;

use std::borrow::Cow;

pub use canonical::{PROBLEMS_MAX, Problem, canonical};
pub use parser::{DEPTH_MAX, ParseError, parse};
pub use printer::{print_text, stringify};

pub(crate) use canonical::push_member;

/// A value as `JSON.parse` would make it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number: a double to JavaScript.
    Number(Number),
    /// A string.
    String(Text),
    /// A list.
    Array(Vec<Value>),
    /// An object in JavaScript's member order.
    Object(Object),
}

impl Value {
    /// The object, if it is one.
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The list, if it is one.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The string, if it is one and holds no lone surrogate.
    pub fn as_str(&self) -> Option<&str> {
        self.as_text().and_then(Text::as_str)
    }

    /// The string, if it is one.
    pub fn as_text(&self) -> Option<&Text> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if it is one.
    pub fn as_number(&self) -> Option<&Number> {
        match self {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    /// A member of the object; none when this is no object.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.as_object().and_then(|object| object.get(key))
    }
}

/// A number with the text it was written as, because a double may not hold it.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    literal: Box<str>,
    double: f64,
}

impl Number {
    pub(super) fn new(literal: &str) -> Number {
        // The grammar was checked, so parsing cannot fail; infinity is what JavaScript makes of an overflow.
        Number { literal: literal.into(), double: literal.parse().unwrap_or(f64::NAN) }
    }

    /// The text as it was written.
    pub fn literal(&self) -> &str {
        &self.literal
    }

    /// What JavaScript computes with; infinite after an overflow.
    pub fn as_f64(&self) -> f64 {
        self.double
    }
}

/// A JavaScript string. Nearly all are Unicode text; one with a lone surrogate is kept as UTF-16.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text(Content);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Content {
    Unicode(String),
    /// Always with at least one lone surrogate, so that equal texts have equal contents.
    Broken(Vec<u16>),
}

impl Text {
    /// The text, unless it holds a lone surrogate.
    pub fn as_str(&self) -> Option<&str> {
        match &self.0 {
            Content::Unicode(text) => Some(text),
            Content::Broken(_) => None,
        }
    }

    /// The text with U+FFFD in place of lone surrogates.
    pub fn to_lossy(&self) -> Cow<'_, str> {
        match &self.0 {
            Content::Unicode(text) => Cow::Borrowed(text),
            Content::Broken(units) => Cow::Owned(String::from_utf16_lossy(units)),
        }
    }

    /// Is there no character in it?
    pub fn is_empty(&self) -> bool {
        self.as_str().is_some_and(str::is_empty)
    }

    pub(super) fn from_utf16(units: Vec<u16>) -> Text {
        match String::from_utf16(&units) {
            Ok(text) => Text(Content::Unicode(text)),
            Err(_) => Text(Content::Broken(units)),
        }
    }

    /// JavaScript's array index (0 to 2^32 − 2 without leading zeros): such keys come first in an object.
    pub fn array_index(&self) -> Option<u32> {
        let text = self.as_str()?;
        let is_plain = text.len() <= 10 && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_shortest = text == "0" || !text.starts_with('0');
        if !is_plain || !is_shortest {
            return None;
        }
        text.parse().ok().filter(|index| *index < u32::MAX)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text(Content::Unicode(text))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text::from(text.to_owned())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(Text::from(text))
    }
}

/// The members of an object: no key twice, array indices first in ascending order, the others as they came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object(Vec<(Text, Value)>);

impl Object {
    /// Orders members as JavaScript does: of a repeated key the last value stands at the first place.
    pub fn from_members(members: Vec<(Text, Value)>) -> Object {
        Object(parser::in_javascript_order(members))
    }

    /// The value of a member.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(name, _)| name.as_str() == Some(key)).map(|(_, value)| value)
    }

    /// All members in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Text, &Value)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Is there no member?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
