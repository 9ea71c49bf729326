//! Changes to `config.json` and `model.safetensors`, joined in one input.

use kapitsa_testkit::random::Rng;
use safetensors::Dtype;
use serde_json::{Map, Value, json};

use crate::{json as text, odd_number, parts, pick};

/// Changes config, header or data; `None` if neither can be read.
pub fn mutate(data: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let [config, weights] = parts::split(data);
    let (mut config, mut weights) = (config.to_vec(), weights.to_vec());
    match rng.below(4) {
        0 | 1 => config = text::mutate_text(&config, rng)?,
        2 => weights = mutate_weights(&weights, rng)?,
        _ => (config, weights) = resize(&config, &weights, rng)?,
    }
    Some(parts::join(&[config, weights]))
}

fn read(weights: &[u8]) -> Option<(Value, Vec<u8>)> {
    let (length, rest) = weights.split_first_chunk::<8>()?;
    let header = rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    Some((serde_json::from_slice(header).ok()?, rest[header.len()..].to_vec()))
}

fn write(header: &Value, data: &[u8]) -> Option<Vec<u8>> {
    let header = serde_json::to_vec(header).ok()?;
    Some([&(header.len() as u64).to_le_bytes()[..], &header, data].concat())
}

fn mutate_weights(weights: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let (mut header, mut data) = read(weights)?;
    for _ in 0..1 + rng.below(3) {
        match rng.below(4) {
            0 => {
                let at = pick(rng, data.len())?;
                let end = data.len().min(at + 1 + rng.below(64));
                let byte = [0, 0x7f, 0x80, 0xff, rng.bits() as u8][rng.below(5)];
                data[at..end].fill(byte);
            }
            1 => data.truncate(rng.below(data.len() + 1)),
            _ => text::mutate(&mut header, rng),
        }
    }
    if rng.below(2) == 0 {
        data = lay_out(header.as_object_mut()?, data);
    }
    write(&header, &data)
}

/// Replaces one size everywhere, in the config, too, so that files still belong together.
fn resize(config: &[u8], weights: &[u8], rng: &mut Rng) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut config: Value = serde_json::from_slice(config).ok()?;
    let (mut header, data) = read(weights)?;
    let sizes: Vec<u64> = dimensions(header.as_object_mut()?).map(|size| size.as_u64().unwrap_or_default()).collect();
    let from = sizes[pick(rng, sizes.len())?];
    let to = match rng.below(3) {
        0 => odd_number(rng),
        1 => from.wrapping_add(rng.below(5) as u64).wrapping_sub(2),
        _ => rng.below(70) as u64,
    };
    let entries = header.as_object_mut()?;
    dimensions(entries).filter(|size| **size == json!(from)).for_each(|size| *size = json!(to));
    if rng.below(4) > 0 {
        config
            .as_object_mut()?
            .values_mut()
            .filter(|value| **value == json!(from))
            .for_each(|value| *value = json!(to));
    }
    let data = lay_out(entries, data);
    Some((serde_json::to_vec(&config).ok()?, write(&header, &data)?))
}

fn dimensions(entries: &mut Map<String, Value>) -> impl Iterator<Item = &mut Value> {
    entries.values_mut().filter_map(|entry| entry.get_mut("shape")?.as_array_mut()).flatten()
}

/// Gives every tensor the bytes that its shape demands, one after the other, if that is little enough.
fn lay_out(entries: &mut Map<String, Value>, mut data: Vec<u8>) -> Vec<u8> {
    let mut end = 0usize;
    for entry in entries.values_mut() {
        let dtype = entry.get("dtype").and_then(|dtype| serde_json::from_value::<Dtype>(dtype.clone()).ok());
        let shape = entry.get("shape").and_then(Value::as_array);
        let (Some(dtype), Some(shape)) = (dtype, shape) else { continue };
        let mut sizes = shape.iter().map(|size| size.as_u64().and_then(|size| usize::try_from(size).ok()));
        let bits = sizes.try_fold(dtype.bitsize(), |bits, size| bits.checked_mul(size?));
        let Some(bytes) = bits.map(|bits| bits / 8).filter(|&bytes| bytes < 1 << 17) else { continue };
        entry["data_offsets"] = json!([end, end + bytes]);
        end += bytes;
    }
    data.resize(end, 0x3c);
    data
}
