//! From token ids back to bytes: what each token adds to a text.
//!
//! Every token's bytes are worked out once, so that decoding token by token and decoding at once are the
//! same thing. The tokeniser's decoder steps are reduced to a form in which a token's contribution does
//! not depend on its neighbours, except for the first token and blanks at the very start.

use crate::error::{Error, Result};
use serde_json::Value;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::Decoder;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheme {
    /// Each byte that is no part of a character becomes one U+FFFD (byte tokens of SentencePiece);
    /// otherwise a broken sequence becomes one (byte-level vocabularies).
    pub mark_each_byte: bool,
    pub first_differs: bool,
    pub strip_start_blanks: u32,
}

/// The bytes of all tokens in one piece of memory.
#[derive(Default)]
pub struct Arena {
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
pub struct Range {
    start: usize,
    end: usize,
}

impl Arena {
    pub fn add(&mut self, bytes: &[u8]) -> Range {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        Range { start, end: self.bytes.len() }
    }

    pub fn get(&self, range: Range) -> &[u8] {
        &self.bytes[range.start..range.end]
    }
}

enum Step {
    Replace {
        from: String,
        to: String,
    },
    ByteAlphabet,
    ByteTokens,
    /// A decoder that works on each token alone, the first one perhaps differently.
    Each(Box<DecoderWrapper>),
    /// No decoder: tokens stand apart with a blank.
    Spaced,
}

pub struct Decoding {
    steps: Vec<Step>,
    pub scheme: Scheme,
}

impl Decoding {
    pub fn of(decoder: Option<&DecoderWrapper>) -> Result<Self> {
        let mut decoding = Self { steps: Vec::new(), scheme: Scheme::default() };
        let Some(decoder) = decoder else {
            decoding.steps.push(Step::Spaced);
            decoding.scheme.first_differs = true;
            return Ok(decoding);
        };
        let value = serde_json::to_value(decoder)
            .map_err(|error| Error::internal(format!("the decoder cannot be read: {error}")))?;
        let mut fused = false;
        for step in flatten(&value) {
            decoding.add(step, &mut fused)?;
        }
        Ok(decoding)
    }

    fn add(&mut self, step: &Value, fused: &mut bool) -> Result<()> {
        let kind = step["type"].as_str().unwrap_or("?");
        if *fused && kind != "Fuse" && kind != "Strip" {
            return Err(unsupported(kind, "after Fuse"));
        }
        let has_bytes =
            self.steps.iter().any(|s| matches!(s, Step::ByteAlphabet | Step::ByteTokens));
        if has_bytes && !matches!(kind, "Fuse" | "Strip") {
            return Err(unsupported(kind, "after the step that makes bytes"));
        }
        match kind {
            "ByteLevel" => {
                self.steps.push(Step::ByteAlphabet);
                *fused = true;
            }
            "ByteFallback" => {
                self.steps.push(Step::ByteTokens);
                self.scheme.mark_each_byte = true;
            }
            "Fuse" => *fused = true,
            "Strip" => {
                let at_start_only = step["content"] == " " && step["stop"] == 0;
                if !*fused || !at_start_only {
                    return Err(unsupported(
                        kind,
                        "that strips more than blanks at the start of a text",
                    ));
                }
                self.scheme.strip_start_blanks += step["start"].as_u64().unwrap_or(0) as u32;
            }
            "Replace" => match (step["pattern"]["String"].as_str(), step["content"].as_str()) {
                (Some(from), Some(to)) if !from.is_empty() => {
                    self.steps.push(Step::Replace { from: from.into(), to: to.into() });
                }
                _ => self.steps.push(Step::Each(parse(step)?)),
            },
            "Metaspace" | "WordPiece" => {
                self.steps.push(Step::Each(parse(step)?));
                self.scheme.first_differs = true;
            }
            _ => {
                return Err(unsupported(kind, "whose output for a token depends on its neighbours"))
            }
        }
        Ok(())
    }

    /// What `token` adds to a text, as its first token or inside.
    pub fn bytes(&self, token: &str, is_first: bool) -> Result<Vec<u8>> {
        let mut text = token.to_string();
        for step in &self.steps {
            match step {
                Step::Replace { from, to } => {
                    if text.contains(from.as_str()) {
                        text = text.replace(from.as_str(), to);
                    }
                }
                Step::ByteAlphabet => {
                    return Ok(from_byte_alphabet(&text).unwrap_or_else(|| text.into_bytes()))
                }
                Step::ByteTokens => {
                    if let Some(byte) = byte_token(&text) {
                        return Ok(vec![byte]);
                    }
                }
                Step::Each(decoder) => text = decode_one(decoder, text, is_first)?,
                Step::Spaced if is_first => {}
                Step::Spaced => text.insert(0, ' '),
            }
        }
        Ok(text.into_bytes())
    }
}

fn flatten(decoder: &Value) -> Vec<&Value> {
    match decoder["decoders"].as_array() {
        Some(steps) => steps.iter().flat_map(flatten).collect(),
        None => vec![decoder],
    }
}

fn parse(step: &Value) -> Result<Box<DecoderWrapper>> {
    serde_json::from_value(step.clone())
        .map(Box::new)
        .map_err(|error| Error::internal(format!("a decoder step cannot be read back: {error}")))
}

fn unsupported(kind: &str, what: &str) -> Error {
    Error::unsupported(format!(
        "the tokenizer has a decoder step {kind} {what}, which cannot be streamed"
    ))
}

fn decode_one(decoder: &DecoderWrapper, token: String, is_first: bool) -> Result<String> {
    let tokens = if is_first { vec![token] } else { vec!["a".into(), token] };
    let mut texts = decoder
        .decode_chain(tokens)
        .map_err(|error| Error::corrupt(format!("the tokenizer's decoder fails: {error}")))?;
    texts.pop().ok_or_else(|| Error::internal("the tokenizer's decoder returned nothing"))
}

/// "<0x0A>" is the byte 10.
pub fn byte_token(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

/// The byte alphabet of GPT-2: printable bytes stand for themselves, the other 68 for U+0100 onwards.
pub fn byte_to_char(byte: u8) -> char {
    static TABLE: std::sync::OnceLock<[char; 256]> = std::sync::OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let is_printable = |b: u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
        let mut others = (0x100..).filter_map(char::from_u32);
        std::array::from_fn(|index| match index as u8 {
            byte if is_printable(byte) => char::from(byte),
            _ => others.next().unwrap_or(char::REPLACEMENT_CHARACTER),
        })
    });
    table[usize::from(byte)]
}

fn from_byte_alphabet(text: &str) -> Option<Vec<u8>> {
    static TABLE: std::sync::OnceLock<[Option<u8>; 0x144]> = std::sync::OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table = [None; 0x144];
        for byte in 0..=255u8 {
            if let Some(slot) = table.get_mut(byte_to_char(byte) as usize) {
                *slot = Some(byte);
            }
        }
        table
    });
    text.chars().map(|c| table.get(c as usize).copied().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_alphabet_is_a_bijection() {
        let all: Vec<u8> = (0..=255).collect();
        let text: String = all.iter().map(|b| byte_to_char(*b)).collect();
        assert_eq!(from_byte_alphabet(&text), Some(all));
        assert_eq!(byte_to_char(b' '), 'Ġ');
        assert_eq!(byte_to_char(b'\n'), 'Ċ');
        assert_eq!(from_byte_alphabet("▁"), None);
    }

    #[test]
    fn byte_tokens() {
        assert_eq!(byte_token("<0x0A>"), Some(10));
        assert_eq!(byte_token("<0xfF>"), Some(255));
        assert_eq!(byte_token("<0x0A"), None);
        assert_eq!(byte_token("<0xé>"), None);
    }

    #[test]
    fn decoders_that_look_at_neighbours_are_refused() {
        let ctc: DecoderWrapper = serde_json::from_str(
            r#"{"type":"CTC","pad_token":"<pad>","word_delimiter_token":"|","cleanup":true}"#,
        )
        .expect("parses");
        assert!(Decoding::of(Some(&ctc)).is_err());
    }
}
