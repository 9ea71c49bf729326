//! Configs that contradict themselves or the weights: one line that names the key or the tensor, never a panic.

use std::path::Path;

use kapitsa::{OpenOptions, open_engine};
use kapitsa_testkit::fixture;
use kapitsa_testkit::gguf::GgufBuilder;
use serde_json::{Value, json};

/// What opening `folder` says when its config has other values for some keys.
fn message(folder: &Path, changes: &[(&str, Value)]) -> String {
    let text = std::fs::read_to_string(folder.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    for (key, value) in changes {
        config[key] = value.clone();
    }
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("config.json"), config.to_string()).unwrap();
    std::fs::copy(folder.join("model.safetensors"), temp.path().join("model.safetensors")).unwrap();
    match open_engine(temp.path(), &OpenOptions { threads: Some(1), ..OpenOptions::default() }) {
        Ok(_) => "opened".into(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_number_that_no_model_has_names_its_key() {
    let cases = [
        ("hidden_size", json!(0), "is 0, expected 1 to"),
        ("hidden_size", json!(1u64 << 40), "expected an integer from 0 to 4294967295"),
        ("num_hidden_layers", json!(0), "is 0, expected 1 to 4096"),
        ("num_hidden_layers", json!(4_000_000_000u64), "expected 1 to 4096"),
        ("num_attention_heads", json!(0), "is 0, expected 1 to"),
        ("num_attention_heads", json!(-4), "is -4, expected an integer"),
        ("num_attention_heads", json!(65), "num_key_value_heads"),
        ("num_attention_heads", json!(4_294_967_295u64), "expected 1 to"),
        ("num_key_value_heads", json!(0), "is 0, expected 1 to 4"),
        ("num_key_value_heads", json!(3), "is 3, expected a divisor of 4 heads"),
        ("num_key_value_heads", json!(8), "is 8, expected 1 to 4"),
        ("head_dim", json!(0), "is 0, expected 1 to"),
        ("head_dim", json!(4_294_967_295u64), "expected 1 to"),
        ("head_dim", json!(31), "tensor `model.layers.0.self_attn.q_proj.weight`"),
        ("vocab_size", json!(0), "is 0, expected 1 to"),
        ("vocab_size", json!(257), "tensor `model.embed_tokens.weight`: has shape [256, 64]"),
        ("vocab_size", json!(255), "tensor `model.embed_tokens.weight`: has shape [256, 64]"),
        ("intermediate_size", json!(0), "tensor `model.layers.1.mlp.gate_proj.weight`"),
        ("moe_intermediate_size", json!(0), "tensor `model.layers.0.mlp.experts.0.gate_proj.weight`"),
        ("max_position_embeddings", json!(0), "is 0, expected 1 to"),
        ("num_experts", json!(0), "is 0, expected 1 to"),
        ("num_experts", json!(1_000_000_000), "expected 1 to 65536"),
        ("num_experts", json!(65536), "tensor `model.layers.0.mlp.gate.weight`"),
        ("num_experts_per_tok", json!(0), "is 0, expected 1 to 8"),
        ("num_experts_per_tok", json!(9), "is 9, expected 1 to 8"),
        ("decoder_sparse_step", json!(0), "is 0, expected 1 to"),
        ("rope_theta", json!(0), "is 0, expected more than 1"),
        ("rope_theta", json!(-10000.0), "expected more than 1"),
        ("rope_theta", json!(1e60), "rope_theta"),
        ("partial_rotary_factor", json!(0.0), "of which 0 rotate"),
        ("partial_rotary_factor", json!(1.5), "of which 48 rotate"),
        ("partial_rotary_factor", json!(-1), "of which 0 rotate"),
        ("partial_rotary_factor", json!(0.03125), "of which 1 rotate; expected an even number"),
        ("rope_scaling", json!({"rope_type": "linear"}), "factor"),
        ("rope_scaling", json!({"rope_type": "linear", "factor": 0}), "is 0, expected a positive number"),
        ("rope_scaling", json!({"rope_type": "yarn", "factor": -4}), "is -4, expected a positive number"),
        ("rope_scaling", json!({"rope_type": "spiral", "factor": 4}), "is `spiral`, expected default"),
        ("rms_norm_eps", json!("tiny"), "rms_norm_eps"),
        ("hidden_act", json!("gelu"), "is `gelu`, expected `silu`"),
        ("model_type", json!("mamba"), "not supported: architecture `mamba`"),
        ("model_type", json!(null), "not supported: architecture"),
    ];
    let folder = fixture("oracle/models/qwen3_moe");
    for (key, value, expected) in cases {
        let found = message(&folder, &[(key, value.clone())]);
        assert!(found.contains(expected), "{key} {value}: {found}");
        assert!(!found.contains('\n') && found.len() < 600, "{key} {value}: {found}");
    }
}

/// Every layer used to look through the whole list: millions of entries took minutes.
#[test]
fn a_list_of_layer_types_that_is_too_long_is_refused_at_once() {
    let kinds = vec!["sliding_attention"; 4];
    let changes = [("use_sliding_window", json!(true)), ("sliding_window", json!(8)), ("layer_types", json!(kinds))];
    let found = message(&fixture("oracle/models/qwen2"), &changes);
    assert!(found.contains("key `layer_types`: has 4 entries, expected 3, one for each layer"), "{found}");
}

/// Ten megabytes of experts of one input each, all of them chosen: a prompt took gigabytes.
#[test]
fn a_small_file_that_needs_much_memory_for_a_token_is_refused() {
    let (experts, inner) = (1024, 2048);
    let key = |name: &str| format!("qwen3moe.{name}");
    let mut file = GgufBuilder::new("qwen3moe").set(&key("attention.layer_norm_rms_epsilon"), 1e-6f32);
    for (name, value) in [
        ("block_count", 1),
        ("embedding_length", 1),
        ("attention.head_count", 1),
        ("attention.key_length", 2),
        ("expert_count", experts),
        ("expert_used_count", experts),
        ("expert_feed_forward_length", inner),
    ] {
        file = file.set(&key(name), value);
    }
    let mut add = |name: &str, type_id: u32, shape: &[u32]| {
        let shape: Vec<usize> = shape.iter().map(|&size| size as usize).collect();
        let bytes = shape.iter().product::<usize>() * if type_id == 0 { 4 } else { 2 };
        file = file.clone().tensor(name, &shape, type_id, vec![0; bytes]);
    };
    add("token_embd.weight", 0, &[8, 1]);
    add("output_norm.weight", 0, &[1]);
    for (name, shape) in [
        ("attn_norm", &[1][..]),
        ("ffn_norm", &[1]),
        ("attn_q", &[2, 1]),
        ("attn_k", &[2, 1]),
        ("attn_v", &[2, 1]),
        ("attn_output", &[1, 2]),
        ("attn_q_norm", &[2]),
        ("attn_k_norm", &[2]),
        ("ffn_gate_inp", &[experts, 1]),
    ] {
        add(&format!("blk.0.{name}.weight"), 0, shape);
    }
    add("blk.0.ffn_gate_exps.weight", 1, &[experts, inner, 1]);
    add("blk.0.ffn_up_exps.weight", 1, &[experts, inner, 1]);
    add("blk.0.ffn_down_exps.weight", 1, &[experts, 1, inner]);
    let temp = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    file.write(temp.path());
    let error = open_engine(temp.path(), &OpenOptions::default()).err().expect("too much memory").to_string();
    assert!(error.contains("working values for each token, expected at most 4194304"), "{error}");
}

/// They used to be quoted whole: a file could fill the screen.
#[test]
fn long_values_are_cut_in_messages() {
    let long = "x".repeat(100_000);
    let folder = fixture("oracle/models/llama");
    for (key, value) in [
        ("model_type", json!(long)),
        ("hidden_act", json!(long)),
        ("rope_scaling", json!({ "rope_type": long, "factor": 2.0 })),
    ] {
        let found = message(&folder, &[(key, value)]);
        assert!(found.contains("xxx...") && found.len() < 600, "{key}: {found}");
    }
}
