//! SentencePiece's own pair merging: any two neighbours whose joined text is a token may be joined, best score first.
//!
//! This is the algorithm of the SentencePiece library for models of type BPE. It differs from merging by a ranked list of
//! pairs derived from the scores: there two ways to make the same token have different ranks, here they tie and the
//! leftmost wins.

use hashbrown::HashMap;

use super::{
    merge::{Join, Symbol, merge},
    vocabulary::{Kind, Vocabulary},
};
use crate::error::TextError;

/// The stand-in for a space (U+2581).
pub(crate) const SPACE: &str = "▁";

/// Scores of a vocabulary.
#[derive(Clone)]
pub(crate) struct SentencePiece {
    /// For each id: 0 for the highest score, and up. Equal scores have equal ranks.
    ranks: Vec<u32>,
    /// A space is put in front of each text.
    prefix: bool,
    byte_tokens: Option<Box<[u32; 256]>>,
    unknown: Option<u32>,
    /// A joined text that is an unused token is taken apart again at the end, so its halves must be remembered.
    has_unused: bool,
}

impl SentencePiece {
    /// # Errors
    /// If there is not one finite score for each token.
    pub(crate) fn new(
        vocabulary: &Vocabulary,
        scores: &[f32],
        unknown: Option<u32>,
        prefix: bool,
    ) -> Result<Self, TextError> {
        if scores.len() != vocabulary.len() {
            let (found, expected) = (scores.len(), vocabulary.len());
            return Err(TextError::vocabulary(format!("{found} scores for {expected} tokens")));
        }
        if let Some(id) = scores.iter().position(|score| !score.is_finite()) {
            return Err(TextError::vocabulary(format!("the score of token {id} is {}", scores[id])));
        }
        let all: Option<Vec<u32>> = vocabulary.byte_tokens().into_iter().collect();
        Ok(Self {
            prefix,
            ranks: scores.iter().map(|&score| rank_of(score)).collect(),
            byte_tokens: all.and_then(|tokens| tokens.into_boxed_slice().try_into().ok()),
            unknown,
            has_unused: (0..vocabulary.len() as u32).any(|id| vocabulary.kind(id) == Kind::Unused),
        })
    }

    /// Appends the ids of a text.
    pub(crate) fn encode(&self, vocabulary: &Vocabulary, text: &str, ids: &mut Vec<u32>) -> Result<(), TextError> {
        if text.is_empty() {
            return Ok(());
        }
        let text = format!("{}{}", if self.prefix { SPACE } else { "" }, text.replace(' ', SPACE));
        let bytes = text.as_bytes();
        let symbol = |(start, c): (usize, char)| {
            let len = c.len_utf8();
            Symbol::new(start, len, vocabulary.piece(&bytes[start..start + len]))
        };
        let mut symbols: Vec<Symbol> = text.char_indices().map(symbol).collect();
        // Which two texts made an unused token, by its id: always the same two, as the text is the same and the rule
        // depends on nothing else.
        let halves = std::cell::RefCell::new(HashMap::<u32, (Box<[u8]>, Box<[u8]>)>::new());
        merge(&mut symbols, |left, right| {
            let (left, right) = (left.range(), right.range());
            let id = vocabulary.piece(&bytes[left.start..right.end])?;
            if self.has_unused && vocabulary.kind(id) == Kind::Unused {
                halves.borrow_mut().insert(id, (bytes[left].into(), bytes[right].into()));
            }
            Some(Join { rank: self.ranks[id as usize], id })
        });
        let halves = halves.into_inner();
        let mut parts: Vec<(&[u8], u32)> = Vec::new();
        let mut after_unknown = false;
        for symbol in symbols.iter().filter(|symbol| symbol.len > 0) {
            parts.push((&bytes[symbol.range()], symbol.id));
            while let Some((part, id)) = parts.pop() {
                match halves.get(&id) {
                    Some((left, right)) if vocabulary.kind(id) == Kind::Unused => {
                        let id_of = |part: &[u8]| vocabulary.piece(part).unwrap_or(Symbol::NO_TOKEN);
                        parts.push((right, id_of(right)));
                        parts.push((left, id_of(left)));
                    }
                    _ => self.push(part, id, &mut after_unknown, ids)?,
                }
            }
        }
        Ok(())
    }

    /// Unknown parts in a row become one unknown token.
    fn push(&self, part: &[u8], id: u32, after_unknown: &mut bool, ids: &mut Vec<u32>) -> Result<(), TextError> {
        let was_unknown = std::mem::take(after_unknown);
        if id != Symbol::NO_TOKEN {
            ids.push(id);
        } else if let Some(tokens) = &self.byte_tokens {
            ids.extend(part.iter().map(|&byte| tokens[byte as usize]));
        } else if let Some(unknown) = self.unknown {
            *after_unknown = true;
            if !was_unknown {
                ids.push(unknown);
            }
        } else {
            let part = String::from_utf8_lossy(part);
            return Err(TextError::encode(format!("`{}` has no token in this vocabulary", part.escape_debug())));
        }
        Ok(())
    }
}

/// Orders finite scores from high to low as unsigned integers.
fn rank_of(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits(); // -0 and 0 are equal scores
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    !ascending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_scores_rank_first() {
        let scores = [f32::MAX, 3.5, 1e-30, 0.0, -0.0, -1e-30, -1.0, -2.0, f32::MIN];
        let ranks: Vec<u32> = scores.iter().map(|&score| rank_of(score)).collect();
        for (pair, scores) in ranks.windows(2).zip(scores.windows(2)) {
            assert_eq!(pair[0].cmp(&pair[1]), scores[1].partial_cmp(&scores[0]).unwrap(), "{scores:?}");
        }
    }
}
