//! A tiny model that speaks: random weights, a token for nearly every byte.

use std::path::Path;

use crate::fixture;
use crate::gguf::GgufBuilder;

/// Id of the token that ends a turn; the text of its spelling is `<|end|>`.
pub const END: u32 = 0;

/// The tiny Llama of the fixtures as GGUF, with a byte-level vocabulary and a chat template. Token 0 ends a turn.
pub fn speaking_llama() -> GgufBuilder {
    let mut tokens: Vec<String> = (0..=255u8).map(|byte| spelling(byte).to_string()).collect();
    tokens[END as usize] = "<|end|>".into();
    tokens[1] = "th".into(); // files have at least one merge
    let types: Vec<i32> = (0..256).map(|id| if id == END { 3 } else { 1 }).collect();
    crate::convert::hugging_face_to_gguf(&fixture("oracle/models/llama"))
        .set("llama.context_length", 16_384u32)
        .set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.pre", "gpt-2")
        .set("tokenizer.ggml.tokens", tokens)
        .set("tokenizer.ggml.token_type", types)
        .set("tokenizer.ggml.merges", vec!["t h"])
        .set("tokenizer.ggml.eos_token_id", END)
        .set("tokenizer.chat_template", "{% for m in messages %}{{ m.role }}:{{ m.content }}<|end|>{% endfor %}>")
}

/// Writes [`speaking_llama`] to `path`.
pub fn write_speaking_llama(path: &Path) {
    speaking_llama().write(path);
}

/// The character that stands for a byte in byte-level vocabularies: itself if it is printable, else one from U+0100 on.
fn spelling(byte: u8) -> char {
    let is_printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if is_printable(byte) {
        return byte.into();
    }
    let unprintable_before = (0..byte).filter(|&b| !is_printable(b)).count() as u32;
    char::from_u32(256 + unprintable_before).expect("a character below U+0144")
}
