//! The tiny checkpoints of the oracle, as they are and converted to GGUF, read the same.

use kapitsa_tensor::{Format, Weight};
use kapitsa_testkit::convert::hugging_face_to_gguf;
use kapitsa_testkit::gguf::GgufBuilder;
use kapitsa_testkit::{Tensors, fixture};
use kapitsa_weights::{Checkpoint, Config, Container, LoadError, TokenizerFiles, Weights};

const CASES: &[&str] = &["llama", "llama-tied", "qwen2", "qwen3", "qwen3-yarn", "qwen3_moe"];

fn folder(case: &str) -> std::path::PathBuf {
    fixture(&format!("oracle/models/{case}"))
}

type Rows = Vec<Vec<f32>>;

/// All rows of a weight.
fn values(weight: &Weight) -> Rows {
    (0..weight.rows())
        .map(|row| {
            let mut out = vec![0.0; weight.cols()];
            weight.dequantize(row, &mut out);
            out
        })
        .collect()
}

/// Every matrix and vector of a model, asked for as a model file does: name and values.
fn load_all(checkpoint: &Checkpoint) -> Result<Vec<(String, Rows)>, LoadError> {
    let config = checkpoint.config();
    let root = checkpoint.weights();
    let hidden = config.usize("hidden_size")?;
    let heads = config.bounded("num_attention_heads", 1..=1024)?;
    let kv_heads = config.usize_or("num_key_value_heads", heads)?;
    let head_dim = config.usize_or("head_dim", hidden / heads)?;
    let vocab = config.usize("vocab_size")?;
    let mut all = Vec::new();

    fn matrix(
        all: &mut Vec<(String, Rows)>,
        w: &Weights,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<(), LoadError> {
        all.push((name.into(), values(&w.matrix(name, rows, cols)?)));
        if w.has(&format!("{name}.bias")) {
            all.push((format!("{name}.bias"), vec![w.vector(&format!("{name}.bias"), rows)?]));
        }
        Ok(())
    }
    matrix(&mut all, &root.at("model"), "embed_tokens", vocab, hidden)?;
    all.push(("norm".into(), vec![root.vector("model.norm.weight", hidden)?]));
    if !config.bool_or("tie_word_embeddings", false)? {
        matrix(&mut all, &root, "lm_head", vocab, hidden)?;
    }
    for index in 0..config.bounded("num_hidden_layers", 1..=1024)? {
        let layer = root.at("model.layers").at(&index.to_string());
        for norm in ["input_layernorm.weight", "post_attention_layernorm.weight"] {
            all.push((norm.into(), vec![layer.vector(norm, hidden)?]));
        }
        let attention = layer.at("self_attn");
        for (name, rows, cols) in [
            ("q_proj", heads * head_dim, hidden),
            ("k_proj", kv_heads * head_dim, hidden),
            ("v_proj", kv_heads * head_dim, hidden),
            ("o_proj", hidden, heads * head_dim),
        ] {
            matrix(&mut all, &attention, name, rows, cols)?;
        }
        for norm in ["q_norm.weight", "k_norm.weight"] {
            if attention.has(norm) {
                all.push((norm.into(), vec![attention.vector(norm, head_dim)?]));
            }
        }
        let mlp = layer.at("mlp");
        if mlp.has("gate.weight") {
            let (experts, inner) = (config.usize("num_experts")?, config.usize("moe_intermediate_size")?);
            matrix(&mut all, &mlp, "gate", experts, hidden)?;
            for (name, rows, cols) in
                [("gate_proj", inner, hidden), ("up_proj", inner, hidden), ("down_proj", hidden, inner)]
            {
                for (expert, weight) in mlp.experts(name, experts, rows, cols)?.iter().enumerate() {
                    all.push((format!("{name} {expert}"), values(weight)));
                }
            }
        } else {
            let inner = config.usize("intermediate_size")?;
            for (name, rows, cols) in
                [("gate_proj", inner, hidden), ("up_proj", inner, hidden), ("down_proj", hidden, inner)]
            {
                matrix(&mut all, &mlp, name, rows, cols)?;
            }
        }
    }
    Ok(all)
}

/// Rows of q and k as GGUF has them for llama: neighbours rotate together.
fn permute(rows: &[Vec<f32>], head_dim: usize) -> Rows {
    let half = head_dim / 2;
    let source = |row: usize| {
        let (head, at) = (row / head_dim, row % head_dim);
        head * head_dim + at / 2 + if at % 2 == 1 { half } else { 0 }
    };
    (0..rows.len()).map(|row| rows[source(row)].clone()).collect()
}

#[test]
fn gguf_and_hugging_face_hold_the_same_model() {
    let temp = tempfile::tempdir().unwrap();
    for case in CASES {
        let original = Checkpoint::open(&folder(case)).unwrap();
        let path = temp.path().join(format!("{case}.gguf"));
        hugging_face_to_gguf(&folder(case)).write(&path);
        let converted = Checkpoint::open(&path).unwrap();
        assert_eq!(original.container(), Container::HuggingFace);
        assert_eq!(converted.container(), Container::Gguf);

        let (expected, found) = (load_all(&original).unwrap(), load_all(&converted).unwrap());
        assert_eq!(expected.len(), found.len());
        let head_dim = converted.config().usize("head_dim").unwrap();
        for ((name, expected), (found_name, found)) in expected.into_iter().zip(found) {
            assert_eq!(name, found_name);
            let permuted = case.starts_with("llama") && matches!(&name[..], "q_proj" | "k_proj");
            assert_eq!(if permuted { permute(&expected, head_dim) } else { expected }, found, "{case} {name}");
        }
        assert_eq!(original.unused(), Vec::<String>::new(), "{case}");
        let rope_freqs = if *case == "llama-tied" { vec!["rope_freqs.weight"] } else { vec![] };
        assert_eq!(converted.unused(), rope_freqs, "{case}");
        assert!(original.file_bytes() > 100_000 && converted.file_bytes() > 100_000);
    }
}

#[test]
fn configurations_agree() {
    let temp = tempfile::tempdir().unwrap();
    for case in CASES {
        let original = Checkpoint::open(&folder(case)).unwrap();
        let path = temp.path().join(format!("{case}.gguf"));
        hugging_face_to_gguf(&folder(case)).write(&path);
        let converted = Checkpoint::open(&path).unwrap();
        let (left, right) = (original.config(), converted.config());
        assert_eq!(left.architecture(), right.architecture());
        let integers = [
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "max_position_embeddings",
            "num_experts",
            "num_experts_per_tok",
            "moe_intermediate_size",
        ];
        for key in integers {
            assert_eq!(left.opt_usize(key).unwrap(), right.opt_usize(key).unwrap(), "{case} {key}");
        }
        for key in ["tie_word_embeddings", "norm_topk_prob"] {
            assert_eq!(left.opt_bool(key).unwrap(), right.opt_bool(key).unwrap(), "{case} {key}");
        }
        assert_eq!(left.opt_usizes("mlp_only_layers").unwrap(), right.opt_usizes("mlp_only_layers").unwrap(), "{case}");
        assert_eq!(left.f32("rms_norm_eps").unwrap(), right.f32("rms_norm_eps").unwrap(), "{case}");
        let heads = left.usize("num_attention_heads").unwrap();
        let head_dim = left.usize_or("head_dim", left.usize("hidden_size").unwrap() / heads).unwrap();
        assert_eq!(right.usize("head_dim").unwrap(), head_dim, "{case}");
        let rope = |config: &Config| config.section("rope_parameters").unwrap().unwrap();
        let (left_rope, right_rope) = (rope(left), rope(right));
        assert_eq!(left_rope.f32("rope_theta").unwrap(), right_rope.f32("rope_theta").unwrap(), "{case}");
        assert_eq!(right.f32("rope_theta").unwrap(), right_rope.f32("rope_theta").unwrap(), "{case}");
        // GGUF has divisors in place of this kind's keys.
        let expected = left_rope.str("rope_type").unwrap().replace("llama3", "default");
        assert_eq!(expected, right_rope.str("rope_type").unwrap(), "{case}");
        let layout = if case.starts_with("llama") { "adjacent_pairs" } else { "half_split" };
        assert_eq!(right.str("rope_layout").unwrap(), layout);
    }
}

#[test]
fn yarn_arrives_as_keys_and_llama3_as_divisors() {
    let temp = tempfile::tempdir().unwrap();
    let open = |builder: GgufBuilder| {
        let path = temp.path().join("model.gguf");
        builder.write(&path);
        Checkpoint::open(&path).unwrap()
    };
    let yarn = hugging_face_to_gguf(&folder("qwen3-yarn"));
    let rope = |checkpoint: &Checkpoint| checkpoint.config().section("rope_parameters").unwrap().unwrap();
    let checkpoint = open(yarn.clone());
    assert_eq!(rope(&checkpoint).f32("factor").unwrap(), 4.0);
    assert_eq!(rope(&checkpoint).usize("original_max_position_embeddings").unwrap(), 16);
    assert!(!rope(&checkpoint).has("attention_factor"));

    let checkpoint = open(yarn.clone().set("qwen3.rope.scaling.yarn_attn_factor", 1.5f32));
    assert_eq!(rope(&checkpoint).f32("attention_factor").unwrap(), 1.5);
    let checkpoint = open(yarn.clone().set("qwen3.rope.scaling.attn_factor", 0.5f32));
    assert_eq!(rope(&checkpoint).f32("attention_factor").unwrap(), 0.5 * (0.1 * 4f32.ln() + 1.0));
    let checkpoint = open(yarn.clone().unset("qwen3.rope.scaling.original_context_length"));
    assert_eq!(rope(&checkpoint).usize("original_max_position_embeddings").unwrap(), 64);
    let checkpoint = open(yarn.set("qwen3.rope.scaling.type", "linear"));
    assert_eq!(rope(&checkpoint).str("rope_type").unwrap(), "linear");
    // Early files.
    let old = hugging_face_to_gguf(&folder("llama")).set("llama.rope.scale_linear", 2.0f32);
    assert_eq!(rope(&open(old)).f32("factor").unwrap(), 2.0);

    let half = hugging_face_to_gguf(&folder("llama")).set("llama.rope.dimension_count", 8u32);
    assert_eq!(rope(&open(half)).f32("partial_rotary_factor").unwrap(), 0.5);

    let window = hugging_face_to_gguf(&folder("llama"))
        .set("llama.attention.sliding_window", 9u32)
        .set("llama.attention.sliding_window_pattern", vec![true, false, true]);
    let checkpoint = open(window);
    assert_eq!(checkpoint.config().usize("sliding_window").unwrap(), 9);
    let kinds = checkpoint.config().opt_strs("layer_types").unwrap().unwrap();
    assert_eq!(kinds, ["sliding_attention", "full_attention", "sliding_attention"]);

    let checkpoint = open(hugging_face_to_gguf(&folder("llama-tied")));
    let divisors = checkpoint.weights().vector("rope_freqs.weight", 8).unwrap();
    assert_eq!((divisors[0], divisors[7]), (1.0, 32.0));
    assert!(divisors.is_sorted() && divisors.iter().any(|&divisor| divisor > 1.0 && divisor < 32.0));
}

#[test]
fn any_shard_or_the_folder_opens_a_split_model() {
    let temp = tempfile::tempdir().unwrap();
    let whole = hugging_face_to_gguf(&folder("qwen3_moe"));
    let paths = whole.write_split(temp.path(), "tiny-of-breed", 3);
    let expected = load_all(&Checkpoint::open(&folder("qwen3_moe")).unwrap()).unwrap();
    for path in paths.iter().map(|path| path.as_path()).chain([temp.path()]) {
        let checkpoint = Checkpoint::open(path).unwrap();
        assert_eq!(load_all(&checkpoint).unwrap(), expected, "{}", path.display());
        assert!(checkpoint.unused().is_empty());
        let bytes: u64 = paths.iter().map(|path| path.metadata().unwrap().len()).sum();
        assert_eq!(checkpoint.file_bytes(), bytes);
    }
    // A projector beside the model is not a second model, a second model is.
    hugging_face_to_gguf(&folder("llama")).write(&temp.path().join("mmproj-F16.gguf"));
    Checkpoint::open(temp.path()).unwrap();
    hugging_face_to_gguf(&folder("llama")).write(&temp.path().join("best-of-breed.gguf"));
    let error = Checkpoint::open(temp.path()).unwrap_err().to_string();
    assert!(error.contains("holds 2 models") && error.contains("name one of them"), "{error}");
    assert_eq!(Checkpoint::open(&temp.path().join("best-of-breed.gguf")).unwrap().config().architecture(), "llama");

    // Missing shards are named whichever file is asked for, also by a folder.
    std::fs::remove_file(&paths[1]).unwrap();
    std::fs::remove_file(temp.path().join("best-of-breed.gguf")).unwrap();
    for path in paths.iter().map(|path| path.as_path()).chain([temp.path()]) {
        let error = Checkpoint::open(path).unwrap_err().to_string();
        assert!(error.contains("tiny-of-breed-00002-of-00003.gguf: this shard is missing (1 of 3"), "{error}");
    }
}

#[test]
fn contradicting_shards_are_refused() {
    let whole = hugging_face_to_gguf(&folder("llama"));
    let check = |change: &dyn Fn(Vec<GgufBuilder>) -> Vec<GgufBuilder>, expected: &str| {
        let temp = tempfile::tempdir().unwrap();
        let shards = change(whole.split(2));
        for (index, shard) in shards.iter().enumerate() {
            shard.write(&temp.path().join(format!("x-{:05}-of-00002.gguf", index + 1)));
        }
        let error = Checkpoint::open(temp.path()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(
        &|mut shards| {
            shards.swap(0, 1);
            shards
        },
        "`split.no`: is 1, expected 0",
    );
    check(
        &|shards| shards.into_iter().map(|shard| shard.set("split.count", 3u16)).collect(),
        "`split.count`: is 3, expected 2",
    );
    check(&|shards| shards.into_iter().map(|shard| shard.unset("split.count")).collect(), "`split.count`: is absent");
    check(
        &|shards| shards.into_iter().map(|shard| shard.set("split.tensors.count", 7)).collect(),
        "`split.tensors.count`: is 7",
    );
    check(
        &|mut shards| {
            let copy = shards[0].tensors_mut()[0].clone();
            shards[1].tensors_mut()[0] = copy;
            shards
        },
        "is also in",
    );
    // A shard under another name.
    let temp = tempfile::tempdir().unwrap();
    whole.split(2)[0].write(&temp.path().join("renamed.gguf"));
    let error = Checkpoint::open(temp.path()).unwrap_err().to_string();
    assert!(error.contains("`split.count`: is 2, but the file's name"), "{error}");
}

#[test]
fn versions_and_alignments() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("model.gguf");
    for (version, alignment) in [(2, 32), (3, 8), (3, 64), (3, 4096)] {
        hugging_face_to_gguf(&folder("qwen2")).version(version).alignment(alignment).write(&path);
        let checkpoint = Checkpoint::open(&path).unwrap();
        assert!(load_all(&checkpoint).is_ok());
    }
}

#[test]
fn mlx_pack_matches_its_layout() {
    let pack = Checkpoint::open(&fixture("oracle/mlx-packs/qwen3_moe")).unwrap();
    assert_eq!(pack.container(), Container::MlxPack);
    let all = load_all(&pack).unwrap();
    assert!(all.iter().flat_map(|(_, rows)| rows).flatten().all(|value| value.is_finite()));
    assert_eq!(pack.unused(), Vec::<String>::new());
    // The router has an override of 8 bits, its neighbours have 4.
    let mlp = pack.weights().at("model.layers.0.mlp");
    assert_eq!(mlp.matrix("gate", 8, 64).unwrap().format().to_string(), "mlx-8bit-g64-bf16");
    let experts = mlp.experts("down_proj", 8, 64, 64).unwrap();
    assert_eq!(experts[3].format().to_string(), "mlx-4bit-g64-bf16");
    assert_eq!(experts[3].name(), "model.layers.0.mlp.switch_mlp.down_proj.weight[3]");

    // Close to the checkpoint it was made of: a swapped expert or a shifted plane would not be.
    let original = load_all(&Checkpoint::open(&folder("qwen3_moe")).unwrap()).unwrap();
    for ((name, quantised), (_, plain)) in all.iter().zip(&original) {
        let pairs = quantised.iter().flatten().zip(plain.iter().flatten());
        let (error, size) = pairs.fold((0.0, 0.0), |(error, size), (q, p)| (error + (q - p) * (q - p), size + p * p));
        assert!(error <= 0.02 * size, "{name}: {error} of {size}");
    }
}

#[test]
fn weights_are_slices_of_the_file() {
    let checkpoint = Checkpoint::open(&folder("llama")).unwrap();
    let weight = checkpoint.weights().matrix("lm_head", 256, 64).unwrap();
    assert_eq!(*weight.format(), Format::F32);
    let stored = checkpoint.tensors().find(|tensor| tensor.name == "lm_head.weight").unwrap();
    assert_eq!(stored.data.as_ptr(), weight.planes()[0].as_ptr());
    // The map outlives the checkpoint.
    drop(checkpoint);
    let expected = Tensors::fixture("oracle/models/llama/model.safetensors").f32("lm_head.weight");
    assert_eq!(values(&weight).concat(), expected);
}

#[test]
fn errors_name_tensor_found_and_expected() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("model.gguf");
    let mut builder = hugging_face_to_gguf(&folder("qwen2"));
    builder.tensors_mut().retain(|tensor| tensor.name != "blk.1.attn_q.weight");
    builder.write(&path);
    let checkpoint = Checkpoint::open(&path).unwrap();
    let error = load_all(&checkpoint).unwrap_err().to_string();
    let expected =
        "model.gguf: tensor `blk.1.attn_q.weight (model.layers.1.self_attn.q_proj.weight)`: is missing, expected";
    assert!(error.contains(expected), "{error}");

    let root = checkpoint.weights();
    let error = root.matrix("model.embed_tokens", 256, 32).unwrap_err().to_string();
    let expected = "model.gguf: tensor `token_embd.weight`: has shape [256, 64] (f16), expected [256, 32]";
    assert!(error.contains(expected), "{error}");
    let error = root.vector("model.norm.weight", 63).unwrap_err().to_string();
    assert!(error.contains("`output_norm.weight`: has shape [64] (f32), expected [63]"), "{error}");
    let error = root.at("model.layers.0.mlp").experts("up_proj", 2, 8, 64).unwrap_err().to_string();
    assert!(
        error.contains("`blk.0.ffn_up_exps.weight (model.layers.0.mlp.experts.up_proj.weight)`: is missing"),
        "{error}"
    );
    let error = checkpoint.config().usize("rms_norm_eps").unwrap_err().to_string();
    assert!(error.contains("key `qwen2.attention.layer_norm_rms_epsilon (rms_norm_eps)`: is 9.99"), "{error}");

    // Not in this file, but its names are translated all the same.
    let other = Checkpoint::open(&folder("qwen2")).unwrap();
    let error = other.weights().matrix("lm_head", 256, 64).unwrap_err().to_string();
    assert!(error.contains("model.safetensors: tensor `lm_head.weight`: is missing"), "{error}");
}

#[test]
fn tokenizers_are_found() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("model.gguf");
    let builder = hugging_face_to_gguf(&folder("qwen2"));
    builder.write(&path);
    assert!(matches!(Checkpoint::open(&path).unwrap().tokenizer_files().unwrap(), TokenizerFiles::Absent));
    builder
        .set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.tokens", vec!["a", "Ġb", ""])
        .set("tokenizer.ggml.token_type", vec![1i32, 1, 3])
        .set("tokenizer.ggml.scores", vec![0.0f32, -1.0, 2.0])
        .set("tokenizer.ggml.eos_token_id", 2u32)
        .write(&path);
    let checkpoint = Checkpoint::open(&path).unwrap();
    let TokenizerFiles::Gguf(metadata) = checkpoint.tokenizer_files().unwrap() else { panic!("expected metadata") };
    let tokens = metadata.opt_strings("tokenizer.ggml.tokens").unwrap().unwrap();
    assert_eq!(tokens.iter().collect::<Vec<_>>(), ["a", "Ġb", ""]);
    assert_eq!((tokens.get(1), tokens.get(2), tokens.get(3)), (Some("Ġb"), Some(""), None));
    assert_eq!(metadata.opt_u32s("tokenizer.ggml.token_type").unwrap().unwrap(), [1, 1, 3]);
    assert_eq!(metadata.opt_f32s("tokenizer.ggml.scores").unwrap().unwrap(), [0.0, -1.0, 2.0]);
    let error = metadata.opt_bool("tokenizer.ggml.model").unwrap_err().to_string();
    assert!(error.contains("key `tokenizer.ggml.model`: is \"gpt2\", expected a bool"), "{error}");
    assert_eq!(checkpoint.config().token_ids("eos_token_id").unwrap(), [2]);

    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(folder("qwen2").join(name), temp.path().join(name)).unwrap();
    }
    assert!(matches!(Checkpoint::open(temp.path()).unwrap().tokenizer_files().unwrap(), TokenizerFiles::Absent));
    std::fs::write(temp.path().join("tokenizer.json"), "{}").unwrap();
    std::fs::write(temp.path().join("chat_template.jinja"), "hello").unwrap();
    let checkpoint = Checkpoint::open(temp.path()).unwrap();
    assert_eq!(checkpoint.container(), Container::HuggingFace);
    let TokenizerFiles::HuggingFace { tokenizer_json, tokenizer_config, chat_template, generation_config } =
        checkpoint.tokenizer_files().unwrap()
    else {
        panic!("expected files")
    };
    assert_eq!((tokenizer_json.as_str(), chat_template.as_deref()), ("{}", Some("hello")));
    assert_eq!((tokenizer_config, generation_config), (None, None));
}

#[test]
fn settings_for_images_come_from_either_file() {
    let temp = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture("oracle/models/qwen3_5").join(file), temp.path().join(file)).unwrap();
    }
    let checkpoint = Checkpoint::open(temp.path()).unwrap();
    assert_eq!(checkpoint.config().value("vision_config").unwrap()["patch_size"], 4);
    assert_eq!(checkpoint.preprocessor_config().unwrap(), None);
    let put = |name: &str, text: &str| std::fs::write(temp.path().join(name), text).unwrap();
    put("processor_config.json", r#"{"processor_class": "A"}"#);
    assert_eq!(checkpoint.preprocessor_config().unwrap(), None);
    put("processor_config.json", r#"{"image_processor": {"min_pixels": 1}}"#);
    assert_eq!(checkpoint.preprocessor_config().unwrap().unwrap()["min_pixels"], 1);
    put("preprocessor_config.json", r#"{"min_pixels": 2}"#);
    assert_eq!(checkpoint.preprocessor_config().unwrap().unwrap()["min_pixels"], 2);
    put("preprocessor_config.json", "{");
    let error = checkpoint.preprocessor_config().unwrap_err().to_string();
    assert!(
        error.contains("preprocessor_config.json: is not JSON") && error.ends_with("fetch the file again"),
        "{error}"
    );
}
