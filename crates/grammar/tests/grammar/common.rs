//! Tokenizers, and replies that a mask allows.

use kapitsa_grammar::{CompiledGrammar, Grammar, GrammarError, Vocabulary};
use kapitsa_testkit::{fixture, real_model};
use kapitsa_text::{GgufVocabulary, Tokenizer};
use kapitsa_weights::{Checkpoint, TokenizerFiles};
use serde_json::Value;

/// A tokenizer and what masks need of it.
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) vocabulary: Vocabulary,
}

impl Model {
    fn new(name: &str, tokenizer: Tokenizer) -> Self {
        let vocabulary = Vocabulary::new(&tokenizer).unwrap();
        Model { name: name.to_owned(), tokenizer, vocabulary }
    }

    pub(crate) fn compile(&self, grammar: &Grammar) -> Result<CompiledGrammar, GrammarError> {
        self.vocabulary.compile(grammar)
    }

    /// Whether a text, in the tokenizer's own tokens, is allowed from its first to its last token, and may end there.
    pub(crate) fn accepts(&self, grammar: &Grammar, text: &str) -> bool {
        let mut matcher = self.compile(grammar).unwrap().matcher();
        let ids = self.tokenizer.encode(text, kapitsa_text::Specials::Parse).unwrap();
        for id in ids {
            // There may be no way on at all.
            let allowed = matcher.mask().is_ok_and(|mask| mask.allows(id));
            if !allowed {
                assert!(matcher.accept(id).is_err(), "the mask forbids {id} of {text:?}");
                return false;
            }
            matcher.accept(id).unwrap();
        }
        matcher.mask().is_ok_and(|mask| mask.may_end())
    }
}

/// A byte-level tokenizer with a token for every byte, and a SentencePiece one with bytes as a fallback.
pub(crate) fn small_models() -> Vec<Model> {
    vec![Model::new("byte level", byte_level()), Model::new("sentencepiece", sentencepiece())]
}

/// The vocabularies of real models that are there.
pub(crate) fn real_models() -> Vec<Model> {
    ["smollm2-135m", "qwen2.5-coder-0.5b"].iter().filter_map(|name| Some(Model::new(name, real(name)?))).collect()
}

fn json(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(fixture(&format!("text/{name}"))).unwrap()).unwrap()
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|item| item.as_str().unwrap().to_owned()).collect()
}

fn types(list: &Value) -> Option<Vec<i32>> {
    Some(list.as_array().unwrap().iter().map(|item| item.as_i64().unwrap() as i32).collect())
}

fn byte_level() -> Tokenizer {
    let vocabulary = &json("byte_level.json")["vocabulary"];
    let gguf = GgufVocabulary {
        model: "gpt2".into(),
        pre: Some("llama-bpe".into()),
        tokens: strings(&vocabulary["tokens"]),
        token_types: types(&vocabulary["token_types"]),
        merges: Some(strings(&vocabulary["merges"])),
        ..GgufVocabulary::default()
    };
    Tokenizer::from_gguf(gguf).unwrap()
}

fn sentencepiece() -> Tokenizer {
    let vocabulary = &json("sentencepiece.json")["plain"]["vocabulary"];
    let scores = vocabulary["scores"].as_array().unwrap();
    let gguf = GgufVocabulary {
        model: "llama".into(),
        tokens: strings(&vocabulary["tokens"]),
        scores: Some(scores.iter().map(|score| score.as_f64().unwrap() as f32).collect()),
        token_types: types(&vocabulary["token_types"]),
        unknown: Some(0),
        bos: Some(1),
        eos: Some(2),
        add_space_prefix: Some(false),
        ..GgufVocabulary::default()
    };
    Tokenizer::from_gguf(gguf).unwrap()
}

fn real(name: &str) -> Option<Tokenizer> {
    let checkpoint = Checkpoint::open(&real_model(name)?).unwrap();
    let TokenizerFiles::Gguf(metadata) = checkpoint.tokenizer_files().unwrap() else { panic!("{name} is a GGUF file") };
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let strings = |name: &str| metadata.opt_strings(&key(name)).unwrap().unwrap().iter().map(String::from).collect();
    let types = metadata.opt_u32s(&key("token_type")).unwrap().unwrap();
    let gguf = GgufVocabulary {
        model: metadata.opt_str(&key("model")).unwrap().unwrap().to_owned(),
        pre: metadata.opt_str(&key("pre")).unwrap().map(String::from),
        tokens: strings("tokens"),
        token_types: Some(types.into_iter().map(|kind| kind as i32).collect()),
        merges: Some(strings("merges")),
        eos: metadata.opt_u32(&key("eos_token_id")).unwrap(),
        ..GgufVocabulary::default()
    };
    Some(Tokenizer::from_gguf(gguf).unwrap())
}

/// A reply of random tokens that the masks allow, which ends as soon as it can once it is `long` tokens long. It must be JSON.
pub(crate) fn walk(model: &Model, grammar: &CompiledGrammar, long: usize, rng: &mut fastrand::Rng) -> String {
    walk_by(model, grammar, long, rng, |bytes| {
        let is_in_string = in_string(bytes);
        move |token: &[u8]| json_rank(is_in_string, token)
    })
}

/// A reply of random tokens that the masks allow. Once it is `long` tokens long it ends as soon as it can, and each token is
/// one that ranks lowest after the bytes before it.
pub(crate) fn walk_by<Rank: Fn(&[u8]) -> usize>(
    model: &Model,
    grammar: &CompiledGrammar,
    long: usize,
    rng: &mut fastrand::Rng,
    rank: impl Fn(&[u8]) -> Rank,
) -> String {
    let mut matcher = grammar.matcher();
    let mut bytes = vec![];
    for index in 0..1000 {
        let mask = matcher.mask().unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&bytes)));
        let allowed: Vec<u32> = mask.tokens().collect();
        assert!(!matcher.is_complete() || allowed.is_empty());
        if mask.may_end() && (allowed.is_empty() || index > long || rng.u8(..4) == 0) {
            return String::from_utf8(bytes).unwrap();
        }
        let rank = rank(&bytes);
        let rank = |id: u32| rank(model.tokenizer.token_bytes(id));
        let best = if index > long { allowed.iter().map(|&id| rank(id)).min() } else { None };
        let allowed: Vec<u32> = match best {
            Some(best) => allowed.into_iter().filter(|&id| rank(id) == best).collect(),
            None => allowed,
        };
        let id = allowed[rng.usize(..allowed.len())];
        bytes.extend_from_slice(model.tokenizer.token_bytes(id));
        matcher.accept(id).unwrap();
    }
    panic!("{}: no end of {}", model.name, String::from_utf8_lossy(&bytes[..500]));
}

/// How far a token is from an end of JSON.
pub(crate) fn json_rank(is_in_string: bool, token: &[u8]) -> usize {
    match (is_in_string, token) {
        (true, [b'"']) | (false, [b'}' | b']']) => 0,
        (false, [b',' | b':']) => 1,
        (false, [b'0'..=b'9']) => 2,
        (false, [b' ' | b'\t' | b'\n' | b'\r', ..]) => 4,
        _ => 3,
    }
}

/// Whether JSON that begins so is within a string.
pub(crate) fn in_string(bytes: &[u8]) -> bool {
    let (mut inside, mut is_escaped) = (false, false);
    for &byte in bytes {
        inside ^= byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
    }
    inside
}

/// Fails if a text is not JSON that the schema accepts, by the judgement of another library.
pub(crate) fn assert_valid(schema: &Value, text: &str) {
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        // Grammars know no bound of exponents; this reader has one.
        Err(error) if error.to_string().starts_with("number out of range") => return,
        Err(error) => panic!("{error}: {text}"),
    };
    let validator = jsonschema::options().should_validate_formats(true).build(schema).unwrap();
    if let Err(error) = validator.validate(&value) {
        panic!("{error}: {text} by {schema}");
    }
}
