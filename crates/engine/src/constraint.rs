//! What may come next in a reply, decided by others as it grows.

use std::fmt::Debug;

use crate::request::EngineError;

/// A rule that a reply has to follow. The engine asks it on its own thread, once for each token, and ends the reply if it
/// fails; other replies do not notice.
pub trait Constraint: Debug + Send + Sync {
    /// Adds the tokens that may come next to `allowed`, which is empty, and says whether the reply may end here. Which
    /// tokens end it is the request's to say: in `allowed` they count for nothing.
    ///
    /// # Errors
    /// If the reply cannot go on; the reason is for whoever asked for it.
    fn mask(&mut self, allowed: &mut TokenSet) -> Result<bool, String>;

    /// Goes on by a token of the reply, which was allowed. Each comes once, even if the reply is read again from its start.
    ///
    /// # Errors
    /// As [`mask`](Self::mask).
    fn accept(&mut self, token: u32) -> Result<(), String>;

    /// Whether nothing may come but the end.
    fn is_complete(&self) -> bool;

    /// A copy that goes its own way.
    fn fork(&self) -> Box<dyn Constraint>;
}

impl Clone for Box<dyn Constraint> {
    fn clone(&self) -> Self {
        self.fork()
    }
}

/// A set of tokens of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenSet {
    /// 32 ids a word, the lowest id in the lowest bit; no bit is set from `vocab` on.
    words: Vec<u32>,
    vocab: usize,
}

impl TokenSet {
    /// The empty set, of tokens below `vocab`.
    pub fn new(vocab: usize) -> Self {
        let mut set = TokenSet::default();
        set.clear(vocab);
        set
    }

    fn clear(&mut self, vocab: usize) {
        self.words.clear();
        self.words.resize(vocab.div_ceil(32), 0);
        self.vocab = vocab;
    }

    /// Adds a token; one that the model does not have is ignored.
    pub fn insert(&mut self, token: u32) {
        if (token as usize) < self.vocab {
            self.words[token as usize / 32] |= 1 << (token % 32);
        }
    }

    /// Removes a token.
    pub fn remove(&mut self, token: u32) {
        if let Some(word) = self.words.get_mut(token as usize / 32) {
            *word &= !(1 << (token % 32));
        }
    }

    /// Adds tokens as bits, 32 ids a word, the lowest id in the lowest bit.
    pub fn extend_words(&mut self, words: &[u32]) {
        self.words.iter_mut().zip(words).for_each(|(word, more)| *word |= more);
        self.cut();
    }

    /// Adds all tokens of the model.
    pub fn fill(&mut self) {
        self.words.fill(u32::MAX);
        self.cut();
    }

    /// Keeps the rule for the bits from `vocab` on.
    fn cut(&mut self) {
        if let Some(last) = self.words.last_mut().filter(|_| !self.vocab.is_multiple_of(32)) {
            *last &= (1 << (self.vocab % 32)) - 1;
        }
    }

    /// Whether a token is in the set.
    pub fn contains(&self, token: u32) -> bool {
        self.words.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
    }

    /// Whether no token is.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }
}

/// Buffers that constrained replies share, one after the other.
#[derive(Default)]
pub(crate) struct MaskScratch {
    allowed: TokenSet,
    logits: Vec<f32>,
}

/// `logits`, with -inf for what the constraint does not allow; `None` if there is nothing but the end.
pub(crate) fn masked<'a>(
    constraint: &mut dyn Constraint,
    logits: &[f32],
    stop_tokens: &[u32],
    scratch: &'a mut MaskScratch,
) -> Result<Option<&'a [f32]>, EngineError> {
    let MaskScratch { allowed, logits: masked } = scratch;
    allowed.clear(logits.len());
    let may_end = constraint.mask(allowed).map_err(broken)?;
    stop_tokens.iter().for_each(|&token| allowed.remove(token));
    if allowed.is_empty() {
        return if may_end { Ok(None) } else { Err(broken("no token may come next".into())) };
    }
    if may_end {
        stop_tokens.iter().for_each(|&token| allowed.insert(token));
    }
    masked.clear();
    masked.resize(logits.len(), f32::NEG_INFINITY);
    for ((masked, logits), &word) in masked.chunks_mut(32).zip(logits.chunks(32)).zip(&allowed.words) {
        match word {
            0 => {}
            u32::MAX => masked.copy_from_slice(logits),
            _ => (0..logits.len()).filter(|bit| word >> bit & 1 == 1).for_each(|bit| masked[bit] = logits[bit]),
        }
    }
    Ok(Some(masked))
}

/// A constraint's error as one of the engine.
pub(crate) fn broken(reason: String) -> EngineError {
    EngineError::Constraint { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_tokens_of_its_model_only() {
        let mut set = TokenSet::new(70);
        assert!(set.is_empty());
        [0, 31, 32, 69, 70, 95, u32::MAX].into_iter().for_each(|token| set.insert(token));
        let tokens = |set: &TokenSet| (0..200).filter(|&token| set.contains(token)).collect::<Vec<_>>();
        assert_eq!(tokens(&set), [0, 31, 32, 69]);
        set.remove(31);
        set.remove(4000);
        set.extend_words(&[2, 0, u32::MAX, u32::MAX]);
        assert_eq!(tokens(&set), [0, 1, 32, 64, 65, 66, 67, 68, 69]);
        assert!(!set.contains(u32::MAX));
        set.fill();
        assert!(tokens(&set).into_iter().eq(0..70));
    }
}
