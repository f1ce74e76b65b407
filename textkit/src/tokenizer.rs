//! A tokeniser: the library's encoder, and a table of what each id decodes to.

use crate::decoding::{Arena, Decoding, Range, Scheme};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::sliced::Slicer;
use serde_json::Value;
use std::collections::HashMap;
use tokenizers::{
    AddedToken, Encoding, Model, NormalizedString, Normalizer, OffsetReferential, OffsetType,
    PreTokenizedString, PreTokenizer, Token,
};

/// A text that cannot be sliced costs some hundred times its size in memory.
const MAX_WHOLE_BYTES: usize = 1 << 20;

/// One id, as the table keeps it.
#[derive(Clone, Copy, Default)]
struct Slot {
    name: Range,
    bytes: Range,
    first_bytes: Range,
    exists: bool,
    decodes: bool,
    special: bool,
}

/// One id, as others see it.
pub struct Entry<'a> {
    pub name: &'a [u8],
    pub bytes: &'a [u8],
    pub first_bytes: &'a [u8],
    /// False for ids that stand for no text (fillers, gaps).
    pub decodes: bool,
    pub special: bool,
}

/// Fills the table of ids.
pub struct TableBuilder {
    slots: Vec<Slot>,
    arena: Arena,
}

impl TableBuilder {
    /// Ids run to `vocab_size - 1`; a file that numbers a token 4 billion must not cost memory.
    pub fn new(vocab_size: usize) -> Result<Self> {
        const MAX_IDS: usize = 16 << 20;
        if vocab_size > MAX_IDS {
            return Err(Error::corrupt(format!(
                "the tokenizer has an id {}, more than the {MAX_IDS} ids that are plausible",
                vocab_size - 1
            )));
        }
        Ok(Self { slots: vec![Slot::default(); vocab_size], arena: Arena::default() })
    }

    pub fn name(&mut self, id: u32, name: &[u8], special: bool) {
        let range = self.arena.add(name);
        if let Some(slot) = self.slots.get_mut(id as usize) {
            (slot.name, slot.exists, slot.special) = (range, true, special);
        }
    }

    pub fn bytes(&mut self, id: u32, inside: &[u8], first: Option<&[u8]>) {
        let inside_range = self.arena.add(inside);
        let first_range = first.map_or(inside_range, |bytes| self.arena.add(bytes));
        if let Some(slot) = self.slots.get_mut(id as usize) {
            (slot.bytes, slot.first_bytes, slot.decodes) = (inside_range, first_range, true);
        }
    }
}

/// Ids around every encoded text when special tokens are asked for.
#[derive(Default)]
pub struct Wrapping {
    pub prefix: Vec<u32>,
    pub suffix: Vec<u32>,
}

pub struct Tokenizer {
    encoder: tokenizers::Tokenizer,
    /// How texts are encoded slice by slice; None: they are not.
    slicer: Option<Slicer>,
    /// None: the library's own post-processor wraps, in a way that depends on the text.
    wrapping: Option<Wrapping>,
    slots: Vec<Slot>,
    arena: Arena,
    ids: HashMap<String, u32>,
    scheme: Scheme,
    bos_id: Option<u32>,
    eos_id: Option<u32>,
    adds_bos: bool,
}

/// What a builder knows beside the encoder.
pub struct Parts {
    pub encoder: tokenizers::Tokenizer,
    pub wrapping: Option<Wrapping>,
    pub table: TableBuilder,
    pub ids: HashMap<String, u32>,
    pub scheme: Scheme,
    pub bos_id: Option<u32>,
    pub eos_id: Option<u32>,
}

impl Tokenizer {
    pub fn new(parts: Parts) -> Result<Self> {
        let mut tokenizer = Self {
            slicer: Slicer::of(&parts.encoder),
            encoder: parts.encoder,
            wrapping: parts.wrapping,
            slots: parts.table.slots,
            arena: parts.table.arena,
            ids: parts.ids,
            scheme: parts.scheme,
            bos_id: parts.bos_id,
            eos_id: parts.eos_id,
            adds_bos: false,
        };
        tokenizer.find_wrapping_ids()?;
        Ok(tokenizer)
    }

    pub fn from_json(json: &[u8], config_json: &[u8]) -> Result<Self> {
        let mut encoder = tokenizers::Tokenizer::from_bytes(json)
            .map_err(|error| Error::corrupt(format!("tokenizer.json cannot be read: {error}")))?;
        encoder.with_truncation(None).map_err(|error| {
            Error::internal(format!("truncation cannot be switched off: {error}"))
        })?;
        encoder.with_padding(None);
        let config = parse_config(config_json)?;
        add_configured_tokens(&mut encoder, &config)?;
        check_added_tokens(&encoder)?;

        let decoding = Decoding::of(encoder.get_decoder())?;
        let ids: HashMap<String, u32> = encoder.get_vocab(true);
        let vocab_size = ids.values().max().map_or(0, |id| *id as usize + 1);
        let mut table = TableBuilder::new(vocab_size)?;
        let mut names: Vec<(u32, &str)> =
            ids.iter().map(|(name, id)| (*id, name.as_str())).collect();
        names.sort_unstable();
        for (id, name) in names {
            // An added token that the normaliser changes is decoded from its changed form.
            let added = encoder.get_added_vocabulary().simple_id_to_token(id);
            let written = added.as_deref().unwrap_or(name);
            let special = encoder.get_added_vocabulary().is_special_token(written);
            table.name(id, name.as_bytes(), special);
            let inside = decoding.bytes(written, false)?;
            let first = match decoding.scheme.first_differs {
                true => Some(decoding.bytes(written, true)?),
                false => None,
            };
            table.bytes(id, &inside, first.as_deref());
        }
        let configured = |key| config_token(&config, key).and_then(|text| ids.get(text).copied());
        let (bos_id, eos_id) = (configured("bos_token"), configured("eos_token"));
        let scheme = decoding.scheme;
        Self::new(Parts { encoder, wrapping: None, table, ids, scheme, bos_id, eos_id })
    }

    /// Sees what stands around every text: BOS first, EOS last.
    fn find_wrapping_ids(&mut self) -> Result<()> {
        if self.wrapping.is_none() {
            self.wrapping = self.library_wrapping()?;
        }
        let Some(wrapping) = &self.wrapping else { return Ok(()) };
        let first = wrapping.prefix.first().copied();
        self.bos_id = self.bos_id.or(first);
        self.eos_id = self.eos_id.or(wrapping.suffix.last().copied());
        self.adds_bos = first.is_some() && first == self.bos_id;
        Ok(())
    }

    /// What the library's post-processor puts around a token. That token is none of the vocabulary,
    /// which may have none for whatever text one would try.
    fn library_wrapping(&self) -> Result<Option<Wrapping>> {
        const TOKEN: u32 = u32::MAX;
        let around = |tokens: Vec<Token>| -> Result<Vec<u32>> {
            let wrapped = self.encoder.post_process(Encoding::from_tokens(tokens, 0), None, true);
            let wrapped = wrapped.map_err(|error| {
                Error::corrupt(format!("the tokenizer's post-processor fails: {error}"))
            })?;
            Ok(wrapped.get_ids().to_vec())
        };
        if let Some(id) = around(Vec::new())?.into_iter().find(|id| *id >= self.vocab_size()) {
            return Err(Error::corrupt(format!(
                "the tokenizer adds the id {id}, but its vocabulary has {} ids",
                self.vocab_size()
            )));
        }
        let wrapped = around(vec![Token::new(TOKEN, "a".into(), (0, 1))])?;
        let mut parts = wrapped.split(|id| *id == TOKEN);
        Ok(match (parts.next(), parts.next(), parts.next()) {
            (Some(prefix), Some(suffix), None) => {
                Some(Wrapping { prefix: prefix.to_vec(), suffix: suffix.to_vec() })
            }
            _ => None,
        })
    }

    pub fn encode(&self, text: &str, add_special: bool, limits: &mut Limits) -> Result<Vec<u32>> {
        limits.check_stopped()?;
        let slicer = self.slicer.as_ref().filter(|_| text.len() > limits.slice_bytes);
        let wrapping = self.wrapping.as_ref().filter(|_| add_special);
        if let (Some(slicer), true) = (slicer, wrapping.is_some() || !add_special) {
            let ids = slicer.encode(&self.encoder, text, None, limits)?;
            return wrapped(&ids, wrapping, limits);
        }
        check_whole(text)?;
        let ids = self.encode_whole(text, add_special && self.wrapping.is_none())?;
        wrapped(&ids, wrapping, limits)
    }

    /// As `encode` without anything around it, of a text with marks: `hidden` is no part of the text,
    /// and a special token whose spelling it interrupts is plain text there.
    pub fn encode_hidden(&self, text: &str, hidden: char, limits: &mut Limits) -> Result<Vec<u32>> {
        if let Some(slicer) = &self.slicer {
            return slicer.encode(&self.encoder, text, Some(hidden), limits);
        }
        check_whole(text)?;
        let failed = |error: tokenizers::Error| {
            Error::invalid(format!("the text cannot be encoded: {error}"))
        };
        let parts = self
            .encoder
            .get_added_vocabulary()
            .extract_and_normalize(self.encoder.get_normalizer(), text);
        let mut ids = Vec::new();
        for (part, _, tokens) in parts.get_splits(OffsetReferential::Normalized, OffsetType::None) {
            if let Some(tokens) = tokens {
                ids.extend(tokens.iter().map(|token| token.id));
                continue;
            }
            let mut gap = PreTokenizedString::from(part.replace(hidden, ""));
            if let Some(pre_tokenizer) = self.encoder.get_pre_tokenizer() {
                pre_tokenizer.pre_tokenize(&mut gap).map_err(failed)?;
            }
            for (piece, _, _) in gap.get_splits(OffsetReferential::Normalized, OffsetType::None) {
                let tokens = self.encoder.get_model().tokenize(piece).map_err(failed)?;
                ids.extend(tokens.iter().map(|token| token.id));
            }
        }
        limits.check(ids.len())?;
        Ok(ids)
    }

    /// In one piece, by the library.
    pub fn encode_whole(&self, text: &str, library_wraps: bool) -> Result<Vec<u32>> {
        let encoding = self
            .encoder
            .encode_fast(text, library_wraps)
            .map_err(|error| Error::invalid(format!("the text cannot be encoded: {error}")))?;
        Ok(encoding.get_ids().to_vec())
    }

    pub fn entry(&self, id: u32) -> Option<Entry<'_>> {
        let slot = self.slots.get(id as usize)?;
        slot.exists.then(|| Entry {
            name: self.arena.get(slot.name),
            bytes: self.arena.get(slot.bytes),
            first_bytes: self.arena.get(slot.first_bytes),
            decodes: slot.decodes,
            special: slot.special,
        })
    }

    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    pub fn vocab_size(&self) -> u32 {
        self.slots.len() as u32
    }

    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    pub fn bos_id(&self) -> Option<u32> {
        self.bos_id
    }

    pub fn eos_id(&self) -> Option<u32> {
        self.eos_id
    }

    pub fn adds_bos(&self) -> bool {
        self.adds_bos
    }
}

fn check_whole(text: &str) -> Result<()> {
    if text.len() > MAX_WHOLE_BYTES {
        return Err(Error::invalid(format!(
            "the text has {} bytes, but this tokenizer cannot be cut into slices, so at most \
                 {MAX_WHOLE_BYTES} bytes are encoded at once",
            text.len()
        )));
    }
    Ok(())
}

fn wrapped(ids: &[u32], wrapping: Option<&Wrapping>, limits: &mut Limits) -> Result<Vec<u32>> {
    let (prefix, suffix): (&[u32], &[u32]) =
        wrapping.map_or((&[], &[]), |around| (&around.prefix, &around.suffix));
    limits.check(prefix.len() + ids.len() + suffix.len())?;
    Ok([prefix, ids, suffix].concat())
}

fn parse_config(json: &[u8]) -> Result<Value> {
    if json.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(json)
        .map_err(|error| Error::corrupt(format!("tokenizer_config.json cannot be read: {error}")))
}

/// Tokens that tokenizer_config.json lists and tokenizer.json lacks, as fine-tunes leave them: the
/// reference adds them behind the others. One whose id is not the next one would get another id
/// than the model was trained with, and is left out.
fn add_configured_tokens(encoder: &mut tokenizers::Tokenizer, config: &Value) -> Result<()> {
    let Some(listed) = config.get("added_tokens_decoder").and_then(Value::as_object) else {
        return Ok(());
    };
    let mut tokens: Vec<(u32, AddedToken)> = (listed.iter())
        .filter_map(|(id, token)| {
            Some((id.parse().ok()?, serde_json::from_value(token.clone()).ok()?))
        })
        .filter(|(_, token): &(u32, AddedToken)| encoder.token_to_id(&token.content).is_none())
        .collect();
    tokens.sort_by_key(|(id, _)| *id);
    for (id, token) in tokens {
        if id as usize != encoder.get_vocab_size(true) || token.content.is_empty() {
            continue;
        }
        encoder.add_tokens([token]).map_err(|error| {
            Error::corrupt(format!(
                "tokenizer_config.json: the token {id} cannot be added: {error}"
            ))
        })?;
    }
    Ok(())
}

/// A token of which normalising leaves nothing matches everywhere, and the library does not end.
fn check_added_tokens(encoder: &tokenizers::Tokenizer) -> Result<()> {
    let Some(normalizer) = encoder.get_normalizer() else { return Ok(()) };
    for (id, token) in encoder.get_added_tokens_decoder() {
        let mut text = NormalizedString::from(token.content.as_str());
        let is_empty =
            token.normalized && normalizer.normalize(&mut text).is_ok() && text.is_empty();
        if is_empty {
            return Err(Error::corrupt(format!(
                "tokenizer.json cannot be read: its normalizer leaves nothing of the added token {id}, {:?}",
                token.content
            )));
        }
    }
    Ok(())
}

/// A token in tokenizer_config.json is a string, or an object with "content".
fn config_token<'a>(config: &'a Value, key: &str) -> Option<&'a str> {
    let token = config.get(key)?;
    token.as_str().or_else(|| token.get("content")?.as_str())
}
