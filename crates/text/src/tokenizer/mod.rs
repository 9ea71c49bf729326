//! From text to token ids and from ids to bytes.

mod added;
mod byte_level;
mod gguf;
mod json;
mod merge;
mod pattern;
mod pipeline;
mod pre_tokenizers;
mod sentencepiece;
mod strings;
mod vocabulary;

use std::ops::Range;

pub use self::gguf::GgufVocabulary;
use self::{
    added::{AddedToken, AddedTokens, Fragment, Plain},
    pipeline::{Ids, Pipeline},
    sentencepiece::SentencePiece,
    vocabulary::{Kind, Vocabulary},
};
use crate::{detokenizer::Detokenizer, error::TextError, prompt::Prompt};

/// Tokens that end an assistant's turn in one family or another. Where the vocabulary has one it ends generation, even
/// if the file names only another: many files name one of two.
const END_OF_TURN: [&str; 13] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|end_of_sentence|>",
    "<end_of_utterance>",
    "<turn|>",
];

/// What control tokens in a text mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// The spelling of a control token is that token. For rendered chat templates, whose text is trusted.
    Parse,
    /// The text is plain: no spelling in it becomes a control token. For text from users, tools and files.
    AsText,
}

/// A model's vocabulary and the way text is cut into it.
///
/// Byte-level BPE and BPE with byte fallback run on the stages of the `tokenizers` library, SentencePiece BPE with scores
/// on its own algorithm. Built from `tokenizer.json` ([`from_json`](Self::from_json)) or GGUF metadata
/// ([`from_gguf`](Self::from_gguf)). Immutable once built, and shared between threads freely. Encoding takes time in
/// O(n log n) of the text.
///
/// ```
/// use kapitsa_text::{GgufVocabulary, Specials, Tokenizer};
///
/// let strings = |list: &[&str]| list.iter().map(|s| s.to_string()).collect::<Vec<_>>();
/// let tokenizer = Tokenizer::from_gguf(GgufVocabulary {
///     model: "gpt2".into(),
///     pre: Some("gpt-2".into()),
///     tokens: strings(&["h", "i", "hi", "<|im_end|>"]),
///     token_types: Some(vec![1, 1, 1, 3]),
///     merges: Some(strings(&["h i"])),
///     ..GgufVocabulary::default()
/// })?;
/// assert_eq!(tokenizer.encode("hi<|im_end|>", Specials::Parse)?, [2, 3]);
/// assert_eq!(tokenizer.decode(&[2, 3, 0]), "hih");
/// # Ok::<(), kapitsa_text::TextError>(())
/// ```
#[derive(Clone)]
pub struct Tokenizer {
    vocabulary: Vocabulary,
    /// Matched in the text as it comes.
    added: AddedTokens,
    /// Matched in the normalised text.
    added_normalized: AddedTokens,
    model: Model,
    strip_space: bool,
    bos: Option<u32>,
    add_bos: bool,
    /// The one end of sequence that the file names first.
    main_eos: Option<u32>,
    eos: Vec<u32>,
}

#[derive(Clone)]
enum Model {
    /// Stages of the `tokenizers` library.
    Pipeline(Box<Pipeline>),
    SentencePiece(SentencePiece),
}

/// What the readers of the two formats put together.
struct Parts {
    vocabulary: Vocabulary,
    model: Model,
    added: Vec<AddedToken>,
    strip_space: bool,
    bos: Option<u32>,
    add_bos: bool,
    /// The one end of sequence that the file names first.
    main_eos: Option<u32>,
    eos: Vec<u32>,
}

impl Parts {
    fn new(vocabulary: Vocabulary, model: Model) -> Self {
        let (added, eos) = (Vec::new(), Vec::new());
        Self { vocabulary, model, added, strip_space: false, bos: None, add_bos: false, main_eos: None, eos }
    }
}

/// The well-known ends of turn in a vocabulary. They become control tokens, which some files forget to say; so this
/// comes before the model is built.
fn control_end_of_turn(vocabulary: &mut Vocabulary) -> Vec<u32> {
    // Beside this one, `<|end|>` ends a message inside a turn (the harmony format).
    let harmony = vocabulary.id_of(b"<|return|>").is_some();
    let names = END_OF_TURN.into_iter().filter(|name| !(harmony && *name == "<|end|>"));
    let ids: Vec<u32> = names.filter_map(|name| vocabulary.id_of(name.as_bytes())).collect();
    for &id in &ids {
        vocabulary.set_kind(id, Kind::Control);
    }
    ids
}

impl Tokenizer {
    /// Builds a tokenizer from the text of a Hugging Face `tokenizer.json`, and of the `tokenizer_config.json` beside it
    /// if there is one.
    ///
    /// # Errors
    /// If a text is not JSON of the expected shape, contradicts itself, or asks for a part that is not implemented; the
    /// message names the part.
    pub fn from_json(tokenizer_json: &str, tokenizer_config: Option<&str>) -> Result<Self, TextError> {
        json::build(tokenizer_json, tokenizer_config)
    }

    /// Builds a tokenizer from the metadata of a GGUF file.
    ///
    /// # Errors
    /// If the model or pre-tokenizer is unknown (the message lists the known ones), or lists do not fit together.
    pub fn from_gguf(vocabulary: GgufVocabulary) -> Result<Self, TextError> {
        gguf::build(vocabulary)
    }

    fn from_parts(parts: Parts) -> Result<Self, TextError> {
        let Parts { vocabulary, model, added, strip_space, bos, add_bos, main_eos, mut eos } = parts;
        eos.sort_unstable();
        eos.dedup();
        let (mut after, before): (Vec<_>, Vec<_>) = added.into_iter().partition(|token| token.normalized);
        if let Model::Pipeline(pipeline) = &model {
            for token in &mut after {
                token.content = pipeline.normalize(&token.content)?;
            }
        }
        Ok(Self {
            vocabulary,
            added: AddedTokens::new(before)?,
            added_normalized: AddedTokens::new(after)?,
            model,
            strip_space,
            bos,
            add_bos: add_bos && bos.is_some(),
            main_eos,
            eos,
        })
    }

    /// The ids of a text, without anything in front or behind.
    ///
    /// # Errors
    /// If the text has characters that this vocabulary cannot express at all, or is longer than 1 GiB.
    pub fn encode(&self, text: &str, specials: Specials) -> Result<Vec<u32>, TextError> {
        match specials {
            Specials::Parse => self.encode_except(text, Plain::Ranges(&[])),
            Specials::AsText => self.encode_except(text, Plain::Everywhere),
        }
    }

    /// The ids of a whole prompt: control tokens are parsed except where the prompt says that text came from outside,
    /// and BOS is in front exactly once if the model wants it, whether or not the template wrote it.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_prompt(&self, prompt: &Prompt) -> Result<Vec<u32>, TextError> {
        let mut ids = self.encode_except(&prompt.text, Plain::Ranges(&prompt.plain))?;
        match self.bos {
            Some(bos) if self.add_bos && ids.first() != Some(&bos) => ids.insert(0, bos),
            _ => {}
        }
        Ok(ids)
    }

    fn encode_except(&self, text: &str, plain: Plain<'_>) -> Result<Vec<u32>, TextError> {
        if text.len() > 1 << 30 {
            return Err(TextError::encode(format!("it has {} bytes, the limit is 1 GiB", text.len())));
        }
        let mut ids = Ids::default();
        for fragment in self.added.split(text, plain) {
            let range = match fragment {
                Fragment::Token(id) => {
                    ids.list.push(id);
                    continue;
                }
                Fragment::Text(range) => range,
            };
            let fragment = &text[range.clone()];
            match &self.model {
                Model::SentencePiece(model) => model.encode(&self.vocabulary, fragment, &mut ids.list)?,
                Model::Pipeline(pipeline) => {
                    // Normalising moves the ranges, so a fragment with any plain text counts as plain all over.
                    let plain = if plain.touches(&range) { Plain::Everywhere } else { Plain::Ranges(&[]) };
                    let split = |normalized: &str| self.added_normalized.split(normalized, plain);
                    pipeline.encode(fragment, range.start == 0, split, &mut ids)?;
                }
            }
        }
        Ok(ids.list)
    }

    /// The text of some ids. Control tokens are left out; bytes that are not UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut detokenizer = Detokenizer::new(self);
        let mut text = String::new();
        for &id in ids {
            text.push_str(&detokenizer.push(id));
        }
        text + &detokenizer.finish()
    }

    /// The bytes that a token adds to the text; they need not be whole characters. For a control token its spelling,
    /// though [`decode`](Self::decode) leaves it out. Empty for an id without a token.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.vocabulary.bytes(id)
    }

    /// A token as the vocabulary file spells it (`Ġthe`, `▁the`). Empty for an id without a token.
    pub fn token_text(&self, id: u32) -> &str {
        self.vocabulary.spelling(id)
    }

    /// The id of a token by its spelling in the vocabulary file.
    pub fn id_of(&self, spelling: &str) -> Option<u32> {
        self.vocabulary.id_of(spelling.as_bytes())
    }

    /// Number of ids, holes included: one more than the highest id. The model's head may have more rows.
    pub fn vocab_len(&self) -> usize {
        self.vocabulary.len()
    }

    /// The beginning-of-sequence token, if the file names one.
    pub fn bos_id(&self) -> Option<u32> {
        self.bos
    }

    /// Whether [`encode_prompt`](Self::encode_prompt) puts BOS in front.
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// The end-of-sequence token that the file names, if it names one: what templates call `eos_token`.
    pub fn eos_id(&self) -> Option<u32> {
        self.main_eos
    }

    /// The tokens that end generation, ascending: those the file names and the well-known ends of turn in the
    /// vocabulary, and those of [`add_eos_ids`](Self::add_eos_ids).
    pub fn eos_ids(&self) -> &[u32] {
        &self.eos
    }

    /// Adds ends of generation from elsewhere, such as `eos_token_id` of `generation_config.json`.
    ///
    /// # Errors
    /// If an id is not in the vocabulary; nothing is added then.
    pub fn add_eos_ids(&mut self, ids: &[u32]) -> Result<(), TextError> {
        for &id in ids {
            self.vocabulary.check("eos_token_id", id)?;
        }
        self.eos.extend_from_slice(ids);
        self.eos.sort_unstable();
        self.eos.dedup();
        Ok(())
    }

    /// Whether a token is a control token: hidden when decoded and never made from plain text.
    pub fn is_special(&self, id: u32) -> bool {
        matches!(self.vocabulary.kind(id), Kind::Control | Kind::Unknown)
    }

    /// Lets `template` alone write those added tokens that occur in it. Some files mark `</think>` or `<tool_call>` as
    /// ordinary added tokens, which plain text would become; a template that writes them gives them a meaning that
    /// plain text must not have. They stay visible when decoded.
    pub fn guard_template_tokens(&mut self, template: &str) {
        self.added.guard(|token| template.contains(&token.content));
        self.added_normalized.guard(|token| template.contains(&token.content));
    }

    /// Makes control tokens of these spellings visible when decoded: some files mark as control tokens what models write to be
    /// read, such as `<tool_call>`. Plain text still never becomes them. Ends of generation stay as they are.
    pub fn show_tokens(&mut self, spellings: &[&str]) {
        for spelling in spellings {
            let Some(id) = self.id_of(spelling) else { continue };
            if self.vocabulary.kind(id) == Kind::Control && !self.eos.contains(&id) {
                self.vocabulary.set_kind(id, Kind::UserDefined);
            }
        }
    }

    /// Ranges of `text` that are spellings of guarded tokens: of control tokens, and with `markers` also of those that
    /// only the template may write.
    pub(crate) fn guarded_ranges(&self, text: &str, markers: bool) -> Vec<Range<usize>> {
        let wanted = |token: &AddedToken| markers || self.is_special(token.id);
        let mut ranges = self.added.guarded_ranges(text, wanted);
        if !self.added_normalized.tokens().is_empty() {
            ranges.extend(self.added_normalized.guarded_ranges(text, wanted));
            ranges.sort_unstable_by_key(|range| range.start);
            ranges.dedup_by(|next, before| {
                let overlap = next.start < before.end;
                if overlap {
                    before.end = before.end.max(next.end);
                }
                overlap
            });
        }
        ranges
    }

    pub(crate) fn strips_space(&self) -> bool {
        self.strip_space
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (bos, eos) = (self.bos.map(|id| self.vocabulary.shown(id)), &self.eos);
        out.debug_struct("Tokenizer")
            .field("tokens", &self.vocab_len())
            .field("bos", &bos)
            .field("add_bos", &self.add_bos)
            .field("eos", &eos)
            .finish_non_exhaustive()
    }
}
