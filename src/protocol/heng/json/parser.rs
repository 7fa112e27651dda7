//! `JSON.parse`, with an observer that sees what the parsed value no longer shows.
//!
//! Not lenient: what JavaScript refuses is refused here. The one deviation is a limit on nesting, so that no input can
//! overflow the stack.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use super::{Number, Object, Text, Value};

/// How many lists and objects may stand inside each other.
pub const DEPTH_MAX: usize = 512;

/// Why a text is not JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// Where, in bytes from the start of the text (counted after invalid UTF-8 was replaced).
    pub offset: usize,
    /// What is wrong there.
    pub reason: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.reason, self.offset)
    }
}

impl std::error::Error for ParseError {}

/// Parses as a JavaScript server does: invalid UTF-8 becomes U+FFFD and a leading byte order mark is dropped.
pub fn parse(bytes: &[u8]) -> Result<Value, ParseError> {
    let text = String::from_utf8_lossy(bytes);
    parse_observed(&text, &mut Unobserved)
}

/// One step of the way from the root to a value.
pub(super) enum Step<'a> {
    Member(&'a Text),
    Item(usize),
}

/// Is told of everything while the place of each value is still known.
pub(super) trait Observer {
    fn enter(&mut self, _step: Step<'_>) {}
    fn leave(&mut self) {}
    fn number(&mut self, _number: &Number) {}
    fn string(&mut self, _span: Range<usize>, _text: &Text) {}
    fn repeated_key(&mut self) {}
    fn index_key(&mut self) {}
}

struct Unobserved;

impl Observer for Unobserved {}

pub(super) fn parse_observed<O: Observer>(text: &str, observer: &mut O) -> Result<Value, ParseError> {
    let start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let mut parser = Parser { text, bytes: text.as_bytes(), at: start, depth: 0, observer };
    let value = parser.value()?;
    parser.skip_whitespace();
    match parser.peek() {
        None => Ok(value),
        Some(_) => Err(parser.unexpected()),
    }
}

struct Parser<'a, O> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    observer: &'a mut O,
}

impl<O: Observer> Parser<'_, O> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_whitespace(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Whitespace, then what comes next without taking it.
    fn next_token(&mut self) -> Option<u8> {
        self.skip_whitespace();
        self.peek()
    }

    fn error(&self, reason: impl Into<String>) -> ParseError {
        ParseError { offset: self.at, reason: reason.into() }
    }

    fn unexpected(&self) -> ParseError {
        match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            None => self.error("Unexpected end of JSON input"),
            Some(character) => self.error(format!("Unexpected character {character:?}")),
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self) -> Result<Value, ParseError> {
        match self.next_token() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            _ => Err(self.unexpected()),
        }
    }

    fn nested(&mut self, inner: fn(&mut Self) -> Result<Value, ParseError>) -> Result<Value, ParseError> {
        if self.depth == DEPTH_MAX {
            return Err(self.error(format!("More than {DEPTH_MAX} lists and objects inside each other")));
        }
        self.depth += 1;
        self.at += 1;
        let value = inner(self);
        self.depth -= 1;
        value
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, ParseError> {
        for expected in word.bytes() {
            if !self.take(expected) {
                return Err(self.unexpected());
            }
        }
        Ok(value)
    }

    fn array(&mut self) -> Result<Value, ParseError> {
        let mut items = Vec::new();
        if self.next_token() == Some(b']') {
            self.at += 1;
            return Ok(Value::Array(items));
        }
        loop {
            self.observer.enter(Step::Item(items.len()));
            items.push(self.value()?);
            self.observer.leave();
            match self.next_token() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.unexpected()),
            }
        }
        self.at += 1;
        Ok(Value::Array(items))
    }

    fn object(&mut self) -> Result<Value, ParseError> {
        let mut members = Vec::new();
        if self.next_token() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(Object::default()));
        }
        loop {
            members.push(self.member()?);
            match self.next_token() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.unexpected()),
            }
        }
        self.at += 1;
        for key in repeated_keys(&members) {
            self.observer.enter(Step::Member(key));
            self.observer.repeated_key();
            self.observer.leave();
        }
        Ok(Value::Object(Object::from_members(members)))
    }

    fn member(&mut self) -> Result<(Text, Value), ParseError> {
        if self.next_token() != Some(b'"') {
            return Err(self.unexpected());
        }
        let start = self.at;
        let key = self.bare_string()?;
        self.observer.enter(Step::Member(&key));
        self.observer.string(start..self.at, &key);
        if key.array_index().is_some() {
            self.observer.index_key();
        }
        self.skip_whitespace();
        if !self.take(b':') {
            return Err(self.unexpected());
        }
        let value = self.value()?;
        self.observer.leave();
        Ok((key, value))
    }

    fn number(&mut self) -> Result<Value, ParseError> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            if !self.take(b'-') {
                self.take(b'+');
            }
            self.digits()?;
        }
        let number = Number::new(&self.text[start..self.at]);
        self.observer.number(&number);
        Ok(Value::Number(number))
    }

    fn digits(&mut self) -> Result<(), ParseError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start { Err(self.unexpected()) } else { Ok(()) }
    }

    fn string(&mut self) -> Result<Text, ParseError> {
        let start = self.at;
        let text = self.bare_string()?;
        self.observer.string(start..self.at, &text);
        Ok(text)
    }

    /// A string whose opening quote is next. Text without escapes, the usual case, is copied once.
    fn bare_string(&mut self) -> Result<Text, ParseError> {
        self.at += 1;
        let start = self.at;
        self.skip_plain();
        let mut text = self.text[start..self.at].to_owned();
        let mut pending: Option<Vec<u16>> = None;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.escape(&mut text, &mut pending)?,
                Some(byte) if byte >= b' ' => {
                    let start = self.at;
                    self.skip_plain();
                    append(&self.text[start..self.at], &mut text, &mut pending);
                }
                Some(_) => return Err(self.error("Control character in a string; write it as an escape")),
                None => return Err(self.unexpected()),
            }
        }
        self.at += 1;
        Ok(pending.map_or_else(|| Text::from(text), Text::from_utf16))
    }

    fn skip_plain(&mut self) {
        while self.peek().is_some_and(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
            self.at += 1;
        }
    }

    /// From the first surrogate escape on, the string is gathered as UTF-16 in `pending`.
    fn escape(&mut self, text: &mut String, pending: &mut Option<Vec<u16>>) -> Result<(), ParseError> {
        self.at += 1;
        let character = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                let unit = self.code_unit()?;
                match char::from_u32(u32::from(unit)) {
                    Some(character) => append(character.encode_utf8(&mut [0; 4]), text, pending),
                    None => pending.get_or_insert_with(|| text.encode_utf16().collect()).push(unit),
                }
                return Ok(());
            }
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        append(character.encode_utf8(&mut [0; 4]), text, pending);
        Ok(())
    }

    fn code_unit(&mut self) -> Result<u16, ParseError> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit.and_then(|digit| u16::try_from(digit).ok()) else {
                return Err(self.unexpected());
            };
            unit = unit << 4 | digit;
            self.at += 1;
        }
        Ok(unit)
    }
}

fn append(piece: &str, text: &mut String, pending: &mut Option<Vec<u16>>) {
    match pending {
        None => text.push_str(piece),
        Some(units) => units.extend(piece.encode_utf16()),
    }
}

/// Below this, comparing every key with every other is cheaper than sorting.
const FEW_MEMBERS: usize = 12;

/// The keys that appear more than once, each once. Never quadratic: a body may hold a million keys.
fn repeated_keys(members: &[(Text, Value)]) -> Vec<&Text> {
    if members.len() <= FEW_MEMBERS {
        let is_repeat = |at: usize| members[..at].iter().filter(|(key, _)| *key == members[at].0).count() == 1;
        return (0..members.len()).filter(|at| is_repeat(*at)).map(|at| &members[at].0).collect();
    }
    let mut keys: Vec<&Text> = members.iter().map(|(key, _)| key).collect();
    keys.sort_unstable();
    let mut repeated: Vec<&Text> = keys.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    repeated.dedup();
    repeated
}

/// Of a repeated key the last value takes the first place; array indices come first, ascending.
pub(super) fn in_javascript_order(mut members: Vec<(Text, Value)>) -> Vec<(Text, Value)> {
    if !repeated_keys(&members).is_empty() {
        let mut places = BTreeMap::new();
        let mut kept: Vec<(Text, Value)> = Vec::with_capacity(members.len());
        for (key, value) in members {
            let place = *places.entry(key.clone()).or_insert(kept.len());
            match kept.get_mut(place) {
                Some(member) => member.1 = value,
                None => kept.push((key, value)),
            }
        }
        members = kept;
    }
    if members.iter().any(|(key, _)| key.array_index().is_some()) {
        members.sort_by_key(|(key, _)| key.array_index().map_or((true, 0), |index| (false, index)));
    }
    members
}
