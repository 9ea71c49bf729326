//! Every quantised form that checkpoints have, written with the oracle's vectors and loaded by name.

use std::fs;

use kapitsa_tensor::Weight;
use kapitsa_testkit::Tensors;
use kapitsa_testkit::fixtures::{RawTensor, safetensors_raw_file};
use kapitsa_testkit::gguf::GgufBuilder;
use kapitsa_weights::{Checkpoint, Container};
use safetensors::Dtype;

fn open(config: &str, tensors: &[(String, RawTensor)]) -> Checkpoint {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("config.json"), config).unwrap();
    fs::write(temp.path().join("model.safetensors"), safetensors_raw_file(tensors)).unwrap();
    // The map keeps the file's contents after the folder is removed.
    Checkpoint::open(temp.path()).unwrap()
}

/// `tensors` under other names.
fn renamed(file: &Tensors, names: &[(&str, &str)]) -> Vec<(String, RawTensor)> {
    names.iter().map(|(from, to)| (to.to_string(), file.raw(from))).collect()
}

#[track_caller]
fn assert_values(weight: &Weight, expected: &[f32]) {
    let cols = weight.cols();
    assert_eq!(weight.rows() * cols, expected.len());
    for (row, expected) in expected.chunks(cols).enumerate() {
        let mut found = vec![0.0; cols];
        weight.dequantize(row, &mut found);
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= 1e-6 * expected.abs(), "{weight:?} row {row}: {found} {expected}");
        }
    }
}

#[test]
fn mlx_affine() {
    let file = Tensors::fixture("oracle/quant/mlx_affine.safetensors");
    for bits in [2, 3, 4, 5, 6, 8] {
        for group in [32, 64, 128] {
            let key = |name: &str| format!("b{bits}.g{group}.{name}");
            let tensors = ["weight", "scales", "biases"].map(|name| (format!("m.{name}"), file.raw(&key(name))));
            let config = format!(r#"{{"quantization":{{"bits":{bits},"group_size":{group}}}}}"#);
            let checkpoint = open(&config, &tensors);
            assert_eq!(checkpoint.container(), Container::MlxPack);
            assert_values(&checkpoint.weights().matrix("m", 8, 256).unwrap(), &file.f32(&key("dequant")));
            assert!(checkpoint.unused().is_empty());
            let error = checkpoint.weights().matrix("m", 8, 128).unwrap_err().to_string();
            assert!(error.contains("tensor `m.weight`: has shape") && error.contains("by config.json"), "{error}");
        }
    }
    // Settings that do not fit the file are found by its shapes.
    let tensors = ["weight", "scales", "biases"].map(|name| (format!("m.{name}"), file.raw(&format!("b4.g64.{name}"))));
    for settings in
        [r#""bits":8,"group_size":64"#, r#""bits":4,"group_size":32"#, r#""bits":4,"group_size":64,"mode":"mxfp4""#]
    {
        let checkpoint = open(&format!(r#"{{"quantization":{{{settings}}}}}"#), &tensors);
        let error = checkpoint.weights().matrix("m", 8, 256).unwrap_err().to_string();
        assert!(error.contains("model.safetensors: tensor `m."), "{error}");
    }
    // Biases missing, or of another type.
    let checkpoint = open(r#"{"quantization":{"bits":4,"group_size":64}}"#, &tensors[..2]);
    assert!(checkpoint.weights().matrix("m", 8, 256).unwrap_err().to_string().contains("no companion `biases`"));
}

#[test]
fn mlx_floating_point_modes_and_overrides() {
    let file = Tensors::fixture("oracle/quant/mlx_fp.safetensors");
    let names = ["mxfp4", "mxfp8", "nvfp4"]
        .into_iter()
        .flat_map(|mode| ["weight", "scales"].map(|name| format!("{mode}.{name}")));
    let mut tensors: Vec<_> = names.map(|name| (name.clone(), file.raw(&name))).collect();
    tensors.extend(renamed(
        &file,
        &[
            ("nvfp4_global.weight", "global.weight"),
            ("nvfp4_global.scales", "global.scales"),
            ("nvfp4_global.global_scale", "global.global_scale"),
            ("w", "plain.weight"),
        ],
    ));
    let config = r#"{"quantization":{"bits":4,"group_size":32,"mode":"mxfp4","mxfp8":{"bits":8,"group_size":32,"mode":"mxfp8"},
        "nvfp4":{"mode":"nvfp4","group_size":16,"bits":4},"global":{"mode":"nvfp4"},"plain":false}}"#;
    let checkpoint = open(config, &tensors);
    for (module, key) in [("mxfp4", "mxfp4"), ("mxfp8", "mxfp8"), ("nvfp4", "nvfp4"), ("global", "nvfp4_global")] {
        assert_values(&checkpoint.weights().matrix(module, 8, 256).unwrap(), &file.f32(&format!("{key}.dequant")));
    }
    assert_values(&checkpoint.weights().matrix("plain", 8, 256).unwrap(), &file.f32("w"));
    assert!(checkpoint.unused().is_empty());
}

#[test]
fn fp8_and_nvfp4_of_other_tools() {
    let fp8 = Tensors::fixture("oracle/quant/fp8.safetensors");
    let nvfp4 = Tensors::fixture("oracle/quant/nvfp4.safetensors");
    let mut tensors = renamed(
        &fp8,
        &[
            ("tensor.weight", "t.weight"),
            ("tensor.weight_scale", "t.weight_scale"),
            ("tensor.input_scale", "t.input_scale"),
            ("channel.weight", "c.weight"),
            ("channel.weight_scale", "c.weight_scale"),
            ("block128.weight", "b.weight"),
            ("block128.weight_scale_inv", "b.weight_scale_inv"),
        ],
    );
    tensors.extend(renamed(
        &nvfp4,
        &[
            ("modelopt.weight", "m.weight"),
            ("modelopt.weight_scale", "m.weight_scale"),
            ("modelopt.weight_scale_2", "m.weight_scale_2"),
            ("modelopt.input_scale", "m.input_scale"),
            ("compressed.weight_packed", "p.weight_packed"),
            ("compressed.weight_scale", "p.weight_scale"),
            ("compressed.weight_global_scale", "p.weight_global_scale"),
            ("compressed.input_global_scale", "p.input_global_scale"),
        ],
    ));
    let checkpoint = open(r#"{"quantization_config":{"quant_method":"modelopt"}}"#, &tensors);
    assert_eq!(checkpoint.container(), Container::HuggingFace);
    let root = checkpoint.weights();
    for (module, key) in [("t", "tensor"), ("c", "channel"), ("b", "block128")] {
        assert_values(&root.matrix(module, 160, 200).unwrap(), &fp8.f32(&format!("{key}.dequant")));
    }
    for module in ["m", "p"] {
        assert!(root.has(&format!("{module}.weight")));
        assert_values(&root.matrix(module, 8, 128).unwrap(), &nvfp4.f32("dequant"));
    }
    assert_eq!(checkpoint.unused(), Vec::<String>::new());

    let wrong = renamed(&fp8, &[("tensor.weight", "t.weight"), ("block128.weight_scale_inv", "t.weight_scale")]);
    let (name, mut scales) = wrong[1].clone();
    scales.shape = vec![4, 1];
    let checkpoint = open("{}", &[wrong[0].clone(), (name, scales)]);
    let error = checkpoint.weights().matrix("t", 160, 200).unwrap_err().to_string();
    assert!(error.contains("tensor `t.weight_scale`: has shape [4, 1], expected one scale"), "{error}");
}

#[test]
fn gguf_block_types() {
    let file = Tensors::fixture("oracle/quant/gguf.safetensors");
    let types = [("Q4_0", 2), ("Q8_0", 8), ("Q4_K", 12), ("Q6_K", 14), ("IQ4_XS", 23), ("MXFP4", 39), ("Q1_0", 41)];
    for (name, id) in types {
        let blocks = file.raw(&format!("{name}.blocks"));
        let expected = file.f32(&format!("{name}.expected"));
        let (rows, cols) = (2, expected.len() / 2);
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("m.gguf");
        GgufBuilder::new("x").tensor("m.weight", &[rows, cols], id, blocks.data).write(&path);
        let weight = Checkpoint::open(&path).unwrap().weights().matrix("m", rows, cols).unwrap();
        assert_eq!(weight.format().to_string(), name);
        assert_values(&weight, &expected);

        // Written again from the weight, it is the same file.
        let again = temp.path().join("again.gguf");
        GgufBuilder::new("x").weight("m.weight", &weight).write(&again);
        assert_eq!(fs::read(&path).unwrap(), fs::read(&again).unwrap());
    }
}

/// The forms of experts in a checkpoint of 3 experts, 2 inner and 4 hidden columns; values tell expert, part and place.
#[test]
fn experts_in_every_form() {
    let (count, inner, hidden) = (3, 2, 4);
    let value = |part: usize, expert: usize, at: usize| (100 * part + 10 * expert + at) as f32;
    let matrix =
        |part: usize, expert: usize| (0..inner * hidden).map(|at| value(part, expert, at)).collect::<Vec<f32>>();
    let raw = |shape: Vec<usize>, values: Vec<f32>| RawTensor {
        dtype: Dtype::F32,
        shape,
        data: values.iter().flat_map(|value| value.to_le_bytes()).collect(),
    };
    let parts = [("gate_proj", inner, hidden), ("up_proj", inner, hidden), ("down_proj", hidden, inner)];
    let single = parts.iter().enumerate().flat_map(|(part, &(name, rows, cols))| {
        (0..count).map(move |expert| {
            (format!("mlp.experts.{expert}.{name}.weight"), raw(vec![rows, cols], matrix(part, expert)))
        })
    });
    let stack = |part: usize| (0..count).flat_map(|expert| matrix(part, expert)).collect::<Vec<f32>>();
    let stacked = |pattern: &str| {
        let named = |(part, &(name, rows, cols)): (usize, &(&str, usize, usize))| {
            (pattern.replace("NAME", name), raw(vec![count, rows, cols], stack(part)))
        };
        parts.iter().enumerate().map(named).collect::<Vec<_>>()
    };
    let fused = |pattern: &str| {
        let both = (0..count).flat_map(|expert| [matrix(0, expert), matrix(1, expert)].concat()).collect();
        vec![
            (pattern.replace("NAME", "gate_up_proj"), raw(vec![count, 2 * inner, hidden], both)),
            (pattern.replace("NAME", "down_proj"), raw(vec![count, hidden, inner], stack(2))),
        ]
    };
    // Nemotron-H, which has no gates.
    let numbered = stacked("mlp.switch_mlp.NAME.weight").into_iter();
    let numbered = numbered.map(|(name, raw)| (name.replace("up_proj", "fc1").replace("down_proj", "fc2"), raw));
    let forms = [
        single.collect(),
        numbered.collect(),
        stacked("mlp.experts.NAME.weight"),
        stacked("mlp.experts.NAME"),
        stacked("mlp.switch_mlp.NAME.weight"),
        fused("mlp.experts.NAME"),
        fused("mlp.experts.NAME.weight"),
        fused("mlp.switch_mlp.NAME.weight"),
    ];
    for tensors in forms {
        let form = tensors[0].0.clone();
        let checkpoint = open("{}", &tensors);
        let mlp = checkpoint.weights().at("mlp");
        for (part, &(name, rows, cols)) in parts.iter().enumerate() {
            let experts = mlp.experts(name, count, rows, cols).unwrap_or_else(|error| panic!("{form}: {error}"));
            assert_eq!(experts.len(), count);
            for (expert, weight) in experts.iter().enumerate() {
                assert_values(weight, &matrix(part, expert));
            }
            assert!(mlp.experts(name, count + 1, rows, cols).is_err(), "{form} {name}");
            assert!(mlp.experts(name, count, rows + 1, cols).is_err(), "{form} {name}");
            assert!(mlp.experts(name, usize::MAX, rows, cols).is_err(), "{form} {name}");
            assert!(mlp.experts(name, count, usize::MAX, cols).is_err(), "{form} {name}");
        }
        assert!(checkpoint.unused().is_empty(), "{form}");
    }
}

#[test]
fn unused_tensors_are_listed_and_derived_ones_are_not() {
    let raw = || RawTensor { dtype: Dtype::F32, shape: vec![1], data: vec![0; 4] };
    let names = [
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.rotary_emb.cos_cached",
        "lm_head.weight",
        "mtp.norm.weight",
        "model.norm.weight",
    ];
    let tensors: Vec<_> = names.iter().map(|name| (name.to_string(), raw())).collect();
    let tied = open(r#"{"tie_word_embeddings":true}"#, &tensors);
    assert_eq!(tied.weights().vector("model.norm.weight", 1).unwrap(), [0.0]);
    assert_eq!(tied.unused(), ["mtp.norm.weight"]);
    // Looking whether a tensor is there is not using it.
    let untied = open("{}", &tensors);
    assert!(untied.weights().has("lm_head.weight") && !untied.weights().at("lm_head").has("bias"));
    assert_eq!(untied.unused(), ["lm_head.weight", "model.norm.weight", "mtp.norm.weight"]);
}
