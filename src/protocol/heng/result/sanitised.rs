//! A copy of foreign JSON that PostgreSQL's jsonb takes and every JSON library reads.
//!
//! Not the record of what came: that is the raw body, kept beside it.

use std::borrow::Cow;

use super::super::json::{Number, Text, Value, print_text};

/// What stands deeper becomes a text: libraries refuse deep nesting, the usual limit is 128.
pub const DEPTH_MAX: usize = 100;

/// Longer number literals become texts.
pub const LITERAL_BYTES_MAX: usize = 400;

/// Larger exponents become texts: jsonb would refuse them, or expand them to thousands of digits.
const EXPONENT_MAX: u32 = 400;

/// Stands where something was nested too deeply.
const TOO_DEEP: &str = "\"(nested too deeply)\"";

pub(super) struct Sanitised {
    pub(super) text: String,
    pub(super) is_changed: bool,
}

pub(super) fn sanitise(value: &Value) -> Sanitised {
    let mut copy = Sanitised { text: String::new(), is_changed: false };
    copy.value(value, 0);
    copy
}

impl Sanitised {
    fn value(&mut self, value: &Value, depth: usize) {
        match value {
            Value::Null => self.text.push_str("null"),
            Value::Bool(true) => self.text.push_str("true"),
            Value::Bool(false) => self.text.push_str("false"),
            Value::Number(number) => self.number(number),
            Value::String(text) => self.string(text),
            Value::Array(_) | Value::Object(_) if depth == DEPTH_MAX => {
                self.text.push_str(TOO_DEEP);
                self.is_changed = true;
            }
            Value::Array(items) => {
                self.text.push('[');
                for (at, item) in items.iter().enumerate() {
                    self.separator(at);
                    self.value(item, depth + 1);
                }
                self.text.push(']');
            }
            Value::Object(object) => {
                self.text.push('{');
                for (at, (key, member)) in object.iter().enumerate() {
                    self.separator(at);
                    self.string(key);
                    self.text.push(':');
                    self.value(member, depth + 1);
                }
                self.text.push('}');
            }
        }
    }

    fn separator(&mut self, at: usize) {
        if at > 0 {
            self.text.push(',');
        }
    }

    /// The literal itself, so that no digit is lost; as a text where a number would be refused.
    fn number(&mut self, number: &Number) {
        let literal = number.literal();
        if is_storable(number) {
            self.text.push_str(literal);
            return;
        }
        self.is_changed = true;
        if literal.len() <= LITERAL_BYTES_MAX {
            print_text(literal, &mut self.text);
        } else {
            let shown = literal.get(..LITERAL_BYTES_MAX).unwrap_or_default();
            print_text(&format!("{shown}…"), &mut self.text);
        }
    }

    fn string(&mut self, text: &Text) {
        let mut readable = text.to_lossy();
        self.is_changed |= text.as_str().is_none();
        if readable.contains('\0') {
            readable = Cow::Owned(readable.replace('\0', "\u{fffd}"));
            self.is_changed = true;
        }
        print_text(&readable, &mut self.text);
    }
}

fn is_storable(number: &Number) -> bool {
    let literal = number.literal();
    let is_small_exponent = |(_, exponent): (&str, &str)| {
        exponent.trim_start_matches(['+', '-']).parse::<u32>().is_ok_and(|exponent| exponent <= EXPONENT_MAX)
    };
    literal.len() <= LITERAL_BYTES_MAX
        && number.as_f64().is_finite()
        && literal.split_once(['e', 'E']).is_none_or(is_small_exponent)
}
