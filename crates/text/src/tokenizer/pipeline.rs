//! The stages of the `tokenizers` library: normaliser, pre-tokenizer, byte pair encoding.
//!
//! They are built from checked parts and driven one after the other instead of through the library's own file reader and
//! `encode`: those panic on some hostile files, and its regular expressions panic on some texts (see
//! [`super::pattern`]).

use std::ops::Range;

use hashbrown::HashMap;
use tokenizers::{
    Model, NormalizedString, Normalizer, NormalizerWrapper, PreTokenizedString, PreTokenizer, PreTokenizerWrapper,
    SplitDelimiterBehavior,
    models::bpe::{BPE, Merges, Vocab},
    normalizer::Range as Referential,
    pre_tokenizers::byte_level::ByteLevel,
    tokenizer::{OffsetReferential, OffsetType},
};

use super::{
    pattern::{Matches, Pattern},
    pre_tokenizers::GPT2,
    vocabulary::{Kind, Vocabulary},
};
use crate::error::{TextError, shown};

/// One step of a pre-tokenizer.
#[derive(Clone)]
pub(crate) enum Step {
    /// Cuts at the matches of a pattern; with `invert`, at what lies between them.
    Split { pattern: Pattern, behavior: SplitDelimiterBehavior, invert: bool },
    /// A space in front of each word that does not start with one.
    PrefixSpace,
    /// A step of the library that runs no regular expression on the text.
    Library(PreTokenizerWrapper),
}

impl Step {
    /// A split whose matches are words of their own: what nearly all models use.
    pub(crate) fn isolate(pattern: Pattern) -> Self {
        Self::Split { pattern, behavior: SplitDelimiterBehavior::Isolated, invert: false }
    }

    /// The library's byte-level pre-tokenizer: text to the byte alphabet, cut as GPT-2 did if `use_regex`.
    pub(crate) fn byte_level(add_prefix_space: bool, use_regex: bool) -> Result<Vec<Self>, TextError> {
        let mut steps = Vec::new();
        if add_prefix_space {
            steps.push(Self::PrefixSpace);
        }
        if use_regex {
            steps.push(Self::isolate(Pattern::regex(GPT2)?));
        }
        steps.push(Self::Library(ByteLevel::new(false, false, false).into()));
        Ok(steps)
    }

    fn apply(&self, words: &mut PreTokenizedString) -> tokenizers::Result<()> {
        match self {
            Self::Split { pattern, behavior, invert } => {
                words.split(|_, word| word.split(Matches { pattern, invert: *invert }, *behavior))
            }
            Self::PrefixSpace => words.normalize(|word| {
                if !word.get().starts_with(' ') {
                    word.prepend(" ");
                }
                Ok(())
            }),
            Self::Library(step) => step.pre_tokenize(words),
        }
    }
}

/// Settings of [`Pipeline::new`] for the model.
#[derive(Clone, Debug, Default)]
pub(crate) struct BpeOptions {
    /// Whole words that are tokens are taken as they are, even where merging would give something else.
    pub(crate) ignore_merges: bool,
    /// Characters without a token become byte tokens (`<0x41>`).
    pub(crate) byte_fallback: bool,
    /// What other characters without a token become.
    pub(crate) unknown: Option<String>,
    /// Unknown characters in a row become one unknown token.
    pub(crate) fuse_unknown: bool,
}

/// A normaliser, a pre-tokenizer and a model of merges.
#[derive(Clone)]
pub(crate) struct Pipeline {
    normalizers: Vec<NormalizerWrapper>,
    steps: Vec<Step>,
    model: BPE,
}

impl Pipeline {
    /// Resolves `merges`, best first, against the vocabulary. Where a pair is listed twice the later rank counts. No
    /// control token can come out, whatever the merges say: those are left out of the model.
    ///
    /// # Errors
    /// If a merge names a token that does not exist or makes one that does not.
    pub(crate) fn new<'m>(
        vocabulary: &Vocabulary,
        merges: impl ExactSizeIterator<Item = Result<(&'m str, &'m str), TextError>>,
        normalizers: Vec<NormalizerWrapper>,
        steps: Vec<Step>,
        options: BpeOptions,
    ) -> Result<Self, TextError> {
        let mut in_merges = vec![false; vocabulary.len()];
        let mut kept: Merges = Vec::with_capacity(merges.len());
        let mut joined = String::new();
        for (rank, merge) in merges.enumerate() {
            let (left, right) = merge?;
            joined.clear();
            joined.push_str(left);
            joined.push_str(right);
            let token = |spelling: &str| {
                vocabulary.id_of(spelling.as_bytes()).ok_or_else(|| {
                    let (left, right, missing) = (shown(left), shown(right), shown(spelling));
                    TextError::vocabulary(format!(
                        "merge {rank} (`{left}` + `{right}`) needs the token `{missing}`, which is not in the vocabulary"
                    ))
                })
            };
            let ids = [token(left)?, token(right)?, token(&joined)?];
            let ordinary = |&id: &u32| matches!(vocabulary.kind(id), Kind::Normal | Kind::Unused | Kind::UserDefined);
            if ids.iter().all(ordinary) {
                ids.iter().for_each(|&id| in_merges[id as usize] = true);
                kept.push((left.to_owned(), right.to_owned()));
            }
        }
        let ids = (0..vocabulary.len() as u32).filter(|&id| match vocabulary.kind(id) {
            Kind::Normal | Kind::Unused => true,
            Kind::Byte => options.byte_fallback,
            Kind::UserDefined => in_merges[id as usize],
            Kind::Control | Kind::Unknown => options.unknown.as_deref() == Some(vocabulary.spelling(id)),
            Kind::Missing => false,
        });
        // Where two tokens share a spelling the later one counts, as in the vocabulary.
        let mut vocab = Vocab::with_capacity(vocabulary.len());
        vocab.extend(ids.map(|id| (vocabulary.spelling(id).to_owned(), id)));
        let mut builder = BPE::builder()
            .vocab_and_merges(vocab, kept)
            .cache_capacity(0) // it would outlive the model; see `Ids::seen`
            .byte_fallback(options.byte_fallback)
            .ignore_merges(options.ignore_merges)
            .fuse_unk(options.fuse_unknown);
        if let Some(unknown) = options.unknown {
            builder = builder.unk_token(unknown);
        }
        let model = builder.build().map_err(|error| TextError::vocabulary(error.to_string()))?;
        Ok(Self { normalizers, steps, model })
    }

    /// The normalised form of a text.
    pub(crate) fn normalize(&self, text: &str) -> Result<String, TextError> {
        Ok(self.normalized(text)?.get().to_owned())
    }

    fn normalized(&self, text: &str) -> Result<NormalizedString, TextError> {
        let mut text = NormalizedString::from(text);
        for normalizer in &self.normalizers {
            normalizer.normalize(&mut text).map_err(failed)?;
        }
        Ok(text)
    }

    /// Normalises a fragment of the input and appends the ids of its text; `split` cuts the normalised text at added
    /// tokens. `at_start`: the fragment begins the whole input.
    pub(crate) fn encode(
        &self,
        fragment: &str,
        at_start: bool,
        split: impl FnOnce(&str) -> Vec<super::added::Fragment>,
        ids: &mut Ids,
    ) -> Result<(), TextError> {
        let text = self.normalized(fragment)?;
        for part in split(text.get()) {
            match part {
                super::added::Fragment::Token(id) => ids.list.push(id),
                super::added::Fragment::Text(range) => {
                    let at_start = at_start && range.start == 0;
                    let part = match range.len() == text.len() && at_start {
                        true => text.clone(),
                        false => part_of(text.get(), range, at_start),
                    };
                    self.encode_words(part, ids)?;
                }
            }
        }
        Ok(())
    }

    fn encode_words(&self, text: NormalizedString, ids: &mut Ids) -> Result<(), TextError> {
        let mut words = PreTokenizedString::from(text);
        for step in &self.steps {
            step.apply(&mut words).map_err(failed)?;
        }
        for (word, ..) in words.get_splits(OffsetReferential::Normalized, OffsetType::Byte) {
            if let Some(range) = ids.seen.get(word) {
                ids.list.extend_from_within(range.clone());
                continue;
            }
            let tokens = self.model.tokenize(word).map_err(failed)?;
            // The model passes over what it has no token for without a word, but the offsets tell.
            if tokens.last().map_or(0, |token| token.offsets.1) != word.len() {
                return Err(TextError::encode(format!("part of `{}` has no token in this vocabulary", shown(word))));
            }
            let start = ids.list.len();
            ids.list.extend(tokens.iter().map(|token| token.id));
            if word.len() <= LONGEST_SEEN {
                ids.seen.insert(word.into(), start..ids.list.len());
            }
        }
        Ok(())
    }
}

/// Longer words seldom come twice, and a text without places to cut is one word.
const LONGEST_SEEN: usize = 48;

/// The ids of a text so far.
#[derive(Default)]
pub(crate) struct Ids {
    pub(crate) list: Vec<u32>,
    /// Words that were encoded already, and where their ids are.
    seen: HashMap<Box<str>, Range<usize>>,
}

/// A part of a text, knowing that it is not the start of the input unless `at_start`: one pre-tokenizer asks.
fn part_of(text: &str, range: Range<usize>, at_start: bool) -> NormalizedString {
    let part = &text[range];
    let inner = || NormalizedString::from(format!("-{part}")).slice(Referential::Original(1..));
    if at_start { None } else { inner() }.unwrap_or_else(|| NormalizedString::from(part))
}

fn failed(error: tokenizers::Error) -> TextError {
    match error.downcast::<TextError>() {
        Ok(error) => *error,
        Err(error) => TextError::encode(error.to_string()),
    }
}
