//! Tiny models that speak, and one that sees, too: random weights, a token for nearly every byte.

use std::path::Path;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::fixture;
use crate::gguf::GgufBuilder;

/// Id of the token that ends a turn; the text of its spelling is `<|end|>`.
pub const END: u32 = 0;

/// The tiny Llama of the fixtures as GGUF, with a byte-level vocabulary and a chat template. Token 0 ends a turn.
pub fn speaking_llama() -> GgufBuilder {
    let tokens = vocabulary();
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

/// The ids of [`write_seeing_qwen`] that stand for an image: its start, a part of it, its end.
pub const IMAGE: [u32; 3] = [252, 250, 253];

/// As the templates of Qwen: an image is a start, one pad and an end.
const SEEING_TEMPLATE: &str = "
{%- macro show(content) %}
    {%- if content is string %}{{- content }}{% else %}
        {%- for part in content %}
            {%- if part.type == 'image' or 'image' in part %}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- elif 'text' in part %}{{- part.text }}{% endif %}
        {%- endfor %}
    {%- endif %}
{%- endmacro %}
{%- for m in messages %}{{- m.role + ':' + show(m.content) + '<|end|>' }}{% endfor %}
{{- '>' }}";

/// Writes the tiny Qwen3.5 of the fixtures with a tokenizer and a chat template to `folder`. An image is scaled to
/// between 64 and 65536 pixels; 64 of them are a token.
pub fn write_seeing_qwen(folder: &Path) {
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture("oracle/models/qwen3_5").join(file), folder.join(file)).expect("a copy of a fixture");
    }
    let mut tokens = vocabulary();
    let [start, pad, end] = IMAGE.map(|id| id as usize);
    let marks =
        [(END as usize, "<|end|>"), (start, "<|vision_start|>"), (pad, "<|image_pad|>"), (end, "<|vision_end|>")];
    marks.into_iter().for_each(|(id, mark)| tokens[id] = mark.into());
    let tokenizer = tokenizer(&tokens, &["t h".into()], &marks);
    for (name, text) in [
        ("tokenizer.json", tokenizer.to_string()),
        ("generation_config.json", json!({"eos_token_id": END}).to_string()),
        ("preprocessor_config.json", json!({"size": {"shortest_edge": 64, "longest_edge": 1 << 16}}).to_string()),
        ("chat_template.jinja", SEEING_TEMPLATE.into()),
    ] {
        std::fs::write(folder.join(name), text).expect("the folder can be written");
    }
}

/// The file `tokenizer.json` of a byte-level vocabulary, its merges, and its tokens that are no text.
pub(crate) fn tokenizer(tokens: &[String], merges: &[String], marks: &[(usize, &str)]) -> Value {
    let mark = |&(id, content): &(usize, &str)| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    let vocab: serde_json::Map<_, _> = tokens.iter().cloned().zip((0..).map(|id: usize| id.into())).collect();
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "pre_tokenizer": bytes, "decoder": bytes, "added_tokens": marks.iter().map(mark).collect::<Vec<_>>(),
        "model": {"type": "BPE", "vocab": vocab, "merges": merges, "dropout": null, "unk_token": null,
                  "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
                  "byte_fallback": false, "ignore_merges": false},
    })
}

/// A BMP file of one colour, given as blue, green and red.
pub fn bmp(width: u32, height: u32, colour: [u8; 3]) -> Vec<u8> {
    let mut line = colour.repeat(width as usize);
    line.resize(line.len().next_multiple_of(4), 0);
    let pixels = line.repeat(height as usize);
    let mut file = b"BM".to_vec();
    for word in [54 + pixels.len() as u32, 0, 54, 40, width, height, 24 << 16 | 1, 0, pixels.len() as u32, 0, 0, 0, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(pixels);
    file
}

/// A file as a data URL.
pub fn data_url(file: &[u8]) -> String {
    format!("data:image/png;base64,{}", base64::engine::general_purpose::STANDARD.encode(file))
}

/// The text of tokens of the byte-level vocabulary.
pub fn text(tokens: &[u32]) -> String {
    let mut bytes = vec![];
    for &token in tokens {
        match token {
            END => bytes.extend(b"<|end|>"),
            1 => bytes.extend(b"th"),
            byte => bytes.push(byte as u8),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Tokens of the byte-level vocabulary that have a text.
pub fn tokens(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

/// Spellings of all bytes, without two that text does not need.
pub fn vocabulary() -> Vec<String> {
    let mut tokens: Vec<String> = (0..=255u8).map(|byte| spelling(byte).to_string()).collect();
    tokens[END as usize] = "<|end|>".into();
    tokens[1] = "th".into(); // files have at least one merge
    tokens
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
