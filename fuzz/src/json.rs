//! Changes to JSON texts.

use kapitsa_testkit::random::Rng;
use serde_json::{Map, Number, Value, json};

use crate::{odd_number, parts, pick};

/// Strings that mean something to a reader of models.
const WORDS: &[&str] = &[
    "",
    "llama",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "silu",
    "gelu",
    "default",
    "linear",
    "llama3",
    "yarn",
    "mlx",
    "affine",
    "mxfp4",
    "mxfp8",
    "nvfp4",
    "F32",
    "F16",
    "BF16",
    "F8_E4M3",
    "F8_E5M2",
    "U8",
    "U32",
    "I64",
    "BOOL",
    "F4",
    "sliding_attention",
    "full_attention",
    "adjacent_pairs",
    "BPE",
    "Unigram",
    "WordPiece",
    "ByteLevel",
    "Split",
    "Sequence",
    "Metaspace",
    "Replace",
    "NFC",
    "NFKC",
    "Lowercase",
    "Digits",
    "Isolated",
    "MergedWithPrevious",
    "Removed",
    "Strip",
    "Fuse",
    "ByteFallback",
    "Regex",
    "String",
    "first",
    "always",
    "never",
    "(",
    "(a+)+$",
    "\\p{L}+",
    "[^",
    "(?=",
    "{{",
    "\u{0}",
    "\u{e9}",
    "\u{1f600}",
    " ",
    "\u{2581}",
    "\u{120}",
    "<0x0A>",
    "<0xFF>",
    "user",
    "assistant",
    "system",
];

/// Changes a place of a JSON text, sometimes up to four; `None` if it is not JSON.
pub fn mutate_text(text: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(text).ok()?;
    let more = if rng.below(3) == 0 { rng.below(4) } else { 0 };
    for _ in 0..1 + more {
        mutate(&mut value, rng);
    }
    serde_json::to_vec(&value).ok()
}

/// Changes one place.
pub fn mutate(root: &mut Value, rng: &mut Rng) {
    let count = count(root);
    let donor = nth(root, &mut rng.below(count)).clone();
    change(nth(root, &mut rng.below(count)), donor, rng);
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(entries) => entries.values().map(count).sum::<usize>(),
        _ => 0,
    }
}

/// The value that is number `index` when they are visited in order.
fn nth<'a>(value: &'a mut Value, index: &mut usize) -> &'a mut Value {
    fn find<'a>(value: &'a mut Value, index: &mut usize) -> Option<&'a mut Value> {
        if *index == 0 {
            return Some(value);
        }
        *index -= 1;
        match value {
            Value::Array(items) => items.iter_mut().find_map(|item| find(item, index)),
            Value::Object(entries) => entries.values_mut().find_map(|item| find(item, index)),
            _ => None,
        }
    }
    find(value, index).expect("index is below the count")
}

fn change(value: &mut Value, donor: Value, rng: &mut Rng) {
    match (rng.below(4), &mut *value) {
        (0 | 1, Value::Object(entries)) => change_object(entries, donor, rng),
        (0 | 1, Value::Array(items)) => change_array(items, donor, rng),
        (0 | 1, Value::String(text)) => change_string(text, rng),
        (0..=2, Value::Number(number)) => *value = Value::Number(change_number(number, rng)),
        (3, _) => *value = donor,
        _ => *value = odd_value(rng),
    }
}

fn change_object(entries: &mut Map<String, Value>, donor: Value, rng: &mut Rng) {
    let keys: Vec<String> = entries.keys().cloned().collect();
    let Some(key) = pick(rng, keys.len()).map(|index| keys[index].clone()) else { return };
    match rng.below(4) {
        0 => drop(entries.remove(&key)),
        1 => drop(entries.insert(WORDS[rng.below(WORDS.len())].into(), donor)),
        2 => {
            let other = keys[rng.below(keys.len())].clone();
            let (a, b) = (entries[&key].clone(), entries[&other].clone());
            entries.insert(key, b);
            entries.insert(other, a);
        }
        _ => drop(entries.insert(key, donor)),
    }
}

fn change_array(items: &mut Vec<Value>, donor: Value, rng: &mut Rng) {
    let Some(index) = pick(rng, items.len()) else {
        items.push(donor);
        return;
    };
    match rng.below(5) {
        0 => drop(items.remove(index)),
        1 => items.insert(index, donor),
        2 => items.insert(index, items[index].clone()),
        3 => items.truncate(index),
        _ => {
            let other = rng.below(items.len());
            items.swap(index, other);
        }
    }
}

pub(crate) fn change_string(text: &mut String, rng: &mut Rng) {
    let boundaries: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let at = boundaries[rng.below(boundaries.len())];
    match rng.below(5) {
        0 => text.truncate(at),
        1 => text.insert_str(at, WORDS[rng.below(WORDS.len())]),
        2 if at < text.len() => drop(text.remove(at)),
        3 => *text = WORDS[rng.below(WORDS.len())].into(),
        _ => {
            let part = text[at..].chars().take(20).collect::<String>();
            text.insert_str(at, &part.repeat(1 + rng.below(40)));
        }
    }
}

fn change_number(number: &Number, rng: &mut Rng) -> Number {
    let near = number.as_i64().unwrap_or_default();
    match rng.below(6) {
        0 => near.wrapping_add(1).into(),
        1 => near.wrapping_sub(1).into(),
        2 => near.wrapping_mul(2).into(),
        3 => (near / 2).into(),
        _ => odd_number(rng).into(),
    }
}

fn odd_value(rng: &mut Rng) -> Value {
    match rng.below(12) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(false),
        3 => json!(-(odd_number(rng) as i64 as f64)),
        4 => json!(odd_number(rng) as f64 / 7.0),
        5 => json!([1e308, 1e-320, 3.5e38, -0.0, 0.5, 1e-45][rng.below(6)]),
        6 => json!([]),
        7 => json!({}),
        8 => json!(WORDS[rng.below(WORDS.len())]),
        9 => (0..rng.below(120)).fold(json!(1), |inner, _| json!([inner])),
        10 => json!(vec![odd_number(rng); rng.below(70)]),
        _ => json!(odd_number(rng)),
    }
}

/// Changes one of several JSON texts, or the last one, which is plain text.
pub fn mutate_parts<const N: usize>(data: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let mut parts = parts::split::<N>(data).map(<[u8]>::to_vec);
    let index = if rng.below(4) > 0 { 0 } else { rng.below(N) };
    parts[index] = if index + 1 < N {
        mutate_text(&parts[index], rng)?
    } else {
        let mut text = String::from_utf8_lossy(&parts[index]).into_owned();
        change_string(&mut text, rng);
        text.into_bytes()
    };
    Some(parts::join(&parts))
}
