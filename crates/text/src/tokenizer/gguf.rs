//! Tokenizers from the metadata of a GGUF file.

use super::{
    Model, Parts, Tokenizer,
    added::AddedToken,
    byte_level::decode_spelling,
    control_end_of_turn,
    pipeline::{BpeOptions, Pipeline},
    pre_tokenizers::PreTokenizer,
    sentencepiece::{SPACE, SentencePiece},
    vocabulary::{Kind, Vocabulary},
};
use crate::error::{TextError, shown};

/// The `tokenizer.ggml.*` keys of a GGUF file, as they are in the file; nothing is checked yet.
#[derive(Clone, Debug, Default)]
pub struct GgufVocabulary {
    /// `model`: `gpt2` (byte-level BPE) or `llama` (SentencePiece BPE).
    pub model: String,
    /// `pre`: name of the pre-tokenizer of a `gpt2` model.
    pub pre: Option<String>,
    /// `tokens`: spelling of each token by id.
    pub tokens: Vec<String>,
    /// `scores`: one for each token; needed by `llama`.
    pub scores: Option<Vec<f32>>,
    /// `token_type`: one for each token. 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub token_types: Option<Vec<i32>>,
    /// `merges`: two spellings with a space between, best first; needed by `gpt2`.
    pub merges: Option<Vec<String>>,
    /// `bos_token_id`.
    pub bos: Option<u32>,
    /// `eos_token_id`.
    pub eos: Option<u32>,
    /// `eot_token_id`: end of a turn.
    pub eot: Option<u32>,
    /// `eom_token_id`: end of a message that waits for a tool.
    pub eom: Option<u32>,
    /// `unknown_token_id`.
    pub unknown: Option<u32>,
    /// `padding_token_id`.
    pub padding: Option<u32>,
    /// `add_bos_token`.
    pub add_bos: Option<bool>,
    /// `add_space_prefix`: `llama` only; a space is put in front of text.
    pub add_space_prefix: Option<bool>,
}

pub(super) fn build(file: GgufVocabulary) -> Result<Tokenizer, TextError> {
    let byte_level = match file.model.as_str() {
        "gpt2" => true,
        "llama" => false,
        other => return Err(TextError::UnsupportedModel { found: shown(other), supported: "gpt2, llama" }),
    };
    let mut vocabulary = vocabulary(&file, byte_level)?;
    // Files without types do not say which tokens are control tokens; these must be.
    let named = [file.bos, file.eos, file.eot, file.eom, file.padding];
    for id in named.into_iter().flatten().filter(|_| file.token_types.is_none()) {
        vocabulary.set_kind(id, Kind::Control);
    }
    let ends_of_turn = control_end_of_turn(&mut vocabulary);
    let unknown = file.unknown.filter(|&id| vocabulary.kind(id) != Kind::Missing);
    if let Some(id) = unknown.filter(|_| !byte_level && file.token_types.is_none()) {
        vocabulary.set_kind(id, Kind::Unknown);
    }
    let mut parts = if byte_level {
        let row = PreTokenizer::named(file.pre.as_deref().unwrap_or("default"))?;
        let (normalizers, steps) = row.stages()?;
        let merges = file.merges.as_deref().ok_or_else(|| missing("merges", "gpt2"))?;
        let merges = merges.iter().enumerate().map(|(rank, merge)| split_merge(rank, merge));
        // Byte-level text has a token for every byte; the id that files name as unknown is often another token.
        let options = BpeOptions { ignore_merges: row.ignore_merges, ..BpeOptions::default() };
        let model = Model::Pipeline(Box::new(Pipeline::new(&vocabulary, merges, normalizers, steps, options)?));
        Parts { add_bos: file.add_bos.unwrap_or(row.add_bos), ..Parts::new(vocabulary, model) }
    } else {
        let scores = file.scores.as_deref().ok_or_else(|| missing("scores", "llama"))?;
        let prefix = file.add_space_prefix.unwrap_or(true);
        let model = Model::SentencePiece(SentencePiece::new(&vocabulary, scores, unknown, prefix)?);
        Parts { strip_space: prefix, add_bos: file.add_bos.unwrap_or(true), ..Parts::new(vocabulary, model) }
    };
    let check = |name, id: Option<u32>| id.map(|id| parts.vocabulary.check(name, id)).transpose();
    parts.bos = check("bos_token_id", file.bos)?;
    parts.main_eos = check("eos_token_id", file.eos)?;
    let ends = [("eos_token_id", file.eos), ("eot_token_id", file.eot), ("eom_token_id", file.eom)];
    for (name, id) in ends {
        parts.eos.extend(check(name, id)?);
    }
    parts.eos.extend(ends_of_turn);
    let ids = 0..parts.vocabulary.len() as u32;
    let added = ids.filter_map(|id| {
        let kind = parts.vocabulary.kind(id);
        let token = || AddedToken::control(id, parts.vocabulary.spelling(id));
        match kind {
            Kind::Control => Some(token()),
            Kind::UserDefined => Some(AddedToken { guarded: false, ..token() }),
            _ => None,
        }
    });
    parts.added = added.collect();
    Tokenizer::from_parts(parts)
}

fn missing(key: &str, model: &str) -> TextError {
    TextError::vocabulary(format!("tokenizer.ggml.{key} is missing; a `{model}` tokenizer needs it"))
}

/// A merge is two spellings and one space; a spelling may itself begin with a space, so the space is looked for from
/// the second character on.
fn split_merge(rank: usize, merge: &str) -> Result<(&str, &str), TextError> {
    let bad = || TextError::vocabulary(format!("merge {rank} is `{}`, expected two tokens and a space", shown(merge)));
    let first = merge.chars().next().ok_or_else(bad)?.len_utf8();
    let space = first + merge[first..].find(' ').ok_or_else(bad)?;
    match (&merge[..space], &merge[space + 1..]) {
        (_, "") => Err(bad()),
        pair => Ok(pair),
    }
}

fn vocabulary(file: &GgufVocabulary, byte_level: bool) -> Result<Vocabulary, TextError> {
    if let Some(types) = file.token_types.as_ref().filter(|types| types.len() != file.tokens.len()) {
        let (found, expected) = (types.len(), file.tokens.len());
        return Err(TextError::vocabulary(format!("{found} token types for {expected} tokens")));
    }
    if file.tokens.is_empty() {
        return Err(TextError::vocabulary("tokenizer.ggml.tokens is empty"));
    }
    let mut vocabulary = Vocabulary::with_capacity(file.tokens.len());
    let mut bytes = Vec::new();
    for (id, spelling) in file.tokens.iter().enumerate() {
        let kind = match file.token_types.as_ref().map(|types| types[id]) {
            None if !byte_level && byte_of(spelling).is_some() => Kind::Byte,
            None | Some(0 | 1) => Kind::Normal,
            Some(2) => Kind::Unknown,
            Some(3) => Kind::Control,
            Some(4) => Kind::UserDefined,
            Some(5) => Kind::Unused,
            Some(6) if byte_level && byte_of(spelling).is_none() => Kind::Normal, // a byte in the byte alphabet
            Some(6) => Kind::Byte,
            Some(other) => {
                return Err(TextError::vocabulary(format!("token {id} has type {other}, expected 1 to 6")));
            }
        };
        bytes.clear();
        match kind {
            Kind::Unused => {}
            Kind::Byte => bytes.push(byte_of(spelling).ok_or_else(|| {
                TextError::vocabulary(format!("byte token {id} is `{}`, expected the form `<0x41>`", shown(spelling)))
            })?),
            Kind::Normal if byte_level && decode_spelling(spelling, &mut bytes) => {}
            Kind::Normal if !byte_level => bytes.extend_from_slice(spelling.replace(SPACE, " ").as_bytes()),
            _ => bytes.extend_from_slice(spelling.as_bytes()),
        }
        vocabulary.push(spelling, &bytes, kind)?;
    }
    Ok(vocabulary)
}

/// The byte of a byte token's spelling, `<0x41>`.
pub(super) fn byte_of(spelling: &str) -> Option<u8> {
    let digits = spelling.strip_prefix("<0x")?.strip_suffix('>')?;
    let upper = |c: u8| c.is_ascii_digit() || (b'A'..=b'F').contains(&c);
    (digits.len() == 2 && digits.bytes().all(upper)).then(|| u8::from_str_radix(digits, 16).ok())?
}
