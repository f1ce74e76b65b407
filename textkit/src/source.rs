//! Template source as the engine needs it: the few constructs in which it differs from Jinja are
//! rewritten. Nothing is added or removed across a line end, so lines in messages stay true.
//!
//! - `{% generation %}` (what an assistant wrote, for training) becomes a block without effect.
//! - `{{ a|safe + b }}` joins markup, which escapes plain text; the engine's `+` would not.
//! - `{% for x in xs %}` refuses None, as Python does; the engine would take it for an empty list.

//! - `{% set x = y %}` checks that values do not nest without end, which would overflow the stack when
//!   they are dropped.
//! - `{% set n.x = y %}` reads n, so that macros know it.
//! - `{% raw %}` keeps the line end behind it.

use crate::error::{Error, Result};
use std::borrow::Cow;

const MAX_BYTES: usize = 1 << 20;
/// An expression is walked recursively, to a depth of at most its tokens.
const MAX_TOKENS_OF_TAG: usize = 10_000;
/// So are blocks inside blocks, and `elif` after `elif`.
const MAX_BLOCKS: usize = 10_000;

/// The filter put behind every iterated expression.
pub const ITERATED: &str = "_iterated";

/// The filter put behind every value that is kept.
pub const STORED: &str = "_stored";

/// Refuses sources whose syntax tree could be too deep for the stack.
pub fn check_size(source: &str) -> Result<()> {
    if source.len() > MAX_BYTES {
        return Err(Error::invalid(format!(
            "the chat template has {} bytes, at most {MAX_BYTES} are accepted",
            source.len()
        )));
    }
    let mut num_blocks = 0;
    let mut rest = source;
    while let Some(start) = rest.find('{') {
        let tag = &rest[start..];
        let close = match tag.as_bytes().get(1) {
            Some(b'{') => "}}",
            Some(b'%') => "%}",
            _ => {
                rest = &tag[1..];
                continue;
            }
        };
        num_blocks += usize::from(close == "%}");
        let code = &tag[2..2 + code_length(&tag[2..], close)];
        let (mut position, mut num_tokens) = (0, 0);
        while position < code.len() {
            let word = token(&code[position..]);
            num_tokens += usize::from(!word.trim().is_empty());
            position += word.len();
        }
        if num_tokens > MAX_TOKENS_OF_TAG || num_blocks > MAX_BLOCKS {
            return Err(Error::invalid(format!(
                "the chat template has more than {MAX_TOKENS_OF_TAG} words in one tag or more than {MAX_BLOCKS} tags"
            )));
        }
        rest = &tag[2 + code.len()..];
    }
    Ok(())
}

pub fn prepare(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + 64);
    let mut rest = source;
    while let Some(start) = rest.find('{') {
        let (before, tag) = rest.split_at(start);
        out.push_str(before);
        let (tag, after) = tag.split_at(tag_length(tag));
        rest = after;
        if tag.starts_with("{{") {
            out.push_str(&joined_markup(tag).unwrap_or_else(|| tag.to_string()));
            continue;
        }
        if !tag.starts_with("{%") {
            out.push_str(tag);
            continue;
        }
        out.push_str(&block(tag));
        if keyword(&tag[2..]) == "raw" {
            rest = &rest[push_line_ends(tag, rest, &mut out)..];
            let end = raw_length(rest);
            out.push_str(&rest[..end]);
            rest = &rest[end..];
        }
    }
    out.push_str(rest);
    out
}

/// Jinja keeps a line end behind `{% raw %}`, the engine takes it away. How many bytes were written.
fn push_line_ends(tag: &str, rest: &str, out: &mut String) -> usize {
    let length = rest.len() - rest.trim_start_matches(['\r', '\n']).len();
    if length == 0 || tag.ends_with("-%}") || raw_length(rest) == rest.len() {
        return 0;
    }
    out.push_str(&format!("{{% endraw %}}{{{{ '{}' }}}}{{% raw %}}", &rest[..length]));
    length
}

/// `source` with its plain text and what is in its strings as `rewrite` has it; None: as it was.
pub fn rewrite_texts(source: &str, mut rewrite: impl FnMut(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(source.len() + 64);
    let mut rest = source;
    let mut add = |text: &str, out: &mut String| match rewrite(text) {
        Some(rewritten) => out.push_str(&rewritten),
        None => out.push_str(text),
    };
    while !rest.is_empty() {
        let (text, tag) = rest.split_at(tag_start(rest));
        add(text, &mut out);
        let (tag, after) = tag.split_at(tag_length(tag));
        rest = after;
        if tag.starts_with("{#") {
            out.push_str(tag);
            continue;
        }
        rewrite_strings(tag, &mut out, &mut add);
        if tag.starts_with("{%") && keyword(&tag[2..]) == "raw" {
            let (raw, after) = rest.split_at(raw_length(rest));
            add(raw, &mut out);
            rest = after;
        }
    }
    out
}

fn rewrite_strings(tag: &str, out: &mut String, add: &mut impl FnMut(&str, &mut String)) {
    let mut position = 0;
    while position < tag.len() {
        let word = token(&tag[position..]);
        position += word.len();
        let quote = word.chars().next().filter(|c| matches!(c, '"' | '\''));
        let body = quote.and_then(|c| word.strip_prefix(c)?.strip_suffix(c));
        match (quote, body) {
            (Some(quote), Some(body)) => {
                out.push(quote);
                add(body, out);
                out.push(quote);
            }
            _ => out.push_str(word),
        }
    }
}

/// Bytes before the next tag or comment.
fn tag_start(source: &str) -> usize {
    let mut at = 0;
    while let Some(found) = source[at..].find('{') {
        at += found;
        if matches!(source.as_bytes().get(at + 1), Some(b'{' | b'%' | b'#')) {
            return at;
        }
        at += 1;
    }
    source.len()
}

/// Bytes of the tag or comment that `text` begins with; of anything else one.
fn tag_length(text: &str) -> usize {
    let length = match text.as_bytes().get(1) {
        Some(b'#') => text.find("#}").map(|end| end + 2),
        Some(b'{') => Some(2 + code_length(&text[2..], "}}")),
        Some(b'%') => Some(2 + code_length(&text[2..], "%}")),
        _ => Some(1),
    };
    length.unwrap_or(text.len()).min(text.len())
}

/// Bytes up to and including `close`, outside of strings.
fn code_length(code: &str, close: &str) -> usize {
    let mut position = 0;
    while position < code.len() {
        if code[position..].starts_with(close) {
            return position + close.len();
        }
        position += token(&code[position..]).len();
    }
    code.len()
}

/// Bytes up to the block that ends raw text.
fn raw_length(text: &str) -> usize {
    let mut position = 0;
    while let Some(found) = text[position..].find("{%") {
        position += found;
        if keyword(&text[position + 2..]) == "endraw" {
            return position;
        }
        position += 2;
    }
    text.len()
}

/// The next token: a string, a word, or one character.
fn token(code: &str) -> &str {
    let Some(first) = code.chars().next() else { return code };
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let length = if first == '"' || first == '\'' {
        string_length(code, first)
    } else if is_word(first) {
        code.find(|c| !is_word(c)).unwrap_or(code.len())
    } else {
        first.len_utf8()
    };
    &code[..length]
}

fn string_length(code: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (position, c) in code.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return position + 1,
            _ => {}
        }
    }
    code.len()
}

/// The word a block begins with, behind its whitespace mark.
fn keyword(code: &str) -> &str {
    let code = code.strip_prefix(['-', '+']).unwrap_or(code).trim_start();
    token(code)
}

/// One `{% ... %}`.
fn block(tag: &str) -> Cow<'_, str> {
    match keyword(&tag[2..]) {
        "generation" => tag.replacen("generation", "with", 1).into(),
        "endgeneration" => tag.replacen("endgeneration", "endwith", 1).into(),
        "for" => iterated(tag).map_or(tag.into(), Cow::Owned),
        "set" => stored(tag).map_or(tag.into(), Cow::Owned),
        _ => tag.into(),
    }
}

/// `{% for x in xs if y %}` with the filter behind xs.
fn iterated(tag: &str) -> Option<String> {
    let body_end = tag.strip_suffix("%}")?;
    let body_end = body_end.strip_suffix(['-', '+']).unwrap_or(body_end).len();
    let mut start = None;
    let mut end = body_end;
    let mut depth = 0;
    let mut position = 2;
    while position < body_end {
        let word = token(&tag[position..body_end]);
        match word {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            "in" if depth == 0 && start.is_none() => start = Some(position + word.len()),
            "if" | "recursive" if depth == 0 && start.is_some() => {
                end = position;
                break;
            }
            _ => {}
        }
        position += word.len();
    }
    let start = start?;
    Some(format!("{} ({})|{ITERATED} {}", &tag[..start], &tag[start..end], &tag[end..]))
}

/// `{% set x = y %}` with the filter behind y. `{% set x, y = 1, 2 %}` keeps its tuple. Of `{% set n.x = y %}`
/// the filter gets n: a macro knows of the variables around it those that it reads.
fn stored(tag: &str) -> Option<String> {
    let body_end = tag.strip_suffix("%}")?;
    let body_end = body_end.strip_suffix(['-', '+']).unwrap_or(body_end).len();
    let mut position = 2;
    while position < body_end {
        let word = token(&tag[position..body_end]);
        position += word.len();
        if word == "=" {
            let (target, value) = (&tag[..position], &tag[position..body_end]);
            let namespace = namespace(target).map(|name| format!("({name})")).unwrap_or_default();
            return Some(format!("{target} ({value})|{STORED}{namespace} {}", &tag[body_end..]));
        }
    }
    None
}

/// The n of `{% set n.x =`.
fn namespace(target: &str) -> Option<&str> {
    let (left, _) = target.split_once('.')?;
    left.split_whitespace().last()
}

/// `{{ a|safe + b }}` as a call, if the whole expression is such a sum.
fn joined_markup(tag: &str) -> Option<String> {
    let body_end = tag.strip_suffix("}}")?;
    let body_end = body_end.strip_suffix(['-', '+']).unwrap_or(body_end).len();
    let body_start = 2 + usize::from(tag[2..body_end].starts_with(['-', '+']));
    let mut parts = Vec::new();
    let (mut start, mut position, mut depth) = (body_start, body_start, 0);
    let mut before = "";
    let mut has_markup = false;
    while position < body_end {
        let word = token(&tag[position..body_end]);
        match word {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            "+" if depth == 0 => {
                parts.push(tag[start..position].trim());
                start = position + 1;
            }
            // Anything that binds more loosely than a sum: not such an expression.
            "~" | "," | "if" | "in" | "is" | "and" | "or" | "not" | "=" | "<" | ">" | "!"
                if depth == 0 =>
            {
                return None
            }
            "safe" if depth == 0 && before == "|" => has_markup = true,
            _ => {}
        }
        if !word.trim().is_empty() {
            before = word;
        }
        position += word.len();
    }
    parts.push(tag[start..body_end].trim());
    let is_sum = parts.len() > 1 && parts.iter().all(|part| !part.is_empty());
    let line_ends = "\n".repeat(tag.matches('\n').count());
    (has_markup && is_sum).then(|| {
        let call = format!("_plus({})", parts.join(", "));
        let kept = call.matches('\n').count();
        let padding = &line_ends[kept.min(line_ends.len())..];
        format!("{} {call}{padding} {}", &tag[..body_start], &tag[body_end..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_guarded() {
        let cases = [
            ("{% for x in xs %}", "{% for x in ( xs )|_iterated %}"),
            (
                "{%- for a, b in f('in', [1]) if a -%}",
                "{%- for a, b in ( f('in', [1]) )|_iterated if a -%}",
            ),
            ("{{ 'for x in y' }}", "{{ 'for x in y' }}"),
            ("{# for x in y #}{% if x in y %}", "{# for x in y #}{% if x in y %}"),
            ("{% for x in '%}' %}", "{% for x in ( '%}' )|_iterated %}"),
        ];
        for (source, expected) in cases {
            assert_eq!(prepare(source), expected);
        }
    }

    #[test]
    fn sums_with_markup_become_calls() {
        let cases = [
            ("{{ 'a'|safe + b['c'] + d|tojson() }}", "{{ _plus('a'|safe, b['c'], d|tojson()) }}"),
            ("{{- a|safe +\nb -}}", "{{- _plus(a|safe, b)\n -}}"),
            ("{{ a + b }}", "{{ a + b }}"),
            ("{{ a|safe ~ b + c }}", "{{ a|safe ~ b + c }}"),
        ];
        for (source, expected) in cases {
            assert_eq!(prepare(source), expected);
        }
    }

    #[test]
    fn texts_and_strings_are_rewritten_and_code_is_not() {
        let cases = [
            ("a{{ a['a'] }}a{# a #}", "b{{ a['b'] }}b{# a #}"),
            ("{a}{% set a = \"a\" %}", "{b}{% set a = \"b\" %}"),
            ("{% raw %}{{ 'a' }}{% endraw %}", "{% rbw %}{{ 'a' }}{% endraw %}"),
            ("{{ 'é\\'a' ~ a", "{{ 'é\\'b' ~ a"),
            ("{{ 'a", "{{ 'a"),
        ];
        for (source, expected) in cases {
            let expected = expected.replace("rbw %}{{ 'a' }}", "raw %}{{ 'b' }}");
            assert_eq!(rewrite_texts(source, |text| Some(text.replace('a', "b"))), expected);
        }
    }

    #[test]
    fn generation_is_a_block_without_effect() {
        assert_eq!(prepare("{%- generation -%}x{% endgeneration %}"), "{%- with -%}x{% endwith %}");
    }

    #[test]
    fn raw_text_keeps_its_first_line_ends() {
        let cases = [
            (
                "{% raw %}\n\n a{% endraw %}",
                "{% raw %}{% endraw %}{{ '\n\n' }}{% raw %} a{% endraw %}",
            ),
            ("{%- raw -%}\na{% endraw %}", "{%- raw -%}\na{% endraw %}"),
            ("{% raw %}\na", "{% raw %}\na"),
        ];
        for (source, expected) in cases {
            assert_eq!(prepare(source), expected);
        }
    }

    #[test]
    fn raw_text_and_odd_ends_stay() {
        for source in [
            "{% raw %}{% for x in y %}{% endraw %}",
            "{% for x in",
            "{% for x in 'a",
            "{{ \"",
            "{#",
            "{",
            "é{ü}",
            "{% raw %}{% generation %}",
        ] {
            assert_eq!(prepare(source), source);
        }
    }
}
