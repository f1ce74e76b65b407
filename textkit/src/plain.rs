//! Content as plain text: what a request's strings contribute to a prompt holds no special token.
//!
//! A mark, a character that no text has, is put behind the first character of each special token's
//! spelling in the request's strings. In the rendered prompt the marks show which spellings are
//! content; the tokenizer takes them out and recognises no special token there. A template may look at
//! its input (trim, split, compare): if the marked render differs from the plain one in more than the
//! marks, each spelling is marked alone, and those at which the template looks are left as they are,
//! since what comes of them is the template's decision. Where that cannot be found out in few renders,
//! everything stays marked.

use crate::error::{Error, Result};
use serde_json::{Map, Value as Json};
use std::time::{Duration, Instant};

/// Noncharacter: not for interchange between programs, so a request's own become U+FFFD.
pub const MARK: char = '\u{fdd0}';

const MAX_TRIALS: usize = 8;
const MAX_TIME: Duration = Duration::from_millis(200);

pub struct Plain {
    words: Vec<String>,
    /// Those that the model itself may have written where its own words are replayed.
    others: Vec<String>,
    /// Bytes that any of them begins with.
    begins: [bool; 256],
}

impl Plain {
    /// `json`: {"special": [...], "written": [...]}: the spellings of special tokens, and of other
    /// tokens that the template writes; a list is of special ones. Empty: content may hold tokens.
    pub fn new(json: &str) -> Result<Option<Self>> {
        if json.is_empty() {
            return Ok(None);
        }
        let given: Json = serde_json::from_str(json)
            .map_err(|error| Error::invalid(format!("the special tokens are no JSON: {error}")))?;
        let list = |value: Option<&Json>| -> Vec<String> {
            let items = value.and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
            let words = items.iter().filter_map(Json::as_str);
            words.filter(|word| !word.is_empty()).map(str::to_string).collect()
        };
        let words = list(if given.is_array() { Some(&given) } else { given.get("special") });
        let others = list(given.get("written"));
        let mut begins = [false; 256];
        words.iter().chain(&others).for_each(|word| begins[usize::from(word.as_bytes()[0])] = true);
        Ok(Some(Self { words, others, begins }))
    }

    /// The prompt with marks where content spells special tokens.
    pub fn render(
        &self,
        mut options: Map<String, Json>,
        render: impl Fn(Map<String, Json>) -> Result<String>,
    ) -> Result<String> {
        walk(&mut options, 0, false, &mut |text, _| {
            text.contains(MARK).then(|| text.replace(MARK, "\u{fffd}"))
        });
        let (all, num_found) = self.marked(&options, |_| true);
        let start = Instant::now();
        if num_found == 0 {
            return render(options);
        }
        let plain = render(options.clone())?;
        let fits = |text: &String| without_marks(text) == plain;
        let marked = render(all)?;
        if fits(&marked) || num_found > MAX_TRIALS || start.elapsed() > MAX_TIME {
            return Ok(marked);
        }
        let mut is_kept = Vec::new();
        for index in 0..num_found {
            let (alone, _) = self.marked(&options, |i| i == index);
            is_kept.push(render(alone).is_ok_and(|text| fits(&text)));
        }
        let (kept, _) = self.marked(&options, |i| is_kept[i]);
        Ok(render(kept).ok().filter(fits).unwrap_or(marked))
    }

    /// `options` with marks in the spellings of which `chosen` is told the number; how many there are.
    fn marked(
        &self,
        options: &Map<String, Json>,
        chosen: impl Fn(usize) -> bool,
    ) -> (Map<String, Json>, usize) {
        let mut options = options.clone();
        let mut count = 0;
        walk(&mut options, 0, false, &mut |text, is_own| {
            let mut out = String::new();
            let mut copied = 0;
            for (position, c) in text.char_indices() {
                if !self.begins_word(&text[position..], is_own) {
                    continue;
                }
                if chosen(count) {
                    let end = position + c.len_utf8();
                    out.push_str(&text[copied..end]);
                    out.push(MARK);
                    copied = end;
                }
                count += 1;
            }
            (copied > 0).then(|| out + &text[copied..])
        });
        (options, count)
    }

    /// A special token, or the end of the string with the beginning of one, which the next string of
    /// the prompt could complete.
    fn begins_word(&self, rest: &str, is_own: bool) -> bool {
        if !self.begins[usize::from(rest.as_bytes()[0])] {
            return false;
        }
        let is_begun = |word: &str| rest.len() > 1 && word.starts_with(rest);
        let others = if is_own { &[] } else { self.others.as_slice() };
        self.words.iter().chain(others).any(|word| {
            word.as_bytes()[0] == rest.as_bytes()[0] && (rest.starts_with(word) || is_begun(word))
        })
    }
}

fn without_marks(text: &str) -> String {
    text.replace(MARK, "")
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
