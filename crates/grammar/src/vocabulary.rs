//! The tokens of a model as a tree of bytes.

use std::sync::Arc;

use kapitsa_text::Tokenizer;
use llguidance::api::ParserLimits;
use llguidance::panic_utils::catch_unwind;
use llguidance::toktrie::{ApproximateTokEnv, INVALID_TOKEN, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{ParserFactory, TokenParser, api::TopLevelGrammar};

use crate::error::{GrammarError, first_line};
use crate::grammar::Grammar;
use crate::matcher::CompiledGrammar;

/// Tokens with more bytes are never allowed; the tree holds no deeper paths.
const MAX_TOKEN_BYTES: usize = 1000;

/// Nodes that the tree can have.
const MAX_NODES: usize = (1 << 22) - 1;

/// Tokens that continue a JSON string, the short ones and all: sets that are allowed at once where a string may go on freely.
/// Each costs a tenth of a second at 150K tokens; without the first, strings with a greatest length take ten times as long.
const STRING_TOKENS: [&str; 2] = [r#"[^"\\\x00-\x1F\x7F]{1,30}"#, r#"[^"\\\x00-\x1F\x7F]+"#];

/// A grammar is compiled on a thread of its own with so much stack: schemas are nested.
const STACK_BYTES: usize = 64 << 20;

/// The tokens of a model, made ready for masks. Made once per model, and cheap to clone.
///
/// A control token or end of a turn is never a way to write text, even if the text spells it. Tokens with equal bytes are
/// allowed together.
#[derive(Clone)]
pub struct Vocabulary {
    factory: Arc<ParserFactory>,
}

impl Vocabulary {
    /// Reads all tokens.
    ///
    /// # Errors
    /// If they have more bytes than the tree can hold; no real vocabulary has.
    pub fn new(tokenizer: &Tokenizer) -> Result<Self, GrammarError> {
        let words: Vec<Vec<u8>> = (0..tokenizer.vocab_len() as u32).map(|id| word(tokenizer, id)).collect();
        let bytes: usize = words.iter().map(Vec::len).sum();
        if bytes > MAX_NODES {
            return Err(GrammarError::Vocabulary { reason: format!("{bytes} bytes, the limit is {MAX_NODES}") });
        }
        let vocabulary = |error| GrammarError::Vocabulary { reason: first_line(&error) };
        let factory = catch_unwind(std::panic::AssertUnwindSafe(|| {
            // An end of turn is for the engine to choose where the grammar may end, so the tree knows none.
            let trie = TokTrie::from(&TokRxInfo::new(words.len() as u32, INVALID_TOKEN), &words);
            // This environment never forces tokens: which tokens spell a forced text is for the model to choose.
            let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
            let mut factory =
                ParserFactory::new(&environment, InferenceCapabilities::default(), &STRING_TOKENS.map(String::from))?;
            factory.quiet();
            *factory.limits_mut() = ParserLimits { verbose_errors: false, ..ParserLimits::default() };
            Ok(factory)
        }));
        Ok(Vocabulary { factory: Arc::new(factory.map_err(vocabulary)?) })
    }

    /// Number of ids, holes included.
    pub fn len(&self) -> usize {
        self.trie().vocab_size()
    }

    /// Whether there is no token at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes a grammar ready to be followed in this model's tokens.
    ///
    /// # Errors
    /// If no text fits it, or it is larger than the limits.
    pub fn compile(&self, grammar: &Grammar) -> Result<CompiledGrammar, GrammarError> {
        let grammars = grammar.render()?;
        let failed = |reason| GrammarError::Grammar { reason };
        let compile = || -> anyhow::Result<TokenParser> {
            let mut parser = self.factory.create_parser(TopLevelGrammar { grammars, max_tokens: None })?;
            parser.start_without_prompt();
            Ok(parser)
        };
        let parser = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("kapitsa-grammar".into()).stack_size(STACK_BYTES);
            let thread = thread.spawn_scoped(scope, compile).map_err(|error| failed(error.to_string()))?;
            thread.join().map_err(|_| failed("the compiler crashed".into()))
        })?;
        Ok(CompiledGrammar::new(parser.map_err(|error| failed(first_line(&error)))?))
    }

    fn trie(&self) -> &TokTrie {
        self.factory.tok_env().tok_trie()
    }
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Vocabulary").field("tokens", &self.len()).finish_non_exhaustive()
    }
}

/// The path of a token in the tree; empty for one that is never allowed. Those that are no text begin with a byte that no
/// text has.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let (mark, bytes) = if tokenizer.is_special(id) || tokenizer.eos_ids().contains(&id) {
        (true, tokenizer.token_text(id).as_bytes())
    } else {
        (false, tokenizer.token_bytes(id))
    };
    match bytes {
        [] | [TokTrie::SPECIAL_TOKEN_MARKER, ..] => vec![],
        _ if bytes.len() > MAX_TOKEN_BYTES => vec![],
        _ if mark => [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat(),
        _ => bytes.to_vec(),
    }
}
