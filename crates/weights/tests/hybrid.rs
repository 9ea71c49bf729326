//! The oracle's Qwen3.5 and Nemotron-H: one spelling for all their containers, and values as each container has them.

use kapitsa_testkit::convert::hugging_face_to_gguf;
use kapitsa_testkit::fixture;
use kapitsa_testkit::fixtures::safetensors_file;
use kapitsa_weights::{Checkpoint, Container, Weights};

const CASES: &[&str] = &["qwen3_5", "qwen3_5-text", "qwen3_5_moe", "qwen3_5_moe-fused"];

fn original(case: &str) -> Checkpoint {
    Checkpoint::open(&fixture(&format!("oracle/models/{case}"))).unwrap()
}

fn converted(case: &str) -> Checkpoint {
    let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    hugging_face_to_gguf(&fixture(&format!("oracle/models/{case}"))).write(file.path());
    Checkpoint::open(file.path()).unwrap()
}

fn names(checkpoint: &Checkpoint) -> Vec<&str> {
    checkpoint.tensors().map(|tensor| tensor.name).collect()
}

/// A tensor of a plain type, whatever its shape.
fn values(weights: &Weights, name: &str) -> Vec<f32> {
    weights.tensor(name, weights.shape(name).unwrap_or_else(|| panic!("{name}"))).unwrap()
}

/// Of a tensor whose rows (or columns) are `skip` others and then value heads: each row's place in a converted file.
fn tiled_place(row: usize, skip: usize, heads: usize, key_heads: usize, head_dim: usize) -> usize {
    let Some(row) = row.checked_sub(skip) else { return row };
    let (head, within) = (row / head_dim, row % head_dim);
    let (key, index) = (head / (heads / key_heads), head % (heads / key_heads));
    skip + (index * key_heads + key) * head_dim + within
}

/// Every tensor of the language model and the prediction head is in the converted file, with the values that the public
/// converter gives it.
#[test]
fn gguf_and_hugging_face_hold_the_same_model() {
    for case in CASES {
        let (original, converted) = (original(case), converted(case));
        let (left, right) = (original.weights(), converted.weights());
        let config = converted.config();
        let number = |key: &str| config.usize(key).unwrap();
        let (key_heads, heads) = (number("linear_num_key_heads"), number("linear_num_value_heads"));
        let (keys, head_dim) = (2 * key_heads * number("linear_key_head_dim"), number("linear_value_head_dim"));
        for name in names(&original) {
            // Experts are compared below.
            if name.starts_with("visual.") || name.contains(".experts.") {
                continue;
            }
            let expected = values(&left, name);
            let found = values(&right, name);
            assert_eq!(found.len(), expected.len(), "{case} {name}");
            let rows = left.shape(name).unwrap()[0];
            let cols = expected.len() / rows;
            let place = |row, skip, head_dim| tiled_place(row, skip, heads, key_heads, head_dim);
            for (at, &value) in expected.iter().enumerate() {
                let (row, col) = (at / cols, at % cols);
                let (row, col) = match name.split_once("linear_attn.").unwrap_or_default().1 {
                    "in_proj_qkv.weight" | "conv1d.weight" => (place(row, keys, head_dim), col),
                    "in_proj_z.weight" => (place(row, 0, head_dim), col),
                    "in_proj_a.weight" | "in_proj_b.weight" | "A_log" | "dt_bias" => (place(row, 0, 1), col),
                    "out_proj.weight" => (row, place(col, 0, head_dim)),
                    _ => (row, col),
                };
                let value = if name.ends_with("A_log") {
                    -value.exp()
                } else if name.contains("norm") && !name.contains("linear_attn") {
                    1.0 + value
                } else {
                    value
                };
                assert_eq!(found[row * cols + col], value, "{case} {name} {at}");
            }
        }
        for layer in names(&original).iter().filter_map(|name| name.strip_suffix(".mlp.gate.weight")) {
            let inner = number("moe_intermediate_size");
            for (name, rows, cols) in [("gate_proj", inner, 64), ("up_proj", inner, 64), ("down_proj", 64, inner)] {
                let [expected, found] = [&left, &right].map(|weights| {
                    weights.at(layer).at("mlp").experts(name, number("num_experts"), rows, cols).unwrap()
                });
                for (expected, found) in expected.iter().zip(&found) {
                    assert_eq!(expected.planes()[0], found.planes()[0], "{case} {layer} {name}");
                }
            }
        }
        left.ignore("visual.");
        assert_eq!(original.unused(), Vec::<String>::new(), "{case}");
        assert_eq!(converted.unused(), Vec::<String>::new(), "{case}");
    }
}

#[test]
fn configurations_agree() {
    for case in CASES {
        let (original, converted) = (original(case), converted(case));
        let (left, right) = (original.config(), converted.config());
        assert_eq!(left.architecture().trim_end_matches("_text"), right.architecture());
        for key in [
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "linear_num_key_heads",
            "linear_num_value_heads",
            "linear_key_head_dim",
            "linear_value_head_dim",
            "linear_conv_kernel_dim",
            "max_position_embeddings",
            "num_experts",
            "num_experts_per_tok",
            "moe_intermediate_size",
            "shared_expert_intermediate_size",
        ] {
            assert_eq!(left.opt_usize(key).unwrap(), right.opt_usize(key).unwrap(), "{case} {key}");
        }
        let tied = |config: &kapitsa_weights::Config| config.opt_bool("tie_word_embeddings").unwrap();
        assert_eq!(tied(left), tied(right), "{case}");
        assert_eq!(left.f32("rms_norm_eps").unwrap(), right.f32("rms_norm_eps").unwrap(), "{case}");
        let [left_rope, right_rope] = [left, right].map(|config| config.section("rope_parameters").unwrap().unwrap());
        for key in ["rope_theta", "partial_rotary_factor"] {
            assert_eq!(left_rope.f32(key).unwrap(), right_rope.f32(key).unwrap(), "{case} {key}");
        }
        assert_eq!(left_rope.usizes("mrope_section").unwrap(), right_rope.usizes("mrope_section").unwrap(), "{case}");
        assert!(right_rope.bool_or("mrope_interleaved", false).unwrap());
        let interval = right.usize("full_attention_interval").unwrap();
        let kinds = left.opt_strs("layer_types").unwrap().unwrap();
        for (layer, kind) in kinds.into_iter().enumerate() {
            assert_eq!(kind == "full_attention", (layer + 1) % interval == 0, "{case}");
        }
        let has_head = original.weights().has("mtp.fc.weight");
        assert_eq!(right.usize("mtp_num_hidden_layers").unwrap(), usize::from(has_head), "{case}");
    }
}

#[test]
fn an_mlx_pack_has_the_same_names_and_settings_under_its_own() {
    let pack = Checkpoint::open(&fixture("oracle/mlx-packs/qwen3_5")).unwrap();
    let weights = pack.weights();
    let format = |name: &str, rows, cols| weights.matrix(name, rows, cols).unwrap().format().to_string();
    assert_eq!(format("lm_head", 256, 64), "mlx-6bit-g64-bf16");
    assert_eq!(format("model.layers.0.mlp.down_proj", 64, 128), "mlx-8bit-g32-bf16");
    assert_eq!(format("model.layers.1.mlp.down_proj", 64, 128), "mlx-4bit-g64-bf16");
    assert_eq!(format("model.layers.1.linear_attn.in_proj_z", 64, 64), "mxfp4");
    assert_eq!(format("model.layers.3.self_attn.k_proj", 32, 64), "bf16");
    let original = original("qwen3_5");
    for name in names(&pack) {
        let module = name.strip_suffix(".scales").or(name.strip_suffix(".biases"));
        assert!(
            original.weights().has(&module.map_or(name.to_string(), |module| format!("{module}.weight"))),
            "{name}"
        );
    }
    // The file's own spelling is in messages.
    let error = weights.matrix("lm_head", 256, 128).unwrap_err().to_string();
    assert!(error.contains("tensor `language_model.lm_head.weight`: has shape"), "{error}");
    let error = weights.matrix("model.layers.9.mlp.up_proj", 1, 1).unwrap_err().to_string();
    let expected = "`language_model.model.layers.9.mlp.up_proj.weight (model.layers.9.mlp.up_proj.weight)`: is missing";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn convolutions_are_the_same_in_all_containers() {
    let pack = Checkpoint::open(&fixture("oracle/mlx-packs/qwen3_5")).unwrap();
    let (original, converted) = (original("qwen3_5"), converted("qwen3_5"));
    let conv =
        |checkpoint: &Checkpoint| checkpoint.weights().at("model.layers.0.linear_attn").conv("conv1d.weight", 128, 4);
    let expected = conv(&original).unwrap();
    assert_eq!(expected, values(&original.weights(), "model.layers.0.linear_attn.conv1d.weight"));
    assert_eq!(conv(&pack).unwrap(), expected);
    // Rows of queries and keys; those of values have another order.
    assert_eq!(conv(&converted).unwrap()[..64 * 4], expected[..64 * 4]);
    for checkpoint in [&original, &pack, &converted] {
        let weights = checkpoint.weights().at("model.layers.0.linear_attn");
        for (channels, taps) in [(4, 128), (128, 3), (usize::MAX, usize::MAX), (0, 0)] {
            assert!(weights.conv("conv1d.weight", channels, taps).is_err());
        }
    }
    let error = original.weights().conv("model.layers.0.linear_attn.conv1d.weight", 128, 3).unwrap_err().to_string();
    let expected = "`model.language_model.layers.0.linear_attn.conv1d.weight`: has shape [128, 1, 4] (BF16), expected \
                    [128, 3] or [128, 1, 3] or [128, 3, 1] by the configuration";
    assert!(error.contains(expected), "{error}");
    let patches = original.weights().tensor("visual.patch_embed.proj.weight", &[32, 3, 2, 4, 4]).unwrap();
    assert_eq!(patches.len(), 32 * 96);
    assert!(original.weights().tensor("visual.patch_embed.proj.weight", &[32, 96]).is_err());
}

#[test]
fn a_language_model_beside_others() {
    let omni = original("nemotron_h_omni");
    let root = omni.weights();
    assert_eq!(root.matrix("lm_head", 256, 64).unwrap().name(), "language_model.lm_head.weight");
    for (case, hidden, count) in [("nemotron_h", 64, 8), ("nemotron_h-latent", 32, 16), ("nemotron_h_omni", 64, 8)] {
        let checkpoint = original(case);
        assert_eq!(checkpoint.container(), Container::HuggingFace);
        let mixer = checkpoint.weights().at("backbone.layers.1.mixer");
        assert_eq!(mixer.experts("up_proj", count, 32, hidden).unwrap().len(), count);
        assert_eq!(mixer.experts("down_proj", count, hidden, 32).unwrap().len(), count);
        assert!(mixer.experts("gate_proj", count, 32, hidden).is_err());
    }
    root.ignore("backbone.");
    root.ignore("vision_model.");
    let rest = ["mlp1.0.weight", "mlp1.1.weight", "mlp1.3.weight"];
    assert_eq!(omni.unused(), rest);
    root.at("mlp1").ignore("1");
    assert_eq!(omni.unused(), [rest[0], rest[2]]);
    root.ignore("");
    assert!(omni.unused().is_empty());
}

#[test]
fn two_spellings_of_one_tensor_are_refused() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("config.json"), "{}").unwrap();
    let norm = |name| (name, vec![1], vec![1.0]);
    let file = safetensors_file(&[norm("model.norm.weight"), norm("model.language_model.norm.weight")]);
    std::fs::write(temp.path().join("model.safetensors"), file).unwrap();
    let error = Checkpoint::open(temp.path()).unwrap_err().to_string();
    for name in ["`model.norm.weight`", "`model.language_model.norm.weight`", "is also in", "expected each tensor once"]
    {
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn errors_have_the_names_of_the_file() {
    let checkpoint = converted("qwen3_5");
    for (name, expected) in [
        ("model.layers.0.linear_attn.A_log", "`blk.0.ssm_a`: has shape"),
        ("model.layers.3.linear_attn.A_log", "`blk.3.ssm_a (model.layers.3.linear_attn.A_log)`: is missing"),
        ("model.layers.0.linear_attn.dt_bias", "`blk.0.ssm_dt.bias`: has shape"),
        ("mtp.norm.weight", "`blk.4.nextn.shared_head_norm.weight`: has shape"),
        ("mtp.lm_head.weight", "`blk.4.nextn.shared_head_head.weight (mtp.lm_head.weight)`: is missing"),
        ("mtp.layers.0.self_attn.x.weight", "`mtp.layers.0.self_attn.x.weight`: is missing"),
    ] {
        let error = checkpoint.weights().vector(name, 1).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
