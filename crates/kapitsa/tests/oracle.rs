//! The tiny checkpoints of every family against the numbers of the reference implementation.

mod common;

use std::path::Path;

use common::{check_greedy, close, ids};
use kapitsa::{Engine, OpenOptions, open_engine};
use kapitsa_ops::Tap;
use kapitsa_testkit::fixtures::{RawTensor, safetensors_raw_file};
use kapitsa_testkit::{Tensors, convert, fixture};

/// The checkpoint of `case` as it is, with the tolerance that the oracle's notes demand.
fn check(case: &str, atol: f32) {
    let folder = fixture(&format!("oracle/{case}"));
    let expected = Tensors::open(folder.join("expected.safetensors"));
    check_engine(case, &open(&folder), &expected, atol);
}

/// As [`check`], and as the GGUF file that a converter would make of it.
fn check_with_gguf(case: &str, atol: f32) {
    check(case, atol);
    let folder = fixture(&format!("oracle/{case}"));
    let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    convert::hugging_face_to_gguf(&folder).write(file.path());
    let expected = Tensors::open(folder.join("expected.safetensors"));
    check_engine(&format!("{case} as GGUF"), &open(file.path()), &expected, atol);
}

fn open(path: &Path) -> Engine {
    open_engine(path, &OpenOptions { threads: Some(2), ..OpenOptions::default() }.exact()).unwrap()
}

/// What is compared beside logits, and how the reference calls it.
fn taps(layers: usize) -> Vec<(Tap, String)> {
    let layer = |n: usize| {
        [
            (Tap::Layer(n), format!("hidden.{n:02}")),
            (Tap::Mixer(n), format!("mixer.{n:02}")),
            (Tap::Mlp(n), format!("mlp.{n:02}")),
            (Tap::Router(n), format!("router.{n:02}.0.logits")),
            (Tap::Experts(n), format!("router.{n:02}.0.indices")),
            (Tap::ExpertWeights(n), format!("router.{n:02}.0.weights")),
        ]
    };
    let ends = [(Tap::Embedding, "hidden.embed".to_string()), (Tap::FinalNorm, "hidden.final".to_string())];
    ends.into_iter().chain((0..layers).flat_map(layer)).collect()
}

/// Every key of a prompt that the reference gives, and its continuation.
fn check_engine(case: &str, engine: &Engine, expected: &Tensors, atol: f32) {
    let names = taps(engine.model().layers);
    let wanted: Vec<Tap> = names.iter().map(|(tap, _)| *tap).collect();
    for sequence in ["seq0", "seq1", "seq2"].into_iter().filter(|name| expected.has(&format!("{name}.logits"))) {
        let prompt = ids(expected, &format!("{sequence}.input_ids"));
        let outputs = engine.logits(&prompt, &wanted).unwrap();
        let key = format!("{sequence}.logits");
        close(&format!("{case} {key}"), &outputs.logits, &expected.f32(&key), atol);
        let mut compared = 0;
        for (tap, name) in &names {
            let key = format!("{sequence}.{name}");
            if !expected.has(&key) {
                continue; // only the first sequence has the parts of its layers
            }
            let found = &outputs.taps.iter().find(|(of, _)| of == tap).unwrap_or_else(|| panic!("{case} {key}")).1;
            compared += 1;
            match tap {
                Tap::Experts(_) => {}
                Tap::ExpertWeights(layer) => {
                    let chosen = &outputs.taps.iter().find(|(of, _)| *of == Tap::Experts(*layer)).unwrap().1;
                    check_experts(&format!("{case} {key}"), chosen, found, expected, &key, atol);
                }
                _ => close(&format!("{case} {key}"), found, &expected.f32(&key), atol),
            }
        }
        // Of the third sequence there are logits only.
        let least = if sequence == "seq2" { 0 } else { engine.model().layers + 2 };
        assert!(compared >= least, "{case} {sequence}: only {compared} tensors compared");
        check_greedy(case, engine, (&prompt, vec![]), expected, sequence, atol);
    }
}

/// The chosen experts are the reference's, as sets, with the same weights.
fn check_experts(what: &str, chosen: &[f32], weights: &[f32], expected: &Tensors, key: &str, atol: f32) {
    let ids = ids(expected, &key.replace("weights", "indices"));
    let expected_weights = expected.f32(key);
    assert_eq!((ids.len(), weights.len()), (chosen.len(), chosen.len()), "{what}");
    let k = expected.shape(key)[1];
    for row in 0..ids.len() / k {
        let range = row * k..(row + 1) * k;
        let mut order: Vec<(u32, f32)> = range.clone().map(|i| (ids[i], expected_weights[i])).collect();
        order.sort_by_key(|choice| choice.0);
        let found: Vec<u32> = chosen[range.clone()].iter().map(|id| *id as u32).collect();
        assert_eq!(found, order.iter().map(|c| c.0).collect::<Vec<_>>(), "{what} row {row}");
        close(what, &weights[range], &order.iter().map(|c| c.1).collect::<Vec<_>>(), atol);
    }
}

/// Puzzle checkpoints describe each layer by itself.
#[test]
fn nemotron_h_with_settings_of_each_layer() {
    let folder = fixture("oracle/models/nemotron_h-latent");
    let text = std::fs::read_to_string(folder.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    let config = config.as_object_mut().unwrap();
    let kinds = config.remove("layers_block_type").unwrap();
    let moved: Vec<_> = ["moe_intermediate_size", "num_experts_per_tok", "n_routed_experts", "moe_latent_size"]
        .map(|key| (key, config.insert(key.into(), 3.into()).unwrap()))
        .into();
    let blocks = kinds.as_array().unwrap().iter().map(|kind| {
        let own = moved.iter().map(|(key, value)| (key.to_string(), value.clone()));
        own.chain([("block_type".to_string(), kind.clone())]).collect::<serde_json::Map<_, _>>().into()
    });
    let blocks: Vec<serde_json::Value> = blocks.collect();
    config.insert("block_configs".into(), blocks.into());
    config.insert("model_type".into(), "nemotron_h_puzzle".into());
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("config.json"), serde_json::to_string(&config).unwrap()).unwrap();
    std::fs::copy(folder.join("model.safetensors"), temp.path().join("model.safetensors")).unwrap();
    let expected = Tensors::open(folder.join("expected.safetensors"));
    check_engine("a puzzle", &open(temp.path()), &expected, 1e-4);
}

/// Packs have convolutions with the taps before a dimension of one, and experts in stacks with names of their own.
#[test]
fn nemotron_h_as_mlx_pack() {
    let folder = fixture("oracle/models/nemotron_h");
    let stored = Tensors::open(folder.join("model.safetensors"));
    let mut tensors: Vec<(String, RawTensor)> = vec![];
    for key in stored.keys() {
        let mut tensor = stored.raw(&key);
        if key.ends_with("conv1d.weight") {
            tensor.shape.swap(1, 2);
        }
        let Some((mixer, expert)) = key.split_once(".experts.") else {
            tensors.push((key, tensor));
            continue;
        };
        let (index, matrix) = expert.split_once('.').unwrap();
        if index == "0" {
            for other in 1.. {
                let next = format!("{mixer}.experts.{other}.{matrix}");
                if !stored.has(&next) {
                    tensor.shape.insert(0, other);
                    break;
                }
                tensor.data.extend(stored.raw(&next).data);
            }
            let name = if matrix == "up_proj.weight" { "fc1" } else { "fc2" };
            tensors.push((format!("{mixer}.switch_mlp.{name}.weight"), tensor));
        }
    }
    let text = std::fs::read_to_string(folder.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config["quantization"] = serde_json::json!({"group_size": 64, "bits": 4});
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("config.json"), config.to_string()).unwrap();
    std::fs::write(temp.path().join("model.safetensors"), safetensors_raw_file(&tensors)).unwrap();
    let expected = Tensors::open(folder.join("expected.safetensors"));
    check_engine("nemotron_h as an MLX pack", &open(temp.path()), &expected, 1e-4);
}

/// Some converters join queries, keys and values of attention layers.
#[test]
fn qwen3_5_as_gguf_with_joined_projections() {
    let folder = fixture("oracle/models/qwen3_5-text");
    let mut file = convert::hugging_face_to_gguf(&folder);
    let tensors = file.tensors_mut();
    let mut joined = 0;
    while let Some(at) = tensors.iter().position(|tensor| tensor.name.ends_with("attn_q.weight")) {
        let mut q = tensors.remove(at);
        for part in ["attn_k.weight", "attn_v.weight"] {
            let name = q.name.replace("attn_q.weight", part);
            let other = tensors.remove(tensors.iter().position(|tensor| tensor.name == name).unwrap());
            q.shape[0] += other.shape[0];
            q.data.extend(other.data);
        }
        q.name = q.name.replace("attn_q.", "attn_qkv.");
        tensors.push(q);
        joined += 1;
    }
    assert!(joined > 0);
    let temp = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    file.write(temp.path());
    let expected = Tensors::open(folder.join("expected.safetensors"));
    check_engine("joined projections", &open(temp.path()), &expected, 4e-4);
}

macro_rules! cases {
    ($($check:ident: $($name:ident $case:literal $atol:literal),*;)*) => {
        $($(#[test]
        fn $name() {
            $check($case, $atol);
        })*)*
    };
}

cases! {
    check_with_gguf:
        llama "models/llama" 1e-4,
        llama_with_tied_head_and_llama3_scaling "models/llama-tied" 1e-4,
        qwen2 "models/qwen2" 1e-4,
        qwen3 "models/qwen3" 1e-4,
        qwen3_with_yarn "models/qwen3-yarn" 1e-4,
        qwen3_moe "models/qwen3_moe" 1e-4,
        qwen3_5 "models/qwen3_5" 1e-3,
        qwen3_5_text "models/qwen3_5-text" 4e-4,
        qwen3_5_moe "models/qwen3_5_moe" 1e-3,
        qwen3_5_moe_fused "models/qwen3_5_moe-fused" 1e-3;
    check:
        qwen3_moe_as_mlx_pack "mlx-packs/qwen3_moe" 1e-4,
        qwen3_5_as_mlx_pack "mlx-packs/qwen3_5" 1e-3,
        nemotron_h "models/nemotron_h" 1e-4,
        nemotron_h_with_latent_experts "models/nemotron_h-latent" 1e-4,
        nemotron_h_in_a_checkpoint_of_several_models "models/nemotron_h_omni" 1e-4;
}
