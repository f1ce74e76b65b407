//! Byte-pair encoding of one long piece in chunks, with the ids of the piece encoded at once.
//!
//! Merging always takes the best pair of the whole piece, yet it is local. Call two tokens compatible
//! if merging the text of both gives just these two.
//!
//! 1. No merge crosses a boundary of the result, so the merges on each side of it are those that
//!    this side's text alone would see, in the same order: any part of a result that begins and ends
//!    at boundaries is the result for its own text. Hence neighbours in a result are compatible.
//! 2. Let u and v be texts whose results end with t and begin with s. Up to the first merge across
//!    their border, merging uv does on both sides what merging u and v alone does, and that merge
//!    would also be the first one across the border of the texts of t and s. So if t and s are
//!    compatible, the result of uv is that of u followed by that of v.
//!
//! So a row of tokens, each the result of its own text and each compatible with the next, is the
//! result of the whole. A chunk is encoded together with the last tokens of what came before. If the
//! first of these comes out as it was, it still fits the one before it, and the rows are joined; else
//! more of them are taken along.

use crate::error::{Error, Result};
use tokenizers::models::bpe::BPE;
use tokenizers::Model;

const FIRST_WINDOW: usize = 8;

/// A token and where it ends in the piece.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    pub id: u32,
    pub end: usize,
}

const NUM_REMEMBERED: usize = 8;

/// Merges texts, and remembers the last ones: long pieces tend to repeat themselves.
struct Merger<'a> {
    model: &'a BPE,
    text: &'a str,
    recent: Vec<(String, Vec<Placed>)>,
    oldest: usize,
}

impl Merger<'_> {
    fn merge(&mut self, start: usize, end: usize) -> Result<Vec<Placed>> {
        let part = &self.text[start..end];
        let moved = |token: &Placed| Placed { id: token.id, end: start + token.end };
        if let Some((_, tokens)) = self.recent.iter().find(|(text, _)| text == part) {
            return Ok(tokens.iter().map(moved).collect());
        }
        let tokens = self
            .model
            .tokenize(part)
            .map_err(|error| Error::invalid(format!("the text cannot be encoded: {error}")))?;
        let tokens: Vec<Placed> =
            tokens.iter().map(|token| Placed { id: token.id, end: token.offsets.1 }).collect();
        let placed = tokens.iter().map(moved).collect();
        if self.recent.len() < NUM_REMEMBERED {
            self.recent.push((part.to_string(), tokens));
        } else {
            self.recent[self.oldest] = (part.to_string(), tokens);
            self.oldest = (self.oldest + 1) % NUM_REMEMBERED;
        }
        Ok(placed)
    }
}

/// Encodes `text` in chunks longer than any token; `progress` is told the number of tokens after each chunk and may end the work.
pub fn encode(
    model: &BPE,
    text: &str,
    chunk_bytes: usize,
    mut progress: impl FnMut(usize) -> Result<()>,
) -> Result<Vec<Placed>> {
    let mut placed: Vec<Placed> = Vec::new();
    let mut merger = Merger { model, text, recent: Vec::new(), oldest: 0 };
    let mut start = 0;
    while start < text.len() {
        let mut end = text.len().min(start + chunk_bytes);
        while !text.is_char_boundary(end) {
            end += 1;
        }
        extend(&mut merger, &mut placed, end)?;
        progress(placed.len())?;
        start = end;
    }
    Ok(placed)
}

/// From the result of the text up to the last token's end to that of the text up to `end`.
fn extend(merger: &mut Merger, placed: &mut Vec<Placed>, end: usize) -> Result<()> {
    let mut window = FIRST_WINDOW;
    loop {
        let mut first = placed.len().saturating_sub(window);
        let start_of = |first: usize| if first == 0 { 0 } else { placed[first - 1].end };
        // Byte tokens may end inside a character, a text may not.
        while !merger.text.is_char_boundary(start_of(first)) {
            first -= 1;
        }
        let merged = merger.merge(start_of(first), end)?;
        if first == 0 || merged.first() == placed.get(first) {
            placed.truncate(first);
            placed.extend_from_slice(&merged);
            return Ok(());
        }
        window *= 2;
    }
}
