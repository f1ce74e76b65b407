//! A Lark grammar for text that stands in a JSON string.
//!
//! Strings of the grammar are written as JSON escapes them. Expressions are held to characters that
//! need no escape: nothing comes that the grammar forbids, though of the texts that it allows those
//! with a quote or a line end matched by an expression cannot be written.

use crate::error::{Error, Result};
use crate::tags::lark_string;

/// What JSON writes as it is.
const PLAIN: &str = r#"/[^"\\\x00-\x1F\x7F]*/"#;

pub fn in_json(lark: &str) -> Result<String> {
    let mut out = String::with_capacity(2 * lark.len());
    let mut terminals = String::new();
    let mut rest = lark;
    let mut num_terminals = 0;
    while let Some(first) = rest.chars().next() {
        let (word, after) = rest.split_at(word_length(rest, first));
        rest = after;
        match first {
            '"' => out.push_str(&string_in_json(word)?),
            '/' if word.len() > 2 && !word.starts_with("//") => {
                num_terminals += 1;
                let name = format!("JSON_TEXT_{num_terminals}");
                terminals.push_str(&format!("\n{name}: {word} & {PLAIN}"));
                out.push_str(&name);
            }
            '%' if word == "%import" => {
                let (import, after) = rest.split_at(rest.find('\n').unwrap_or(rest.len()));
                rest = after;
                import_in_json(import, &mut out, &mut terminals);
            }
            '%' if word != "%ignore" => return Err(unknown(word)),
            '<' | '@' => return Err(unknown(word)),
            _ => out.push_str(word),
        }
    }
    Ok(out + &terminals + "\n")
}

fn unknown(word: &str) -> Error {
    Error::invalid(format!("{word} cannot stand in the grammar of a text that is written as JSON"))
}

/// Bytes of the string, expression, comment, directive, name or character at the beginning.
fn word_length(text: &str, first: char) -> usize {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let name_end = |text: &str| text.find(|c| !is_name(c)).unwrap_or(text.len());
    let line_end = text.find('\n').unwrap_or(text.len());
    match first {
        '#' => line_end,
        '/' if text.starts_with("//") => line_end,
        '"' | '/' => {
            let end = quoted_length(text, first);
            end + name_end(&text[end..])
        }
        '%' => 1 + name_end(&text[1..]),
        c if is_name(c) => name_end(text),
        c => c.len_utf8(),
    }
}

/// Up to and with the next `quote` that no backslash stands before.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn string_in_json(word: &str) -> Result<String> {
    let end = quoted_length(word, '"');
    let flags = &word[end..];
    let value: String = serde_json::from_str(&word[..end].replace("\\x", "\\u00"))
        .map_err(|error| Error::invalid(format!("the string {word} is no JSON: {error}")))?;
    let escaped = serde_json::Value::String(value.clone()).to_string();
    let escaped = &escaped[1..escaped.len() - 1];
    match (escaped == value, flags) {
        (true, _) => Ok(word.to_string()),
        (false, "") => Ok(lark_string(escaped)),
        (false, _) => Err(unknown(word)),
    }
}

/// ` common.A`, ` common.A -> B` or ` common (A, B)`: under other names, and held like expressions.
fn import_in_json(import: &str, out: &mut String, terminals: &mut String) {
    let mut add = |path: &str, name: &str| {
        out.push_str(&format!("%import {path} -> JSON_RAW_{name}\n"));
        terminals.push_str(&format!("\n{name}: JSON_RAW_{name} & {PLAIN}"));
    };
    let import = import.trim();
    if let Some((path, names)) = import.split_once('(') {
        let names = names.trim_end_matches(')').split(',').map(str::trim);
        names.for_each(|name| add(&format!("{}.{name}", path.trim()), name));
        return;
    }
    let (path, alias) = import.split_once("->").unwrap_or((import, ""));
    let own_name = path.trim().rsplit('.').next().unwrap_or_default();
    let alias = alias.trim();
    add(path.trim(), if alias.is_empty() { own_name } else { alias });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_and_expressions_are_held() {
        let cases = [
            (r#"start: "a" "b"i"#, r#"start: "a" "b"i"#.to_string()),
            (r#"start: "\"" "\n" "\x41""#, r#"start: "\\\"" "\\n" "\x41""#.to_string()),
            ("start: A // \"x\n# /y/\nA: \"a\"..\"z\"", "start: A // \"x\n# /y/\nA: \"a\"..\"z\"".into()),
            (r"start: /a\/b/i", format!("start: JSON_TEXT_1\nJSON_TEXT_1: /a\\/b/i & {PLAIN}")),
            (
                "%import common.WS -> BLANK\n%ignore BLANK",
                format!("%import common.WS -> JSON_RAW_BLANK\n\n%ignore BLANK\nBLANK: JSON_RAW_BLANK & {PLAIN}"),
            ),
        ];
        for (lark, expected) in cases {
            assert_eq!(in_json(lark).expect("valid").trim_end(), expected);
        }
    }

    #[test]
    fn what_has_no_form_in_json_is_refused() {
        for lark in ["start: %json {}", "start: <|end|>", "start: @other", "start: \"\\n\"i", "\"a"]
        {
            assert!(in_json(lark).is_err(), "{lark}");
        }
    }
}
