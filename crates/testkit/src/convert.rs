//! A small Hugging Face checkpoint as GGUF, as the public converter writes it.
//!
//! For llama, qwen2, qwen3 and qwen3_moe: names, rows of llama's q and k permuted for pairs of neighbours, experts stacked,
//! llama3 scaling as the tensor `rope_freqs.weight`, YaRN as keys. Matrices keep their type; vectors and routers become
//! F32, which is exact. There is no tokenizer.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::Dtype;
use serde_json::Value;

use crate::fixtures::{RawTensor, Tensors};
use crate::gguf::GgufBuilder;

/// Names behind `model.layers.{i}.` and behind `blk.{i}.`.
const LAYER_NAMES: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("mlp.gate", "ffn_gate_inp"),
];

/// Converts the checkpoint in `folder` (`config.json` and `model.safetensors`).
///
/// # Panics
/// If the model is of another family or something is missing.
pub fn hugging_face_to_gguf(folder: &Path) -> GgufBuilder {
    let text = std::fs::read_to_string(folder.join("config.json")).expect("config.json");
    let config: Value = serde_json::from_str(&text).expect("config.json is JSON");
    let tensors = Tensors::open(folder.join("model.safetensors"));
    let model_type = config["model_type"].as_str().expect("model_type");
    let architecture = if model_type == "qwen3_moe" { "qwen3moe" } else { model_type };
    assert!(["llama", "qwen2", "qwen3", "qwen3moe"].contains(&architecture), "{model_type}");

    let mut gguf = metadata(GgufBuilder::new(architecture), architecture, &config);
    if let Some(divisors) = llama3_divisors(&config) {
        gguf = gguf.tensor_f32("rope_freqs.weight", &[divisors.len()], &divisors);
    }
    let mut experts: BTreeMap<String, BTreeMap<usize, RawTensor>> = BTreeMap::new();
    for key in tensors.keys() {
        let mut tensor = tensors.raw(&key);
        if let Some((name, expert)) = expert_name(&key) {
            experts.entry(name).or_default().insert(expert, tensor);
            continue;
        }
        let name = gguf_name(&key);
        if architecture == "llama" {
            let heads = if name.contains("attn_q.") {
                integer(&config, "num_attention_heads")
            } else if name.contains("attn_k.") {
                integer(&config, "num_key_value_heads")
            } else {
                None
            };
            if let Some(heads) = heads {
                tensor.data = neighbours_rotate(&tensor, heads as usize);
            }
        }
        gguf = add(gguf, &name, tensor);
    }
    for (name, matrices) in experts {
        let first = &matrices[&0];
        let shape = [&[matrices.len()], &first.shape[..]].concat();
        let data = matrices.values().flat_map(|tensor| tensor.data.clone()).collect();
        gguf = add(gguf, &name, RawTensor { dtype: first.dtype, shape, data });
    }
    gguf
}

fn integer(config: &Value, key: &str) -> Option<u32> {
    config[key].as_u64().map(|value| value as u32)
}

/// The rope settings in either spelling.
fn rope<'a>(config: &'a Value, key: &str) -> &'a Value {
    let scaling = match &config["rope_parameters"] {
        Value::Null => &config["rope_scaling"],
        new => new,
    };
    match &scaling[key] {
        Value::Null => &config[key],
        value => value,
    }
}

fn metadata(mut gguf: GgufBuilder, architecture: &str, config: &Value) -> GgufBuilder {
    let key = |name: &str| format!("{architecture}.{name}");
    let integers = [
        ("block_count", "num_hidden_layers"),
        ("context_length", "max_position_embeddings"),
        ("embedding_length", "hidden_size"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("attention.key_length", "head_dim"),
        ("attention.value_length", "head_dim"),
        ("vocab_size", "vocab_size"),
        ("expert_count", "num_experts"),
        ("expert_used_count", "num_experts_per_tok"),
        ("expert_feed_forward_length", "moe_intermediate_size"),
    ];
    for (gguf_name, name) in integers {
        if let Some(value) = integer(config, name) {
            gguf = gguf.set(&key(gguf_name), value);
        }
    }
    if architecture == "llama" {
        let head_dim = integer(config, "head_dim").expect("head_dim");
        gguf = gguf.set(&key("rope.dimension_count"), head_dim);
    }
    let float = |value: &Value| value.as_f64().map(|value| value as f32);
    gguf = gguf
        .set(&key("attention.layer_norm_rms_epsilon"), float(&config["rms_norm_eps"]).expect("rms_norm_eps"))
        .set(&key("rope.freq_base"), float(rope(config, "rope_theta")).expect("rope_theta"));
    let kind = rope(config, "rope_type").as_str().unwrap_or("default");
    if matches!(kind, "linear" | "yarn") {
        gguf = gguf
            .set(&key("rope.scaling.type"), kind)
            .set(&key("rope.scaling.factor"), float(rope(config, "factor")).expect("factor"));
    }
    if kind == "yarn" {
        let original = rope(config, "original_max_position_embeddings").as_u64().expect("original length") as u32;
        gguf = gguf.set(&key("rope.scaling.original_context_length"), original);
        for (gguf_name, name) in
            [("yarn_attn_factor", "attention_factor"), ("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow")]
        {
            if let Some(value) = float(rope(config, name)) {
                gguf = gguf.set(&key(&format!("rope.scaling.{gguf_name}")), value);
            }
        }
    }
    gguf
}

/// What frequencies are divided by, for scaling of kind llama3 (reference: `architectures.md`, section 3).
fn llama3_divisors(config: &Value) -> Option<Vec<f32>> {
    if rope(config, "rope_type").as_str() != Some("llama3") {
        return None;
    }
    let number = |key: &str| rope(config, key).as_f64().unwrap_or_else(|| panic!("{key}")) as f32;
    let (factor, low, high) = (number("factor"), number("low_freq_factor"), number("high_freq_factor"));
    let (original, theta) = (number("original_max_position_embeddings"), number("rope_theta"));
    let head_dim = integer(config, "head_dim").expect("head_dim");
    let divisor = |pair: u32| {
        let frequency = 1.0 / theta.powf((2 * pair) as f32 / head_dim as f32);
        let wavelength = 2.0 * std::f32::consts::PI / frequency;
        if wavelength < original / high {
            1.0
        } else if wavelength > original / low {
            factor
        } else {
            let smooth = (original / wavelength - low) / (high - low);
            1.0 / ((1.0 - smooth) / factor + smooth)
        }
    };
    Some((0..head_dim / 2).map(divisor).collect())
}

fn gguf_name(key: &str) -> String {
    let (stem, ending) = key.rsplit_once('.').expect("names have an ending");
    let name = match stem {
        "model.embed_tokens" => "token_embd".to_string(),
        "model.norm" => "output_norm".to_string(),
        "lm_head" => "output".to_string(),
        _ => {
            let rest = stem.strip_prefix("model.layers.").unwrap_or_else(|| panic!("{key}"));
            let (layer, name) = rest.split_once('.').expect("a layer's number");
            let found = LAYER_NAMES.iter().find(|entry| entry.0 == name).unwrap_or_else(|| panic!("{key}"));
            format!("blk.{layer}.{}", found.1)
        }
    };
    format!("{name}.{ending}")
}

/// `model.layers.{i}.mlp.experts.{e}.up_proj.weight` as `blk.{i}.ffn_up_exps.weight` and `e`.
fn expert_name(key: &str) -> Option<(String, usize)> {
    let (layer, rest) = key.strip_prefix("model.layers.")?.split_once(".mlp.experts.")?;
    let (expert, name) = rest.split_once('.')?;
    let name = name.strip_suffix("_proj.weight")?;
    Some((format!("blk.{layer}.ffn_{name}_exps.weight"), expert.parse().ok()?))
}

/// Rows (or biases) of q and k in the order in which neighbours rotate together: in each head, row `j` of the first half
/// becomes row `2 j`, row `j` of the second half row `2 j + 1`.
fn neighbours_rotate(tensor: &RawTensor, heads: usize) -> Vec<u8> {
    let row_bytes = tensor.data.len() / tensor.shape[0];
    let head_dim = tensor.shape[0] / heads;
    let half = head_dim / 2;
    let rows =
        (0..heads).flat_map(|head| (0..half).flat_map(move |j| [head * head_dim + j, head * head_dim + half + j]));
    rows.flat_map(|row| &tensor.data[row * row_bytes..][..row_bytes]).copied().collect()
}

fn add(gguf: GgufBuilder, name: &str, tensor: RawTensor) -> GgufBuilder {
    if tensor.shape.len() == 1 || name.contains("ffn_gate_inp") {
        let values = tensor.f32().expect("vectors are floating-point");
        return gguf.tensor_f32(name, &tensor.shape, &values);
    }
    let type_id = match tensor.dtype {
        Dtype::F32 => 0,
        Dtype::F16 => 1,
        Dtype::BF16 => 30,
        other => panic!("{name} is {other:?}"),
    };
    gguf.tensor(name, &tensor.shape, type_id, tensor.data)
}
