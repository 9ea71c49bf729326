//! What is done with a tokenizer and with a template, if they open at all.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use kapitsa::{Llm, LocalTime, Message, OpenOptions, Specials, Tokenizer};
use kapitsa_text::Detokenizer;
use serde_json::json;

use crate::models::{Packing, SMALL, folder};
use crate::parts;
use crate::run::{check_message, write};

/// Texts that tokenizers stumble over.
const TEXTS: &[&str] = &[
    "",
    " ",
    "Hello world, it's 2026!  \n\n\tfn main() {}",
    "\u{e9}\u{301}\u{1f468}\u{200d}\u{1f469} \u{65e5}\u{672c} \u{fdd0}\u{0}\u{2581}\u{120}",
    "<|im_start|>user\n</s><unk><0x0A>",
];
const LONG_LEN: usize = 50_000;

/// A GGUF file, or `tokenizer.json`, `tokenizer_config.json` and a text. Returns whether a tokenizer came out of it.
pub fn tokenizer(data: &[u8]) -> bool {
    let path = if data.starts_with(b"GGUF") {
        let path = crate::run::folder().join("tokenizer.gguf");
        write(&path, data);
        path
    } else {
        let [tokenizer, config, _] = parts::split(data);
        let path = model_folder();
        write(&path.join("tokenizer.json"), tokenizer);
        write(&path.join("tokenizer_config.json"), config);
        path.to_path_buf()
    };
    let tokenizer = match kapitsa::open_tokenizer(&path) {
        Ok(tokenizer) => tokenizer,
        Err(error) => {
            check_message(&error);
            return false;
        }
    };
    let [_, _, text] = parts::split(data);
    round_trip(&tokenizer, &String::from_utf8_lossy(&text[..text.len().min(LONG_LEN / 10)]));
    TEXTS.iter().for_each(|text| round_trip(&tokenizer, text));
    // Time that grows faster than the text shows in long ones only; one input in eight will do.
    if data.len().is_multiple_of(8) {
        let spellings = (0..tokenizer.vocab_len() as u32).map(|id| tokenizer.token_text(id));
        let longest = spellings.max_by_key(|text| text.len()).filter(|text| !text.is_empty()).unwrap_or("a");
        round_trip(&tokenizer, &longest.repeat(LONG_LEN.div_ceil(longest.len())));
    }
    let ids: Vec<u32> = (0..tokenizer.vocab_len().min(5000) as u32 + 2).chain([u32::MAX]).collect();
    decode(&tokenizer, &ids);
    true
}

fn round_trip(tokenizer: &Tokenizer, text: &str) {
    for specials in [Specials::Parse, Specials::AsText] {
        match tokenizer.encode(text, specials) {
            Ok(ids) => {
                assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_len()));
                decode(tokenizer, &ids);
            }
            Err(error) => check_message(&error),
        }
    }
}

/// Decoding in pieces gives what decoding at once gives.
fn decode(tokenizer: &Tokenizer, ids: &[u32]) {
    let mut detokenizer = Detokenizer::new(tokenizer);
    let mut text: String = ids.iter().map(|&id| detokenizer.push(id)).collect();
    text += &detokenizer.finish();
    assert_eq!(text, tokenizer.decode(ids));
}

/// A chat template and messages. Returns whether a prompt came out of them.
pub fn template(data: &[u8]) -> bool {
    let [template, messages] = parts::split(data);
    let Ok(messages) = serde_json::from_slice::<Vec<Message>>(messages) else { return false };
    let path = model_folder();
    write(&path.join("chat_template.jinja"), template);
    let options = OpenOptions { threads: Some(1), ..OpenOptions::default() };
    let llm = match Llm::open(path, &options) {
        Ok(llm) => llm,
        Err(error) => {
            check_message(&error);
            return false;
        }
    };
    let now = LocalTime { year: 2026, month: 2, day: 28, hour: 23, minute: 59, second: 60 };
    match llm.chat_prompt(&messages, &[], Some(now)) {
        Ok(prompt) => {
            decode(llm.tokenizer(), &prompt.tokens);
            true
        }
        Err(error) => {
            check_message(&error);
            false
        }
    }
}

/// A folder with a tiny model and a tokenizer of bytes and a few control tokens.
fn model_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let path = crate::run::folder().join("texts");
        std::fs::create_dir_all(&path).expect("the temporary folder can be written");
        let (config, weights) = folder("llama", SMALL, Packing::F32);
        write(&path.join("config.json"), config.to_string().as_bytes());
        write(&path.join("model.safetensors"), &weights);
        write(&path.join("tokenizer.json"), tokenizer_json().to_string().as_bytes());
        path
    })
}

/// Byte fallback and no merges: every text can be encoded.
fn tokenizer_json() -> serde_json::Value {
    let controls = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"];
    let bytes = (0..=255u8).map(|byte| format!("<0x{byte:02X}>"));
    let spellings = controls.iter().map(|name| name.to_string()).chain(bytes);
    let vocab: serde_json::Map<String, _> = spellings.enumerate().map(|(id, name)| (name, json!(id))).collect();
    let added = controls.iter().enumerate().map(|(id, name)| {
        json!({"id": id, "content": name, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
    });
    json!({
        "version": "1.0",
        "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": null,
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "vocab": vocab, "merges": []},
    })
}
