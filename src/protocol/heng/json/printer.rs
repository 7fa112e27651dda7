//! `JSON.stringify`: the exact text whose hash the controller signs.
//!
//! Not a pretty printer: there is one form, compact, and every byte of it matters.

use super::{Content, Number, Text, Value};

/// What `JSON.stringify` prints for a parsed value.
pub fn stringify(value: &Value) -> String {
    let mut out = String::new();
    print(value, &mut out);
    out
}

// The depth is bounded: only the parser makes nested values, and it has a limit.
fn print(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => print_number(number, out),
        Value::String(text) => print_javascript_text(text, out),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                print(item, out);
            }
            out.push(']');
        }
        Value::Object(object) => {
            out.push('{');
            for (at, (key, member)) in object.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                print_javascript_text(key, out);
                out.push(':');
                print(member, out);
            }
            out.push('}');
        }
    }
}

/// Integers of up to this many digits are printed as they are written: a double holds them exactly.
const EXACT_DIGITS: usize = 15;

fn print_number(number: &Number, out: &mut String) {
    let digits = number.literal().strip_prefix('-').unwrap_or(number.literal());
    let is_plain = digits.len() <= EXACT_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain && number.literal() != "-0" {
        out.push_str(number.literal());
    } else if !number.as_f64().is_finite() {
        out.push_str("null");
    } else if number.as_f64() == 0.0 {
        // Minus zero is printed without its sign.
        out.push('0');
    } else {
        out.push_str(ryu_js::Buffer::new().format_finite(number.as_f64()));
    }
}

fn print_javascript_text(text: &Text, out: &mut String) {
    match &text.0 {
        Content::Unicode(text) => print_text(text, out),
        Content::Broken(units) => {
            out.push('"');
            for decoded in char::decode_utf16(units.iter().copied()) {
                match decoded {
                    Ok(character) => escape_into(character.encode_utf8(&mut [0; 4]), out),
                    Err(lone) => push_unicode_escape(lone.unpaired_surrogate(), out),
                }
            }
            out.push('"');
        }
    }
}

/// Appends a text as a JSON string, quotes included, escaped as JavaScript does.
pub fn print_text(text: &str, out: &mut String) {
    out.reserve(text.len() + 2);
    out.push('"');
    escape_into(text, out);
    out.push('"');
}

fn escape_into(text: &str, out: &mut String) {
    let mut copied = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= b' ' && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[copied..at]);
        copied = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x08 => out.push_str("\\b"),
            b'\t' => out.push_str("\\t"),
            b'\n' => out.push_str("\\n"),
            0x0c => out.push_str("\\f"),
            b'\r' => out.push_str("\\r"),
            _ => push_unicode_escape(u16::from(byte), out),
        }
    }
    out.push_str(&text[copied..]);
}

fn push_unicode_escape(unit: u16, out: &mut String) {
    out.push_str("\\u");
    for shift in [12, 8, 4, 0] {
        let digit = u32::from(unit >> shift & 0xf);
        out.push(char::from_digit(digit, 16).unwrap_or('0'));
    }
}
