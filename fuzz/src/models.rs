//! Models of one layer and a few kilobytes, in every container and family: what corpora start from.

use std::path::Path;

use kapitsa_tensor::Format;
use kapitsa_testkit::convert::hugging_face_to_gguf;
use kapitsa_testkit::fixtures::{RawTensor, safetensors_raw_file};
use kapitsa_testkit::gguf::GgufBuilder;
use kapitsa_testkit::random::Rng;
use safetensors::Dtype;
use serde_json::{Value, json};

/// The families that can be loaded.
pub const FAMILIES: &[&str] = &["llama", "qwen2", "qwen3", "qwen3_moe"];

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
    if family == "qwen3_moe" {
        let experts = json!({"num_experts": EXPERTS, "num_experts_per_tok": 2, "moe_intermediate_size": sizes.inner,
            "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": []});
        config.as_object_mut().expect("an object").extend(experts.as_object().expect("an object").clone());
    }
    config
}

/// Names and shapes of a model's matrices and vectors.
fn shapes(family: &str, sizes: Sizes) -> Vec<(String, Vec<usize>)> {
    let Sizes { hidden, inner, vocab, heads } = sizes;
    let (q, kv) = (heads * HEAD_DIM, heads / 2 * HEAD_DIM);
    let layer = |name: &str| format!("model.layers.0.{name}");
    let mut shapes = vec![
        ("model.embed_tokens.weight".to_string(), vec![vocab, hidden]),
        ("model.norm.weight".to_string(), vec![hidden]),
        (layer("input_layernorm.weight"), vec![hidden]),
        (layer("post_attention_layernorm.weight"), vec![hidden]),
        (layer("self_attn.q_proj.weight"), vec![q, hidden]),
        (layer("self_attn.k_proj.weight"), vec![kv, hidden]),
        (layer("self_attn.v_proj.weight"), vec![kv, hidden]),
        (layer("self_attn.o_proj.weight"), vec![hidden, q]),
    ];
    if family == "qwen2" {
        for (name, len) in [("q", q), ("k", kv), ("v", kv)] {
            shapes.push((layer(&format!("self_attn.{name}_proj.bias")), vec![len]));
        }
    }
    if family.starts_with("qwen3") {
        for name in ["q", "k"] {
            shapes.push((layer(&format!("self_attn.{name}_norm.weight")), vec![HEAD_DIM]));
        }
    }
    let mlps: Vec<String> = match family {
        "qwen3_moe" => {
            shapes.push((layer("mlp.gate.weight"), vec![EXPERTS, hidden]));
            (0..EXPERTS).map(|expert| format!("mlp.experts.{expert}")).collect()
        }
        _ => vec!["mlp".into()],
    };
    for mlp in mlps {
        shapes.push((layer(&format!("{mlp}.gate_proj.weight")), vec![inner, hidden]));
        shapes.push((layer(&format!("{mlp}.up_proj.weight")), vec![inner, hidden]));
        shapes.push((layer(&format!("{mlp}.down_proj.weight")), vec![hidden, inner]));
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
            [rows, cols] if !name.contains("mlp.gate.") && !name.contains("embed") => {
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
