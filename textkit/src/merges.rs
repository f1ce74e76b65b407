//! Merge lists for vocabularies that have only scores or an order.
//!
//! A token that can be made from two other tokens gives one merge per such split. Merges are ranked by
//! the score of the token they make, higher first; among equals the longer left part comes first, then
//! the longer right part. This is how the models' original tokenizer.json files were made.

use crate::error::{Error, Result};
use ahash::AHashMap;

/// Splitting a token is quadratic in its length; real vocabularies stay far below this.
const MAX_PIECE_BYTES: usize = 1024;

struct Merge {
    score: f32,
    left_chars: u32,
    right_chars: u32,
    made: u32,
    split: u32,
}

/// `pieces`: (text, score), in id order; only these take part. Returns (left, right) in rank order.
pub fn from_scores(pieces: &[(&str, f32)]) -> Result<Vec<(String, String)>> {
    let known: AHashMap<&str, ()> = pieces.iter().map(|piece| (piece.0, ())).collect();
    let mut merges: Vec<Merge> = Vec::new();
    for (made, (text, score)) in pieces.iter().enumerate() {
        if text.len() > MAX_PIECE_BYTES {
            return Err(Error::corrupt(format!(
                "a token of the vocabulary has {} bytes, at most {MAX_PIECE_BYTES} are plausible",
                text.len()
            )));
        }
        let num_chars = text.chars().count() as u32;
        for (left_chars, (split, _)) in text.char_indices().enumerate().skip(1) {
            let (left, right) = text.split_at(split);
            if known.contains_key(left) && known.contains_key(right) {
                let left_chars = left_chars as u32;
                merges.push(Merge {
                    score: *score,
                    left_chars,
                    right_chars: num_chars - left_chars,
                    made: made as u32,
                    split: split as u32,
                });
            }
        }
    }
    merges.sort_by(|a, b| {
        (b.score.total_cmp(&a.score))
            .then(b.left_chars.cmp(&a.left_chars))
            .then(b.right_chars.cmp(&a.right_chars))
            .then(a.made.cmp(&b.made))
    });
    let pair = |merge: &Merge| {
        let (left, right) = pieces[merge.made as usize].0.split_at(merge.split as usize);
        (left.to_string(), right.to_string())
    };
    Ok(merges.iter().map(pair).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_by_score_then_longer_left_part() {
        let pieces = [("a", 0.0), ("b", 0.0), ("aa", -2.0), ("aab", -1.0), ("ab", -3.0)];
        let merges = from_scores(&pieces).expect("plausible");
        let text: Vec<String> = merges.iter().map(|(l, r)| format!("{l}+{r}")).collect();
        assert_eq!(text, ["aa+b", "a+ab", "a+a", "a+b"]);
    }

    #[test]
    fn splits_fall_on_characters() {
        let merges = from_scores(&[("é", 0.0), ("éé", -1.0)]).expect("plausible");
        assert_eq!(merges, [("é".to_string(), "é".to_string())]);
    }

    #[test]
    fn an_absurd_token_is_refused() {
        let long = "a".repeat(MAX_PIECE_BYTES + 1);
        assert!(from_scores(&[(&long, 0.0)]).is_err());
    }
}
