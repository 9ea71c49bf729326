//! A grammar as a reply follows it, token by token.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use llguidance::TokenParser;
use llguidance::api::StopReason;
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::SimpleVob;

use crate::error::{GrammarError, first_line};

/// A [`Grammar`](crate::Grammar) in the tokens of a model. Cheap to clone; replies share nothing that could change what
/// one of them may say.
#[derive(Clone)]
pub struct CompiledGrammar {
    start: Arc<Mutex<TokenParser>>,
}

impl CompiledGrammar {
    pub(crate) fn new(start: TokenParser) -> Self {
        CompiledGrammar { start: Arc::new(Mutex::new(start)) }
    }

    /// Follows a new reply.
    pub fn matcher(&self) -> Matcher {
        Matcher { parser: self.start.lock().unwrap_or_else(PoisonError::into_inner).deep_clone() }
    }
}

impl fmt::Debug for CompiledGrammar {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CompiledGrammar").finish_non_exhaustive()
    }
}

/// Where a reply is in its grammar. A clone goes its own way.
pub struct Matcher {
    parser: TokenParser,
}

/// The tokens that may come next in a reply.
#[derive(Clone, Debug)]
pub struct Mask {
    tokens: SimpleVob,
    may_end: bool,
}

impl Matcher {
    /// What may come next.
    ///
    /// # Errors
    /// If the grammar needs more work at this place than the limits allow, or nothing can go on from here.
    pub fn mask(&mut self) -> Result<Mask, GrammarError> {
        let parser = &mut self.parser;
        guarded(|| {
            let none = |parser: &TokenParser| parser.token_env.tok_trie().alloc_token_set();
            if parser.stopped() {
                return Ok(Mask { tokens: none(parser), may_end: true });
            }
            let may_end = parser.is_accepting();
            match parser.compute_mask() {
                Ok(tokens) => Ok(Mask { tokens, may_end }),
                Err(_) if parser.stop_reason() == StopReason::NoExtensionBias => {
                    anyhow::ensure!(may_end, "no token of the vocabulary can go on with the text");
                    Ok(Mask { tokens: none(parser), may_end })
                }
                Err(error) => Err(error),
            }
        })
    }

    /// Goes on by a token, one that the mask allows.
    ///
    /// # Errors
    /// If the grammar does not allow it.
    pub fn accept(&mut self, token: u32) -> Result<(), GrammarError> {
        let parser = &mut self.parser;
        guarded(|| {
            parser.consume_token(token)?;
            parser.check_stop()?;
            Ok(())
        })
    }

    /// Whether the text is whole and nothing more may follow.
    pub fn is_complete(&self) -> bool {
        self.parser.stopped()
    }
}

/// What `work` gives; a panic of the library is an error of this reply.
fn guarded<T>(work: impl FnOnce() -> anyhow::Result<T>) -> Result<T, GrammarError> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|error| GrammarError::Reply { reason: first_line(&error) })
}

impl Clone for Matcher {
    fn clone(&self) -> Self {
        Matcher { parser: self.parser.deep_clone() }
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = self.parser.num_tokens();
        out.debug_struct("Matcher").field("tokens", &tokens).field("is_complete", &self.is_complete()).finish()
    }
}

impl Mask {
    /// Whether the reply may end here.
    pub fn may_end(&self) -> bool {
        self.may_end
    }

    /// Whether a token may come next. Ends of a turn are not in the mask: see [`may_end`](Self::may_end).
    pub fn allows(&self, token: u32) -> bool {
        (token as usize) < self.tokens.len() && self.tokens.is_allowed(token)
    }

    /// The allowed tokens, ascending.
    pub fn tokens(&self) -> impl Iterator<Item = u32> + '_ {
        self.tokens.iter()
    }

    /// The allowed tokens as bits, 32 ids a word, the lowest id in the lowest bit.
    pub fn words(&self) -> &[u32] {
        self.tokens.as_slice()
    }
}
