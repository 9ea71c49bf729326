//! Fixtures as tokenizers.

use kapitsa_testkit::fixture;
use kapitsa_text::{GgufVocabulary, Tokenizer};
use serde_json::Value;

/// A JSON file under `tests/fixtures/text`.
pub(crate) fn json(name: &str) -> Value {
    let path = fixture(&format!("text/{name}"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The strings of a list.
pub(crate) fn strings(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|item| item.as_str().unwrap().to_owned()).collect()
}

/// The ids of a list.
pub(crate) fn ids(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|item| item.as_u64().unwrap() as u32).collect()
}

/// The byte-level vocabulary of the fixtures under the name of a pre-tokenizer.
pub(crate) fn byte_level(vocabulary: &Value, pre: &str) -> GgufVocabulary {
    GgufVocabulary {
        model: "gpt2".to_owned(),
        pre: Some(pre.to_owned()),
        tokens: strings(&vocabulary["tokens"]),
        token_types: Some(ids(&vocabulary["token_types"]).into_iter().map(|kind| kind as i32).collect()),
        merges: Some(strings(&vocabulary["merges"])),
        ..GgufVocabulary::default()
    }
}

/// A SentencePiece vocabulary of the fixtures.
pub(crate) fn sentencepiece(vocabulary: &Value) -> GgufVocabulary {
    let scores = vocabulary["scores"].as_array().unwrap();
    GgufVocabulary {
        model: "llama".to_owned(),
        tokens: strings(&vocabulary["tokens"]),
        scores: Some(scores.iter().map(|score| score.as_f64().unwrap() as f32).collect()),
        token_types: Some(ids(&vocabulary["token_types"]).into_iter().map(|kind| kind as i32).collect()),
        unknown: Some(0),
        bos: Some(1),
        eos: Some(2),
        add_space_prefix: vocabulary["add_space_prefix"].as_bool(),
        ..GgufVocabulary::default()
    }
}

/// A `tokenizer.json` of the fixtures: its text and that of its configuration.
pub(crate) fn tokenizer_json(all: &Value, name: &str) -> (String, String) {
    let mut file = all[name]["tokenizer_json"].clone();
    if file["model"].is_null() {
        file["model"] = all["llama2"]["tokenizer_json"]["model"].clone();
    }
    (file.to_string(), all[name]["config"].to_string())
}

/// The tokenizers of all fixtures.
pub(crate) fn all_tokenizers() -> Vec<Tokenizer> {
    let (bytes, pieces, files) = (json("byte_level.json"), json("sentencepiece.json"), json("tokenizer_json.json"));
    let mut tokenizers = vec![Tokenizer::from_gguf(byte_level(&bytes["vocabulary"], "llama-bpe")).unwrap()];
    for name in ["prefix", "plain"] {
        tokenizers.push(Tokenizer::from_gguf(sentencepiece(&pieces[name]["vocabulary"])).unwrap());
    }
    for name in files.as_object().unwrap().keys() {
        let (file, config) = tokenizer_json(&files, name);
        tokenizers.push(Tokenizer::from_json(&file, Some(&config)).unwrap());
    }
    tokenizers
}
