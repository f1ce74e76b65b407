//! Encoding slice by slice: the ids of a long text, without the memory that the library takes for it.
//!
//! The library keeps some hundred bytes for every byte of a text. Here it sees one slice at a time, and
//! the results are those of the text at once, because each step is cut only where the cut cannot show:
//!
//! - Added tokens are found leftmost-longest. A cut that no occurrence of an added token crosses, or
//!   one right behind a token that was found, leaves the scan as it was.
//! - NFC is cut before a character that never joins its predecessor (`is_inert`). Replacing single
//!   characters needs no care; what is put in front of a text is taken away inside of it.
//! - Expressions are matched on a buffer that grows until the match did not look at its end
//!   (crate::pattern).
//! - Pieces are merged one by one, long ones in chunks (crate::long_piece).
//!
//! Only tokenizers all of whose parts are known to be such are sliced (`Slicer::of`). They lose no byte
//! of the text but those that are no token, so a text of B others has at least B / (bytes of the
//! longest token) tokens.

use crate::decoding::byte_to_char;
use crate::error::{Error, Result, Status};
use crate::limits::Limits;
use crate::long_piece;
use crate::pattern::{Pattern, Search};
use serde_json::Value;
use tokenizers::models::bpe::BPE;
use tokenizers::{Model, ModelWrapper, OffsetReferential, OffsetType};

/// The search for a cut ends here: such a text is refused.
const MAX_SLICE_BYTES: usize = 1 << 20;
const CUT_TRIES: usize = 1024;
/// Tokens at the end of an unfinished long piece that the rest of it may still merge.
const UNSETTLED_TOKENS: usize = 1024;
/// NFC makes a text at most this much shorter.
const NFC_RATIO: usize = 3;
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

pub struct Slicer {
    composes: bool,
    /// Put in front of every text between added tokens.
    prepended: String,
    stages: Vec<Pattern>,
    is_byte_level: bool,
    /// Texts of the added tokens, by their first bytes.
    added: Vec<Vec<Vec<u8>>>,
    /// Some are found in normalised text.
    has_normalized: bool,
    longest_added: usize,
    longest_token: usize,
    /// Bytes of byte-level text that are tokens; the model drops the others without a word.
    known: [bool; 256],
}

/// What the normalizer and pre-tokenizer consist of, as far as slicing must know.
#[derive(Default)]
struct Parts {
    composes: bool,
    prepended: String,
    replaced: Vec<String>,
    stages: Vec<Pattern>,
    is_byte_level: bool,
}

impl Slicer {
    /// None if some part of the tokenizer is not known to be safe to cut.
    pub fn of(encoder: &tokenizers::Tokenizer) -> Option<Self> {
        let ModelWrapper::BPE(model) = encoder.get_model() else { return None };
        let mut parts = Parts::default();
        let normalizer = serde_json::to_value(encoder.get_normalizer()).ok()?;
        parts.add_normalizer(&normalizer)?;
        let pre_tokenizer = serde_json::to_value(encoder.get_pre_tokenizer()).ok()?;
        parts.add_pre_tokenizer(&pre_tokenizer)?;
        let (longest_token, known) = byte_tokens(model, parts.is_byte_level)?;
        let mut added = vec![Vec::new(); 256];
        let (mut longest_added, mut has_normalized) = (1, false);
        for token in encoder.get_added_vocabulary().get_added_tokens_decoder().values() {
            let is_simple = !token.single_word && !token.lstrip && !token.rstrip;
            let is_same = !token.normalized
                || (parts.prepended.is_empty()
                    && parts.replaced.is_empty()
                    && (token.content.is_ascii() || !parts.composes));
            let bytes = token.content.as_bytes();
            let first = bytes.first().filter(|_| is_simple && is_same)?;
            added[usize::from(*first)].push(bytes.to_vec());
            longest_added = longest_added.max(bytes.len());
            has_normalized |= token.normalized;
        }
        Some(Self {
            composes: parts.composes,
            prepended: parts.prepended,
            stages: parts.stages,
            is_byte_level: parts.is_byte_level,
            added,
            has_normalized,
            longest_added,
            longest_token,
            known,
        })
    }

    /// Bytes that become part of tokens.
    fn num_known(&self, text: &str) -> usize {
        match self.known.contains(&false) {
            true => text.bytes().filter(|byte| self.known[usize::from(*byte)]).count(),
            false => text.len(),
        }
    }

    /// Tokens that `text` has at least.
    fn min_tokens(&self, text: &str) -> usize {
        let longest = self.longest_token.max(self.longest_added);
        match self.composes {
            true if self.known.contains(&false) => 0,
            true => text.len() / (NFC_RATIO * longest),
            false => self.num_known(text) / longest,
        }
    }

    /// The ids of `text` without anything around it. `hidden`: a character that keeps added tokens
    /// from being found, and is no part of the text.
    pub fn encode(
        &self,
        encoder: &tokenizers::Tokenizer,
        text: &str,
        hidden: Option<char>,
        limits: &mut Limits,
    ) -> Result<Vec<u32>> {
        if hidden.is_none() {
            limits.check(self.min_tokens(text))?;
        }
        let ModelWrapper::BPE(model) = encoder.get_model() else {
            return Err(Error::internal("the model of the tokenizer was exchanged"));
        };
        let mut gap =
            Gap { slicer: self, model, text: String::new(), done: 0, retry_at: 0, is_open: false };
        let mut ids = Vec::new();
        let mut position = 0;
        while position < text.len() {
            limits.check_stopped()?;
            let end = self.cut(encoder, text, position, limits.slice_bytes)?;
            let slice = &text[position..end];
            let parts = encoder
                .get_added_vocabulary()
                .extract_and_normalize(encoder.get_normalizer(), slice);
            for (part, _, tokens) in
                parts.get_splits(OffsetReferential::Normalized, OffsetType::None)
            {
                match tokens {
                    Some(tokens) => {
                        gap.close(&mut ids, limits)?;
                        ids.extend(tokens.iter().map(|token| token.id));
                    }
                    None => gap.push(part, hidden),
                }
            }
            gap.settle(false, &mut ids, limits)?;
            limits.check(ids.len())?;
            position = end;
        }
        gap.close(&mut ids, limits)?;
        limits.check(ids.len())?;
        Ok(ids)
    }

    /// The end of the slice that begins at `start`.
    fn cut(
        &self,
        encoder: &tokenizers::Tokenizer,
        text: &str,
        start: usize,
        slice_bytes: usize,
    ) -> Result<usize> {
        let mut size = slice_bytes;
        while text.len() - start > size {
            let target = start + size;
            let floor = target - size.min(CUT_TRIES) + 1;
            if let Some(end) = (floor..=target).rev().find(|end| self.is_cut(text, *end)) {
                return Ok(end);
            }
            if let Some(end) = self.behind_added(encoder, text, start, target) {
                return Ok(end);
            }
            size *= 2;
            if size > MAX_SLICE_BYTES {
                return Err(Error {
                    status: Status::Invalid,
                    message: format!(
                        "the text has more than {MAX_SLICE_BYTES} bytes at byte {start} that cannot \
                         be encoded apart, because none of its characters stands alone"
                    ),
                });
            }
        }
        Ok(text.len())
    }

    fn is_cut(&self, text: &str, at: usize) -> bool {
        if !text.is_char_boundary(at) {
            return false;
        }
        if self.composes && !text[at..].chars().next().is_some_and(is_inert) {
            return false;
        }
        let bytes = text.as_bytes();
        let low = at.saturating_sub(self.longest_added);
        if self.composes && self.has_normalized {
            // Such tokens are found in what NFC makes of the text: here it makes nothing of it.
            let low = (0..=low).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
            let high = (at + self.longest_added..text.len()).find(|i| text.is_char_boundary(*i));
            if !text[low..high.unwrap_or(text.len())].chars().all(is_inert) {
                return false;
            }
        }
        let crosses = |start: usize| {
            let words = &self.added[usize::from(bytes[start])];
            words.iter().any(|word| start + word.len() > at && bytes[start..].starts_with(word))
        };
        !(low..at).any(crosses)
    }

    /// The end of the last added token up to `target` whose end more text would not move.
    fn behind_added(
        &self,
        encoder: &tokenizers::Tokenizer,
        text: &str,
        start: usize,
        target: usize,
    ) -> Option<usize> {
        let mut end = target + self.longest_added;
        while end < text.len() && !text.is_char_boundary(end) {
            end += 1;
        }
        let window = &text[start..end.min(text.len())];
        let none: Option<&tokenizers::NormalizerWrapper> = None;
        let parts = encoder.get_added_vocabulary().extract_and_normalize(none, window);
        let last = parts
            .get_splits(OffsetReferential::Original, OffsetType::Byte)
            .into_iter()
            .filter(|(_, (_, end), tokens)| tokens.is_some() && start + end <= target)
            .map(|(_, (_, end), _)| start + end)
            .next_back();
        let is_normal =
            |end: &usize| !self.composes || text[*end..].chars().next().is_some_and(is_inert);
        last.filter(|end| *end > start).filter(is_normal)
    }
}

/// Characters that NFC leaves as they are and never joins with the one before. Not all such, but
/// those of which long texts are made.
fn is_inert(c: char) -> bool {
    matches!(c,
        '\0'..='\u{7f}' | 'À'..='ɏ' | 'А'..='ҁ' | '\u{3001}'..='\u{3029}' | 'ぁ'..='ゖ' | 'ァ'..='ヺ'
        | '\u{4e00}'..='\u{9fff}' | '가'..='힣' | '\u{ff01}'..='\u{ff5e}' | '\u{fdd0}'..='\u{fdef}'
        | '\u{1f300}'..='\u{1faff}')
}

/// Bytes of normalised text in the longest token, and which bytes are tokens. None if the model does
/// with what it does not know anything but dropping single bytes.
fn byte_tokens(model: &BPE, is_byte_level: bool) -> Option<(usize, [bool; 256])> {
    let is_plain = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
    let has_dropout = model.dropout.is_some_and(|dropout| dropout > 0.0);
    if has_dropout
        || !is_plain(&model.continuing_subword_prefix)
        || !is_plain(&model.end_of_word_suffix)
    {
        return None;
    }
    let mut known = [true; 256];
    for byte in 0..=255_u8 {
        let text = match is_byte_level {
            true => byte_to_char(byte).to_string(),
            false => format!("<0x{byte:02X}>"),
        };
        // Other bytes than these are in no UTF-8 text.
        let is_used = !matches!(byte, 0xC0 | 0xC1 | 0xF5..=0xFF);
        known[usize::from(byte)] = model.token_to_id(&text).is_some() || !is_used;
    }
    let is_complete = !known.contains(&false);
    let drops_bytes = is_byte_level && model.unk_token.is_none() && !model.byte_fallback;
    if !(is_complete && (is_byte_level || model.byte_fallback)) && !drops_bytes {
        return None;
    }
    let length = |token: &String| if is_byte_level { token.chars().count() } else { token.len() };
    Some((model.get_vocab().keys().map(length).max()?, known))
}

impl Parts {
    fn add_normalizer(&mut self, step: &Value) -> Option<()> {
        match step["type"].as_str() {
            None if step.is_null() => {}
            Some("Sequence") => {
                for step in step["normalizers"].as_array()? {
                    self.add_normalizer(step)?;
                }
            }
            // What follows it would have to be cut as NFC leaves it.
            Some("NFC") if self.prepended.is_empty() && self.replaced.is_empty() => {
                self.composes = true;
            }
            Some("Prepend") if self.replaced.is_empty() => {
                self.prepended.insert_str(0, step["prepend"].as_str()?);
            }
            Some("Replace") => {
                let from = step["pattern"]["String"].as_str()?;
                let to = step["content"].as_str()?;
                let is_single = from.chars().count() == 1 && to.len() >= from.len();
                if !is_single || self.prepended.contains(from) {
                    return None;
                }
                self.replaced.push(from.to_string());
            }
            _ => return None,
        }
        Some(())
    }

    fn add_pre_tokenizer(&mut self, step: &Value) -> Option<()> {
        if self.is_byte_level {
            return None;
        }
        match step["type"].as_str() {
            None if step.is_null() => {}
            Some("Sequence") => {
                for step in step["pretokenizers"].as_array()? {
                    self.add_pre_tokenizer(step)?;
                }
            }
            Some("Split") => self.add_split(step)?,
            Some("Digits") if step["individual_digits"] == true => {
                self.stages.push(Pattern::of(char::is_numeric));
            }
            Some("ByteLevel") => {
                if step["add_prefix_space"] == true {
                    return None;
                }
                self.is_byte_level = true;
                if step["use_regex"] != false {
                    self.stages.push(Pattern::parse(GPT2)?);
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn add_split(&mut self, step: &Value) -> Option<()> {
        if step["invert"] != false {
            return None;
        }
        if let Some(text) = step["pattern"]["String"].as_str() {
            // Nothing is left of what was replaced before.
            return self.replaced.iter().any(|from| from == text).then_some(());
        }
        if step["behavior"] != "Isolated" {
            return None;
        }
        self.stages.push(Pattern::parse(step["pattern"]["Regex"].as_str()?)?);
        Some(())
    }
}

/// Normalised text between two added tokens, as far as it is known.
struct Gap<'a> {
    slicer: &'a Slicer,
    model: &'a BPE,
    text: String,
    /// Bytes of `text` whose ids are out.
    done: usize,
    /// Size of the unfinished piece at which it is looked at again.
    retry_at: usize,
    is_open: bool,
}

impl Gap<'_> {
    fn push(&mut self, part: &str, hidden: Option<char>) {
        let prepended = self.slicer.prepended.as_str();
        let part = match self.is_open {
            true => part.strip_prefix(prepended).unwrap_or(part),
            false => part,
        };
        match hidden {
            Some(hidden) => self.text.extend(part.chars().filter(|c| *c != hidden)),
            None => self.text.push_str(part),
        }
        self.is_open = true;
    }

    fn close(&mut self, ids: &mut Vec<u32>, limits: &mut Limits) -> Result<()> {
        self.settle(true, ids, limits)?;
        self.text.clear();
        (self.done, self.retry_at, self.is_open) = (0, 0, false);
        Ok(())
    }

    /// Encodes the pieces that more text cannot change, all of them if this is the end.
    fn settle(&mut self, is_end: bool, ids: &mut Vec<u32>, limits: &mut Limits) -> Result<()> {
        let pending = self.slicer.num_known(&self.text[self.done..]);
        limits.check(ids.len() + pending / self.slicer.longest_token)?;
        if self.text.len() - self.done < self.retry_at && !is_end {
            return Ok(());
        }
        while self.done < self.text.len() {
            let rest = &self.text[self.done..];
            let Some(first) = self.slicer.stages.first() else {
                if is_end {
                    self.encode_piece(rest, ids, limits)?;
                    self.done = self.text.len();
                }
                break;
            };
            let mut search = Search::new(rest);
            let found = search.find(first, 0);
            if search.touched_end && !is_end {
                self.retry_at = 2 * rest.len();
                break;
            }
            self.retry_at = 0;
            let (start, end) = found.unwrap_or((rest.len(), rest.len()));
            self.encode_parts(&rest[..start], 1, ids, limits)?;
            self.encode_parts(&rest[start..end], 1, ids, limits)?;
            self.done += end;
        }
        if self.done > limits.slice_bytes {
            self.text.drain(..self.done);
            self.done = 0;
        }
        Ok(())
    }

    /// A piece of one stage is cut by the next.
    fn encode_parts(
        &self,
        part: &str,
        stage: usize,
        ids: &mut Vec<u32>,
        limits: &mut Limits,
    ) -> Result<()> {
        if part.is_empty() {
            return Ok(());
        }
        let Some(pattern) = self.slicer.stages.get(stage) else {
            return self.encode_piece(part, ids, limits);
        };
        let mut search = Search::new(part);
        let mut position = 0;
        while position < part.len() {
            let (start, end) = search.find(pattern, position).unwrap_or((part.len(), part.len()));
            self.encode_parts(&part[position..start], stage + 1, ids, limits)?;
            self.encode_parts(&part[start..end], stage + 1, ids, limits)?;
            position = end;
        }
        Ok(())
    }

    /// Is this character of byte-level text a token?
    fn is_known(&self, c: char) -> bool {
        self.model.token_to_id(c.encode_utf8(&mut [0; 4])).is_some()
    }

    fn encode_piece(&self, piece: &str, ids: &mut Vec<u32>, limits: &mut Limits) -> Result<()> {
        let written: String;
        let piece = match self.slicer.is_byte_level {
            true => {
                written = piece.bytes().map(byte_to_char).collect();
                &written
            }
            false => piece,
        };
        // Longer than any token, so that none is one as it stands.
        let chunk_bytes = 1 + 2 * self.slicer.longest_token.max(limits.slice_bytes / 8);
        if piece.len() <= chunk_bytes {
            let tokens = self
                .model
                .tokenize(piece)
                .map_err(|error| Error::invalid(format!("the text cannot be encoded: {error}")))?;
            ids.extend(tokens.iter().map(|token| token.id));
            return limits.check(ids.len());
        }
        let kept: String;
        let piece = match self.slicer.known.contains(&false) {
            true => {
                kept = piece.chars().filter(|c| self.is_known(*c)).collect();
                &kept
            }
            false => piece,
        };
        let num_before = ids.len();
        let placed = long_piece::encode(self.model, piece, chunk_bytes, |num_tokens| {
            limits.check_stopped()?;
            limits.check(num_before + num_tokens.saturating_sub(UNSETTLED_TOKENS))
        })?;
        ids.extend(placed.iter().map(|token| token.id));
        Ok(())
    }
}
