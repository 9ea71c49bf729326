//! Models of one layer, or one of each kind, and a few kilobytes, in every container and family: what corpora start from.

use std::path::Path;

use kapitsa_tensor::Format;
use kapitsa_testkit::convert::hugging_face_to_gguf;
use kapitsa_testkit::fixtures::{RawTensor, safetensors_raw_file};
use kapitsa_testkit::gguf::GgufBuilder;
use kapitsa_testkit::random::Rng;
use safetensors::Dtype;
use serde_json::{Value, json};

/// The families that can be loaded.
pub const FAMILIES: &[&str] = &["llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_5_moe", "nemotron_h"];

/// Those of them that GGUF files are read of.
pub const GGUF_FAMILIES: &[&str] = &["llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_5_moe"];

/// How the matrices of a Hugging Face folder are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "names of formats")]
pub enum Packing {
    F32,
    Bf16,
    MlxAffine4,
    Mxfp4,
    Fp8,
    Nvfp4,
}

/// Every packing.
pub const PACKINGS: &[Packing] =
    &[Packing::F32, Packing::Bf16, Packing::MlxAffine4, Packing::Mxfp4, Packing::Fp8, Packing::Nvfp4];

/// Sizes of a tiny model.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width inside the MLP.
    pub inner: usize,
    /// Token ids.
    pub vocab: usize,
    /// Query heads, of 8 elements, twice as many as key heads.
    pub heads: usize,
}

/// For blocks of 32.
pub const SMALL: Sizes = Sizes { hidden: 32, inner: 32, vocab: 24, heads: 4 };
/// For blocks of 256 columns: wide and flat.
pub const WIDE: Sizes = Sizes { hidden: 256, inner: 4, vocab: 8, heads: 2 };

const HEAD_DIM: usize = 8;
const EXPERTS: usize = 4;
/// Elements of a head of recurrent layers.
const VALUE_DIM: usize = 16;
const TAPS: usize = 3;
const STATE: usize = 4;

/// A configuration of `family`.
pub fn config(family: &str, sizes: Sizes) -> Value {
    let mut config = json!({
        "model_type": family,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.inner,
        "num_hidden_layers": 1,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.heads / 2,
        "head_dim": HEAD_DIM,
        "vocab_size": sizes.vocab,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": true,
        "hidden_act": "silu",
    });
    let more = match family {
        "qwen3_moe" => json!({"num_experts": EXPERTS, "num_experts_per_tok": 2, "moe_intermediate_size": sizes.inner,
            "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": []}),
        "qwen3_5_moe" => json!({"num_experts": EXPERTS, "num_experts_per_tok": 2, "moe_intermediate_size": sizes.inner,
            "shared_expert_intermediate_size": sizes.inner, "num_hidden_layers": 2,
            "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 1, "linear_num_value_heads": 2,
            "linear_key_head_dim": HEAD_DIM, "linear_value_head_dim": VALUE_DIM, "linear_conv_kernel_dim": TAPS,
            "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 0]}),
        "nemotron_h" => json!({"hybrid_override_pattern": "M*E-", "mlp_hidden_act": "relu2", "mamba_num_heads": 2,
            "mamba_head_dim": VALUE_DIM, "n_groups": 1, "ssm_state_size": STATE, "conv_kernel": TAPS,
            "n_routed_experts": EXPERTS, "num_experts_per_tok": 2, "moe_intermediate_size": sizes.inner,
            "moe_shared_expert_intermediate_size": sizes.inner, "moe_latent_size": sizes.hidden, "n_group": 2,
            "topk_group": 1, "layer_norm_epsilon": 1e-5}),
        _ => json!({}),
    };
    config.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    config
}

/// Names and shapes of a model's matrices and vectors.
fn shapes(family: &str, sizes: Sizes) -> Vec<(String, Vec<usize>)> {
    match family {
        "nemotron_h" => nemotron(sizes),
        "qwen3_5_moe" => qwen3_5(sizes),
        _ => decoder(family, sizes),
    }
}

fn mlp(name: &str, inner: usize, hidden: usize) -> [(String, Vec<usize>); 3] {
    ["gate", "up", "down"].map(|part| {
        let shape = if part == "down" { vec![hidden, inner] } else { vec![inner, hidden] };
        (format!("{name}.{part}_proj.weight"), shape)
    })
}

/// Projections of an attention layer, whose queries are `gated` or not.
fn attention(name: &str, sizes: Sizes, gated: bool) -> [(String, Vec<usize>); 4] {
    let (q, kv) = (sizes.heads * HEAD_DIM, sizes.heads / 2 * HEAD_DIM);
    let width = if gated { 2 * q } else { q };
    [("q", [width, sizes.hidden]), ("k", [kv, sizes.hidden]), ("v", [kv, sizes.hidden]), ("o", [sizes.hidden, q])]
        .map(|(part, shape)| (format!("{name}.{part}_proj.weight"), shape.into()))
}

fn decoder(family: &str, sizes: Sizes) -> Vec<(String, Vec<usize>)> {
    let Sizes { hidden, inner, vocab, heads } = sizes;
    let layer = |name: &str| format!("model.layers.0.{name}");
    let mut shapes = vec![
        ("model.embed_tokens.weight".to_string(), vec![vocab, hidden]),
        ("model.norm.weight".to_string(), vec![hidden]),
        (layer("input_layernorm.weight"), vec![hidden]),
        (layer("post_attention_layernorm.weight"), vec![hidden]),
    ];
    shapes.extend(attention(&layer("self_attn"), sizes, false));
    if family == "qwen2" {
        for (name, heads) in [("q", heads), ("k", heads / 2), ("v", heads / 2)] {
            shapes.push((layer(&format!("self_attn.{name}_proj.bias")), vec![heads * HEAD_DIM]));
        }
    }
    if family.starts_with("qwen3") {
        for name in ["q", "k"] {
            shapes.push((layer(&format!("self_attn.{name}_norm.weight")), vec![HEAD_DIM]));
        }
    }
    if family == "qwen3_moe" {
        shapes.push((layer("mlp.gate.weight"), vec![EXPERTS, hidden]));
        shapes.extend((0..EXPERTS).flat_map(|expert| mlp(&layer(&format!("mlp.experts.{expert}")), inner, hidden)));
    } else {
        shapes.extend(mlp(&layer("mlp"), inner, hidden));
    }
    shapes
}

/// A layer of delta rule and one of attention, both with experts, and a prediction head.
fn qwen3_5(sizes: Sizes) -> Vec<(String, Vec<usize>)> {
    let Sizes { hidden, inner, vocab, .. } = sizes;
    let (key, value) = (HEAD_DIM, 2 * VALUE_DIM);
    let mut shapes = vec![
        ("model.embed_tokens.weight".to_string(), vec![vocab, hidden]),
        ("model.norm.weight".to_string(), vec![hidden]),
        ("mtp.fc.weight".to_string(), vec![hidden, 2 * hidden]),
    ];
    for name in ["norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"] {
        shapes.push((format!("mtp.{name}.weight"), vec![hidden]));
    }
    for (name, shape) in [
        ("in_proj_qkv.weight", vec![2 * key + value, hidden]),
        ("in_proj_z.weight", vec![value, hidden]),
        ("in_proj_a.weight", vec![2, hidden]),
        ("in_proj_b.weight", vec![2, hidden]),
        ("out_proj.weight", vec![hidden, value]),
        ("conv1d.weight", vec![2 * key + value, 1, TAPS]),
        ("norm.weight", vec![VALUE_DIM]),
        ("A_log", vec![2]),
        ("dt_bias", vec![2]),
    ] {
        shapes.push((format!("model.layers.0.linear_attn.{name}"), shape));
    }
    for layer in ["model.layers.0", "model.layers.1", "mtp.layers.0"] {
        if layer != "model.layers.0" {
            shapes.extend(attention(&format!("{layer}.self_attn"), sizes, true));
            for name in ["q", "k"] {
                shapes.push((format!("{layer}.self_attn.{name}_norm.weight"), vec![HEAD_DIM]));
            }
        }
        for name in ["input_layernorm", "post_attention_layernorm"] {
            shapes.push((format!("{layer}.{name}.weight"), vec![hidden]));
        }
        shapes.push((format!("{layer}.mlp.gate.weight"), vec![EXPERTS, hidden]));
        shapes.push((format!("{layer}.mlp.shared_expert_gate.weight"), vec![1, hidden]));
        shapes.extend(mlp(&format!("{layer}.mlp.shared_expert"), inner, hidden));
        shapes.extend((0..EXPERTS).flat_map(|expert| mlp(&format!("{layer}.mlp.experts.{expert}"), inner, hidden)));
    }
    shapes
}

/// A layer of each kind, with experts in a space of their own.
fn nemotron(sizes: Sizes) -> Vec<(String, Vec<usize>)> {
    let Sizes { hidden, inner, vocab, .. } = sizes;
    let (x, heads) = (2 * VALUE_DIM, 2);
    let conv = x + 2 * STATE;
    let mut shapes = vec![
        ("backbone.embeddings.weight".to_string(), vec![vocab, hidden]),
        ("backbone.norm_f.weight".to_string(), vec![hidden]),
    ];
    shapes.extend((0..4).map(|layer| (format!("backbone.layers.{layer}.norm.weight"), vec![hidden])));
    for (name, shape) in [
        ("in_proj.weight", vec![x + conv + heads, hidden]),
        ("out_proj.weight", vec![hidden, x]),
        ("conv1d.weight", vec![conv, 1, TAPS]),
        ("conv1d.bias", vec![conv]),
        ("norm.weight", vec![x]),
        ("A_log", vec![heads]),
        ("D", vec![heads]),
        ("dt_bias", vec![heads]),
    ] {
        shapes.push((format!("backbone.layers.0.mixer.{name}"), shape));
    }
    shapes.extend(attention("backbone.layers.1.mixer", sizes, false));
    let experts = (0..EXPERTS).map(|expert| format!("backbone.layers.2.mixer.experts.{expert}"));
    for name in experts.chain(["backbone.layers.2.mixer.shared_experts".into(), "backbone.layers.3.mixer".into()]) {
        let [_, up, down] = mlp(&name, inner, hidden);
        shapes.extend([up, down]);
    }
    for (name, shape) in [
        ("gate.weight", vec![EXPERTS, hidden]),
        ("gate.e_score_correction_bias", vec![EXPERTS]),
        ("fc1_latent_proj.weight", vec![hidden, hidden]),
        ("fc2_latent_proj.weight", vec![hidden, hidden]),
    ] {
        shapes.push((format!("backbone.layers.2.mixer.{name}"), shape));
    }
    shapes
}

/// `config.json` and `model.safetensors`.
pub fn folder(family: &str, sizes: Sizes, packing: Packing) -> (Value, Vec<u8>) {
    let mut rng = Rng(7);
    let mut config = config(family, sizes);
    match packing {
        Packing::MlxAffine4 => config["quantization"] = json!({"group_size": 32, "bits": 4}),
        Packing::Mxfp4 => config["quantization"] = json!({"group_size": 32, "bits": 4, "mode": "mxfp4"}),
        _ => {}
    }
    let mut tensors = vec![];
    for (name, shape) in shapes(family, sizes) {
        match shape[..] {
            // Routers and the embedding stay plain in most checkpoints.
            [rows, cols] if !name.contains("gate.weight") && !name.contains("embed") => {
                let stem = name.strip_suffix(".weight").expect("a matrix");
                pack(stem, rows, cols, packing, &mut rng, &mut tensors);
            }
            _ => tensors.push((name, plain(Dtype::F32, &shape, &mut rng))),
        }
    }
    (config, safetensors_raw_file(&tensors))
}

fn pack(stem: &str, rows: usize, cols: usize, packing: Packing, rng: &mut Rng, tensors: &mut Vec<(String, RawTensor)>) {
    let mut add = |suffix: &str, tensor| tensors.push((format!("{stem}.{suffix}"), tensor));
    let bytes = |dtype: Dtype, shape: &[usize], rng: &mut Rng| {
        let len = shape.iter().product::<usize>() * dtype.bitsize() / 8;
        // Bytes below 0x40 are small numbers in all scale types.
        RawTensor { dtype, shape: shape.into(), data: (0..len).map(|_| rng.bits() as u8 & 0x3f).collect() }
    };
    match packing {
        Packing::F32 => add("weight", plain(Dtype::F32, &[rows, cols], rng)),
        Packing::Bf16 => add("weight", plain(Dtype::BF16, &[rows, cols], rng)),
        Packing::MlxAffine4 => {
            add("weight", bytes(Dtype::U32, &[rows, cols / 8], rng));
            add("scales", plain(Dtype::BF16, &[rows, cols / 32], rng));
            add("biases", plain(Dtype::BF16, &[rows, cols / 32], rng));
        }
        Packing::Mxfp4 => {
            add("weight", bytes(Dtype::U32, &[rows, cols / 8], rng));
            add("scales", bytes(Dtype::U8, &[rows, cols / 32], rng));
        }
        Packing::Fp8 => {
            add("weight", bytes(Dtype::F8_E4M3, &[rows, cols], rng));
            add("weight_scale", plain(Dtype::BF16, &[rows, 1], rng));
        }
        Packing::Nvfp4 => {
            add("weight", bytes(Dtype::U8, &[rows, cols / 2], rng));
            add("weight_scale", bytes(Dtype::F8_E4M3, &[rows, cols / 16], rng));
            add("weight_scale_2", plain(Dtype::F32, &[1], rng));
        }
    }
}

/// Floats around zero as F32 or, cut, as BF16.
fn plain(dtype: Dtype, shape: &[usize], rng: &mut Rng) -> RawTensor {
    let values = rng.values(shape.iter().product(), 0.3);
    let kept = if dtype == Dtype::F32 { 0 } else { 2 };
    let data = values.iter().flat_map(|value| value.to_le_bytes()[kept..].to_vec()).collect();
    RawTensor { dtype, shape: shape.into(), data }
}

/// The GGUF file of a family, with matrices of type `kind` where their columns allow it.
pub fn gguf(family: &str, sizes: Sizes, kind: u32) -> GgufBuilder {
    let folder = crate::run::folder();
    let (config, weights) = self::folder(family, sizes, Packing::F32);
    write_folder(folder, &config, &weights);
    let mut file = hugging_face_to_gguf(folder);
    let mut rng = Rng(11);
    for tensor in file.tensors_mut() {
        let [.., rows, cols] = tensor.shape[..] else { continue };
        let stack: usize = tensor.shape[..tensor.shape.len() - 2].iter().product();
        let planes = Format::from_gguf_id(kind).and_then(|format| format.planes(stack * rows, cols).ok());
        if let (Some(planes), false) = (planes, tensor.name.contains("ffn_gate_inp")) {
            tensor.type_id = kind;
            tensor.data = (0..planes.iter().sum()).map(|_| rng.bits() as u8 & 0x3f).collect();
        }
    }
    file
}

fn write_folder(folder: &Path, config: &Value, weights: &[u8]) {
    crate::run::write(&folder.join("config.json"), config.to_string().as_bytes());
    crate::run::write(&folder.join("model.safetensors"), weights);
}
