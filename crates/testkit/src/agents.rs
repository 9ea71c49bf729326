//! What coding agents need: a chat template with tools, thinking and images, and a tiny model with room for their requests.

use std::path::Path;

use half::bf16;
use safetensors::Dtype;
use serde_json::{Value, json};

use crate::fixtures::{RawTensor, Tensors, fixture, safetensors_raw_file};
use crate::gguf_lists::texts;
use crate::random::Rng;
use crate::tiny::tokenizer;

/// Tokens that prompt and reply of [`write_seeing_model`] may have together.
pub const CONTEXT: usize = 65_536;

/// In the style of Qwen3: a call is a JSON object between marks, thinking comes first, an image is a start, one pad and an end.
pub const TEMPLATE: &str = r#"
{%- macro show(content) %}
    {%- if content is string %}{{- content }}
    {%- elif content %}
        {%- for part in content %}
            {%- if part.type == 'image' %}{{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- elif 'text' in part %}{{- part.text }}{% endif %}
        {%- endfor %}
    {%- endif %}
{%- endmacro %}
{%- if tools %}
    {{- '<|im_start|>system\nTools, one a line:\n<tools>' }}
    {%- for tool in tools %}{{- '\n' ~ tool | tojson }}{% endfor %}
    {{- '\n</tools>\nTo call one:\n<tool_call>\n{"name": NAME, "arguments": OBJECT}\n</tool_call><|im_end|>\n' }}
{%- endif %}
{%- for m in messages %}
    {%- if m.role == 'tool' %}
        {{- '<|im_start|>user\n<tool_response>\n' ~ show(m.content) ~ '\n</tool_response>' }}
    {%- else %}
        {{- '<|im_start|>' ~ ('system' if m.role == 'developer' else m.role) ~ '\n' }}
        {%- if m.reasoning_content %}{{- '<think>\n' ~ m.reasoning_content ~ '\n</think>\n\n' }}{% endif %}
        {{- show(m.content) }}
        {%- for call in m.tool_calls or [] %}
            {{- '\n<tool_call>\n{"name": ' ~ call.function.name | tojson ~ ', "arguments": ' }}
            {{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\n\n</think>\n\n' }}{% endif %}
{%- endif %}
"#;

/// Writes the tiny Qwen3.5 of the fixtures to `folder`, with the vocabulary of `real`, a GGUF file with the marks of ChatML, and
/// [`TEMPLATE`]: the longest requests of agents are too long in bytes. Embedding and head are random.
///
/// # Panics
/// If something cannot be read or written.
pub fn write_seeing_model(folder: &Path, real: &Path) {
    let source = fixture("oracle/models/qwen3_5");
    let mut tokens = texts(real, "tokenizer.ggml.tokens");
    let first = tokens.len();
    let image = ["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"];
    tokens.extend(image.map(String::from));
    let id = |token: &str| tokens.iter().position(|known| known == token).expect("a mark of the vocabulary");
    let end = id("<|im_end|>");
    let marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"].into_iter().chain(image);
    let marks: Vec<_> = marks.map(|mark| (id(mark), mark)).collect();

    let config = std::fs::read_to_string(source.join("config.json")).expect("config.json");
    let mut config: Value = serde_json::from_str(&config).expect("config.json is JSON");
    let ids = [("vision_start_token_id", 0), ("image_token_id", 1), ("vision_end_token_id", 2), ("video_token_id", 1)];
    ids.into_iter().for_each(|(name, at)| config[name] = (first + at).into());
    config["text_config"]["vocab_size"] = tokens.len().into();
    config["text_config"]["max_position_embeddings"] = CONTEXT.into();

    let source = Tensors::open(source.join("model.safetensors"));
    let mut rng = Rng(7);
    let tensors = source.keys().into_iter().map(|key| {
        let mut tensor = source.raw(&key);
        if matches!(key.as_str(), "lm_head.weight" | "model.language_model.embed_tokens.weight") {
            let shape = vec![tokens.len(), tensor.shape[1]];
            let values = rng.values(shape.iter().product(), 1.0);
            let data = values.into_iter().flat_map(|value| bf16::from_f32(value).to_le_bytes()).collect();
            tensor = RawTensor { dtype: Dtype::BF16, shape, data };
        }
        (key, tensor)
    });
    let files = [
        ("model.safetensors", safetensors_raw_file(&tensors.collect::<Vec<_>>())),
        ("config.json", config.to_string().into()),
        ("tokenizer.json", tokenizer(&tokens, &texts(real, "tokenizer.ggml.merges"), &marks).to_string().into()),
        ("generation_config.json", json!({"eos_token_id": end}).to_string().into()),
        (
            "preprocessor_config.json",
            json!({"size": {"shortest_edge": 64, "longest_edge": 1 << 16}}).to_string().into(),
        ),
        ("chat_template.jinja", TEMPLATE.into()),
    ];
    for (name, bytes) in files {
        std::fs::write(folder.join(name), bytes).expect("the folder can be written");
    }
}
