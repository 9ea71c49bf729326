//! Configs that contradict themselves or the weights: one line that names the key or the tensor, never a panic.

use std::path::Path;

use kapitsa::{OpenOptions, open_engine};
use kapitsa_testkit::fixture;
use kapitsa_testkit::gguf::GgufBuilder;
use serde_json::{Value, json};

/// What opening `folder` says when its config has other values for some keys (`section.key` in a section).
fn message(folder: &Path, changes: &[(&str, Value)]) -> String {
    let text = std::fs::read_to_string(folder.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    for (key, value) in changes {
        match key.split_once('.') {
            Some((section, key)) => config[section][key] = value.clone(),
            None => config[key] = value.clone(),
        }
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
    check("qwen3_moe", &cases);
}

fn check(case: &str, cases: &[(&str, Value, &str)]) {
    let folder = fixture(&format!("oracle/models/{case}"));
    for (key, value, expected) in cases {
        let found = message(&folder, &[(key, value.clone())]);
        assert!(found.contains(expected), "{key} {value}: {found}");
        assert!(!found.contains('\n') && found.len() < 600, "{key} {value}: {found}");
    }
}

#[test]
fn numbers_of_recurrent_layers_experts_and_towers_name_their_keys() {
    let text = [
        ("text_config.linear_num_key_heads", json!(0), "is 0, expected 1 to 4096"),
        ("text_config.linear_num_key_heads", json!(3), "is 4, expected a multiple of 3 key heads"),
        ("text_config.linear_num_value_heads", json!(1), "is 1, expected 2 to 4096"),
        ("text_config.linear_key_head_dim", json!(5000), "is 5000, expected 1 to 4096"),
        ("text_config.linear_key_head_dim", json!(8), "linear_attn.in_proj_qkv.weight"),
        ("text_config.linear_conv_kernel_dim", json!(0), "is 0, expected 1 to 64"),
        ("text_config.linear_conv_kernel_dim", json!(5), "linear_attn.conv1d.weight"),
        ("text_config.layer_types", json!(["full_attention"]), "has 1 entries, expected 4, one for each layer"),
        ("text_config.layer_types", json!(vec!["linear_attention"; 4]), "tensor"),
        ("text_config.layer_types", json!(["full_attention", "x", "x", "x"]), "has `x`, expected full_attention"),
        ("text_config.rope_parameters", json!({"mrope_section": [1, 1]}), "expected three numbers"),
        (
            "text_config.rope_parameters",
            json!({"mrope_section": [4_294_967_295u64, 1, 1]}),
            "expected numbers that make 8",
        ),
        ("image_token_id", json!(null), "image_token_id"),
        ("vision_config.depth", json!(3), "visual.blocks.2."),
        ("vision_config.patch_size", json!(65536), "is 65536, expected 1 to 256"),
        ("vision_config.patch_size", json!(256), "visual.patch_embed.proj.weight"),
        ("vision_config.num_heads", json!(0), "is 0, expected 1 to"),
        ("vision_config.num_heads", json!(16), "expected heads of a multiple of 4 values out of 32"),
        ("vision_config.num_position_embeddings", json!(15), "is 15, expected a square"),
        ("vision_config.hidden_act", json!("relu"), "is `relu`, expected `gelu_pytorch_tanh`"),
    ];
    check("qwen3_5", &text);
    let nemotron = [
        ("mamba_num_heads", json!(0), "is 0, expected 1 to 4096"),
        ("n_groups", json!(3), "is 3, expected a divisor of 8 heads"),
        ("ssm_state_size", json!(1 << 20), "is 1048576, expected 1 to 4096"),
        ("ssm_state_size", json!(4096), "mixer.in_proj.weight"),
        ("conv_kernel", json!(0), "is 0, expected 1 to 64"),
        ("time_step_limit", json!([1.0]), "expected two numbers in order"),
        ("time_step_limit", json!([2.0, 1.0]), "expected two numbers in order"),
        ("layers_block_type", json!([]), "has 0 entries, expected 1 to 4096"),
        ("layers_block_type", json!(vec!["mlp"; 5000]), "has 5000 entries, expected 1 to 4096"),
        ("layers_block_type", json!(["rnn"]), "has `rnn`, expected mamba (M)"),
        ("layers_block_type", json!("ME"), "layers_block_type"),
        ("block_configs", json!([]), "has 0 entries, expected 1 to 4096"),
        ("block_configs", json!([{"block_type": "rnn"}]), "has `rnn`"),
        ("block_configs", json!([{}]), "block_type"),
        ("block_configs", json!([3]), "expected a list of objects"),
        ("n_group", json!(3), "is 3, expected a divisor of 16 experts"),
        ("n_group", json!(65), "is 65, expected 1 to 64"),
        ("topk_group", json!(5), "is 5, expected 1 to 4"),
        ("num_experts_per_tok", json!(9), "9 of them in 2 groups"),
        ("n_routed_experts", json!(0), "is 0, expected 1 to 65536"),
        ("moe_latent_size", json!(0), "mixer.experts.0.up_proj.weight"),
        ("mlp_hidden_act", json!("silu"), "is `silu`, expected `relu2`"),
    ];
    check("nemotron_h-latent", &nemotron);
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
