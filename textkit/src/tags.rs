//! Structural tags: free text in which a mark, once written, goes on as one of the tags that begin with it. As
//! Lark for the library.

use crate::error::{Error, Result};
use crate::grammar::{any_lark, json_grammar, lark_grammar, regex_lark};
use crate::{lark_text, schema};
use llguidance::api::GrammarWithLexer;
use llguidance::toktrie::TokTrie;
use serde_json::Value;

const MAX_TAGS: usize = 256;
const MAX_NESTING: usize = 16;

/// The grammar of a JSON description (textkit.h), and then those that it names.
pub fn to_grammars(text: &str, trie: &TokTrie) -> Result<Vec<GrammarWithLexer>> {
    let described: Value = serde_json::from_str(text)
        .map_err(|error| Error::invalid(format!("it is not JSON: {error}")))?;
    let mut lark = Lark { trie, rules: Vec::new(), parts: Vec::new(), num_tags: 0 };
    let start = match described.get("format") {
        Some(format) => lark.format(format, 0)?,
        None => lark.tags(&described, 0)?,
    };
    lark.rules.push(format!("start: {start}"));
    lark.parts.insert(0, lark_grammar(lark.rules.join("\n")));
    Ok(lark.parts)
}

/// As Lark writes a string.
pub fn lark_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                quoted.push_str(&format!("\\u{:04x}", c as u32));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

struct Lark<'a> {
    trie: &'a TokTrie,
    rules: Vec<String>,
    parts: Vec<GrammarWithLexer>,
    num_tags: usize,
}

fn member<'v>(value: &'v Value, name: &str) -> Result<&'v str> {
    value
        .get(name)
        .and_then(Value::as_str)
        .ok_or_else(|| Error::invalid(format!("{name} is missing or no string")))
}

fn flag(value: &Value, name: &str, default: bool) -> Result<bool> {
    match value.get(name) {
        None | Some(Value::Null) => Ok(default),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(Error::invalid(format!("{name} must be true or false"))),
    }
}

fn list<'v>(value: &'v Value, name: &str) -> Result<&'v [Value]> {
    value
        .get(name)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .ok_or_else(|| Error::invalid(format!("{name} is missing or no list")))
}

impl Lark<'_> {
    fn rule(&mut self, prefix: &str, attributes: &str, body: &str) -> String {
        let name = format!("{prefix}{}", self.rules.len());
        self.rules.push(format!("{name}{attributes}: {body}"));
        name
    }

    /// Parts of a text that are special tokens become these.
    fn literal(&self, text: &str) -> String {
        let mut items = Vec::new();
        let mut plain = 0;
        let mut at = 0;
        while at < text.len() {
            match self.special_at(&text[at..]) {
                Some((id, length)) => {
                    if plain < at {
                        items.push(lark_string(&text[plain..at]));
                    }
                    items.push(format!("<[{id}]>"));
                    at += length;
                    plain = at;
                }
                None => at += text[at..].chars().next().map_or(1, char::len_utf8),
            }
        }
        if plain < text.len() {
            items.push(lark_string(&text[plain..]));
        }
        match items.is_empty() {
            true => "\"\"".to_string(),
            false => items.join(" "),
        }
    }

    /// The longest special token that a text begins with.
    fn special_at(&self, text: &str) -> Option<(u32, usize)> {
        let mut node = self.trie.child_at_byte(self.trie.root(), TokTrie::SPECIAL_TOKEN_MARKER)?;
        let mut found = None;
        for (at, byte) in text.bytes().enumerate() {
            let Some(next) = self.trie.child_at_byte(node, byte) else { break };
            node = next;
            found = node.token_id().map(|id| (id, at + 1)).or(found);
        }
        found
    }

    fn free_text(&mut self) -> String {
        if !self.rules.iter().any(|rule| rule.starts_with("FREE:")) {
            self.rules.push("FREE: /(?s:.+)/".to_string());
        }
        "FREE?".to_string()
    }

    /// Any text up to the first time that the mark comes, and the mark.
    fn free_until(&mut self, mark: &str) -> String {
        match self.special_at(mark) {
            Some((_, length)) if length == mark.len() => {
                format!("{} {}", self.free_text(), self.literal(mark))
            }
            _ => self.rule("until", &format!("[suffix={}]", lark_string(mark)), "/(?s:.*)/"),
        }
    }

    /// Any text without the marks; special tokens are never in it.
    fn free_without(&mut self, marks: &[&str]) -> String {
        let plain: Vec<String> = marks
            .iter()
            .filter(|mark| self.special_at(mark).is_none_or(|(_, length)| length != mark.len()))
            .map(|mark| lark_string(mark))
            .collect();
        if plain.is_empty() {
            return self.free_text();
        }
        let any = "/(?s:.*)/";
        let body = format!("/(?s:.+)/ & ~({any} ({}) {any})", plain.join(" | "));
        format!("{}?", self.rule("REST", "", &body))
    }

    fn part(&mut self, mut grammar: GrammarWithLexer) -> String {
        let name = format!("part_{}", self.parts.len());
        grammar.name = Some(name.clone());
        self.parts.push(grammar);
        format!("@{name}")
    }

    /// What stands between begin and end of a tag that is described in short.
    fn content(&mut self, tag: &Value) -> Result<String> {
        if let Some(schema) = tag.get("schema").filter(|schema| !schema.is_null()) {
            return Ok(self.part(json_grammar(schema::prepare_value(schema.clone())?)));
        }
        if tag.get("regex").is_some() {
            return Ok(self.part(lark_grammar(regex_lark(member(tag, "regex")?)?)));
        }
        if tag.get("grammar").is_some() {
            return Ok(self.part(lark_grammar(any_lark(member(tag, "grammar")?)?)));
        }
        Ok(self.part(json_grammar(schema::prepare_value(Value::Bool(true))?)))
    }

    /// A tag without the first bytes of its begin.
    fn tag(&mut self, tag: &Value, skipped: usize, depth: usize) -> Result<String> {
        self.num_tags += 1;
        if self.num_tags > MAX_TAGS {
            return Err(Error::invalid(format!("it has more than {MAX_TAGS} tags")));
        }
        let begin = member(tag, "begin")?;
        let end = tag.get("end").and_then(Value::as_str).unwrap_or("");
        let begin = self.literal(&begin[skipped..]);
        let content = tag.get("content").filter(|content| content.is_object());
        if content.is_some_and(|content| content.get("type").is_some_and(|t| t == "any_text")) {
            let body = match end.is_empty() {
                true => self.free_text(),
                false => self.free_until(end),
            };
            return Ok(format!("{begin} {body}"));
        }
        let content = match content {
            Some(content) => self.format(content, depth + 1)?,
            None => self.content(tag)?,
        };
        Ok(format!("{begin} {content} {}", self.literal(end)))
    }

    /// Tags in free text, or tags alone.
    fn tags(&mut self, value: &Value, depth: usize) -> Result<String> {
        let tags = match value.get("structures") {
            Some(_) => list(value, "structures")?,
            None => list(value, "tags")?,
        };
        if tags.is_empty() {
            return Err(Error::invalid("it has no tags"));
        }
        let at_least_one = flag(value, "at_least_one", false)?;
        let only_one = flag(value, "stop_after_first", false)?;
        if flag(value, "text", value.get("separator").is_none())? {
            return self.in_text(value, tags, (at_least_one, only_one), depth);
        }
        let tags: Vec<String> =
            tags.iter().map(|tag| self.tag(tag, 0, depth)).collect::<Result<_>>()?;
        let one = self.rule("tag", "", &tags.join(" | "));
        let separator = value.get("separator").and_then(Value::as_str).unwrap_or("");
        let separator = self.literal(separator);
        let all = match only_one {
            true => one,
            false => format!("{one} ({separator} {one})*"),
        };
        Ok(match at_least_one {
            true => format!("({all})"),
            false => format!("({all})?"),
        })
    }

    fn in_text(
        &mut self,
        value: &Value,
        tags: &[Value],
        (at_least_one, only_one): (bool, bool),
        depth: usize,
    ) -> Result<String> {
        let marks: Vec<&str> = list(value, "triggers")?
            .iter()
            .map(|mark| mark.as_str().filter(|text| !text.is_empty()))
            .collect::<Option<_>>()
            .ok_or_else(|| Error::invalid("triggers must be strings that are not empty"))?;
        let mut groups: Vec<(&str, Vec<String>)> = marks.iter().map(|m| (*m, Vec::new())).collect();
        for tag in tags {
            let begin = member(tag, "begin")?;
            let group = groups
                .iter()
                .position(|(mark, _)| begin.starts_with(mark))
                .ok_or_else(|| Error::invalid("a tag's begin begins with none of the triggers"))?;
            let rest = self.tag(tag, groups[group].0.len(), depth)?;
            groups[group].1.push(rest);
        }
        groups.retain(|(_, rests)| !rests.is_empty());
        let mut options = Vec::new();
        for (mark, rests) in groups {
            let before = self.free_until(mark);
            options.push(format!("{before} ({})", rests.join(" | ")));
        }
        let one = self.rule("tag", "", &options.join(" | "));
        let rest = self.free_without(&marks);
        Ok(match (at_least_one, only_one) {
            (true, true) => one,
            (false, true) => format!("({one} | {rest})"),
            (true, false) => format!("{one}+ {rest}"),
            (false, false) => format!("{one}* {rest}"),
        })
    }

    /// The newer description: formats in formats.
    fn format(&mut self, value: &Value, depth: usize) -> Result<String> {
        if depth > MAX_NESTING {
            return Err(Error::invalid(format!("formats are nested more than {MAX_NESTING} deep")));
        }
        match member(value, "type")? {
            "const_string" => Ok(self.literal(member(value, "value")?)),
            "json_schema" => {
                let schema = value.get("json_schema").cloned().unwrap_or(Value::Bool(true));
                Ok(self.part(json_grammar(schema::prepare_value(schema)?)))
            }
            "regex" => Ok(self.part(lark_grammar(regex_lark(member(value, "pattern")?)?))),
            "grammar" => {
                let lark = any_lark(member(value, "grammar")?)?;
                Ok(self.part(lark_grammar(match flag(value, "in_json", false)? {
                    true => lark_text::in_json(&lark)?,
                    false => lark,
                })))
            }
            "any_text" => Ok(self.free_text()),
            "sequence" => Ok(self.all(value, depth)?.join(" ")),
            "or" => Ok(format!("({})", self.all(value, depth)?.join(" | "))),
            "tag" => self.tag(value, 0, depth),
            "triggered_tags" | "tags_with_separator" => self.tags(value, depth),
            other => {
                let shown: String = other.chars().take(80).collect();
                Err(Error::invalid(format!("the format {shown:?} of structural tags is not known")))
            }
        }
    }

    fn all(&mut self, value: &Value, depth: usize) -> Result<Vec<String>> {
        let elements = list(value, "elements")?;
        if elements.is_empty() {
            return Err(Error::invalid("elements is empty"));
        }
        elements.iter().map(|each| self.format(each, depth + 1)).collect()
    }
}
