//! Query strings and forms as the controller's server parses them: with brackets that make lists and objects.
//!
//! Not a general form decoder: only what decides the signed text, and the value that a form body becomes.

use std::borrow::Cow;

use super::super::json::{Object, Text, Value};

/// More parameters than this are not looked at.
const PARAMETERS_MAX: usize = 1_000;

/// How a server parses: the query and a form body differ.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Brackets deeper than this stay text.
    depth: usize,
    /// A larger index makes an object instead of a list.
    index_max: usize,
}

/// For the query of a request.
pub(super) const QUERY: Limits = Limits { depth: 5, index_max: 20 };

/// For a form body. The server has no depth limit there; ours only keeps the stack safe.
pub(super) const FORM: Limits = Limits { depth: 100, index_max: 100 };

/// A parsed parameter.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Parameter {
    Text(String),
    List(Vec<Option<Parameter>>),
    Map(Vec<(String, Parameter)>),
}

impl Parameter {
    /// What is signed for this parameter: the text, a list's last text, else nothing.
    pub(super) fn signed_text(&self) -> &str {
        match self {
            Parameter::Text(text) => text,
            Parameter::List(items) => match items.iter().flatten().next_back() {
                Some(Parameter::Text(text)) => text,
                _ => "",
            },
            Parameter::Map(_) => "",
        }
    }

    fn into_value(self) -> Value {
        match self {
            Parameter::Text(text) => Value::String(Text::from(text)),
            Parameter::List(items) => Value::Array(items.into_iter().flatten().map(Parameter::into_value).collect()),
            Parameter::Map(members) => map_value(members),
        }
    }
}

fn map_value(members: Vec<(String, Parameter)>) -> Value {
    let members = members.into_iter().map(|(key, parameter)| (Text::from(key), parameter.into_value())).collect();
    Value::Object(Object::from_members(members))
}

/// The body that a form becomes.
pub(super) fn form_value(text: &str) -> Value {
    map_value(parse(text, FORM))
}

/// All parameters, each key once.
pub(super) fn parse(text: &str, limits: Limits) -> Vec<(String, Parameter)> {
    let mut parsed = Vec::new();
    for (key, value) in flat_pairs(text) {
        for (root, parameter) in expand(&key, value, limits) {
            merge_member(&mut parsed, root, parameter);
        }
    }
    parsed
}

/// The pairs with decoded keys; values of one key are gathered at its first place, array indices first.
fn flat_pairs(text: &str) -> Vec<(String, Parameter)> {
    let mut pairs: Vec<(String, Parameter)> = Vec::new();
    for part in text.split('&').take(PARAMETERS_MAX) {
        let equals = part.find("]=").map(|at| at + 1).or_else(|| part.find('='));
        let (key, value) = equals.map_or((part, ""), |at| (&part[..at], &part[at + 1..]));
        let (key, value) = (decoded(key), Parameter::Text(decoded(value)));
        match pairs.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => append(known, value),
            None => pairs.push((key, value)),
        }
    }
    pairs.retain(|(key, _)| !key.is_empty());
    pairs.sort_by_key(|(key, _)| Text::from(key.as_str()).array_index().map_or((true, 0), |index| (false, index)));
    pairs
}

fn append(list: &mut Parameter, value: Parameter) {
    match list {
        Parameter::List(items) => items.push(Some(value)),
        single => *single = Parameter::List(vec![Some(single.clone()), Some(value)]),
    }
}

/// A plus is a space; a text with a bad percent sequence stays as it is.
fn decoded(text: &str) -> String {
    let spaced = text.replace('+', " ");
    if !has_sound_escapes(spaced.as_bytes()) {
        return spaced;
    }
    match percent_encoding::percent_decode_str(&spaced).decode_utf8().map(Cow::into_owned) {
        Ok(text) => text,
        Err(_) => spaced,
    }
}

fn has_sound_escapes(bytes: &[u8]) -> bool {
    let mut percents = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    percents.all(|(at, _)| bytes.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)))
}

/// `a[b][]` with a value becomes the member `a` with an object in it. Without a name before the brackets the outermost
/// list or object is the whole result.
fn expand(key: &str, value: Parameter, limits: Limits) -> Vec<(String, Parameter)> {
    let (root, steps) = steps_of(key, limits.depth);
    let leaf = steps.iter().rev().fold(value, |leaf, step| wrap(step, leaf, limits.index_max));
    match leaf {
        _ if root == "__proto__" => Vec::new(),
        leaf if !root.is_empty() => vec![(root.to_owned(), leaf)],
        Parameter::List(items) => indexed(items),
        Parameter::Map(members) => members,
        Parameter::Text(_) => Vec::new(),
    }
}

/// The part before the first bracket pair, then each pair with its brackets, the rest beyond the depth as one.
fn steps_of(key: &str, depth: usize) -> (&str, Vec<String>) {
    let mut steps = Vec::new();
    let Some(first) = next_pair(key, 0) else {
        return (key, steps);
    };
    let root = &key[..first.0];
    let mut next = Some(first);
    while let Some((start, end)) = next {
        if steps.len() == depth {
            steps.push(format!("[{}]", &key[start..]));
            break;
        }
        steps.push(key[start..end].to_owned());
        next = next_pair(key, end);
    }
    (root, steps)
}

/// The next `[…]` without a bracket inside.
fn next_pair(key: &str, from: usize) -> Option<(usize, usize)> {
    let mut open = None;
    for (at, byte) in key.bytes().enumerate().skip(from) {
        match (byte, open) {
            (b'[', _) => open = Some(at),
            (b']', Some(start)) => return Some((start, at + 1)),
            _ => {}
        }
    }
    None
}

fn inside_brackets(step: &str) -> Option<&str> {
    step.strip_prefix('[')?.strip_suffix(']')
}

fn wrap(step: &str, leaf: Parameter, index_max: usize) -> Parameter {
    let name = inside_brackets(step).unwrap_or(step);
    if name.is_empty() {
        return match leaf {
            Parameter::List(items) => Parameter::List(items),
            single => Parameter::List(vec![Some(single)]),
        };
    }
    let index = Text::from(name).array_index().and_then(|index| usize::try_from(index).ok());
    match index.filter(|index| *index <= index_max) {
        Some(index) => {
            let mut items = vec![None; index];
            items.push(Some(leaf));
            Parameter::List(items)
        }
        None if name == "__proto__" => Parameter::Map(Vec::new()),
        None => Parameter::Map(vec![(name.to_owned(), leaf)]),
    }
}

fn merge_member(members: &mut Vec<(String, Parameter)>, key: String, parameter: Parameter) {
    match members.iter_mut().find(|(known, _)| *known == key) {
        Some((_, known)) => merge(known, parameter),
        None => members.push((key, parameter)),
    }
}

fn merge(target: &mut Parameter, source: Parameter) {
    let old = std::mem::replace(target, Parameter::List(Vec::new()));
    *target = match (old, source) {
        (Parameter::List(items), Parameter::List(added)) => Parameter::List(merged_lists(items, added)),
        (Parameter::List(mut items), text @ Parameter::Text(_)) => {
            items.push(Some(text));
            Parameter::List(items)
        }
        (Parameter::List(items), Parameter::Map(added)) => merged_maps(indexed(items), added),
        (Parameter::Map(mut members), Parameter::Text(text)) => {
            // The server notes the bare text as a member that is true; what counts here is that it is an object.
            merge_member(&mut members, text, Parameter::Text("true".to_owned()));
            Parameter::Map(members)
        }
        (Parameter::Map(members), Parameter::List(added)) => merged_maps(members, indexed(added)),
        (Parameter::Map(members), Parameter::Map(added)) => merged_maps(members, added),
        (text @ Parameter::Text(_), Parameter::List(added)) => {
            Parameter::List(std::iter::once(Some(text)).chain(added).collect())
        }
        (text @ Parameter::Text(_), single) => Parameter::List(vec![Some(text), Some(single)]),
    };
}

fn indexed(items: Vec<Option<Parameter>>) -> Vec<(String, Parameter)> {
    let present = items.into_iter().enumerate().filter_map(|(index, item)| item.map(|item| (index, item)));
    present.map(|(index, item)| (index.to_string(), item)).collect()
}

fn merged_maps(mut members: Vec<(String, Parameter)>, added: Vec<(String, Parameter)>) -> Parameter {
    for (key, parameter) in added {
        merge_member(&mut members, key, parameter);
    }
    Parameter::Map(members)
}

fn merged_lists(mut items: Vec<Option<Parameter>>, added: Vec<Option<Parameter>>) -> Vec<Option<Parameter>> {
    for (index, item) in added.into_iter().enumerate() {
        let Some(item) = item else { continue };
        if index >= items.len() {
            items.resize(index + 1, None);
        }
        match &mut items[index] {
            empty @ None => *empty = Some(item),
            Some(known) if !matches!(known, Parameter::Text(_)) && !matches!(item, Parameter::Text(_)) => {
                merge(known, item);
            }
            Some(_) => items.push(Some(item)),
        }
    }
    items
}
