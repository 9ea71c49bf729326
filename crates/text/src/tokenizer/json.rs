//! Tokenizers from a Hugging Face `tokenizer.json`, with what `tokenizer_config.json` adds to it.
//!
//! Supported is what checkpoints of language models use: byte pair encoding, byte-level or with byte fallback, and the
//! normalisers, pre-tokenizers and decoders around it. Anything else is an error that names it: a tokenizer that is
//! nearly right would be worse than none. The file is read here and the stages of the `tokenizers` library are built from
//! what was checked, because the library's own reader panics on some files.

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use tokenizers::{
    NormalizerWrapper, SplitDelimiterBehavior,
    normalizers::{Lowercase, NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip},
    pre_tokenizers::{
        digits::Digits,
        metaspace::{Metaspace, PrependScheme},
        punctuation::Punctuation,
        whitespace::{Whitespace, WhitespaceSplit},
    },
};

use super::{
    Model, Parts, Tokenizer,
    added::AddedToken,
    byte_level::decode_spelling,
    control_end_of_turn,
    gguf::byte_of,
    pattern::Pattern,
    pipeline::{BpeOptions, Pipeline, Step},
    vocabulary::{Kind, MAX_TOKENS, Vocabulary},
};
use crate::error::{TextError, shown};

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<AddedJson>,
    normalizer: Option<NormalizerJson>,
    pre_tokenizer: Option<PreTokenizerJson>,
    post_processor: Option<PostProcessorJson>,
    decoder: Option<DecoderJson>,
    model: ModelJson,
}

#[derive(Deserialize)]
struct AddedJson {
    id: u32,
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    special: bool,
}

#[derive(Deserialize)]
struct ModelJson {
    r#type: Option<String>,
    vocab: Option<VocabJson>,
    merges: Option<MergesJson>,
    dropout: Option<f32>,
    unk_token: Option<String>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
}

/// `{"token": id, ...}` kept as a list: a map would only be torn down again. Other shapes (the list of pairs of a
/// unigram model) are read past, so that the error can name the model.
struct VocabJson(Vec<(String, u32)>);

impl<'de> Deserialize<'de> for VocabJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = VocabJson;
            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("a map from token to id")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<VocabJson, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(VocabJson(entries))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<VocabJson, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(VocabJson(Vec::new()))
            }
        }
        deserializer.deserialize_any(Entries)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum MergeJson {
    Pair(String, String),
    Line(String),
}

type MergesJson = Vec<MergeJson>;

#[derive(Deserialize)]
#[serde(tag = "type")]
enum NormalizerJson {
    Sequence {
        normalizers: Vec<NormalizerJson>,
    },
    #[serde(rename = "NFC")]
    Nfc,
    #[serde(rename = "NFD")]
    Nfd,
    #[serde(rename = "NFKC")]
    Nfkc,
    #[serde(rename = "NFKD")]
    Nfkd,
    Lowercase,
    Prepend {
        prepend: String,
    },
    Replace {
        pattern: PatternJson,
        content: String,
    },
    Strip {
        strip_left: bool,
        strip_right: bool,
    },
}

#[derive(Deserialize)]
enum PatternJson {
    String(String),
    Regex(String),
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum PreTokenizerJson {
    Sequence {
        pretokenizers: Vec<PreTokenizerJson>,
    },
    Split {
        pattern: PatternJson,
        behavior: BehaviorJson,
        #[serde(default)]
        invert: bool,
    },
    ByteLevel {
        #[serde(default)]
        add_prefix_space: bool,
        #[serde(default = "yes")]
        use_regex: bool,
    },
    Metaspace(MetaspaceJson),
    Digits {
        #[serde(default)]
        individual_digits: bool,
    },
    Punctuation {
        #[serde(default = "isolated")]
        behavior: BehaviorJson,
    },
    Whitespace,
    WhitespaceSplit,
}

#[derive(Deserialize)]
struct MetaspaceJson {
    replacement: char,
    /// Older files have this in place of `prepend_scheme`.
    add_prefix_space: Option<bool>,
    prepend_scheme: Option<PrependJson>,
    split: Option<bool>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PrependJson {
    Always,
    First,
    Never,
}

#[derive(Clone, Copy, Deserialize)]
enum BehaviorJson {
    Removed,
    Isolated,
    MergedWithPrevious,
    MergedWithNext,
    Contiguous,
}

fn yes() -> bool {
    true
}

fn isolated() -> BehaviorJson {
    BehaviorJson::Isolated
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum PostProcessorJson {
    Sequence {
        processors: Vec<PostProcessorJson>,
    },
    TemplateProcessing {
        single: Vec<TemplatePieceJson>,
    },
    #[serde(alias = "RobertaProcessing")]
    BertProcessing {
        cls: (String, u32),
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
enum TemplatePieceJson {
    SpecialToken { id: String },
    Sequence {},
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum DecoderJson {
    Sequence { decoders: Vec<DecoderJson> },
    ByteLevel,
    ByteFallback,
    Fuse,
    Replace { pattern: PatternJson, content: String },
    Strip { content: char, start: usize, stop: usize },
    Metaspace(MetaspaceJson),
}

/// The parts of `tokenizer_config.json` that matter here.
#[derive(Default, Deserialize)]
struct Config {
    bos_token: Option<TokenName>,
    eos_token: Option<TokenName>,
    add_bos_token: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TokenName {
    Plain(String),
    Full { content: String },
}

impl TokenName {
    fn text(&self) -> &str {
        match self {
            Self::Plain(text) | Self::Full { content: text } => text,
        }
    }
}

pub(super) fn build(tokenizer_json: &str, tokenizer_config: Option<&str>) -> Result<Tokenizer, TextError> {
    let json = |file| move |source| TextError::Json { file, source };
    let file: File = serde_json::from_str(tokenizer_json).map_err(json("tokenizer.json"))?;
    let config: Config = match tokenizer_config {
        Some(text) => serde_json::from_str(text).map_err(json("tokenizer_config.json"))?,
        None => Config::default(),
    };

    let mut normalizers = Normalizers::default();
    file.normalizer.map_or(Ok(()), |normalizer| normalizers.add(normalizer))?;
    let mut steps = Steps::default();
    file.pre_tokenizer.map_or(Ok(()), |pre_tokenizer| steps.add(pre_tokenizer))?;
    let mut decoder = Decoder::default();
    decoder.add(file.decoder.ok_or_else(|| TextError::unsupported("a tokenizer without a decoder"))?)?;
    if steps.byte_level != decoder.byte_level {
        return Err(TextError::unsupported("a byte-level pre-tokenizer without the decoder, or the reverse,"));
    }

    let model = check_model(file.model)?;
    let space = decoder.space.as_deref();
    let (mut vocabulary, mut added) = vocabulary(&model, file.added_tokens, decoder.byte_level, space)?;
    let ends_of_turn = control_end_of_turn(&mut vocabulary);
    for &id in &ends_of_turn {
        match added.iter_mut().find(|token| token.id == id) {
            Some(token) => token.guarded = true,
            None => added.push(AddedToken::control(id, vocabulary.spelling(id))),
        }
    }
    if let Some(token) = &model.unk_token {
        find(&vocabulary, "unk_token", token)?;
    }
    let options = BpeOptions {
        ignore_merges: model.ignore_merges,
        byte_fallback: model.byte_fallback,
        unknown: model.unk_token,
        fuse_unknown: model.fuse_unk,
    };
    let merges = model.merges.as_deref().unwrap_or_default();
    let merges = merges.iter().enumerate().map(|(rank, merge)| merge.pair(rank));
    let pipeline = Pipeline::new(&vocabulary, merges, normalizers.list, steps.steps, options)?;

    let mut parts = Parts::new(vocabulary, Model::Pipeline(Box::new(pipeline)));
    parts.strip_space = decoder.strip_space;
    parts.added = added;
    let starts_with = file.post_processor.as_ref().and_then(first_special);
    // A name in the configuration that is not in the vocabulary is a leftover of another model.
    let named = |name: &Option<TokenName>| parts.vocabulary.id_of(name.as_ref()?.text().as_bytes());
    parts.bos = match starts_with {
        Some(token) => Some(find(&parts.vocabulary, "post_processor", token)?),
        None => named(&config.bos_token),
    };
    parts.main_eos = named(&config.eos_token);
    parts.eos.extend(parts.main_eos);
    parts.eos.extend(ends_of_turn);
    parts.add_bos = config.add_bos_token.unwrap_or(starts_with.is_some());
    Tokenizer::from_parts(parts)
}

fn find(vocabulary: &Vocabulary, key: &str, token: &str) -> Result<u32, TextError> {
    let missing = || TextError::vocabulary(format!("{key} names `{}`, which is not in the vocabulary", shown(token)));
    vocabulary.id_of(token.as_bytes()).ok_or_else(missing)
}

fn check_model(model: ModelJson) -> Result<ModelJson, TextError> {
    let kind = model.r#type.as_deref().unwrap_or(if model.merges.is_some() { "BPE" } else { "unnamed" });
    if kind != "BPE" {
        return Err(TextError::UnsupportedModel { found: shown(kind), supported: "BPE" });
    }
    let named = [("continuing_subword_prefix", &model.continuing_subword_prefix)];
    for (key, value) in named.into_iter().chain([("end_of_word_suffix", &model.end_of_word_suffix)]) {
        if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
            return Err(TextError::unsupported(format!("{key} `{}`", shown(value))));
        }
    }
    if model.dropout.is_some_and(|dropout| dropout != 0.0) {
        return Err(TextError::unsupported("dropout, which makes encoding random,"));
    }
    Ok(model)
}

/// Tokens by id, from the model's vocabulary and the added tokens; ids may have holes. `space` is what spells a space.
fn vocabulary(
    model: &ModelJson,
    added: Vec<AddedJson>,
    byte_level: bool,
    space: Option<&str>,
) -> Result<(Vocabulary, Vec<AddedToken>), TextError> {
    let Some(VocabJson(vocab)) = &model.vocab else {
        return Err(TextError::vocabulary("model.vocab is missing"));
    };
    let mut slots: Vec<Option<(&str, Kind)>> = vec![None; vocab.len()];
    let mut set = |id: u32, token, kind| {
        let index = id as usize;
        if index >= MAX_TOKENS {
            return Err(TextError::vocabulary(format!("`{}` has id {id}, the limit is {MAX_TOKENS}", shown(token))));
        }
        if index >= slots.len() {
            slots.resize(index + 1, None);
        }
        match &slots[index] {
            Some((other, _)) if *other != token => {
                Err(TextError::vocabulary(format!("`{}` and `{}` both have id {id}", shown(other), shown(token))))
            }
            _ => {
                slots[index] = Some((token, kind));
                Ok(())
            }
        }
    };
    for (token, id) in vocab {
        let byte = model.byte_fallback && byte_of(token).is_some();
        set(*id, token, if byte { Kind::Byte } else { Kind::Normal })?;
    }
    for token in &added {
        set(token.id, &token.content, if token.special { Kind::Control } else { Kind::UserDefined })?;
    }
    let mut vocabulary = Vocabulary::with_capacity(slots.len());
    let mut bytes = Vec::new();
    for slot in slots {
        let (token, kind) = slot.unwrap_or(("", Kind::Missing));
        bytes.clear();
        match (kind, byte_level, space) {
            (Kind::Byte, ..) => bytes.extend(byte_of(token)),
            (Kind::Normal, true, _) if decode_spelling(token, &mut bytes) => {}
            (Kind::Normal, false, Some(space)) => bytes.extend(token.replace(space, " ").bytes()),
            _ => bytes.extend_from_slice(token.as_bytes()),
        }
        vocabulary.push(token, &bytes, kind)?;
    }
    let added = added.into_iter().map(|token| AddedToken {
        id: token.id,
        content: token.content,
        guarded: token.special,
        strip_left: token.lstrip,
        strip_right: token.rstrip,
        single_word: token.single_word,
        normalized: token.normalized,
    });
    Ok((vocabulary, added.collect()))
}

impl MergeJson {
    fn pair(&self, rank: usize) -> Result<(&str, &str), TextError> {
        let bad = |line: &str| {
            TextError::vocabulary(format!("merge {rank} is `{}`, expected two tokens and a space", shown(line)))
        };
        match self {
            Self::Pair(left, right) => Ok((left, right)),
            Self::Line(line) => match line.split_once(' ') {
                Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(' ') => {
                    Ok((left, right))
                }
                _ => Err(bad(line)),
            },
        }
    }
}

impl PatternJson {
    fn compile(&self) -> Result<Pattern, TextError> {
        match self {
            Self::String(text) => Ok(Pattern::literal(text)),
            Self::Regex(expression) => Pattern::regex(expression),
        }
    }
}

impl From<BehaviorJson> for SplitDelimiterBehavior {
    fn from(behavior: BehaviorJson) -> Self {
        match behavior {
            BehaviorJson::Removed => Self::Removed,
            BehaviorJson::Isolated => Self::Isolated,
            BehaviorJson::MergedWithPrevious => Self::MergedWithPrevious,
            BehaviorJson::MergedWithNext => Self::MergedWithNext,
            BehaviorJson::Contiguous => Self::Contiguous,
        }
    }
}

struct Normalizers {
    list: Vec<NormalizerWrapper>,
    /// How many times longer a text may become.
    growth: usize,
}

impl Default for Normalizers {
    fn default() -> Self {
        Self { list: Vec::new(), growth: 1 }
    }
}

impl Normalizers {
    fn add(&mut self, json: NormalizerJson) -> Result<(), TextError> {
        const MOST: usize = 64;
        let normalizer = match json {
            NormalizerJson::Sequence { normalizers } => {
                return normalizers.into_iter().try_for_each(|part| self.add(part));
            }
            NormalizerJson::Nfc => NFC.into(),
            NormalizerJson::Nfd => NFD.into(),
            NormalizerJson::Nfkc => NFKC.into(),
            NormalizerJson::Nfkd => NFKD.into(),
            NormalizerJson::Lowercase => Lowercase.into(),
            NormalizerJson::Prepend { prepend } => {
                self.growth = self.growth.saturating_mul(prepend.len() + 1);
                Prepend::new(prepend).into()
            }
            NormalizerJson::Replace { pattern: PatternJson::String(pattern), content } if !pattern.is_empty() => {
                self.growth = self.growth.saturating_mul(content.len().div_ceil(pattern.len()).max(1));
                let replace = Replace::new(pattern, content);
                replace.map_err(|error| TextError::unsupported(format!("a `Replace` normalizer ({error})")))?.into()
            }
            NormalizerJson::Replace { .. } => {
                return Err(TextError::unsupported("a `Replace` normalizer of other than a fixed text"));
            }
            NormalizerJson::Strip { strip_left, strip_right } => Strip::new(strip_left, strip_right).into(),
        };
        if self.growth > MOST || self.list.len() > MOST {
            return Err(TextError::unsupported(format!("normalizers that make text more than {MOST} times longer")));
        }
        self.list.push(normalizer);
        Ok(())
    }
}

/// Each step may compile an expression and looks at all of the text. Real files have up to four.
const MAX_STEPS: usize = 32;

#[derive(Default)]
struct Steps {
    steps: Vec<Step>,
    byte_level: bool,
}

impl Steps {
    fn add(&mut self, json: PreTokenizerJson) -> Result<(), TextError> {
        if self.byte_level {
            // It would see the byte alphabet instead of text.
            return Err(TextError::unsupported("a pre-tokenizer after `ByteLevel`"));
        }
        if self.steps.len() == MAX_STEPS {
            return Err(TextError::unsupported(format!("a sequence of more than {MAX_STEPS} pre-tokenizers")));
        }
        let step = match json {
            PreTokenizerJson::Sequence { pretokenizers } => {
                return pretokenizers.into_iter().try_for_each(|part| self.add(part));
            }
            PreTokenizerJson::Split { pattern, behavior, invert } => {
                Step::Split { pattern: pattern.compile()?, behavior: behavior.into(), invert }
            }
            PreTokenizerJson::ByteLevel { add_prefix_space, use_regex } => {
                self.byte_level = true;
                self.steps.extend(Step::byte_level(add_prefix_space, use_regex)?);
                return Ok(());
            }
            PreTokenizerJson::Metaspace(json) => {
                let split = json.split.unwrap_or(true);
                Step::Library(Metaspace::new(json.replacement, json.prepend(), split).into())
            }
            PreTokenizerJson::Digits { individual_digits } => Step::Library(Digits::new(individual_digits).into()),
            PreTokenizerJson::Punctuation { behavior } => Step::Library(Punctuation::new(behavior.into()).into()),
            PreTokenizerJson::Whitespace => Step::Library(Whitespace {}.into()),
            PreTokenizerJson::WhitespaceSplit => Step::Library(WhitespaceSplit.into()),
        };
        self.steps.push(step);
        Ok(())
    }
}

impl MetaspaceJson {
    fn prepend(&self) -> PrependScheme {
        match (self.prepend_scheme, self.add_prefix_space) {
            (Some(PrependJson::Never), _) | (_, Some(false)) => PrependScheme::Never,
            (Some(PrependJson::First), _) => PrependScheme::First,
            (Some(PrependJson::Always) | None, _) => PrependScheme::Always,
        }
    }
}

/// What the decoder amounts to: how a space is spelled, whether bytes are, and whether the first space is dropped.
#[derive(Default)]
struct Decoder {
    byte_level: bool,
    space: Option<String>,
    strip_space: bool,
}

impl Decoder {
    fn add(&mut self, json: DecoderJson) -> Result<(), TextError> {
        match json {
            DecoderJson::Sequence { decoders } => return decoders.into_iter().try_for_each(|part| self.add(part)),
            DecoderJson::ByteLevel => self.byte_level = true,
            // Bytes are put together in any case.
            DecoderJson::ByteFallback | DecoderJson::Fuse => {}
            DecoderJson::Replace { pattern: PatternJson::String(space), content } if content == " " => {
                self.space = Some(space);
            }
            DecoderJson::Replace { .. } => {
                return Err(TextError::unsupported("a `Replace` decoder other than of spaces"));
            }
            DecoderJson::Strip { content: ' ', start: 1, stop: 0 } => self.strip_space = true,
            DecoderJson::Strip { .. } => {
                return Err(TextError::unsupported("a `Strip` decoder other than of one leading space"));
            }
            DecoderJson::Metaspace(json) => {
                self.strip_space |= json.prepend() != PrependScheme::Never;
                self.space = Some(json.replacement.to_string());
            }
        }
        Ok(())
    }
}

/// The special token that the post-processor puts in front.
fn first_special(json: &PostProcessorJson) -> Option<&str> {
    match json {
        PostProcessorJson::Sequence { processors } => processors.iter().find_map(first_special),
        PostProcessorJson::TemplateProcessing { single } => match single.first()? {
            TemplatePieceJson::SpecialToken { id } => Some(id),
            TemplatePieceJson::Sequence {} => None,
        },
        PostProcessorJson::BertProcessing { cls: (token, _) } => Some(token),
        PostProcessorJson::Other => None,
    }
}
