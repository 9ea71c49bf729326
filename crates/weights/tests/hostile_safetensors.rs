//! Damaged and hostile safetensors files, indices and folders.

use std::fs;
use std::path::Path;

use kapitsa_testkit::fixture;
use kapitsa_testkit::fixtures::safetensors_file;
use kapitsa_weights::{Checkpoint, LoadError};

const CONFIG: &str = r#"{"model_type":"llama"}"#;

/// A folder with files, opened.
fn open_folder(files: &[(&str, &[u8])]) -> Result<Checkpoint, LoadError> {
    let temp = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(temp.path().join(name), bytes).unwrap();
    }
    Checkpoint::open(temp.path())
}

fn open(bytes: &[u8]) -> Result<Checkpoint, LoadError> {
    open_folder(&[("config.json", CONFIG.as_bytes()), ("model.safetensors", bytes)])
}

/// A file of a header and data.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

#[track_caller]
fn refused(bytes: &[u8], expected: &str) {
    let error = open(bytes).expect_err(expected).to_string();
    assert!(error.contains(expected), "{error}");
    assert!(error.contains("model.safetensors") && !error.contains('\n') && error.len() < 600, "{error}");
}

#[test]
fn headers() {
    refused(&[0xff; 64], "header has a length of 18446744073709551615 bytes");
    refused(&[1, 2, 3], "file has 3 bytes, expected at least 8");
    refused(&file("", &[]).into_iter().chain([0; 3]).collect::<Vec<_>>(), "header: ");
    refused(&[&1000u64.to_le_bytes()[..], b"{}"].concat(), "file has 10 bytes, expected at least 1008 for the header");
    refused(&file("not json at all", &[]), "header: ");
    refused(&file("[]", &[]), "header: ");
    refused(&file(&"[".repeat(100_000), &[]), "header: ");
    refused(&file(r#"{"t":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}}"#, &[0; 4]), "header: ");
    refused(&file(r#"{"t":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#, &[0; 4]), "header: ");
    refused(&file(r#"{"t":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}}"#, &[0; 4]), "header: ");
    refused(&file(r#"{"__metadata__":{"a":1}}"#, &[]), "header: ");
}

#[test]
fn tensors() {
    let one = r#""t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;
    refused(&file(&format!("{{{one},{one}}}"), &[0; 4]), "name `t` occurs twice");
    refused(&file(r#"{"__metadata__":{},"__metadata__":{}}"#, &[]), "occurs twice");
    let check = |shape: &str, offsets: &str, expected: &str| {
        let header = format!(r#"{{"t":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#);
        refused(&file(&header, &[0; 8]), expected);
    };
    check("[2]", "[4,12]", "tensor `t`: lies at bytes 4 to 12, expected to begin at 0");
    check("[2]", "[8,0]", "tensor `t`: lies at bytes 8 to 0");
    check("[1]", "[0,8]", "tensor `t`: has 8 bytes, which is not the size of F32 [1]");
    check("[4294967296,4294967296,4294967296]", "[0,8]", "which is not the size of");
    check("[2305843009213693951]", "[0,8]", "which is not the size of");
    check("[1,1,1,1,1,1,1,1,1]", "[0,4]", "has 9 dimensions");
    check("[1]", "[0,4]", "is followed by 4 bytes that belong to no tensor");
    check("[3]", "[0,12]", "bytes, expected at least");
    // Sizes that only overflow together.
    let many: Vec<String> = (0..9u64)
        .map(|i| {
            let size = (1u64 << 61) - 1;
            format!(
                r#""t{i}":{{"dtype":"U8","shape":[{size}],"data_offsets":[{},{}]}}"#,
                i.wrapping_mul(size),
                (i + 1).wrapping_mul(size)
            )
        })
        .collect();
    refused(&file(&format!("{{{}}}", many.join(",")), &[]), "model.safetensors");
    let overlap = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#;
    refused(&file(overlap, &[0; 8]), "tensor `b`: lies at bytes 4 to 8, expected to begin at 8");
    // An empty tensor is allowed by the format, and useless.
    let empty = file(r#"{"t.weight":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]}}"#, &[]);
    assert!(open(&empty).unwrap().weights().matrix("t", 0, 4).is_err());
    let error = open(&empty).unwrap().weights().matrix("t", 1, 4).unwrap_err().to_string();
    assert!(error.contains("has shape [0, 4] (F32), expected [1, 4]"), "{error}");
}

#[test]
fn cut_files_tell_their_sizes() {
    let whole = fs::read(fixture("oracle/models/qwen2/model.safetensors")).unwrap();
    for length in [8, 100, whole.len() / 2, whole.len() - 1024, whole.len() - 1] {
        match open(&whole[..length]).unwrap_err() {
            LoadError::Truncated { found, expected, .. } => {
                assert!(found == length as u64 && expected > found && expected <= whole.len() as u64);
                assert!(length < whole.len() / 2 || expected == whole.len() as u64);
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn types_and_companions() {
    let check = |tensors: &str, bytes: usize, expected: &str| {
        let checkpoint = open(&file(&format!("{{{tensors}}}"), &vec![0; bytes])).unwrap();
        let error = checkpoint.weights().matrix("m", 2, 32).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(
        r#""m.weight":{"dtype":"I64","shape":[2,32],"data_offsets":[0,512]}"#,
        512,
        "has type I64, expected F32, F16, BF16",
    );
    check(r#""m.weight":{"dtype":"U32","shape":[2,4],"data_offsets":[0,32]}"#, 32, "no companion `scales`");
    check(r#""m.weight":{"dtype":"F8_E4M3","shape":[2,32],"data_offsets":[0,64]}"#, 64, "no companion `weight_scale`");
    check(r#""m.weight":{"dtype":"U8","shape":[2,16],"data_offsets":[0,32]}"#, 32, "no companion `weight_scale`");
    check(r#""m.weight_packed":{"dtype":"I32","shape":[2,4],"data_offsets":[0,32]}"#, 32, "has type I32, expected U8");
    check(r#""m.qweight":{"dtype":"I32","shape":[2,4],"data_offsets":[0,32]}"#, 32, "quantised by GPTQ or AWQ");
    check(r#""m.bias":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}"#, 8, "tensor `m.weight`: is missing");
    let no_block = r#""m.weight":{"dtype":"U32","shape":[2,4],"data_offsets":[0,32]},"m.scales":{"dtype":"F32","shape":[2,1],"data_offsets":[32,40]}"#;
    check(no_block, 40, "config.json has no `quantization` block");
    let checkpoint = open(&file(r#"{"v":{"dtype":"I64","shape":[2],"data_offsets":[0,16]}}"#, &[0; 16])).unwrap();
    let error = checkpoint.weights().vector("v", 2).unwrap_err().to_string();
    assert!(error.contains("tensor `v`: has type I64, expected F32, F16 or BF16"), "{error}");
}

#[test]
fn folders() {
    let config = ("config.json", CONFIG.as_bytes());
    let model = safetensors_file(&[("a.weight", vec![1, 2], vec![1.0, 2.0])]);
    let other = safetensors_file(&[("b.weight", vec![1, 2], vec![3.0, 4.0])]);
    let index = |map: &str| format!(r#"{{"metadata":{{}},"weight_map":{{{map}}}}}"#);
    let refused = |files: &[(&str, &[u8])], expected: &str| {
        let error = open_folder(files).expect_err(expected).to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    };
    refused(&[("model.safetensors", &model)], "has no config.json");
    refused(&[config], "holds no model");
    refused(&[("config.json", b"{"), ("model.safetensors", &model)], "config.json: is not JSON");
    refused(&[("config.json", b"[1]"), ("model.safetensors", &model)], "expected a JSON object");
    refused(&[("config.json", b"\xff"), ("model.safetensors", &model)], "is not UTF-8");
    refused(&[config, ("a.safetensors", &model), ("b.safetensors", &other)], "holds 2 .safetensors files but no");

    let good = index(r#""a.weight":"x-1.safetensors","b.weight":"x-2.safetensors""#);
    let files: &[(&str, &[u8])] = &[
        config,
        ("model.safetensors.index.json", good.as_bytes()),
        ("x-1.safetensors", &model),
        ("x-2.safetensors", &other),
    ];
    let checkpoint = open_folder(files).unwrap();
    assert_eq!(checkpoint.weights().vector("nothing", 1).unwrap_err().to_string().matches("is missing").count(), 1);
    assert_eq!(checkpoint.unused(), ["a.weight", "b.weight"]);
    checkpoint.weights().matrix("a", 1, 2).unwrap();
    assert_eq!(checkpoint.unused(), ["b.weight"]);
    refused(&files[..3], "x-2.safetensors: this file is missing (1 of 2 are)");

    for name in ["../../x", "/etc/passwd", "a/b.safetensors", "..", ".", "", "..\\\\x", "c:x"] {
        let index = index(&format!(r#""a.weight":"{name}""#));
        refused(
            &[config, ("model.safetensors.index.json", index.as_bytes()), ("model.safetensors", &model)],
            "expected the name of a file in the same folder",
        );
    }
    let lies = index(r#""c.weight":"x-1.safetensors""#);
    refused(
        &[files[0], ("model.safetensors.index.json", lies.as_bytes()), files[2]],
        "tensor `c.weight`: is not in this file",
    );
    let empty = index("");
    refused(&[files[0], ("model.safetensors.index.json", empty.as_bytes()), files[2]], "names no tensors");
    refused(&[files[0], ("model.safetensors.index.json", b"{}"), files[2]], "is not an index");
    let twice = index(r#""a.weight":"x-1.safetensors","b.weight":"x-2.safetensors""#);
    refused(
        &[files[0], ("model.safetensors.index.json", twice.as_bytes()), files[2], ("x-2.safetensors", &model)],
        "is not in this file although",
    );
}

#[test]
fn the_parts_of_a_folder_open_it() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name);
    fs::write(path("config.json"), CONFIG).unwrap();
    let index = r#"{"weight_map":{"a.weight":"x-1.safetensors","b.weight":"x-2.safetensors"}}"#;
    fs::write(path("model.safetensors.index.json"), index).unwrap();
    for (file, tensor) in [("x-1", "a.weight"), ("x-2", "b.weight"), ("drafter", "c.weight")] {
        let bytes = safetensors_file(&[(tensor, vec![1, 2], vec![1.0, 2.0])]);
        fs::write(path(&format!("{file}.safetensors")), bytes).unwrap();
    }
    let names = |path: &Path| Checkpoint::open(path).unwrap().unused();
    for part in ["config.json", "model.safetensors.index.json", "x-1.safetensors", "x-2.safetensors", "."] {
        assert_eq!(names(&path(part)), ["a.weight", "b.weight"], "{part}");
    }
    // A file that is not in the index is a model of its own.
    assert_eq!(names(&path("drafter.safetensors")), ["c.weight"]);
}
