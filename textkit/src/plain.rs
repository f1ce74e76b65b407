//! Content as plain text: what a request's strings contribute to a prompt holds no token.
//!
//! Not content is marked but what the template writes itself: in its source each token's spelling
//! becomes one character that no request can send (its sign), so whatever becomes of content on its
//! way (escaped, cut, joined, small letters), it makes no sign. In the rendered prompt signs become
//! tokens again. Any other spelling of a token gets a mark behind its first character; the tokenizer
//! takes marks out and recognises no token there.
//!
//! Two things come back as signs though they are in the request. What the model said itself may hold
//! tokens that are not special, as it did when it was generated; special ones in it are signs that the
//! template can look for (`content.split('</think>')`), and text if they reach the prompt. And a
//! template may join a token around the name of a role: `<|` + role + `|>`.

use crate::error::{Error, Result};
use crate::source;
use serde_json::{Map, Value as Json};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Behind the first character of a spelling that is no token.
pub const MARK: char = '\u{fdd0}';
/// In the template, where a role's name may complete a token.
const JOINT: char = '\u{fdd1}';
/// Behind a sign that the template may look at, and that is text in the prompt.
pub const SAID: char = '\u{fdd2}';
const FIRST_SIGN: char = '\u{10f000}';
const LAST_SIGN: char = '\u{10fffd}';

/// Names that templates join with what stands around them, also with a capital and in capitals.
const ROLES: [&str; 12] = [
    "system",
    "user",
    "assistant",
    "tool",
    "developer",
    "function",
    "observation",
    "ipython",
    "model",
    "human",
    "bot",
    "tool_result",
];
/// What a token has on either side of a role's name.
const MIN_SIDE_CHARS: usize = 2;
const MAX_SIDE_BYTES: usize = 16;

/// Characters with a meaning here: a request's own become U+FFFD, filters pass them on.
pub fn is_reserved(c: char) -> bool {
    matches!(c, MARK | JOINT | SAID | FIRST_SIGN..=LAST_SIGN)
}

/// Texts in order, to be found at the beginning of others.
struct Spellings {
    texts: Vec<String>,
    begins: [bool; 256],
}

impl Spellings {
    fn new(texts: impl IntoIterator<Item = String>) -> Self {
        let mut texts: Vec<String> = texts.into_iter().filter(|text| !text.is_empty()).collect();
        texts.sort_unstable();
        texts.dedup();
        let mut begins = [false; 256];
        texts.iter().for_each(|text| begins[usize::from(text.as_bytes()[0])] = true);
        Self { texts, begins }
    }

    fn begins(&self, byte: u8) -> bool {
        self.begins[usize::from(byte)]
    }

    /// The shortest that `text` begins with, or the longest.
    fn find(&self, text: &str, is_longest: bool) -> Option<&str> {
        let (mut low, mut high) = (0, self.texts.len());
        let mut found = None;
        for (depth, byte) in text.bytes().enumerate() {
            let here = |text: &String| text.as_bytes().get(depth).copied();
            let range = &self.texts[low..high];
            high = low + range.partition_point(|text| here(text) <= Some(byte));
            low += range.partition_point(|text| here(text) < Some(byte));
            if low == high {
                break;
            }
            if self.texts[low].len() == depth + 1 {
                found = Some(self.texts[low].as_str());
                if !is_longest {
                    break;
                }
            }
        }
        found
    }

    /// `text` with each of these, the leftmost longest, replaced; None: there is none.
    fn replace(&self, text: &str, mut put: impl FnMut(&str, &mut String)) -> Option<String> {
        let mut out = String::new();
        let (mut copied, mut at) = (0, 0);
        while at < text.len() {
            let found = match self.begins(text.as_bytes()[at]) {
                true => self.find(&text[at..], true),
                false => None,
            };
            let Some(found) = found else {
                at += 1;
                continue;
            };
            out.push_str(&text[copied..at]);
            put(found, &mut out);
            at += found.len();
            copied = at;
        }
        (copied > 0).then(|| out + &text[copied..])
    }
}

/// A token that the template writes around a role's name: `<|`, `user|>`.
struct Joined {
    head: String,
    tail: String,
}

pub struct Plain {
    /// Tokens that content may not become.
    words: Spellings,
    /// Those of them that the template writes.
    written: Spellings,
    signs: HashMap<String, char>,
    by_sign: Vec<String>,
    /// No sign of these is text where the model said it.
    ordinary: HashSet<String>,
    joined: Vec<Joined>,
}

impl Plain {
    /// `json`: {"special": [...], "written": [...]}: the spellings of special tokens, and of other
    /// tokens that the template writes; a list is of special ones. Empty: content may hold tokens.
    pub fn new(json: &str, source: &str, values: &Map<String, Json>) -> Result<Option<Self>> {
        if json.is_empty() {
            return Ok(None);
        }
        let given: Json = serde_json::from_str(json)
            .map_err(|error| Error::invalid(format!("the special tokens are no JSON: {error}")))?;
        let special = list(if given.is_array() { Some(&given) } else { given.get("special") });
        let ordinary = list(given.get("written"));
        let mut pieces = Vec::new();
        source::rewrite_texts(source, |piece| {
            pieces.push(piece.to_string());
            None
        });
        let forms = Forms::of(special.iter().chain(&ordinary));
        let mut written: HashSet<String> = ordinary.iter().cloned().collect();
        for piece in
            pieces.iter().map(String::as_str).chain(values.values().filter_map(Json::as_str))
        {
            forms.spellings.replace(piece, |form, _| {
                written.insert(forms.word(form).to_string());
            });
        }
        let joined = joined(&special, &written, &pieces);
        Ok(Some(Self::with(special, ordinary, written, joined)))
    }

    fn with(
        special: Vec<String>,
        ordinary: Vec<String>,
        written: HashSet<String>,
        joined: Vec<Joined>,
    ) -> Self {
        let (bare, written): (Vec<_>, Vec<_>) = written.into_iter().partition(|word| is_bare(word));
        let bare: HashSet<String> = bare.into_iter().collect();
        let words = special.into_iter().chain(ordinary.iter().cloned());
        let words = Spellings::new(words.filter(|word| !bare.contains(word)));
        let mut written = Spellings::new(written);
        written.texts.truncate(LAST_SIGN as usize - FIRST_SIGN as usize + 1);
        let by_sign = written.texts.clone();
        let signs = by_sign.iter().cloned().zip(FIRST_SIGN..=LAST_SIGN).collect();
        Self { words, written, signs, by_sign, ordinary: ordinary.into_iter().collect(), joined }
    }

    /// The template's source with signs for the tokens that it writes.
    pub fn signed_source(&self, source: &str) -> String {
        let forms = Forms::of(&self.written.texts);
        source::rewrite_texts(source, |piece| {
            let signed =
                forms.spellings.replace(piece, |form, out| out.push(self.signs[forms.word(form)]));
            match self.joined.iter().any(|joined| piece.ends_with(&joined.head)) {
                true => Some(signed.unwrap_or_else(|| piece.to_string()) + &JOINT.to_string()),
                false => signed,
            }
        })
    }

    /// Signs in the values that the template may write: bos_token and the like.
    pub fn sign_values(&self, values: &mut Map<String, Json>) {
        for value in values.values_mut() {
            let signed = value.as_str().and_then(|text| {
                self.written.replace(text, |word, out| out.push(self.signs[word]))
            });
            if let Some(signed) = signed {
                *value = Json::String(signed);
            }
        }
    }

    /// Takes reserved characters out of a request, and puts signs into what the model said.
    pub fn prepare(&self, options: &mut Map<String, Json>) {
        walk(options, 0, false, &mut |text, is_own| {
            let clean = text.contains(is_reserved).then(|| text.replace(is_reserved, "\u{fffd}"));
            if !is_own {
                return clean;
            }
            let signed = self.written.replace(clean.as_deref().unwrap_or(text), |word, out| {
                out.push(self.signs[word]);
                if !self.ordinary.contains(word) {
                    out.push(SAID);
                }
            });
            signed.or(clean)
        });
    }

    /// The prompt: signs spelt out, marks in every other spelling of a token.
    pub fn finish(&self, rendered: &str) -> String {
        let (text, tokens) = self.spell_out(rendered);
        let mut out = String::with_capacity(text.len() + 16);
        let mut tokens = tokens.into_iter().peekable();
        let (mut copied, mut at) = (0, 0);
        while at < text.len() {
            let token = tokens.next_if(|token| token.start == at);
            if token.is_none() && !self.words.begins(text.as_bytes()[at]) {
                at += 1;
                continue;
            }
            let rest = &text[at..];
            let found = self.words.find(rest, token.is_some());
            let first = rest.chars().next().map_or(1, char::len_utf8);
            at += token.as_ref().map_or(first, ExactSizeIterator::len);
            // What follows a token must not make it another, longer one.
            if found.is_some_and(|word| token.is_none_or(|token| token.len() < word.len())) {
                out.push_str(&text[copied..at]);
                out.push(MARK);
                copied = at;
            }
        }
        out + &text[copied..]
    }

    /// `rendered` as people read it.
    pub fn visible(&self, rendered: &str) -> String {
        self.spell_out(rendered).0
    }

    /// Without reserved characters, and where the template's own tokens stand.
    fn spell_out(&self, rendered: &str) -> (String, Vec<Range<usize>>) {
        let mut out = String::with_capacity(rendered.len());
        let mut tokens = Vec::new();
        let mut rest = rendered;
        while let Some(at) = rest.find(is_reserved) {
            out.push_str(&rest[..at]);
            let sign = rest[at..].chars().next().unwrap_or(MARK);
            rest = &rest[at + sign.len_utf8()..];
            if sign == JOINT {
                let is_here = |j: &&Joined| out.ends_with(&j.head) && rest.starts_with(&j.tail);
                if let Some(joined) = self.joined.iter().find(is_here) {
                    tokens.push(out.len() - joined.head.len()..out.len() + joined.tail.len());
                }
                continue;
            }
            let number = (sign as usize).wrapping_sub(FIRST_SIGN as usize);
            let Some(word) = self.by_sign.get(number) else { continue };
            if !rest.starts_with(SAID) {
                tokens.push(out.len()..out.len() + word.len());
            }
            out.push_str(word);
        }
        out.push_str(rest);
        (out, tokens)
    }
}

fn list(value: Option<&Json>) -> Vec<String> {
    let items = value.and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let words = items.iter().filter_map(Json::as_str);
    words.filter(|word| !word.is_empty()).map(str::to_string).collect()
}

/// Of letters or blanks alone, or one character: templates have it as an ordinary word, too.
fn is_bare(word: &str) -> bool {
    let is_ordinary = |c: char| c.is_alphanumeric() || c == '_' || c.is_whitespace();
    word.chars().nth(1).is_none() || word.chars().all(is_ordinary)
}

/// How tokens are spelt in a template's source, escaped or not.
struct Forms {
    spellings: Spellings,
    words: HashMap<String, String>,
}

impl Forms {
    fn of<'a>(words: impl IntoIterator<Item = &'a String>) -> Self {
        let mut forms = HashMap::new();
        for word in words {
            forms.insert(escaped(word, |c| (c == '"').then(|| "\\\"".into())), word.clone());
            forms.insert(escaped(word, |c| (c == '\'').then(|| "\\'".into())), word.clone());
            let code = |c: char| (!c.is_ascii()).then(|| format!("\\u{:04x}", c as u32));
            forms.insert(escaped(word, code), word.clone());
            forms.insert(
                escaped(word, |c| code(c).map(|code| code.to_uppercase().replace("\\U", "\\u"))),
                word.clone(),
            );
            forms.insert(word.clone(), word.clone());
        }
        Self { spellings: Spellings::new(forms.keys().cloned()), words: forms }
    }

    fn word(&self, form: &str) -> &str {
        &self.words[form]
    }
}

fn escaped(word: &str, escape: impl Fn(char) -> Option<String>) -> String {
    word.chars().map(|c| escape(c).unwrap_or_else(|| c.to_string())).collect()
}

/// The special tokens that a template can write around a role's name.
fn joined(special: &[String], written: &HashSet<String>, pieces: &[String]) -> Vec<Joined> {
    let sides = |text: &str| -> Vec<usize> {
        let ends = text.char_indices().map(|(at, _)| at).skip(MIN_SIDE_CHARS);
        ends.take_while(|at| *at <= MAX_SIDE_BYTES).collect()
    };
    let ends_with = |head: &str| pieces.iter().any(|piece| piece.ends_with(head));
    let starts_with = |end: &str| pieces.iter().any(|piece| piece.starts_with(end));
    let names = names(pieces);
    let mut found = Vec::new();
    let mut heads: HashMap<String, bool> = HashMap::new();
    for word in special {
        for side in sides(word) {
            let (head, tail) = word.split_at(side);
            if !*heads.entry(head.to_string()).or_insert_with(|| ends_with(head)) {
                continue;
            }
            let is_joined = names.iter().any(|(name, is_role)| {
                let end = tail.strip_prefix(name.as_str()).unwrap_or_default();
                let is_side = end.chars().nth(MIN_SIDE_CHARS - 1).is_some();
                is_side && (*is_role || !written.contains(word)) && starts_with(end)
            });
            if is_joined {
                found.push(Joined { head: head.to_string(), tail: tail.to_string() });
            }
        }
    }
    found
}

/// Roles, and words that the template itself may put in their place.
fn names(pieces: &[String]) -> Vec<(String, bool)> {
    let mut names = Vec::new();
    for role in ROLES {
        let (first, rest) = role.split_at(1);
        names.push((role.to_string(), true));
        names.push((role.to_uppercase(), true));
        names.push((first.to_uppercase() + rest, true));
    }
    let is_word = |piece: &&String| {
        (2..=32).contains(&piece.len()) && piece.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    names.extend(pieces.iter().filter(is_word).map(|piece| (piece.clone(), false)));
    names
}

/// What the model said itself, in a message of the assistant. Arguments of calls are not among it:
/// they may quote anything.
const OWN_WORDS: [&str; 4] = ["content", "reasoning_content", "reasoning", "thinking"];

/// Every string of a request, and every name but those of the request's own fields. `is_own`: inside
/// what the model said.
fn walk(
    map: &mut Map<String, Json>,
    depth: usize,
    is_own: bool,
    change: &mut impl FnMut(&str, bool) -> Option<String>,
) {
    let changes_names = depth > 0;
    let by_model = depth == 1 && map.get("role").is_some_and(|role| role == "assistant");
    for (name, mut value) in std::mem::take(map) {
        let is_said = is_own || (by_model && OWN_WORDS.contains(&name.as_str()));
        let name = changes_names.then(|| change(&name, false)).flatten().unwrap_or(name);
        walk_value(&mut value, depth, is_said, change);
        map.insert(name, value);
    }
}

fn walk_value(
    value: &mut Json,
    depth: usize,
    is_own: bool,
    change: &mut impl FnMut(&str, bool) -> Option<String>,
) {
    match value {
        Json::String(text) => {
            if let Some(changed) = change(text, is_own) {
                *text = changed;
            }
        }
        Json::Array(items) => {
            items.iter_mut().for_each(|item| walk_value(item, depth + 1, is_own, change));
        }
        Json::Object(map) => walk(map, depth, is_own, change),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const WORDS: &str = r#"{"special": ["<|end|>", "<|user|>", "<|end|>x", "<｜a｜>", "<\"", "[S]", "ab"],
                            "written": ["<t>", "</t>"]}"#;

    fn plain(source: &str) -> Plain {
        Plain::new(WORDS, source, &Map::new()).expect("valid").expect("given")
    }

    /// `source` rendered as if the request's text stood for "@".
    fn prompt(source: &str, content: &str) -> String {
        let plain = plain(source);
        plain.finish(&plain.signed_source(source).replace('@', content)).replace(MARK, "_")
    }

    #[test]
    fn the_template_writes_tokens_and_content_does_not() {
        let cases = [
            ("<|end|>@<|end|>", "<|end|>", "<|end|><_|end|><|end|>"),
            ("<|end|>@", "x", "<|end|>_x"),
            ("<t>@", "<t></t>", "<t><_t><_/t>"),
            ("@<|end|>", "<|user|><", "<_|user|><<|end|>"),
            ("@@", "<|end", "<|end<|end"),
            ("@|end|>", "<", "<_|end|>"),
            ("<@>", "t", "<_t>"),
            ("ab@", "ab", "abab"),
            ("@", "ab", "a_b"),
            ("@", "<<<|end|>", "<<<_|end|>"),
        ];
        for (source, content, expected) in cases {
            assert_eq!(prompt(source, content), expected, "{source} {content}");
        }
    }

    #[test]
    fn escapes_in_the_source_are_read() {
        for (source, is_signed) in [
            (r#"{{ "<\"" }}"#, true),
            (r"{{ '<\uff5ca\uff5c>' }}", true),
            (r"{{ '<\uFF5Ca\uFF5C>' }}", true),
            (r"{# <|end|> #}", false),
            (r"{{ a <b> c }}", false),
        ] {
            assert_eq!(plain(source).signed_source(source) != source, is_signed, "{source}");
        }
    }

    #[test]
    fn roles_complete_tokens_and_other_content_does_not() {
        let source = "{{ '<|' ~ role ~ '|>' }}@";
        let plain = plain(source);
        let signed = plain.signed_source(source);
        assert!(signed.contains(JOINT));
        let finish = |text: &str| plain.finish(text).replace(MARK, "_");
        assert_eq!(finish("<|\u{fdd1}user|>"), "<|user|>");
        assert_eq!(finish("<|\u{fdd1}end|>"), "<_|end|>");
        assert_eq!(finish("<|user|>"), "<_|user|>");
    }

    #[test]
    fn requests_hold_no_signs_but_in_what_the_model_said() {
        let plain = plain("<|end|><t>");
        let text = "<|end|><t>\u{fdd0}\u{fdd1}\u{fdd2}\u{10f000}\u{10fffd}";
        let mut options = json!({"messages": [
            {"role": "user", "content": text, "<t>": [text]},
            {"role": "assistant", "content": [{"text": text}], "tool_calls": [text]}]});
        plain.prepare(options.as_object_mut().expect("an object"));
        let clean = "<|end|><t>\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}";
        assert_eq!(options["messages"][0]["content"], clean);
        assert_eq!(options["messages"][0]["<t>"][0], clean);
        assert_eq!(options["messages"][1]["tool_calls"][0], clean);
        let said = options["messages"][1]["content"][0]["text"].as_str().expect("text");
        assert_eq!(plain.visible(said), clean);
        assert_eq!(plain.finish(said).replace(MARK, "_"), clean.replacen('<', "<_", 1));
    }
}
