//! A tokeniser from the vocabulary of a GGUF file.
//!
//! The file holds tokens, their types, merges or scores, and the name of a pre-tokenizer; the rest of
//! the original tokenizer.json is restored from what its model kind and that name imply.

use crate::decoding::Decoding;
use crate::error::{Error, Result};
use crate::merges;
use crate::pre_tokenizers::{self, Row};
use crate::tokenizer::{Parts, TableBuilder, Tokenizer, Wrapping};
use ahash::AHashMap;
use std::collections::HashMap;
use tokenizers::decoders::{
    byte_fallback::ByteFallback, fuse::Fuse, sequence::Sequence, strip::Strip, DecoderWrapper,
};
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::{
    prepend::Prepend, replace::Replace, unicode::NFC, utils::Sequence as Normalizers,
    NormalizerWrapper,
};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::AddedToken;

const BLANK: &str = "\u{2581}";

/// Token types of the file.
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

pub struct Vocabulary<'a> {
    pub model: &'a str,
    pub pre: &'a str,
    pub tokens: Vec<&'a [u8]>,
    pub token_types: &'a [i32],
    pub scores: &'a [f32],
    pub merges: Vec<&'a [u8]>,
    pub bos_id: Option<u32>,
    pub eos_id: Option<u32>,
    pub other_special_ids: Vec<u32>,
    pub unknown_id: Option<u32>,
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    pub add_space_prefix: Option<bool>,
}

/// The tokens that take part, cleaned: text as the original tokeniser has it, and type.
struct Tokens<'a> {
    texts: Vec<Option<std::borrow::Cow<'a, str>>>,
    types: Vec<i32>,
}

impl<'a> Vocabulary<'a> {
    pub fn build(&self) -> Result<Tokenizer> {
        self.check_sizes()?;
        match self.model {
            "llama" => self.build_scored(),
            "gpt2" => self.build_byte_level(),
            "gemma4" => self.build_ranked_text(),
            other => Err(Error::unsupported(format!(
                "the tokenizer model \"{other}\" (tokenizer.ggml.model) is not supported, only llama, gpt2 and gemma4 are"
            ))),
        }
    }

    fn check_sizes(&self) -> Result<()> {
        let count = self.tokens.len();
        if count == 0 {
            return Err(Error::corrupt("the file has no tokens (tokenizer.ggml.tokens)"));
        }
        for (name, size) in [("token_type", self.token_types.len()), ("scores", self.scores.len())]
        {
            if size != 0 && size != count {
                return Err(Error::corrupt(format!(
                    "tokenizer.ggml.{name} has {size} entries, but there are {count} tokens"
                )));
            }
        }
        Ok(())
    }

    /// Types as the file says; a file without types names its special tokens by their ids only.
    fn types(&self) -> Vec<i32> {
        if !self.token_types.is_empty() {
            return self.token_types.to_vec();
        }
        let mut types = vec![1; self.tokens.len()];
        let special = [self.bos_id, self.eos_id, self.unknown_id];
        for id in special.into_iter().flatten().chain(self.other_special_ids.iter().copied()) {
            if let Some(kind) = types.get_mut(id as usize) {
                *kind = CONTROL;
            }
        }
        types
    }

    /// `blank`: what stands for a space inside user-defined tokens that are nothing but spaces.
    fn clean_tokens(&self, blank: Option<&str>) -> Tokens<'a> {
        let types = self.types();
        let clean = |(bytes, kind): (&&'a [u8], &i32)| {
            let text = std::str::from_utf8(bytes).ok()?;
            if text.is_empty() || *kind == UNUSED {
                return None;
            }
            match blank {
                Some(blank) if *kind == USER_DEFINED && text.bytes().all(|b| b == b' ') => {
                    Some(text.replace(' ', blank).into())
                }
                _ => Some(text.into()),
            }
        };
        let texts = self.tokens.iter().zip(&types).map(clean).collect();
        Tokens { texts, types }
    }

    /// SentencePiece BPE: spaces become U+2581, pairs merge by the score of what they make.
    fn build_scored(&self) -> Result<Tokenizer> {
        if self.scores.is_empty() {
            return Err(Error::corrupt(
                "a tokenizer of model llama needs tokenizer.ggml.scores, which the file lacks",
            ));
        }
        let tokens = self.clean_tokens(Some(BLANK));
        let score = |id: usize| match tokens.types[id] {
            CONTROL | UNKNOWN | BYTE | UNUSED => None,
            // Their score in the file is no rank: the originals merge them before all others.
            USER_DEFINED => Some(f32::INFINITY),
            _ => Some(self.scores[id]),
        };
        let pieces: Vec<(&str, f32)> = (tokens.texts.iter().enumerate())
            .filter_map(|(id, text)| Some((text.as_deref()?, score(id)?)))
            .collect();
        let unknown = self.unknown_id.unwrap_or(0) as usize;
        let mut model = BPE::builder()
            .vocab_and_merges(tokens.ids(), merges::from_scores(&pieces)?)
            .byte_fallback(true)
            .fuse_unk(true);
        if let Some(Some(text)) = tokens.texts.get(unknown) {
            model = model.unk_token(text.to_string());
        }
        let prefix = self.add_space_prefix.unwrap_or(true);
        let encoder = self.text_encoder(model.build(), prefix, None)?;
        let wrapping = self.wrapping(self.bos_id.or(Some(1)), true);
        self.finish(encoder, tokens, wrapping)
    }

    /// BPE by listed merges on text with U+2581 for spaces, cut at runs of newlines.
    fn build_ranked_text(&self) -> Result<Tokenizer> {
        let tokens = self.clean_tokens(Some(BLANK));
        let mut model = BPE::builder()
            .vocab_and_merges(tokens.ids(), self.listed_merges(&tokens)?)
            .byte_fallback(true)
            .fuse_unk(true);
        if let Some(Some(text)) = self.unknown_id.and_then(|id| tokens.texts.get(id as usize)) {
            model = model.unk_token(text.to_string());
        }
        let prefix = self.add_space_prefix.unwrap_or(false);
        let encoder = self.text_encoder(model.build(), prefix, Some(r"\n+"))?;
        let wrapping = self.wrapping(self.bos_id, true);
        self.finish(encoder, tokens, wrapping)
    }

    fn text_encoder(
        &self,
        model: tokenizers::Result<BPE>,
        space_prefix: bool,
        cut: Option<&str>,
    ) -> Result<tokenizers::Tokenizer> {
        let mut encoder = tokenizers::Tokenizer::new(model.map_err(bad_merges)?);
        let blank = Replace::new(" ", BLANK)
            .map_err(|error| Error::internal(format!("the normalizer does not build: {error}")))?;
        let mut steps: Vec<NormalizerWrapper> = vec![blank.into()];
        if space_prefix {
            steps.insert(0, Prepend::new(BLANK.into()).into());
        }
        encoder
            .with_normalizer(Some(Normalizers::new(steps)))
            .map_err(|error| Error::internal(format!("the normalizer does not fit: {error}")))?;
        if let Some(expression) = cut {
            encoder.with_pre_tokenizer(Some(pre_tokenizers::split(expression)?));
        }
        let unblank = Replace::new(BLANK, " ")
            .map_err(|error| Error::internal(format!("the decoder does not build: {error}")))?;
        let mut decoders: Vec<DecoderWrapper> = vec![
            DecoderWrapper::Replace(unblank),
            DecoderWrapper::ByteFallback(ByteFallback::new()),
            DecoderWrapper::Fuse(Fuse::new()),
        ];
        if space_prefix {
            decoders.push(DecoderWrapper::Strip(Strip::new(' ', 1, 0)));
        }
        encoder.with_decoder(Some(Sequence::new(decoders)));
        Ok(encoder)
    }

    /// Byte-level BPE: cut by the named expressions, bytes as characters, merges by rank.
    fn build_byte_level(&self) -> Result<Tokenizer> {
        let row: &Row =
            pre_tokenizers::find(if self.pre.is_empty() { "default" } else { self.pre })?;
        let tokens = self.clean_tokens(None);
        let merges = match self.merges.is_empty() {
            true => self.merges_by_order(&tokens)?,
            false => self.listed_merges(&tokens)?,
        };
        let model = BPE::builder()
            .vocab_and_merges(tokens.ids(), merges)
            .ignore_merges(row.ignore_merges)
            .build()
            .map_err(bad_merges)?;
        let mut encoder = tokenizers::Tokenizer::new(model);
        if row.nfc {
            encoder.with_normalizer(Some(NFC)).map_err(|error| {
                Error::internal(format!("the normalizer does not fit: {error}"))
            })?;
        }
        encoder.with_pre_tokenizer(Some(row.pattern.build()?));
        encoder.with_decoder(Some(ByteLevel::default()));
        let wrapping = self.wrapping(self.bos_id, row.default_add_bos);
        self.finish(encoder, tokens, wrapping)
    }

    /// "left right" strings, rank = index. Spaces inside a part are written as U+0120 by converters.
    fn listed_merges(&self, tokens: &Tokens) -> Result<Vec<(String, String)>> {
        let ids = tokens.ids();
        let mut pairs = Vec::with_capacity(self.merges.len());
        for (rank, bytes) in self.merges.iter().enumerate() {
            let parts = std::str::from_utf8(bytes).ok().and_then(|text| {
                let second = text.char_indices().nth(1)?.0;
                let space = second + text[second..].find(' ')?;
                Some((&text[..space], &text[space + 1..]))
            });
            let Some((left, right)) = parts else {
                return Err(Error::corrupt(format!(
                    "merge {rank} of tokenizer.ggml.merges is not two tokens with a space between"
                )));
            };
            let made = [left, right].concat();
            if let Some(absent) = [left, right, &made].into_iter().find(|t| !ids.contains_key(*t)) {
                return Err(Error::corrupt(format!(
                    "merge {rank} of tokenizer.ggml.merges needs the token {absent:?}, which the vocabulary lacks"
                )));
            }
            pairs.push((left.to_string(), right.to_string()));
        }
        Ok(pairs)
    }

    /// Vocabularies of rank order without merges: the earlier token is the better one.
    fn merges_by_order(&self, tokens: &Tokens) -> Result<Vec<(String, String)>> {
        let pieces: Vec<(&str, f32)> = (tokens.texts.iter().zip(&tokens.types).enumerate())
            .filter(|(_, (_, kind))| !matches!(**kind, CONTROL | USER_DEFINED | UNKNOWN))
            .filter_map(|(id, (text, _))| Some((text.as_deref()?, -(id as f32))))
            .collect();
        merges::from_scores(&pieces)
    }

    fn wrapping(&self, bos_id: Option<u32>, default_add_bos: bool) -> Wrapping {
        let is_token = |id: &u32| (*id as usize) < self.tokens.len();
        let bos = bos_id.filter(is_token).filter(|_| self.add_bos.unwrap_or(default_add_bos));
        let eos = self.eos_id.filter(is_token).filter(|_| self.add_eos.unwrap_or(false));
        Wrapping { prefix: bos.into_iter().collect(), suffix: eos.into_iter().collect() }
    }

    fn finish(
        &self,
        mut encoder: tokenizers::Tokenizer,
        tokens: Tokens,
        wrapping: Wrapping,
    ) -> Result<Tokenizer> {
        let is_added = |kind: i32| matches!(kind, CONTROL | USER_DEFINED | UNKNOWN);
        let added: Vec<AddedToken> = (tokens.texts.iter().zip(&tokens.types))
            .filter(|(_, kind)| is_added(**kind))
            .filter_map(|(text, kind)| {
                let special = *kind != USER_DEFINED;
                Some(AddedToken::from(text.as_deref()?, special).normalized(false))
            })
            .collect();
        encoder.add_tokens(added).map_err(|error| {
            Error::corrupt(format!("the special tokens cannot be added: {error}"))
        })?;

        let decoding = Decoding::of(encoder.get_decoder())?;
        let mut table = TableBuilder::new(self.tokens.len())?;
        let is_byte_level = !decoding.scheme.mark_each_byte;
        for (id, (text, kind)) in tokens.texts.iter().zip(&tokens.types).enumerate() {
            table.name(id as u32, self.tokens[id], matches!(*kind, CONTROL | UNKNOWN));
            let Some(text) = text else { continue };
            // Added tokens of byte-level vocabularies stand in the file as plain text.
            let bytes = match is_byte_level && is_added(*kind) {
                true => text.as_bytes().to_vec(),
                false => decoding.bytes(text, false)?,
            };
            table.bytes(id as u32, &bytes, None);
        }
        let ids: HashMap<String, u32> = self.ids_by_name();
        let (bos_id, eos_id, scheme) = (self.bos_id, self.eos_id, decoding.scheme);
        Tokenizer::new(Parts {
            encoder,
            wrapping: Some(wrapping),
            table,
            ids,
            scheme,
            bos_id,
            eos_id,
        })
    }

    fn ids_by_name(&self) -> HashMap<String, u32> {
        let mut ids = HashMap::with_capacity(self.tokens.len());
        for (id, bytes) in self.tokens.iter().enumerate() {
            if let Ok(text) = std::str::from_utf8(bytes) {
                ids.entry(text.to_string()).or_insert(id as u32);
            }
        }
        ids
    }
}

impl Tokens<'_> {
    /// Of equal tokens the first is used for encoding.
    fn ids(&self) -> AHashMap<String, u32> {
        let mut ids = AHashMap::with_capacity(self.texts.len());
        for (id, text) in self.texts.iter().enumerate() {
            if let Some(text) = text {
                ids.entry(text.to_string()).or_insert(id as u32);
            }
        }
        ids
    }
}

fn bad_merges(error: tokenizers::Error) -> Error {
    Error::corrupt(format!("the vocabulary does not fit together: {error}"))
}
