//! Pre-tokenizer expressions, matched in bounded memory and with a notion of "not enough text yet".
//!
//! The expressions of pre-tokenizers are simple: alternatives of character classes with counts. They
//! are parsed into such alternatives and matched as a backtracking engine would: first alternative
//! first, as much as possible first. What belongs to a class is asked of Oniguruma itself, the engine
//! that tokenizers uses, one page of 256 characters at a time, so that both agree on every character.
//! An expression that holds anything else is refused (`parse` gives None), never approximated.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use tokenizers::utils::SysRegex;

const PAGE_BITS: u32 = 8;
const NUM_PAGES: usize = 0x11_0000 >> PAGE_BITS;

type Page = [u64; 4];

/// A set of characters.
pub struct Class {
    member: Member,
    pages: Box<[OnceLock<Page>]>,
}

enum Member {
    Expression(SysRegex),
    Test(fn(char) -> bool),
}

impl Class {
    fn new(member: Member) -> Self {
        Self { member, pages: (0..NUM_PAGES).map(|_| OnceLock::new()).collect() }
    }

    fn contains(&self, c: char) -> bool {
        let code = c as u32;
        let page = self.pages[(code >> PAGE_BITS) as usize].get_or_init(|| self.page(code));
        page[(code as usize & 0xFF) >> 6] >> (code & 63) & 1 == 1
    }

    fn page(&self, code: u32) -> Page {
        let first = code & !0xFF;
        let mut page = [0; 4];
        for c in (first..first + 256).filter_map(char::from_u32) {
            let is_member = match &self.member {
                Member::Expression(regex) => {
                    let mut text = [0; 4];
                    let text: &str = c.encode_utf8(&mut text);
                    regex.find_iter(text).next() == Some((0, text.len()))
                }
                Member::Test(test) => test(c),
            };
            let code = c as usize;
            page[(code & 0xFF) >> 6] |= u64::from(is_member) << (code & 63);
        }
        page
    }
}

enum Item {
    /// As many as possible from `min` to `max` characters; possessive: none is given back.
    Run { class: Arc<Class>, min: usize, max: usize, is_possessive: bool },
    /// The first alternative that fits, each a row of single characters.
    Choice { rows: Vec<Vec<Arc<Class>>>, is_optional: bool },
    /// The next character, if there is one, is not of the class.
    NotNext(Arc<Class>),
}

pub struct Pattern {
    alternatives: Vec<Vec<Item>>,
}

/// A search in a text of which more may come.
pub struct Search<'t> {
    text: &'t str,
    /// The end of the text was looked at: with more text the result could be another.
    pub touched_end: bool,
}

impl<'t> Search<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { text, touched_end: false }
    }

    fn next(&mut self, position: usize) -> Option<char> {
        let c = self.text[position..].chars().next();
        self.touched_end |= c.is_none();
        c
    }

    /// The first match at or behind `from`.
    pub fn find(&mut self, pattern: &Pattern, from: usize) -> Option<(usize, usize)> {
        let mut start = from;
        while let Some(c) = self.next(start) {
            for items in &pattern.alternatives {
                if let Some(end) = self.run(items, start) {
                    return Some((start, end));
                }
            }
            start += c.len_utf8();
        }
        None
    }

    fn run(&mut self, items: &[Item], position: usize) -> Option<usize> {
        let Some((item, rest)) = items.split_first() else { return Some(position) };
        match item {
            Item::Run { class, min, max, is_possessive } => {
                let (mut count, mut end) = (0, position);
                while count < *max {
                    let Some(c) = self.next(end).filter(|c| class.contains(*c)) else { break };
                    end += c.len_utf8();
                    count += 1;
                }
                while count >= *min {
                    if let Some(found) = self.run(rest, end) {
                        return Some(found);
                    }
                    if count == 0 || *is_possessive {
                        return None;
                    }
                    end -= self.text[..end].chars().next_back().map_or(1, char::len_utf8);
                    count -= 1;
                }
                None
            }
            Item::Choice { rows, is_optional } => {
                for row in rows {
                    let mut end = Some(position);
                    for class in row {
                        end = end.and_then(|end| {
                            let c = self.next(end).filter(|c| class.contains(*c))?;
                            Some(end + c.len_utf8())
                        });
                    }
                    if let Some(found) = end.and_then(|end| self.run(rest, end)) {
                        return Some(found);
                    }
                }
                is_optional.then(|| self.run(rest, position)).flatten()
            }
            Item::NotNext(class) => match self.next(position) {
                Some(c) if class.contains(c) => None,
                _ => self.run(rest, position),
            },
        }
    }
}

impl Pattern {
    /// Any one character for which `test` holds.
    pub fn of(test: fn(char) -> bool) -> Self {
        let class = Arc::new(Class::new(Member::Test(test)));
        let item = Item::Run { class, min: 1, max: 1, is_possessive: false };
        Self { alternatives: vec![vec![item]] }
    }

    /// None if the expression holds what is not known here.
    pub fn parse(expression: &str) -> Option<Self> {
        let mut parser = Parser { rest: expression, classes: HashMap::new() };
        let mut alternatives = vec![Vec::new()];
        while !parser.rest.is_empty() {
            if parser.take("|") {
                alternatives.push(Vec::new());
            } else {
                let item = parser.item()?;
                alternatives.last_mut()?.push(item);
            }
        }
        let takes_text = |items: &Vec<Item>| {
            items.iter().any(|item| match item {
                Item::Run { min, .. } => *min > 0,
                Item::Choice { is_optional, .. } => !is_optional,
                Item::NotNext(_) => false,
            })
        };
        alternatives.iter().all(takes_text).then_some(Self { alternatives })
    }
}

struct Parser<'e> {
    rest: &'e str,
    classes: HashMap<String, Arc<Class>>,
}

impl Parser<'_> {
    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn item(&mut self) -> Option<Item> {
        if self.take(r"(?!\S)") {
            return Some(Item::NotNext(self.class(r"\S", false)?));
        }
        for (opening, ignores_case) in [("(?i:", true), ("(?:", false)] {
            if self.take(opening) {
                return self.choice(ignores_case);
            }
        }
        let atom = self.atom()?;
        let (min, max) = self.count()?;
        let is_possessive = (min, max) != (1, 1) && self.take("+");
        Some(Item::Run { class: self.class(&atom, false)?, min, max, is_possessive })
    }

    fn choice(&mut self, ignores_case: bool) -> Option<Item> {
        let mut rows = vec![Vec::new()];
        while !self.take(")") {
            if self.take("|") {
                rows.push(Vec::new());
                continue;
            }
            let atom = self.atom()?;
            let class = self.class(&atom, ignores_case)?;
            rows.last_mut()?.push(class);
        }
        if rows.iter().any(Vec::is_empty) || self.rest.starts_with(['*', '+', '{']) {
            return None;
        }
        let is_optional = self.take("?");
        let is_plain = !self.rest.starts_with(['?', '+']);
        is_plain.then_some(Item::Choice { rows, is_optional })
    }

    /// One character or class, as written.
    fn atom(&mut self) -> Option<String> {
        let first = self.rest.chars().next()?;
        let length = match first {
            '[' => class_length(self.rest)?,
            '\\' if self.rest[1..].starts_with('p') => self.rest.find('}')? + 1,
            '\\' => {
                let escaped = self.rest[1..].chars().next()?;
                let is_known = !escaped.is_alphanumeric() || "sSdrnt".contains(escaped);
                if !is_known {
                    return None;
                }
                1 + escaped.len_utf8()
            }
            '(' | ')' | '.' | '^' | '$' | '?' | '*' | '+' | '{' | '}' | ']' | '|' => return None,
            c => c.len_utf8(),
        };
        let (atom, rest) = self.rest.split_at(length);
        self.rest = rest;
        Some(atom.to_string())
    }

    fn count(&mut self) -> Option<(usize, usize)> {
        for (mark, bounds) in [("?", (0, 1)), ("*", (0, usize::MAX)), ("+", (1, usize::MAX))] {
            if self.take(mark) {
                return (!self.rest.starts_with('?')).then_some(bounds);
            }
        }
        if !self.take("{") {
            return Some((1, 1));
        }
        let (inside, rest) = self.rest.split_once('}')?;
        self.rest = rest;
        let (low, high) = inside.split_once(',').unwrap_or((inside, inside));
        let bounds = (low.parse().ok()?, high.parse().ok()?);
        (!rest.starts_with(['?', '+', '*', '{']) && bounds != (1, 1)).then_some(bounds)
    }

    fn class(&mut self, atom: &str, ignores_case: bool) -> Option<Arc<Class>> {
        let source = if ignores_case { format!("(?i:{atom})") } else { atom.to_string() };
        if let Some(class) = self.classes.get(&source) {
            return Some(Arc::clone(class));
        }
        let regex = SysRegex::new(&source).ok()?;
        let class = Arc::new(Class::new(Member::Expression(regex)));
        self.classes.insert(source, Arc::clone(&class));
        Some(class)
    }
}

/// Bytes of a bracket expression, which may hold others.
fn class_length(text: &str) -> Option<usize> {
    let (mut depth, mut is_escaped) = (0, false);
    for (position, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(position + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pre_tokenizers::ROWS;

    const ALPHABET: &str =
        "aabZß'sſtTſredm09²Ⅷ٣ \u{a0}\u{2003}\n\r\t/.,-<|>$+~_é\u{301}你好かナ가🙂👍\u{fe0f}İǅʰК";

    fn random_texts() -> impl Iterator<Item = String> {
        let letters: Vec<char> = ALPHABET.chars().collect();
        let mut state = 7_u64;
        let mut next = move |bound: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % bound
        };
        (0..3000).map(move |_| {
            let mut text = String::new();
            for _ in 0..next(12) {
                let c = letters[next(letters.len())];
                (0..1 + next(4) * next(3)).for_each(|_| text.push(c));
            }
            text
        })
    }

    #[test]
    fn finds_what_oniguruma_finds() {
        let mut num_expressions = 0;
        for expression in ROWS.iter().flat_map(|row| row.pattern.expressions()) {
            let Some(pattern) = Pattern::parse(&expression) else { continue };
            num_expressions += 1;
            let regex = SysRegex::new(&expression).expect("compiles");
            for text in random_texts() {
                let expected: Vec<(usize, usize)> = regex.find_iter(&text).collect();
                let (mut found, mut from) = (Vec::new(), 0);
                let mut search = Search::new(&text);
                while let Some((start, end)) = search.find(&pattern, from) {
                    found.push((start, end));
                    from = end;
                }
                assert_eq!(found, expected, "{expression} in {text:?}");
            }
        }
        println!("{num_expressions} expressions");
        assert!(num_expressions > 30);
    }

    #[test]
    fn a_match_that_did_not_touch_the_end_stands_whatever_follows() {
        for expression in ROWS.iter().flat_map(|row| row.pattern.expressions()) {
            let Some(pattern) = Pattern::parse(&expression) else { continue };
            for text in random_texts().filter(|text| !text.is_empty()) {
                let (whole, cuts) = (format!("{text}{text}x"), text.char_indices());
                for (cut, _) in cuts {
                    let mut search = Search::new(&whole[..cut]);
                    let found = search.find(&pattern, 0);
                    if !search.touched_end {
                        assert_eq!(found, Search::new(&whole).find(&pattern, 0), "{whole:?} {cut}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for expression in
            [r"\d{1,3}(?=(?:\d{3})*\b)", "a.b", "^a", r"\bfoo", "(a|b)*", "a*?", "a*", r"(?<!a)b"]
        {
            assert!(Pattern::parse(expression).is_none(), "{expression}");
        }
    }
}
