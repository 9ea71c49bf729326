//! A small Hugging Face checkpoint as GGUF, as the public converter writes it.
//!
//! For llama, qwen2, qwen3 and qwen3_moe: names, rows of llama's q and k permuted for pairs of neighbours, experts stacked,
//! llama3 scaling as the tensor `rope_freqs.weight`, YaRN as keys. For qwen3_5 and qwen3_5_moe: the language model without
//! the vision tower, the prediction head as its last block, 1 + weight in norms, value heads in tiled order. Matrices keep
//! their type; vectors, routers and convolutions become F32, which is exact. There is no tokenizer.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::Dtype;
use serde_json::Value;

use crate::fixtures::{RawTensor, Tensors};
use crate::gguf::GgufBuilder;

/// Model types and architectures.
const ARCHITECTURES: &[(&str, &str)] = &[
    ("llama", "llama"),
    ("qwen2", "qwen2"),
    ("qwen3", "qwen3"),
    ("qwen3_moe", "qwen3moe"),
    ("qwen3_5", "qwen35"),
    ("qwen3_5_text", "qwen35"),
    ("qwen3_5_moe", "qwen35moe"),
];

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

/// Those of Qwen3.5, before the others; `A_log` to `down_proj` are whole names, the rest keep their ending.
const HYBRID_NAMES: &[(&str, &str)] = &[
    ("linear_attn.A_log", "ssm_a"),
    ("linear_attn.dt_bias", "ssm_dt.bias"),
    ("mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"),
    ("mlp.experts.down_proj", "ffn_down_exps.weight"),
    ("post_attention_layernorm", "post_attention_norm"),
    ("linear_attn.in_proj_qkv", "attn_qkv"),
    ("linear_attn.in_proj_z", "attn_gate"),
    ("linear_attn.in_proj_a", "ssm_alpha"),
    ("linear_attn.in_proj_b", "ssm_beta"),
    ("linear_attn.conv1d", "ssm_conv1d"),
    ("linear_attn.norm", "ssm_norm"),
    ("linear_attn.out_proj", "ssm_out"),
    ("mlp.shared_expert_gate", "ffn_gate_inp_shexp"),
    ("mlp.shared_expert.gate_proj", "ffn_gate_shexp"),
    ("mlp.shared_expert.up_proj", "ffn_up_shexp"),
    ("mlp.shared_expert.down_proj", "ffn_down_shexp"),
    ("fc", "nextn.eh_proj"),
    ("pre_fc_norm_embedding", "nextn.enorm"),
    ("pre_fc_norm_hidden", "nextn.hnorm"),
    ("norm", "nextn.shared_head_norm"),
];

/// What a tensor with value heads has of them.
#[derive(Clone, Copy)]
enum ValueHeads {
    Rows,
    /// Behind the rows of queries and keys.
    LastRows,
    Columns,
}

const VALUE_HEADS: &[(&str, ValueHeads)] = &[
    ("attn_qkv.weight", ValueHeads::LastRows),
    ("ssm_conv1d.weight", ValueHeads::LastRows),
    ("attn_gate.weight", ValueHeads::Rows),
    ("ssm_alpha.weight", ValueHeads::Rows),
    ("ssm_beta.weight", ValueHeads::Rows),
    ("ssm_a", ValueHeads::Rows),
    ("ssm_dt.bias", ValueHeads::Rows),
    ("ssm_out.weight", ValueHeads::Columns),
];

/// Converts the checkpoint in `folder` (`config.json` and `model.safetensors`).
///
/// # Panics
/// If the model is of another family or something is missing.
pub fn hugging_face_to_gguf(folder: &Path) -> GgufBuilder {
    let text = std::fs::read_to_string(folder.join("config.json")).expect("config.json");
    let mut config: Value = serde_json::from_str(&text).expect("config.json is JSON");
    let tensors = Tensors::open(folder.join("model.safetensors"));
    let model_type = config["model_type"].as_str().expect("model_type");
    let architecture = ARCHITECTURES.iter().find(|entry| entry.0 == model_type).map(|entry| entry.1);
    let architecture = architecture.unwrap_or_else(|| panic!("{model_type}"));
    if config["text_config"].is_object() {
        config = config["text_config"].take();
    }

    let mut gguf = metadata(GgufBuilder::new(architecture), architecture, &config);
    let hybrid = architecture.starts_with("qwen35");
    let num_layers = integer(&config, "num_hidden_layers").expect("num_hidden_layers");
    if hybrid {
        let has_head = tensors.has("mtp.fc.weight");
        gguf = hybrid_metadata(gguf, architecture, &config)
            .set(&format!("{architecture}.block_count"), num_layers + u32::from(has_head));
        if has_head {
            gguf = gguf.set(&format!("{architecture}.nextn_predict_layers"), 1u32);
        }
    }
    if let Some(divisors) = llama3_divisors(&config) {
        gguf = gguf.tensor_f32("rope_freqs.weight", &[divisors.len()], &divisors);
    }
    let mut experts: BTreeMap<String, BTreeMap<usize, RawTensor>> = BTreeMap::new();
    for key in tensors.keys() {
        if key.starts_with("model.visual.") {
            continue;
        }
        let mut tensor = tensors.raw(&key);
        let key = key.replace("model.language_model.", "model.");
        let key = match key.strip_prefix("mtp.") {
            Some(rest) => format!("model.layers.{num_layers}.{}", rest.trim_start_matches("layers.0.")),
            None => key,
        };
        if let Some((name, expert)) = expert_name(&key) {
            experts.entry(name).or_default().insert(expert, tensor);
            continue;
        }
        let name = gguf_name(&key, hybrid);
        if hybrid {
            tensor = hybrid_values(tensor, &name, &config);
        }
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
        ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
        ("ssm.conv_kernel", "linear_conv_kernel_dim"),
        ("ssm.state_size", "linear_key_head_dim"),
        ("ssm.group_count", "linear_num_key_heads"),
        ("ssm.time_step_rank", "linear_num_value_heads"),
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

/// What Qwen3.5 has in other keys than its configuration.
fn hybrid_metadata(gguf: GgufBuilder, architecture: &str, config: &Value) -> GgufBuilder {
    let key = |name: &str| format!("{architecture}.{name}");
    let number = |name: &str| integer(config, name).unwrap_or_else(|| panic!("{name}"));
    let partial = rope(config, "partial_rotary_factor").as_f64().expect("partial_rotary_factor");
    let sections = rope(config, "mrope_section").as_array().expect("mrope_section");
    let sections = sections.iter().map(|section| section.as_i64().expect("a section") as i32);
    let layers = config["layer_types"].as_array().expect("layer_types");
    let first_full = layers.iter().position(|kind| kind == "full_attention").expect("full attention");
    gguf.set(&key("ssm.inner_size"), number("linear_num_value_heads") * number("linear_value_head_dim"))
        .set(&key("rope.dimension_count"), (f64::from(number("head_dim")) * partial) as u32)
        .set(&key("rope.dimension_sections"), sections.chain([0]).collect::<Vec<i32>>())
        .set(&key("full_attention_interval"), first_full as u32 + 1)
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

fn gguf_name(key: &str, hybrid: bool) -> String {
    let (stem, ending) = key.rsplit_once('.').expect("names have an ending");
    let name = match stem {
        "model.embed_tokens" => "token_embd",
        "model.norm" => "output_norm",
        "lm_head" => "output",
        _ => {
            let rest = key.strip_prefix("model.layers.").unwrap_or_else(|| panic!("{key}"));
            let (layer, name) = rest.split_once('.').expect("a layer's number");
            let tables = [if hybrid { HYBRID_NAMES } else { &[] }, LAYER_NAMES].concat();
            let find = |name: &str| Some(tables.iter().find(|entry| entry.0 == name)?.1.to_string());
            let found = find(name).or_else(|| {
                let (stem, ending) = name.rsplit_once('.')?;
                Some(format!("{}.{ending}", find(stem)?))
            });
            return format!("blk.{layer}.{}", found.unwrap_or_else(|| panic!("{key}")));
        }
    };
    format!("{name}.{ending}")
}

/// The values of Qwen3.5 as the file `name` has them.
fn hybrid_values(mut tensor: RawTensor, name: &str, config: &Value) -> RawTensor {
    let name = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).map_or(name, |(_, name)| name);
    let change: Option<fn(f32) -> f32> = match name {
        "ssm_a" => Some(|a_log| -a_log.exp()),
        "ssm_norm.weight" => None,
        _ if name.ends_with("norm.weight") => Some(|weight| 1.0 + weight),
        _ => None,
    };
    if let Some(change) = change {
        let values = tensor.f32().expect("floating-point");
        let data = values.into_iter().flat_map(|value| change(value).to_le_bytes()).collect();
        tensor = RawTensor { dtype: Dtype::F32, shape: tensor.shape, data };
    }
    if let Some((_, part)) = VALUE_HEADS.iter().find(|entry| entry.0 == name) {
        let number = |name: &str| integer(config, name).unwrap_or_else(|| panic!("{name}")) as usize;
        let key_heads = number("linear_num_key_heads");
        let row_bytes = tensor.data.len() / tensor.shape[0];
        let (chunk, first) = match part {
            ValueHeads::Rows => (tensor.data.len(), 0),
            ValueHeads::LastRows => (tensor.data.len(), 2 * key_heads * number("linear_key_head_dim") * row_bytes),
            ValueHeads::Columns => (row_bytes, 0),
        };
        let chunks = tensor.data.chunks(chunk);
        tensor.data =
            chunks.flat_map(|chunk| tiled(chunk, first, key_heads, number("linear_num_value_heads"))).collect();
    }
    tensor
}

/// The value heads that begin at byte `first`, the first ones of all key heads before the second ones of all.
fn tiled(data: &[u8], first: usize, key_heads: usize, value_heads: usize) -> Vec<u8> {
    let (others, values) = data.split_at(first);
    let heads: Vec<&[u8]> = values.chunks(values.len() / value_heads).collect();
    let per_key = value_heads / key_heads;
    let order = (0..per_key).flat_map(|index| (0..key_heads).map(move |key| key * per_key + index));
    [others].into_iter().chain(order.map(|head| heads[head])).flatten().copied().collect()
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

fn add(gguf: GgufBuilder, name: &str, mut tensor: RawTensor) -> GgufBuilder {
    tensor.shape.retain(|&size| size != 1);
    if tensor.shape.len() == 1 || name.contains("ffn_gate_inp") || name.contains("ssm_conv1d") {
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
