//! Grammars in the EBNF of GGUF tools (`root ::= ...`), as Lark for the library.
//!
//! The library reads a text in lexemes, each the longest that fits. So rules that do not refer to themselves
//! become terminals, and what stands together in others becomes one: the longest is then what was meant.

use crate::error::{Error, Result};
use crate::tags::lark_string;
use std::collections::{HashMap, HashSet};

const MAX_NESTING: usize = 32;
const MAX_REPEAT: u32 = 10_000;

/// Lark has no such sign.
pub fn is_gbnf(text: &str) -> bool {
    text.contains("::=")
}

#[derive(Clone, Debug)]
enum Node {
    Text(String),
    Class(String), // a regular expression of one character
    Rule(String),
    Group(Vec<Vec<Node>>),
    Repeat(Box<Node>, u32, Option<u32>),
}

pub fn to_lark(text: &str) -> Result<String> {
    let mut parser = Parser { text: text.as_bytes(), at: 0 };
    let rules = parser.rules()?;
    let names: HashMap<&str, usize> =
        rules.iter().enumerate().map(|(index, (name, _))| (name.as_str(), index)).collect();
    let Some(&root) = names.get("root") else {
        return Err(Error::invalid("it has no rule root"));
    };
    let mut uses: Vec<HashSet<usize>> = Vec::new();
    for (_, options) in &rules {
        let mut found = HashSet::new();
        references(options, &names, &mut found)?;
        uses.push(found);
    }
    let mut lark = Lark { names, regular: regular_rules(&uses), lines: Vec::new() };
    for (index, (_, options)) in rules.iter().enumerate() {
        let line = match lark.regular[index] {
            true => format!("G{index}: {}", lark.terminal(options)),
            false => format!("g{index}: {}", lark.rule(options)),
        };
        lark.lines.push(line);
    }
    let start = lark.name(root);
    lark.lines.insert(0, format!("start: {start}"));
    Ok(lark.lines.join("\n"))
}

fn references(
    options: &[Vec<Node>],
    names: &HashMap<&str, usize>,
    found: &mut HashSet<usize>,
) -> Result<()> {
    for node in options.iter().flatten() {
        let mut node = node;
        while let Node::Repeat(inner, ..) = node {
            node = inner;
        }
        match node {
            Node::Rule(name) => {
                let index = names.get(name.as_str()).ok_or_else(|| {
                    Error::invalid(format!("the rule {name} is used, but not defined"))
                })?;
                found.insert(*index);
            }
            Node::Group(inner) => references(inner, names, found)?,
            _ => {}
        }
    }
    Ok(())
}

/// Which rules cannot come back to a rule that is being read, by taking away leaves.
fn regular_rules(uses: &[HashSet<usize>]) -> Vec<bool> {
    let mut regular = vec![false; uses.len()];
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); uses.len()];
    let mut open: Vec<usize> = uses.iter().map(HashSet::len).collect();
    for (user, used) in uses.iter().enumerate() {
        used.iter().for_each(|each| users[*each].push(user));
    }
    let mut ready: Vec<usize> = (0..uses.len()).filter(|index| open[*index] == 0).collect();
    while let Some(index) = ready.pop() {
        regular[index] = true;
        for &user in &users[index] {
            open[user] -= 1;
            if open[user] == 0 {
                ready.push(user);
            }
        }
    }
    regular
}

struct Lark<'a> {
    names: HashMap<&'a str, usize>,
    regular: Vec<bool>,
    lines: Vec<String>,
}

impl Lark<'_> {
    fn name(&self, index: usize) -> String {
        match self.regular[index] {
            true => format!("G{index}"),
            false => format!("g{index}"),
        }
    }

    fn is_regular(&self, node: &Node) -> bool {
        match node {
            Node::Text(_) | Node::Class(_) => true,
            Node::Rule(name) => self.regular[self.names[name.as_str()]],
            Node::Group(options) => options.iter().flatten().all(|each| self.is_regular(each)),
            Node::Repeat(inner, ..) => self.is_regular(inner),
        }
    }

    fn terminal(&self, options: &[Vec<Node>]) -> String {
        let options: Vec<String> = options
            .iter()
            .map(|items| match items.is_empty() {
                true => "\"\"".to_string(),
                false => items.iter().map(|item| self.atom(item)).collect::<Vec<_>>().join(" "),
            })
            .collect();
        options.join(" | ")
    }

    fn atom(&self, node: &Node) -> String {
        match node {
            Node::Text(text) => lark_string(text),
            Node::Class(class) => format!("/{class}/"),
            Node::Rule(name) => self.name(self.names[name.as_str()]),
            Node::Group(options) => format!("({})", self.terminal(options)),
            Node::Repeat(inner, least, most) => {
                format!("({}){}", self.atom(inner), repeat(*least, *most))
            }
        }
    }

    /// Of a rule that refers to itself.
    fn rule(&mut self, options: &[Vec<Node>]) -> String {
        let options: Vec<String> = options.iter().map(|items| self.sequence(items)).collect();
        options.join(" | ")
    }

    fn sequence(&mut self, items: &[Node]) -> String {
        let mut parts = Vec::new();
        let mut from = 0;
        while from < items.len() {
            let run = items[from..].iter().take_while(|item| self.is_regular(item)).count();
            if run > 0 {
                let body = self.terminal(&[items[from..from + run].to_vec()]);
                let name = format!("T{}", self.lines.len());
                self.lines.push(format!("{name}: {body}"));
                parts.push(name);
                from += run;
                continue;
            }
            parts.push(match &items[from] {
                Node::Group(options) => format!("({})", self.rule(options)),
                Node::Repeat(inner, least, most) => {
                    let inner = self.sequence(std::slice::from_ref(inner));
                    format!("({inner}){}", repeat(*least, *most))
                }
                node => self.atom(node),
            });
            from += 1;
        }
        match parts.is_empty() {
            true => "\"\"".to_string(),
            false => parts.join(" "),
        }
    }
}

fn repeat(least: u32, most: Option<u32>) -> String {
    match (least, most) {
        (0, None) => "*".to_string(),
        (1, None) => "+".to_string(),
        (0, Some(1)) => "?".to_string(),
        (least, None) => format!("{{{least},}}"),
        (least, Some(most)) => format!("{{{least},{most}}}"),
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn wrong<T>(&self, reason: &str) -> Result<T> {
        let line = self.text[..self.at].iter().filter(|byte| **byte == b'\n').count() + 1;
        Err(Error::invalid(format!("line {line} of the grammar: {reason}")))
    }

    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn skip_blanks(&mut self) {
        loop {
            match self.peek() {
                b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                b'#' => {
                    while self.at < self.text.len() && self.peek() != b'\n' {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn word(&mut self) -> Option<String> {
        let from = self.at;
        while self.peek().is_ascii_alphanumeric() || matches!(self.peek(), b'-' | b'_') {
            self.at += 1;
        }
        (from < self.at).then(|| String::from_utf8_lossy(&self.text[from..self.at]).into_owned())
    }

    fn is_definition(&mut self) -> bool {
        let from = self.at;
        let has_name = self.word().is_some();
        self.skip_blanks();
        let found = has_name && self.text[self.at..].starts_with(b"::=");
        self.at = from;
        found
    }

    fn rules(&mut self) -> Result<Vec<(String, Vec<Vec<Node>>)>> {
        let mut rules: Vec<(String, Vec<Vec<Node>>)> = Vec::new();
        let mut names = HashSet::new();
        self.skip_blanks();
        while self.at < self.text.len() {
            if !self.is_definition() {
                return self.wrong("a rule (name ::= ...) is expected");
            }
            let name = self.word().unwrap_or_default();
            self.skip_blanks();
            self.at += 3;
            let options = self.options(0)?;
            if !names.insert(name.clone()) {
                return self.wrong(&format!("the rule {name} is defined twice"));
            }
            rules.push((name, options));
            self.skip_blanks();
        }
        Ok(rules)
    }

    fn options(&mut self, depth: usize) -> Result<Vec<Vec<Node>>> {
        if depth > MAX_NESTING {
            return self.wrong("groups are nested too deeply");
        }
        let mut options = vec![Vec::new()];
        loop {
            self.skip_blanks();
            if self.at >= self.text.len() || self.peek() == b')' || self.is_definition() {
                return Ok(options);
            }
            if self.peek() == b'|' {
                self.at += 1;
                options.push(Vec::new());
                continue;
            }
            let mut node = self.item(depth)?;
            while let Some((least, most)) = self.repetition()? {
                node = Node::Repeat(Box::new(node), least, most);
            }
            if let Some(last) = options.last_mut() {
                last.push(node);
            }
        }
    }

    fn item(&mut self, depth: usize) -> Result<Node> {
        match self.peek() {
            b'"' => self.quoted(),
            b'[' => self.class(),
            b'.' => {
                self.at += 1;
                Ok(Node::Class("(?s:.)".to_string()))
            }
            b'(' => {
                self.at += 1;
                let options = self.options(depth + 1)?;
                if self.peek() != b')' {
                    return self.wrong("a group has no end");
                }
                self.at += 1;
                Ok(Node::Group(options))
            }
            _ => match self.word() {
                Some(name) => Ok(Node::Rule(name)),
                None => self.wrong("a string, a class, a group or a rule's name is expected"),
            },
        }
    }

    fn number(&mut self) -> Option<u32> {
        let from = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        std::str::from_utf8(&self.text[from..self.at]).ok()?.parse().ok()
    }

    fn repetition(&mut self) -> Result<Option<(u32, Option<u32>)>> {
        let from = self.at;
        while matches!(self.peek(), b' ' | b'\t') {
            self.at += 1;
        }
        let simple = match self.peek() {
            b'*' => Some((0, None)),
            b'+' => Some((1, None)),
            b'?' => Some((0, Some(1))),
            b'{' => None,
            _ => {
                self.at = from;
                return Ok(None);
            }
        };
        self.at += 1;
        if simple.is_some() {
            return Ok(simple);
        }
        let least = self.number();
        let most = match self.peek() {
            b',' => {
                self.at += 1;
                self.number()
            }
            _ => least,
        };
        let bounded = most.unwrap_or(0).max(least.unwrap_or(0)) <= MAX_REPEAT;
        let ordered = most.is_none_or(|most| most >= least.unwrap_or(0));
        if self.peek() != b'}' || !bounded || !ordered {
            return self.wrong("a repetition is {m}, {m,} or {m,n}, of at most 10000");
        }
        self.at += 1;
        Ok(Some((least.unwrap_or(0), most)))
    }

    /// A character of a string or a class, an escape or as it stands.
    fn character(&mut self) -> Result<char> {
        let rest = std::str::from_utf8(&self.text[self.at..]).unwrap_or("");
        let Some(c) = rest.chars().next() else {
            return self.wrong("a string or a class has no end");
        };
        self.at += c.len_utf8();
        if c != '\\' {
            return Ok(c);
        }
        let kind = self.peek();
        self.at += 1;
        let digits = match kind {
            b'n' => return Ok('\n'),
            b'r' => return Ok('\r'),
            b't' => return Ok('\t'),
            b'x' => 2,
            b'u' => 4,
            b'U' => 8,
            b'"' | b'\\' | b'[' | b']' | b'-' | b'^' | b'/' | b'.' => return Ok(kind as char),
            _ => return self.wrong("an escape is not known"),
        };
        let digits = self.text.get(self.at..self.at + digits).unwrap_or(&[]);
        let code = std::str::from_utf8(digits).ok().and_then(|d| u32::from_str_radix(d, 16).ok());
        match code.filter(|_| !digits.is_empty()).and_then(char::from_u32) {
            Some(c) => {
                self.at += digits.len();
                Ok(c)
            }
            None => self.wrong("an escape is no character"),
        }
    }

    fn quoted(&mut self) -> Result<Node> {
        self.at += 1;
        let mut text = String::new();
        while self.peek() != b'"' {
            text.push(self.character()?);
        }
        self.at += 1;
        Ok(Node::Text(text))
    }

    fn class(&mut self) -> Result<Node> {
        self.at += 1;
        let mut class = String::from("[");
        if self.peek() == b'^' {
            self.at += 1;
            class.push('^');
        }
        let mut num_parts = 0;
        while self.peek() != b']' {
            let first = self.character()?;
            push_class(&mut class, first);
            num_parts += 1;
            if self.peek() == b'-' && self.text.get(self.at + 1) != Some(&b']') {
                self.at += 1;
                let last = self.character()?;
                if last < first {
                    return self.wrong("a range of a class ends before it begins");
                }
                class.push('-');
                push_class(&mut class, last);
            }
        }
        self.at += 1;
        if num_parts == 0 {
            return self.wrong("a class is empty");
        }
        Ok(Node::Class(class + "]"))
    }
}

fn push_class(class: &mut String, c: char) {
    match c.is_alphanumeric() {
        true => class.push(c),
        false => class.push_str(&format!("\\x{{{:x}}}", c as u32)),
    }
}
