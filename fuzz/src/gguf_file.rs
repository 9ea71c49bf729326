//! GGUF files, read without judging and changed in ways that a blind mutator does not hit upon.

use kapitsa_tensor::Format;
use kapitsa_testkit::random::Rng;

use crate::{json, odd_number, pick};

const ALIGNMENT: usize = 32;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Strings that mean something in metadata or as names of keys and tensors.
const WORDS: &[&str] = &[
    "",
    "llama",
    "qwen2",
    "qwen3",
    "qwen3moe",
    "mixtral",
    "none",
    "linear",
    "yarn",
    "longrope",
    "gpt2",
    "spm",
    "default",
    "llama-bpe",
    "smollm",
    "qwen35",
    "general.alignment",
    "general.architecture",
    "split.count",
    "split.no",
    "output.weight",
    "token_embd.weight",
    "rope_freqs.weight",
    "blk.0.attn_q.bias",
    "blk.0.ffn_up.bias",
    "blk.4095.attn_q.weight",
    "blk.18446744073709551616.attn_q.weight",
    "blk..attn_q.weight",
    "<0x0A>",
    "<0x",
    "\u{120}",
    "\u{2581}",
    " ",
    "\u{e9}",
];

struct File {
    version: u32,
    keys: Vec<(Vec<u8>, Value)>,
    tensors: Vec<Tensor>,
    /// What is added to the counts of tensors and keys, to be wrong.
    lies: (u64, u64),
    data: Vec<u8>,
}

#[derive(Clone)]
enum Value {
    /// Type and bytes.
    Scalar(u32, Vec<u8>),
    String(Vec<u8>),
    /// Type, bytes of each element.
    Scalars(u32, Vec<Vec<u8>>),
    Strings(Vec<Vec<u8>>),
}

#[derive(Clone)]
struct Tensor {
    name: Vec<u8>,
    /// Innermost first, as stored.
    shape: Vec<u64>,
    kind: u32,
    offset: u64,
}

/// Changes one to four things; `None` if the file cannot be read.
pub fn mutate(data: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let mut file = File::read(data)?;
    for _ in 0..1 + rng.below(4) {
        match rng.below(10) {
            0..=2 => file.change_key(rng),
            3..=5 => file.change_tensor(rng),
            6 | 7 => file.resize(rng),
            8 => file.change_data(rng),
            _ => match rng.below(20) {
                0 => file.version = odd_number(rng) as u32,
                1 => file.lies.0 = odd_number(rng),
                2 => file.lies.1 = odd_number(rng),
                3 => file.data.truncate(rng.below(file.data.len() + 1)),
                _ => file.change_key(rng),
            },
        }
    }
    if rng.below(4) > 0 {
        file.lay_out();
    }
    Some(file.write())
}

/// Changes tokenizer metadata above all; `None` if the file cannot be read.
pub fn mutate_tokenizer(data: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let mut file = File::read(data)?;
    for _ in 0..1 + rng.below(4) {
        file.change_key(rng);
    }
    Some(file.write())
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn string(&mut self) -> Option<Vec<u8>> {
        let length = self.u64()?;
        Some(self.take(length)?.to_vec())
    }

    fn value(&mut self) -> Option<Value> {
        let kind = self.u32()?;
        match kind {
            STRING => Some(Value::String(self.string()?)),
            ARRAY => {
                let kind = self.u32()?;
                let count = self.u64()?;
                if kind == STRING {
                    return (0..count).map(|_| self.string()).collect::<Option<_>>().map(Value::Strings);
                }
                let elements = (0..count).map(|_| Some(self.take(scalar_bytes(kind)?)?.to_vec()));
                elements.collect::<Option<_>>().map(|elements| Value::Scalars(kind, elements))
            }
            _ => Some(Value::Scalar(kind, self.take(scalar_bytes(kind)?)?.to_vec())),
        }
    }
}

fn scalar_bytes(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

impl File {
    fn read(data: &[u8]) -> Option<File> {
        let mut cursor = Cursor(data);
        if cursor.take(4)? != b"GGUF" {
            return None;
        }
        let version = cursor.u32()?;
        let (num_tensors, num_keys) = (cursor.u64()?, cursor.u64()?);
        let keys = (0..num_keys).map(|_| Some((cursor.string()?, cursor.value()?))).collect::<Option<_>>()?;
        let tensor = |_| {
            let name = cursor.string()?;
            let num_dimensions = cursor.u32()?;
            let shape = (0..num_dimensions).map(|_| cursor.u64()).collect::<Option<_>>()?;
            Some(Tensor { name, shape, kind: cursor.u32()?, offset: cursor.u64()? })
        };
        let tensors = (0..num_tensors).map(tensor).collect::<Option<_>>()?;
        let header = data.len() - cursor.0.len();
        let start = header.next_multiple_of(ALIGNMENT).min(data.len());
        Some(File { version, keys, tensors, lies: (0, 0), data: data[start..].to_vec() })
    }

    fn write(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).wrapping_add(self.lies.0).to_le_bytes());
        out.extend((self.keys.len() as u64).wrapping_add(self.lies.1).to_le_bytes());
        for (key, value) in &self.keys {
            string(&mut out, key);
            match value {
                Value::Scalar(kind, bytes) => {
                    out.extend(kind.to_le_bytes());
                    out.extend(bytes);
                }
                Value::String(text) => {
                    out.extend(STRING.to_le_bytes());
                    string(&mut out, text);
                }
                Value::Scalars(kind, elements) => {
                    array(&mut out, *kind, elements.len());
                    elements.iter().for_each(|element| out.extend(element));
                }
                Value::Strings(elements) => {
                    array(&mut out, STRING, elements.len());
                    elements.iter().for_each(|element| string(&mut out, element));
                }
            }
        }
        for Tensor { name, shape, kind, offset } in &self.tensors {
            string(&mut out, name);
            out.extend((shape.len() as u32).to_le_bytes());
            shape.iter().for_each(|size| out.extend(size.to_le_bytes()));
            out.extend(kind.to_le_bytes());
            out.extend(offset.to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
        out.extend(&self.data);
        out
    }

    fn change_key(&mut self, rng: &mut Rng) {
        let Some(index) = pick(rng, self.keys.len()) else { return };
        let other = rng.below(self.keys.len());
        match rng.below(12) {
            0 => drop(self.keys.remove(index)),
            1 => self.keys[index].1 = self.keys[other].1.clone(),
            2 => self.keys[index].0 = WORDS[rng.below(WORDS.len())].into(),
            3 => {
                let copy = (WORDS[rng.below(WORDS.len())].into(), self.keys[index].1.clone());
                self.keys.push(copy);
            }
            _ => change_value(&mut self.keys[index].1, rng),
        }
    }

    fn change_tensor(&mut self, rng: &mut Rng) {
        let Some(index) = pick(rng, self.tensors.len()) else { return };
        let other = rng.below(self.tensors.len());
        let offset = self.tensors[other].offset;
        let name = self.tensors[other].name.clone();
        let tensor = &mut self.tensors[index];
        match rng.below(10) {
            0 => drop(self.tensors.remove(index)),
            1 => tensor.offset = offset,
            2 => tensor.offset = odd_number(rng),
            3 | 4 => tensor.kind = rng.below(48) as u32,
            5 => tensor.name = name,
            6 => tensor.name = WORDS[rng.below(WORDS.len())].into(),
            7 => tensor.shape.push(odd_number(rng)),
            8 => drop(tensor.shape.pop()),
            _ => {
                if let Some(at) = pick(rng, tensor.shape.len()) {
                    tensor.shape[at] = odd_number(rng);
                }
            }
        }
    }

    /// Replaces one size everywhere, in the metadata, too, so that the file still belongs together.
    fn resize(&mut self, rng: &mut Rng) {
        let sizes: Vec<u64> = self.tensors.iter().flat_map(|tensor| tensor.shape.iter().copied()).collect();
        let Some(index) = pick(rng, sizes.len()) else { return };
        let from = sizes[index];
        let to = match rng.below(3) {
            0 => odd_number(rng),
            1 => from.wrapping_add(rng.below(5) as u64).wrapping_sub(2),
            _ => rng.below(70) as u64,
        };
        let sizes = self.tensors.iter_mut().flat_map(|tensor| &mut tensor.shape);
        sizes.filter(|size| **size == from).for_each(|size| *size = to);
        for (_, value) in &mut self.keys {
            if let Value::Scalar(4, bytes) = value
                && bytes[..] == (from as u32).to_le_bytes()
            {
                *bytes = (to as u32).to_le_bytes().to_vec();
            }
        }
    }

    fn change_data(&mut self, rng: &mut Rng) {
        let Some(at) = pick(rng, self.data.len()) else { return };
        let end = self.data.len().min(at + 1 + rng.below(256));
        match rng.below(6) {
            0 => self.data[at..end].fill(0xff),
            1 => self.data[at..end].fill(0),
            2 => self.data[at..end].fill(0x7f),
            _ => self.data[at..end].iter_mut().for_each(|byte| *byte = rng.bits() as u8),
        }
    }

    /// Gives every tensor the bytes that its shape and type demand, if that is little enough.
    fn lay_out(&mut self) {
        let mut end = 0;
        for tensor in &mut self.tensors {
            let cols = tensor.shape.first().copied().unwrap_or(1);
            let rows = tensor.shape.iter().skip(1).try_fold(1u64, |rows, &size| rows.checked_mul(size));
            let (Some(rows), Some(format)) = (rows, Format::from_gguf_id(tensor.kind)) else { continue };
            let Ok(planes) = format.planes(rows as usize, cols as usize) else { continue };
            let bytes = planes.into_iter().fold(0, usize::saturating_add);
            if bytes < 1 << 17 {
                tensor.offset = end as u64;
                end += bytes.next_multiple_of(ALIGNMENT);
            }
        }
        self.data.resize(end, 0x3c);
    }
}

fn change_value(value: &mut Value, rng: &mut Rng) {
    match value {
        Value::Scalar(kind, bytes) => {
            if rng.below(6) == 0 {
                *kind = [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12][rng.below(11)];
            }
            *bytes = scalar(*kind, rng);
        }
        Value::String(text) => change_bytes(text, rng),
        Value::Scalars(kind, elements) => {
            let fresh = scalar(*kind, rng);
            change_list(elements, fresh, rng, |element, rng| *element = scalar(*kind, rng));
        }
        Value::Strings(elements) => {
            let fresh = WORDS[rng.below(WORDS.len())].as_bytes().to_vec();
            change_list(elements, fresh, rng, change_bytes);
        }
    }
}

fn change_list<T: Clone>(list: &mut Vec<T>, fresh: T, rng: &mut Rng, change: impl Fn(&mut T, &mut Rng)) {
    let Some(index) = pick(rng, list.len()) else {
        list.push(fresh);
        return;
    };
    match rng.below(8) {
        0 => drop(list.remove(index)),
        1 => list.insert(index, fresh),
        2 => list.push(list[index].clone()),
        3 => list.truncate(index),
        4 => {
            let other = rng.below(list.len());
            list.swap(index, other);
        }
        _ => change(&mut list[index], rng),
    }
}

fn change_bytes(bytes: &mut Vec<u8>, rng: &mut Rng) {
    match (rng.below(4), String::from_utf8(bytes.clone())) {
        (0, _) => *bytes = WORDS[rng.below(WORDS.len())].into(),
        (1, _) if !bytes.is_empty() => {
            let at = rng.below(bytes.len());
            bytes[at] = rng.bits() as u8;
        }
        (_, Ok(mut text)) => {
            json::change_string(&mut text, rng);
            *bytes = text.into_bytes();
        }
        _ => bytes.clear(),
    }
}

fn scalar(kind: u32, rng: &mut Rng) -> Vec<u8> {
    const FLOATS: &[f64] =
        &[0.0, -0.0, 1.0, -1.0, 0.5, 1e-6, 1e4, 1e6, 1e38, 1e-45, 1e308, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    let float = FLOATS[rng.below(FLOATS.len())];
    let bits = match kind {
        6 => u64::from((float as f32).to_bits()),
        12 => float.to_bits(),
        7 => rng.below(3) as u64,
        _ => odd_number(rng),
    };
    bits.to_le_bytes()[..scalar_bytes(kind).unwrap_or(4) as usize].to_vec()
}

fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text);
}

fn array(out: &mut Vec<u8>, kind: u32, len: usize) {
    out.extend(ARRAY.to_le_bytes());
    out.extend(kind.to_le_bytes());
    out.extend((len as u64).to_le_bytes());
}
