//! Rules of turns made ready for the model's tokens, and kept for the next turn: agents send the same tools each time.

use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock, PoisonError};

use kapitsa_grammar::{CompiledGrammar, GrammarError, Vocabulary};
use kapitsa_text::Tokenizer;

use super::grammar::Rules;
use crate::Error;

/// Grammars that are kept.
const KEPT: usize = 32;

/// Compiles rules against one vocabulary, which is read when the first rules come.
#[derive(Default)]
pub(crate) struct Compiler {
    vocabulary: OnceLock<Result<Vocabulary, GrammarError>>,
    /// The newest last, by what they were asked for with.
    kept: Mutex<VecDeque<(String, CompiledGrammar)>>,
}

impl Compiler {
    /// The grammar of `rules`. `key` says all that they depend on.
    ///
    /// # Errors
    /// If they do not compile; names the place in the request that is to blame.
    pub(crate) fn compile(&self, tokenizer: &Tokenizer, key: String, rules: &Rules) -> Result<CompiledGrammar, Error> {
        if let Some(known) = self.find(&key) {
            return Ok(known);
        }
        let vocabulary = self.vocabulary.get_or_init(|| Vocabulary::new(tokenizer));
        let error = |place: &str, source| Error::Grammar { place: place.to_owned(), source };
        let vocabulary = vocabulary.as_ref().map_err(|source| error("the model", source.clone()))?;
        let compiled = vocabulary.compile(&rules.grammar).map_err(|whole| {
            let fault = |(place, part): &(String, _)| Some(error(place, vocabulary.compile(part).err()?));
            // Each alone may be fine, and all of them too much.
            let places: Vec<&str> = rules.parts.iter().map(|(place, _)| place.as_str()).collect();
            rules.parts.iter().find_map(fault).unwrap_or_else(|| error(&places.join(", "), whole))
        })?;
        self.keep(key, compiled.clone());
        Ok(compiled)
    }

    fn find(&self, key: &str) -> Option<CompiledGrammar> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let index = kept.iter().position(|(known, _)| known == key)?;
        let found = kept.remove(index)?;
        kept.push_back(found.clone());
        Some(found.1)
    }

    fn keep(&self, key: String, compiled: CompiledGrammar) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back((key, compiled));
    }
}
