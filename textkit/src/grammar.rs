//! Texts of a given form: a grammar is compiled once, a matcher follows one answer through it.
//!
//! The parser is the crate `llguidance`. It works on bytes: a token may come when its bytes may, so every
//! way of cutting an allowed text into tokens is allowed. What a compilation may take is bounded by fuel,
//! not by a clock, so the same grammar is always taken or always refused. It runs on a thread of its own
//! with a large stack (chains of references are followed by recursion) and a low priority.

use crate::error::{Error, Result};
use crate::sandbox;
use crate::{gbnf, schema, tags};
use llguidance::api::{GrammarWithLexer, ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher as Follower, ParserFactory};
use serde_json::Value;
use std::sync::{Arc, Mutex};

const MAX_TEXT_BYTES: usize = 256 << 10;
const MAX_NESTING: usize = 64; // of brackets in a grammar
const MAX_REPEATS: usize = 2_000; // of a regular expression or a grammar
const MAX_RULES: usize = 1_000; // lines with a rule; references between them are followed by recursion
const MAX_COMPILED_BYTES: usize = 64 << 20;
const STACK_BYTES: usize = 256 << 20; // addresses; pages are taken as they are used
const MAX_MARKED_TOKEN: usize = 255; // bytes of a token that the trie can hold
const MAX_MESSAGE: usize = 400;
const NICE: i32 = 10;

extern "C" {
    fn setpriority(which: i32, who: u32, priority: i32) -> i32;
}

/// What the form is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Kind {
    JsonObject = 0,
    JsonSchema = 1,
    Regex = 2,
    Choice = 3,
    Grammar = 4,
    Tags = 5,
}

impl Kind {
    pub fn from(number: i32) -> Option<Self> {
        [Self::JsonObject, Self::JsonSchema, Self::Regex, Self::Choice, Self::Grammar, Self::Tags]
            .into_iter()
            .find(|kind| *kind as i32 == number)
    }
}

/// The tokens of one vocabulary as a trie, and what compiling needs of them.
pub struct Grammars {
    factory: ParserFactory,
    compiling: Mutex<()>, // one at a time: its memory and its share of the processor are bounded
}

/// A token as the trie has it.
pub struct Word<'a> {
    pub bytes: &'a [u8],
    pub special: bool,
}

/// Compiled, nothing matched yet.
pub struct Grammar {
    fresh: Follower,
    pub num_bytes: usize,
}

/// One answer on its way through a grammar.
pub struct Matcher(Follower);

impl Grammars {
    pub fn new(words: &[Word], end_ids: &[u32]) -> Result<Self> {
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie_of(words, end_ids)));
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
            .map_err(|error| Error::internal(error.to_string()))?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(Self { factory, compiling: Mutex::new(()) })
    }

    pub fn compile(&self, kind: Kind, text: &str) -> Result<Grammar> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(Error::invalid(format!(
                "it has {} bytes, more than the {MAX_TEXT_BYTES} that are allowed",
                text.len()
            )));
        }
        let _turn = self.compiling.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        std::thread::scope(|scope| {
            let work = std::thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, || {
                    // SAFETY: of this thread alone, which ends with the compilation.
                    unsafe { setpriority(0, 0, NICE) };
                    self.compile_here(kind, text)
                })
                .map_err(|_| Error::exhausted("no thread can be started to compile it now"))?;
            work.join().unwrap_or_else(|_| Err(failed()))
        })
    }

    fn compile_here(&self, kind: Kind, text: &str) -> Result<Grammar> {
        let held_before = sandbox::held_bytes();
        let grammars = self.grammars_of(kind, text)?;
        let source = TopLevelGrammar { grammars, max_tokens: None };
        let parser = self.factory.create_parser(source).map_err(refused)?;
        let mut fresh = Follower::new(Ok(parser));
        // The first mask shows whether any text fits, and warms what all answers begin with.
        if !fresh.is_stopped() {
            fresh.compute_mask().map_err(|error| match clean(&error.to_string()) {
                text if text == "NoExtensionBias" => {
                    Error::invalid("no text that this model can write fits it")
                }
                text => Error::invalid(text),
            })?;
        }
        let num_bytes = (sandbox::held_bytes() - held_before).max(0) as usize;
        if num_bytes > MAX_COMPILED_BYTES {
            return Err(Error::invalid(format!(
                "it takes {} MiB when compiled, more than the {} that are allowed",
                num_bytes >> 20,
                MAX_COMPILED_BYTES >> 20
            )));
        }
        Ok(Grammar { fresh, num_bytes })
    }

    fn grammars_of(&self, kind: Kind, text: &str) -> Result<Vec<GrammarWithLexer>> {
        let trie = self.factory.tok_env().tok_trie();
        Ok(vec![match kind {
            Kind::JsonObject => json_grammar(schema::prepare(r#"{"type":"object"}"#)?),
            Kind::JsonSchema => json_grammar(schema::prepare(text)?),
            Kind::Regex => lark_grammar(regex_lark(text)?),
            Kind::Choice => lark_grammar(choice_lark(text)?),
            Kind::Grammar => lark_grammar(any_lark(text)?),
            Kind::Tags => return tags::to_grammars(text, trie),
        }])
    }
}

fn limits() -> ParserLimits {
    ParserLimits {
        max_lexer_states: 50_000,
        max_grammar_size: 200_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

fn trie_of(words: &[Word], end_ids: &[u32]) -> TokTrie {
    let marker = TokTrie::SPECIAL_TOKEN_MARKER; // no byte of any text
    let mut entries: Vec<Vec<u8>> = words
        .iter()
        .map(|word| match word {
            _ if word.bytes.len() > MAX_MARKED_TOKEN => Vec::new(),
            _ if word.special && !word.bytes.is_empty() => [&[marker], word.bytes].concat(),
            _ if word.bytes.contains(&marker) => Vec::new(),
            _ => word.bytes.to_vec(),
        })
        .collect();
    let mut ends: Vec<u32> =
        end_ids.iter().copied().filter(|id| (*id as usize) < words.len()).collect();
    if ends.is_empty() {
        ends.push(entries.len() as u32); // one that no mask shows
        entries.push(Vec::new());
    }
    let info = TokRxInfo::new(entries.len() as u32, ends[0]);
    TokTrie::from(&info, &entries).with_eos_tokens(&ends)
}

pub fn json_grammar(schema: Value) -> GrammarWithLexer {
    GrammarWithLexer::from_json_schema(schema)
}

pub fn lark_grammar(lark: String) -> GrammarWithLexer {
    GrammarWithLexer::from_lark(lark)
}

/// What the library follows by recursion, or does in the square of its number, is bounded before it sees it.
pub fn check_work(text: &str) -> Result<()> {
    let (mut depth, mut num_repeats) = (0usize, 0usize);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'*' | b'+' | b'?' | b'{' => num_repeats += 1,
            _ => {}
        }
        if depth > MAX_NESTING {
            return Err(Error::invalid(format!("it has more than {MAX_NESTING} open brackets")));
        }
    }
    if num_repeats > MAX_REPEATS {
        return Err(Error::invalid(format!("it has more than {MAX_REPEATS} repetitions")));
    }
    let num_rules = text.lines().filter(|line| line.contains(':')).count();
    if num_rules > MAX_RULES {
        return Err(Error::invalid(format!("it has more than {MAX_RULES} rules")));
    }
    Ok(())
}

/// Lark, from either of the two languages that clients write. Schemas in it are prepared like others.
pub fn any_lark(text: &str) -> Result<String> {
    if gbnf::is_gbnf(text) {
        check_work(text)?;
        return gbnf::to_lark(text);
    }
    let mark = "%json";
    let mut lark = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(mark) {
        let (before, after) = rest.split_at(at + mark.len());
        check_work(before)?;
        lark.push_str(before);
        let mut values = serde_json::Deserializer::from_str(after).into_iter::<Value>();
        rest = match values.next() {
            Some(Ok(schema)) if schema.is_object() => {
                lark.push(' ');
                lark.push_str(&schema::prepare_value(schema)?.to_string());
                &after[values.byte_offset()..]
            }
            _ => after, // the library says what is wrong with it
        };
    }
    check_work(rest)?;
    lark.push_str(rest);
    Ok(lark)
}

pub fn regex_lark(regex: &str) -> Result<String> {
    if regex.is_empty() {
        return Err(Error::invalid("it is empty"));
    }
    check_work(regex)?;
    Ok(format!("start: /{}/", llguidance::regex_to_lark(regex, "dw")))
}

fn choice_lark(list: &str) -> Result<String> {
    let choices: Vec<String> =
        serde_json::from_str(list).map_err(|_| Error::invalid("it must be a list of strings"))?;
    if choices.is_empty() || choices.iter().any(String::is_empty) {
        return Err(Error::invalid("it must have at least one choice, and none that is empty"));
    }
    if choices.len() > schema::MAX_ENUM {
        return Err(Error::invalid(format!(
            "it has {} choices, more than the {} that are allowed",
            choices.len(),
            schema::MAX_ENUM
        )));
    }
    let choices: Vec<String> = choices.iter().map(|choice| tags::lark_string(choice)).collect();
    Ok(format!("start: CHOICE\nCHOICE: {}", choices.join(" | ")))
}

fn failed() -> Error {
    Error::invalid("the grammar library failed on it")
}

fn refused(error: impl std::fmt::Display) -> Error {
    Error::invalid(clean(&error.to_string()))
}

/// The library's words on one line, without what concerns only it.
fn clean(text: &str) -> String {
    if text.contains("panic") {
        return failed().message;
    }
    let text = text.replace("<non-verbose/>", "");
    let text = match text.contains("oneOf constraints are not supported") {
        true => "oneOf is enforced only where its options exclude each other by type, or by a const of a \
                 property that all require; use anyOf"
            .to_string(),
        false => text,
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut line = words.join(" ");
    if line.len() > MAX_MESSAGE {
        let end = (0..=MAX_MESSAGE).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
        line.truncate(end);
        line.push_str(" ...");
    }
    line
}

impl Grammar {
    /// Shares nothing that changes with other matchers: what one answer costs is no other's loss.
    pub fn matcher(&self) -> Matcher {
        Matcher(self.fresh.deep_clone())
    }
}

/// Where a matcher is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub complete: bool, // the text may end here
    pub finished: bool, // and nothing may follow
    pub failed: bool,
}

impl Matcher {
    pub fn state(&mut self) -> State {
        let failed = self.0.is_error();
        let finished = !failed && self.0.is_stopped();
        let complete = finished || (!failed && self.0.is_accepting().unwrap_or(false));
        State { complete, finished, failed }
    }

    /// The tokens that may come next; end ids are among them where the text is complete. All bits clear:
    /// none may, or the matcher has failed.
    pub fn mask(&mut self, words: &mut [u64]) {
        words.fill(0);
        let Ok(mask) = self.0.compute_mask_or_eos() else { return };
        for (pair, word) in mask.as_slice().chunks(2).zip(words.iter_mut()) {
            *word = u64::from(pair[0]) | pair.get(1).map_or(0, |high| u64::from(*high) << 32);
        }
    }

    pub fn accept(&mut self, id: u32) -> bool {
        self.0.consume_token(id).is_ok()
    }

    pub fn rollback(&mut self, num_tokens: usize) -> bool {
        self.0.rollback(num_tokens).is_ok()
    }

    /// Tokens of the text that must come next, as far as it is sure; the last one is left out where a longer
    /// token could begin with it. Only a guess: the text may be cut into other tokens.
    pub fn forced(&mut self, ids: &mut [u32]) -> usize {
        let Ok(env) = self.0.tok_env() else { return 0 };
        let bytes = self.0.compute_ff_bytes();
        if bytes.is_empty() {
            return 0;
        }
        let trie = env.tok_trie();
        let (mut tokens, num_fixed) = env.tokenize_bytes_marker(&bytes);
        let open = tokens.last().is_some_and(|last| trie.has_extensions(trie.token(*last)));
        if open && tokens.len() > num_fixed {
            tokens.pop();
        }
        let count = tokens.len().min(ids.len());
        ids[..count].copy_from_slice(&tokens[..count]);
        count
    }
}
