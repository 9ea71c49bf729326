//! Damaged and hostile GGUF files: one clear line, at once, without much memory.

use std::path::Path;
use std::time::{Duration, Instant};

use kapitsa_testkit::convert::hugging_face_to_gguf;
use kapitsa_testkit::fixture;
use kapitsa_testkit::gguf::{GgufBuilder, MetaValue};
use kapitsa_weights::{Checkpoint, LoadError};

fn open(bytes: &[u8]) -> Result<Checkpoint, LoadError> {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    Checkpoint::open(&path)
}

#[track_caller]
fn refused(bytes: &[u8], expected: &str) {
    let error = open(bytes).expect_err(expected).to_string();
    assert!(error.contains(expected), "{error}");
    assert!(error.contains("model.gguf") && !error.contains('\n') && error.len() < 600, "{error}");
}

/// A header with the given counts and the rest of the file.
fn header(version: u32, tensors: u64, keys: u64, rest: &[u8]) -> Vec<u8> {
    [b"GGUF", &version.to_le_bytes()[..], &tensors.to_le_bytes(), &keys.to_le_bytes(), rest].concat()
}

/// A key and its type.
fn key(name: &str, kind: u32) -> Vec<u8> {
    [&(name.len() as u64).to_le_bytes()[..], name.as_bytes(), &kind.to_le_bytes()].concat()
}

#[cfg(target_os = "linux")]
fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn absurd_numbers_fail_at_once() {
    let start = Instant::now();
    refused(&header(3, 0, 500_000_000, &[]), "500000000 metadata keys, expected at most");
    refused(&header(3, 0, 60_000, &[]), "file has 24 bytes, expected at least 840024 for 60000 metadata keys");
    refused(&header(3, u64::MAX, 0, &[]), "tensors");
    refused(&header(3, 1 << 40, 0, &[0; 100]), "tensors");
    refused(
        &header(3, 0, 1, &[&(1u64 << 40).to_le_bytes()[..], &[0; 64]].concat()),
        "1099511627776 bytes, expected 1 to",
    );
    refused(&header(3, 0, 1, &[&60_000u64.to_le_bytes()[..], &[0; 64]].concat()), "expected at least");
    refused(&header(3, 0, 1, &[&0u64.to_le_bytes()[..], &[0; 64]].concat()), "metadata key 0 has a length of 0 bytes");
    for element in 0..=12u32 {
        let array = [&key("k", 9)[..], &element.to_le_bytes(), &(1u64 << 58).to_le_bytes(), &[0; 64]].concat();
        refused(&header(3, 0, 1, &array), "`k`");
        let array = [&key("k", 9)[..], &element.to_le_bytes(), &u64::MAX.to_le_bytes(), &[0; 64]].concat();
        refused(&header(3, 0, 1, &array), "`k`");
    }
    let text = [&key("k", 8)[..], &(1u64 << 40).to_le_bytes(), &[b'a'; 64]].concat();
    refused(&header(3, 0, 1, &text), "expected at least");
    refused(&header(3, 0, 1, &[&key("k", 13)[..], &[0; 64]].concat()), "`k` has type 13");
    // Arrays in arrays in arrays.
    let nested: Vec<u8> =
        std::iter::repeat_n([&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat(), 100_000).flatten().collect();
    refused(&header(3, 0, 1, &[&key("k", 9)[..], &nested].concat()), "deeper than");
    let wide = [&key("k", 9)[..], &9u32.to_le_bytes(), &70_000u64.to_le_bytes(), &vec![0; 12 * 70_000]].concat();
    refused(&header(3, 0, 1, &wide), "expected at most 65536 in a file");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    #[cfg(target_os = "linux")]
    assert!(peak_memory_bytes() < 50 << 20, "{}", peak_memory_bytes());
}

#[test]
fn tensor_tables() {
    let tensor = |name: &str, dimensions: u32, sizes: &[u64], kind: u32, offset: u64| {
        let sizes: Vec<u8> = sizes.iter().flat_map(|size| size.to_le_bytes()).collect();
        let name = [&(name.len() as u64).to_le_bytes()[..], name.as_bytes()].concat();
        [&name[..], &dimensions.to_le_bytes(), &sizes, &kind.to_le_bytes(), &offset.to_le_bytes(), &[0; 64]].concat()
    };
    refused(&header(3, 1, 0, &tensor("t", 1_000_000, &[1], 0, 0)), "`t` has 1000000 dimensions");
    refused(&header(3, 1, 0, &tensor("t", 0, &[1], 0, 0)), "`t` has 0 dimensions");
    refused(&header(3, 1, 0, &tensor("t", 2, &[4, 0], 0, 0)), "`t` has a dimension of size 0");
    refused(&header(3, 1, 0, &tensor("", 1, &[4], 0, 0)), "the name of tensor 0 has 0 bytes");
    refused(&header(3, 1, 0, &tensor("t", 2, &[1 << 40, 1 << 40], 0, 0)), "more values than can be addressed");
    refused(&header(3, 1, 0, &tensor("t", 1, &[1 << 62], 0, 0)), "larger than the address space");
    refused(&header(3, 1, 0, &tensor("t", 1, &[1 << 62], 26, 0)), "larger than the address space");
    refused(&header(3, 1, 0, &tensor("t", 1, &[33], 2, 0)), "`t`: 33 columns, expected a multiple of 32");
    refused(
        &header(3, 1, 0, &tensor("t", 1, &[4], 0, 16)),
        "begins at offset 16, expected a multiple of the alignment 32",
    );
    refused(&header(3, 1, 0, &tensor("t", 1, &[4], 0, u64::MAX - 31)), "for tensor `t`");
    refused(&header(3, 1, 0, &tensor("t", 1, &[4], 99, 1 << 40)), "for tensor `t`");
    refused(&header(3, 1, 0, &tensor("t\n\u{1b}[2J", 9, &[4], 0, 0)), "dimensions");
    let twice = GgufBuilder::new("llama").tensor_f32("t", &[1], &[0.0]).tensor_f32("t", &[1], &[0.0]);
    refused(&twice.build(), "tensor `t` occurs twice");
}

/// Found while looking for what a small file can ask for: thousands of layers whose norms are the same bytes.
#[test]
fn a_small_file_whose_tensors_share_bytes_does_not_fill_the_memory() {
    let layers = 1000;
    let mut file = GgufBuilder::new("llama").set("llama.block_count", layers as u32);
    for layer in 0..layers {
        file = file.tensor(
            &format!("blk.{layer}.attn_norm.weight"),
            &[8],
            0,
            if layer == 0 { vec![0; 32] } else { vec![] },
        );
    }
    // With 32 bytes for the first and none for the others all but the first begin where the file ends.
    let mut bytes = file.build();
    bytes.extend([0; 32]);
    refused(&bytes, "share bytes, expected each to have its own");
}

#[test]
fn keys() {
    let builder = GgufBuilder::new("llama").tensor_f32("t", &[1], &[0.0]);
    refused(&builder.clone().add("a", 1u32).add("a", 2u32).build(), "metadata key `a` occurs twice");
    for alignment in [0u32, 3, 33, 1 << 31] {
        let expected = format!("`general.alignment` is {alignment}, expected a power of two");
        refused(&builder.clone().set("general.alignment", alignment).build(), &expected);
    }
    refused(&builder.clone().set("general.alignment", "32").build(), "`general.alignment` is \"32\"");
    refused(&builder.clone().set("general.alignment", -32i32).build(), "`general.alignment` is -32");
    refused(&builder.clone().unset("general.architecture").build(), "`general.architecture`: is absent");
    refused(
        &builder.clone().set("general.architecture", 3u32).build(),
        "`general.architecture`: is 3, expected a string",
    );
    // A byte that is neither 0 nor 1.
    refused(&header(3, 0, 1, &[&key("k", 7)[..], &[2], &[0; 64]].concat()), "holds a bool of 2");
    // Text that is not UTF-8, in a value and in an array.
    let text = [&key("k", 8)[..], &1u64.to_le_bytes(), &[0xff], &[0; 64]].concat();
    refused(&header(3, 0, 1, &text), "the value of metadata key `k` is not UTF-8");
    let text =
        [&key("k", 9)[..], &8u32.to_le_bytes(), &1u64.to_le_bytes(), &1u64.to_le_bytes(), &[0xff], &[0; 64]].concat();
    refused(&header(3, 0, 1, &text), "string 0 of metadata key `k` is not UTF-8");
    // A character over the border of two strings.
    let one = 1u64.to_le_bytes();
    let text =
        [&key("k", 9)[..], &8u32.to_le_bytes(), &2u64.to_le_bytes(), &one, &[0xc3], &one, &[0xa9], &[0; 64]].concat();
    refused(&header(3, 0, 1, &text), "string 0 of metadata key `k` is not UTF-8");
}

#[test]
fn other_kinds_of_files() {
    refused(b"GGUF", "file has 4 bytes, expected at least 8");
    refused(b"", "file is empty");
    refused(b"ggjt\x03\0\0\0 and so on, long enough for all", "begins with \"ggjt\"");
    refused(b"<!DOCTYPE html> not found, long enough for all", "this is not a GGUF file");
    refused(&header(1, 0, 0, &[]), "GGUF version 1, expected 2 or 3");
    refused(&header(4, 0, 0, &[]), "GGUF version 4, expected 2 or 3");
    let big_endian = [b"GGUF", &3u32.to_be_bytes()[..], &0u64.to_be_bytes(), &0u64.to_be_bytes()].concat();
    refused(&big_endian, "big-endian GGUF");
    let error = Checkpoint::open(Path::new("no/such/model.gguf")).unwrap_err().to_string();
    assert!(error.starts_with("cannot read no/such/model.gguf: "), "{error}");
    let temp = tempfile::tempdir().unwrap();
    let error = Checkpoint::open(temp.path()).unwrap_err().to_string();
    assert!(error.contains("holds no model"), "{error}");
    std::fs::write(temp.path().join("weights.bin"), "text").unwrap();
    let error = Checkpoint::open(&temp.path().join("weights.bin")).unwrap_err().to_string();
    assert!(error.contains("not supported"), "{error}");
    // Blobs of download stores have no ending.
    let path = temp.path().join("sha256-0123");
    hugging_face_to_gguf(&fixture("oracle/models/llama")).write(&path);
    assert_eq!(Checkpoint::open(&path).unwrap().config().architecture(), "llama");
    // A folder in a file's place.
    std::fs::create_dir(temp.path().join("folder.gguf")).unwrap();
    assert!(Checkpoint::open(&temp.path().join("folder.gguf")).is_err());
}

#[test]
fn a_model_of_another_architecture_opens() {
    let bytes = GgufBuilder::new("zebra")
        .set("zebra.stripes", 7u32)
        .tensor_f32("blk.0.attn_q.weight", &[1, 2], &[1.0, 2.0])
        .build();
    let checkpoint = open(&bytes).unwrap();
    assert_eq!(checkpoint.config().architecture(), "zebra");
    assert_eq!(checkpoint.gguf_metadata().unwrap().opt_u32("zebra.stripes").unwrap(), Some(7));
    assert_eq!(checkpoint.unused(), ["blk.0.attn_q.weight"]);
    // Experts in a llama file make it a mixtral, which routes differently.
    let mixtral = hugging_face_to_gguf(&fixture("oracle/models/llama")).set("llama.expert_count", 8u32);
    assert_eq!(open(&mixtral.build()).unwrap().config().architecture(), "mixtral");
}

#[test]
fn impossible_settings_name_their_key() {
    let llama = hugging_face_to_gguf(&fixture("oracle/models/llama"));
    let check = |key: &str, value: MetaValue, expected: &str| {
        let builder = llama.clone().set(key, value);
        let error = open(&builder.build()).expect_err(expected).to_string();
        assert!(error.contains(&format!("key `{key}`: {expected}")), "{error}");
    };
    check("llama.attention.head_count", 0u32.into(), "is 0, expected 1 to");
    check("llama.attention.head_count_kv", 0u32.into(), "is 0, expected 1 to");
    check("llama.block_count", (1u32 << 31).into(), "is 2147483648, expected 1 to 4096");
    check("llama.block_count", (-1i32).into(), "is -1, expected an integer");
    check("llama.block_count", "3".into(), "is \"3\", expected an integer");
    check("llama.embedding_length", (1u64 << 40).into(), "is 1099511627776, expected an integer from 0");
    check("llama.attention.head_count", vec![4u32, 4, 8].into(), "differs between layers");
    check("llama.attention.head_count", Vec::<u32>::new().into(), "differs between layers");
    check("llama.attention.value_length", 8u32.into(), "is 8, expected the width of keys");
    check("llama.attention.causal", false.into(), "is false");
    check("llama.attention.layer_norm_rms_epsilon", f32::NAN.into(), "is NaN, expected a finite number");
    check("llama.rope.freq_base", "x".into(), "is \"x\", expected a finite number");
    for key in
        ["llama.block_count", "llama.embedding_length", "llama.attention.head_count", "llama.feed_forward_length"]
    {
        let error = open(&llama.clone().unset(key).build()).unwrap_err().to_string();
        assert!(error.contains(&format!("key `{key}`: is absent, expected 1 to")), "{error}");
    }
    let equal = llama.clone().set("llama.attention.head_count", vec![4u32, 4, 4]);
    assert_eq!(open(&equal.build()).unwrap().config().usize("num_attention_heads").unwrap(), 4);
    let odd = llama.unset("llama.attention.key_length").set("llama.attention.head_count", 3u32);
    refused(&odd.build(), "`llama.attention.head_count`: is 3, expected a divisor of 64");
    let moe = hugging_face_to_gguf(&fixture("oracle/models/qwen3_moe"));
    refused(&moe.clone().set("qwen3moe.expert_used_count", 9u32).build(), "is 9, expected 1 to 8");
    refused(&moe.clone().set("qwen3moe.expert_gating_func", 2u32).build(), "expected 1 (softmax)");
    refused(&moe.unset("qwen3moe.expert_count").build(), "`qwen3moe.expert_count`: is absent or 0");
}

#[test]
fn impossible_settings_of_hybrids_name_their_key() {
    let model = hugging_face_to_gguf(&fixture("oracle/models/qwen3_5_moe"));
    let check = |key: &str, value: MetaValue, expected: &str| {
        let key = format!("qwen35moe.{key}");
        refused(&model.clone().set(&key, value).build(), &format!("key `{key}`: {expected}"));
    };
    check("nextn_predict_layers", 5u32.into(), "is 5, expected 0 to 4");
    check("nextn_predict_layers", u32::MAX.into(), "is 4294967295, expected 0 to 4");
    check("ssm.inner_size", 66u32.into(), "is 66, expected a multiple of 4, the value heads");
    check("ssm.time_step_rank", 0u32.into(), "is 0, expected 1 to 65536");
    check("full_attention_interval", 0u32.into(), "is 0, expected 1 to 4096");
    let sections = "rope.dimension_sections";
    check(sections, vec![2i32, 2].into(), "has 2 values up to 2, expected 3 up to 65536 (or these and a 0)");
    check(sections, vec![2i32, 1, 1, 1].into(), "has 4 values up to 2");
    check(sections, vec![2i32, 1, 1, 0, 0].into(), "has 5 values up to 2");
    check(sections, vec![65_537i32, 1, 1].into(), "has 3 values up to 65537");
    check(sections, vec![-1i32, 1, 1].into(), "is an array of 3 I32, expected an array of integers from 0");
    for key in [
        "ssm.group_count",
        "ssm.state_size",
        "ssm.conv_kernel",
        "ssm.time_step_rank",
        "ssm.inner_size",
        "expert_shared_feed_forward_length",
    ] {
        let key = format!("qwen35moe.{key}");
        refused(&model.clone().unset(&key).build(), &format!("key `{key}`: is absent, expected 1 to"));
    }
    let bare = [sections, "full_attention_interval", "nextn_predict_layers", "rope.dimension_count"];
    let bare = bare.iter().fold(model.clone(), |model, key| model.unset(&format!("qwen35moe.{key}")));
    let checkpoint = open(&bare.build()).unwrap();
    let number = |key: &str| checkpoint.config().usize(key).unwrap();
    assert_eq!((number("full_attention_interval"), number("num_hidden_layers")), (4, 5));
    assert_eq!(number("mtp_num_hidden_layers"), 0);
    assert_eq!(checkpoint.config().f32("partial_rotary_factor").unwrap(), 1.0);
    let three = model.clone().set("qwen35moe.rope.dimension_sections", vec![4u32, 0, 0]);
    let rope = open(&three.build()).unwrap().config().section("rope_parameters").unwrap().unwrap();
    assert_eq!(rope.usizes("mrope_section").unwrap(), [4, 0, 0]);
    // Two spellings of one tensor.
    let twice = model.tensor_f32("blk.0.ssm_dt", &[4], &[0.0; 4]);
    refused(&twice.build(), "model.gguf as `blk.0.ssm_dt.bias`, expected each tensor once");
}

#[test]
fn cut_files_tell_their_sizes() {
    let whole = hugging_face_to_gguf(&fixture("oracle/models/qwen2")).build();
    let cut = |length: usize| match open(&whole[..length]).unwrap_err() {
        LoadError::Truncated { found, expected, .. } => {
            assert_eq!(found, length as u64);
            assert!(expected > found && expected <= whole.len() as u64, "{expected}");
            expected
        }
        other => panic!("{length}: {other}"),
    };
    // The last tensor is padded, so the smallest whole file is a little shorter.
    assert!(cut(whole.len() - 1024) > whole.len() as u64 - 32);
    assert!(cut(whole.len() / 2) > whole.len() as u64 - 32);
    for length in [9, 24, 100, 1000, 3000] {
        cut(length);
    }
    // Bytes after the end are no harm.
    open(&[&whole[..], &[0; 100]].concat()).unwrap();
}

#[test]
fn the_type_id_with_two_meanings_is_told_by_size() {
    for (block_len, block_bytes, name) in [(64, 18, "Q2_0"), (128, 34, "Q2_0 (group 128)")] {
        let data = vec![1; 4 * 1024 / block_len * block_bytes];
        let builder =
            GgufBuilder::new("llama-like").tensor("a", &[4, 1024], 42, data.clone()).tensor("b", &[4, 1024], 42, data);
        let bytes = builder.build();
        // With and without padding at the end.
        for bytes in [
            &bytes[..],
            &bytes[..bytes.len() - (4 * 1024 / block_len * block_bytes).next_multiple_of(32)
                + 4 * 1024 / block_len * block_bytes],
        ] {
            let checkpoint = open(bytes).unwrap();
            assert!(checkpoint.tensors().all(|tensor| tensor.stored_as == name), "{name}");
        }
    }
    // A type that nobody knows: the file opens, the tensor is refused when it is asked for.
    let bytes = GgufBuilder::new("x").tensor("a.weight", &[2, 2], 77, vec![0; 64]).build();
    let checkpoint = open(&bytes).unwrap();
    let error = checkpoint.weights().matrix("a", 2, 2).unwrap_err().to_string();
    assert!(error.contains("has type unknown GGUF type 77"), "{error}");
}
