//! Randomly damaged files go through `Checkpoint::open` and every tensor: errors or numbers, never a panic.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use kapitsa_testkit::convert::hugging_face_to_gguf;
use kapitsa_testkit::fixture;
use kapitsa_weights::{Checkpoint, Weights};
use proptest::prelude::*;

/// A change of a file's bytes. Places are fractions so that they fit any file.
#[derive(Clone, Debug)]
enum Mutation {
    Cut(f64),
    Set(f64, u8),
    Write(f64, u64),
    Insert(f64, Vec<u8>),
    Copy(f64, f64, usize),
}

/// Places are mostly in the header: damaged numbers of a tensor are still numbers.
fn place() -> impl Strategy<Value = f64> {
    prop_oneof![3 => 0.0..0.01f64, 3 => 0.0..0.08f64, 1 => 0.0..1.0f64]
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(1 << 63),
        Just((1 << 31) - 1),
        Just(1 << 32),
        0..300u64,
        any::<u64>(),
        (0..64u32).prop_map(|shift| 1 << shift),
    ]
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        1 => (0.0..1.0f64).prop_map(Mutation::Cut),
        4 => (place(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        4 => (place(), number()).prop_map(|(at, value)| Mutation::Write(at, value)),
        1 => (place(), prop::collection::vec(any::<u8>(), 1..16)).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        1 => (place(), place(), 1..64usize).prop_map(|(from, to, length)| Mutation::Copy(from, to, length)),
    ]
}

fn mutate(bytes: &[u8], mutations: &[Mutation]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for mutation in mutations {
        let at = |place: f64| (place * bytes.len() as f64) as usize;
        match mutation {
            Mutation::Cut(place) => bytes.truncate(at(*place)),
            Mutation::Set(place, value) => {
                let at = at(*place);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = *value;
                }
            }
            Mutation::Write(place, value) => {
                let at = at(*place);
                if let Some(target) = bytes.get_mut(at..at + 8) {
                    target.copy_from_slice(&value.to_le_bytes());
                }
            }
            Mutation::Insert(place, inserted) => {
                let at = at(*place);
                bytes.splice(at..at, inserted.iter().copied());
            }
            Mutation::Copy(from, to, length) => {
                let (from, to) = (at(*from), at(*to));
                if from + length <= bytes.len() && to + length <= bytes.len() {
                    bytes.copy_within(from..from + length, to);
                }
            }
        }
    }
    bytes
}

/// Opens a path and touches everything in it.
fn exercise(path: &Path) {
    let checkpoint = match Checkpoint::open(path) {
        Ok(checkpoint) => checkpoint,
        Err(error) => {
            let line = error.to_string();
            assert!(!line.contains('\n') && line.len() < 2000, "{line}");
            return;
        }
    };
    let sum: u64 = checkpoint.tensors().flat_map(|tensor| tensor.data).map(|&byte| u64::from(byte)).sum();
    assert!(sum < u64::MAX);
    let config = checkpoint.config();
    for key in config.keys() {
        let _ = (
            config.opt_usize(key),
            config.opt_f32(key),
            config.opt_bool(key),
            config.opt_strs(key),
            config.section(key),
        );
    }
    let names: Vec<(String, Vec<usize>)> =
        checkpoint.tensors().map(|tensor| (tensor.name.to_string(), tensor.shape.to_vec())).collect();
    for (name, shape) in names {
        touch(&checkpoint.weights(), &name, &shape);
    }
    let _ = checkpoint.unused();
    let _ = checkpoint.tokenizer_files();
    if let Some(metadata) = checkpoint.gguf_metadata() {
        for (key, _) in metadata.iter() {
            let _ = (metadata.opt_u32(key), metadata.opt_f32(key), metadata.opt_u32s(key), metadata.opt_f32s(key));
            let _ = metadata.opt_strings(key).map(|strings| strings.map(|strings| strings.iter().count()));
        }
    }
}

/// Reads a tensor in all ways that could work.
fn touch(root: &Weights, name: &str, shape: &[usize]) {
    let module = name.strip_suffix(".weight").unwrap_or(name);
    let _ = root.tensor(name, shape);
    let mut weights = Vec::new();
    match *shape {
        [len] => drop(root.vector(name, len)),
        [rows, cols] => {
            let _ = root.conv(name, rows, cols);
            weights.extend(root.matrix(module, rows, cols));
            // The columns of MLX matrices of 4 and 8 bits.
            weights.extend(root.matrix(module, rows, cols.saturating_mul(8)));
            weights.extend(root.matrix(module, rows, cols.saturating_mul(4)));
        }
        [count, rows, cols] => {
            if let Some((scope, part)) =
                module.rsplit_once('.').and_then(|(scope, part)| Some((scope.rsplit_once('.')?.0, part)))
            {
                for cols in [cols, cols.saturating_mul(8)] {
                    weights.extend(root.at(scope).experts(part, count, rows, cols).into_iter().flatten());
                }
            }
        }
        _ => {}
    }
    for weight in weights {
        let mut row = vec![0.0; weight.cols()];
        for index in [0, weight.rows() / 2, weight.rows() - 1] {
            weight.dequantize(index, &mut row);
        }
    }
}

static GGUF: LazyLock<Vec<u8>> = LazyLock::new(|| {
    hugging_face_to_gguf(&fixture("oracle/models/qwen3_moe"))
        .set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.tokens", vec!["a", "b", "é"])
        .set("nested", vec![vec![1i32, 2], vec![3]])
        .tensor("blk.9.ffn_up.weight", &[2, 256], 12, vec![7; 288])
        .build()
});

static HYBRID: LazyLock<Vec<u8>> =
    LazyLock::new(|| hugging_face_to_gguf(&fixture("oracle/models/qwen3_5_moe")).build());

static SAFETENSORS: LazyLock<Vec<u8>> =
    LazyLock::new(|| fs::read(fixture("oracle/mlx-packs/qwen3_moe/model.safetensors")).unwrap());
static CONFIG: LazyLock<Vec<u8>> =
    LazyLock::new(|| fs::read(fixture("oracle/mlx-packs/qwen3_moe/config.json")).unwrap());

fn with_gguf(bytes: &[u8]) {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("model.gguf");
    fs::write(&path, bytes).unwrap();
    exercise(&path);
}

fn with_pack(config: &[u8], model: &[u8]) {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("config.json"), config).unwrap();
    fs::write(temp.path().join("model.safetensors"), model).unwrap();
    exercise(temp.path());
}

#[test]
fn undamaged_files_are_read() {
    with_gguf(&GGUF);
    with_gguf(&HYBRID);
    with_pack(&CONFIG, &SAFETENSORS);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_gguf(mutations in prop::collection::vec(mutation(), 1..4)) {
        with_gguf(&mutate(&GGUF, &mutations));
    }

    #[test]
    fn damaged_hybrid(mutations in prop::collection::vec(mutation(), 1..4)) {
        with_gguf(&mutate(&HYBRID, &mutations));
    }

    #[test]
    fn damaged_safetensors(mutations in prop::collection::vec(mutation(), 1..4)) {
        with_pack(&CONFIG, &mutate(&SAFETENSORS, &mutations));
    }

    #[test]
    fn damaged_config(mutations in prop::collection::vec(mutation(), 1..4)) {
        with_pack(&mutate(&CONFIG, &mutations), &SAFETENSORS);
    }
}
