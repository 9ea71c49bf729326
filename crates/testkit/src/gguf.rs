//! A writer of GGUF files: what readers are tested with.
//!
//! It writes what it is told, also what no reader should accept; only sizes that it computes itself are right.

use std::path::{Path, PathBuf};

use kapitsa_tensor::{Format, Weight};

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names of the file format")]
pub enum MetaValue {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    /// Elements of one type; an empty array is written as one of u32.
    Array(Vec<MetaValue>),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl MetaValue {
    fn type_id(&self) -> u32 {
        match self {
            MetaValue::U8(_) => 0,
            MetaValue::I8(_) => 1,
            MetaValue::U16(_) => 2,
            MetaValue::I16(_) => 3,
            MetaValue::U32(_) => 4,
            MetaValue::I32(_) => 5,
            MetaValue::F32(_) => 6,
            MetaValue::Bool(_) => 7,
            MetaValue::String(_) => 8,
            MetaValue::Array(_) => 9,
            MetaValue::U64(_) => 10,
            MetaValue::I64(_) => 11,
            MetaValue::F64(_) => 12,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            MetaValue::U8(value) => out.push(*value),
            MetaValue::I8(value) => out.extend(value.to_le_bytes()),
            MetaValue::U16(value) => out.extend(value.to_le_bytes()),
            MetaValue::I16(value) => out.extend(value.to_le_bytes()),
            MetaValue::U32(value) => out.extend(value.to_le_bytes()),
            MetaValue::I32(value) => out.extend(value.to_le_bytes()),
            MetaValue::F32(value) => out.extend(value.to_le_bytes()),
            MetaValue::Bool(value) => out.push(u8::from(*value)),
            MetaValue::String(text) => write_string(out, text),
            MetaValue::Array(elements) => {
                out.extend(elements.first().map_or(4, MetaValue::type_id).to_le_bytes());
                out.extend((elements.len() as u64).to_le_bytes());
                elements.iter().for_each(|element| element.write(out));
            }
            MetaValue::U64(value) => out.extend(value.to_le_bytes()),
            MetaValue::I64(value) => out.extend(value.to_le_bytes()),
            MetaValue::F64(value) => out.extend(value.to_le_bytes()),
        }
    }
}

macro_rules! from {
    ($($type:ty => $variant:ident),*) => { $(
        impl From<$type> for MetaValue {
            fn from(value: $type) -> Self {
                MetaValue::$variant(value)
            }
        }
    )* };
}
from!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, f32 => F32, bool => Bool, String => String,
      u64 => U64, i64 => I64, f64 => F64);

impl From<&str> for MetaValue {
    fn from(text: &str) -> Self {
        MetaValue::String(text.into())
    }
}

impl<T: Into<MetaValue>> From<Vec<T>> for MetaValue {
    fn from(elements: Vec<T>) -> Self {
        MetaValue::Array(elements.into_iter().map(Into::into).collect())
    }
}

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufTensor {
    /// Name.
    pub name: String,
    /// Outermost dimension first; the file has the reverse.
    pub shape: Vec<usize>,
    /// Type id: 0 F32, 1 F16, 30 BF16, 12 Q4_K, ...
    pub type_id: u32,
    /// Contents.
    pub data: Vec<u8>,
}

/// A GGUF file in the making.
#[derive(Clone, Debug)]
pub struct GgufBuilder {
    version: u32,
    alignment: u32,
    metadata: Vec<(String, MetaValue)>,
    tensors: Vec<GgufTensor>,
}

impl Default for GgufBuilder {
    fn default() -> Self {
        GgufBuilder { version: 3, alignment: 32, metadata: Vec::new(), tensors: Vec::new() }
    }
}

impl GgufBuilder {
    /// A file of version 3 with `general.architecture` and nothing else.
    pub fn new(architecture: &str) -> Self {
        Self::default().set("general.architecture", architecture)
    }

    /// Sets the version number (2 and 3 have the same layout).
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Aligns tensors to `alignment` bytes and says so in the metadata.
    #[must_use]
    pub fn alignment(mut self, alignment: u32) -> Self {
        self.alignment = alignment;
        self.set("general.alignment", alignment)
    }

    /// Sets metadata `key`, in place of a value set before.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<MetaValue>) -> Self {
        self.metadata.retain(|(other, _)| other != key);
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Adds metadata `key` without looking whether it is there.
    #[must_use]
    pub fn add(mut self, key: &str, value: impl Into<MetaValue>) -> Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Removes metadata `key`.
    #[must_use]
    pub fn unset(mut self, key: &str) -> Self {
        self.metadata.retain(|(other, _)| other != key);
        self
    }

    /// Adds a tensor; `shape` has the outermost dimension first.
    #[must_use]
    pub fn tensor(mut self, name: &str, shape: &[usize], type_id: u32, data: impl Into<Vec<u8>>) -> Self {
        self.tensors.push(GgufTensor { name: name.into(), shape: shape.into(), type_id, data: data.into() });
        self
    }

    /// Adds a tensor of F32.
    #[must_use]
    pub fn tensor_f32(self, name: &str, shape: &[usize], values: &[f32]) -> Self {
        self.tensor(name, shape, 0, values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
    }

    /// Adds a weight under `name`, in its format.
    ///
    /// # Panics
    /// If GGUF has no type for the format.
    #[must_use]
    pub fn weight(self, name: &str, weight: &Weight) -> Self {
        let type_id = match weight.format() {
            Format::F32 => 0,
            Format::F16 => 1,
            Format::Bf16 => 30,
            Format::Gguf(kind) => kind.id(),
            other => panic!("GGUF has no type for {other}"),
        };
        self.tensor(name, &[weight.rows(), weight.cols()], type_id, weight.planes()[0].to_vec())
    }

    /// The tensors, to be changed.
    pub fn tensors_mut(&mut self) -> &mut Vec<GgufTensor> {
        &mut self.tensors
    }

    /// The bytes of the file.
    pub fn build(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(b"GGUF");
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            write_string(&mut out, key);
            out.extend(value.type_id().to_le_bytes());
            value.write(&mut out);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            write_string(&mut out, &tensor.name);
            out.extend((tensor.shape.len() as u32).to_le_bytes());
            tensor.shape.iter().rev().for_each(|&size| out.extend((size as u64).to_le_bytes()));
            out.extend(tensor.type_id.to_le_bytes());
            out.extend((offset as u64).to_le_bytes());
            offset += self.padded(tensor.data.len());
        }
        if !self.tensors.is_empty() {
            out.resize(self.padded(out.len()), 0);
        }
        for tensor in &self.tensors {
            out.extend(&tensor.data);
            out.resize(out.len() + self.padded(tensor.data.len()) - tensor.data.len(), 0);
        }
        out
    }

    fn padded(&self, bytes: usize) -> usize {
        bytes.next_multiple_of(self.alignment.max(1) as usize)
    }

    /// Writes the file.
    pub fn write(&self, path: &Path) {
        std::fs::write(path, self.build()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// The model as `count` files of about equally many tensors, as the public splitter writes them: all metadata in the
    /// first, `split.no` counting from 0.
    pub fn split(&self, count: usize) -> Vec<GgufBuilder> {
        let per_shard = self.tensors.len().div_ceil(count).max(1);
        (0..count)
            .map(|number| {
                let tensors = self.tensors.iter().skip(number * per_shard).take(per_shard).cloned().collect();
                let metadata = if number == 0 { self.metadata.clone() } else { Vec::new() };
                GgufBuilder { metadata, tensors, ..self.clone() }
                    .set("split.no", number as u16)
                    .set("split.count", count as u16)
                    .set("split.tensors.count", self.tensors.len() as i32)
            })
            .collect()
    }

    /// Writes the model as `count` files `folder/stem-00001-of-0000N.gguf` and returns their paths.
    pub fn write_split(&self, folder: &Path, stem: &str, count: usize) -> Vec<PathBuf> {
        let shards = self.split(count).into_iter().enumerate();
        shards
            .map(|(index, shard)| {
                let path = folder.join(format!("{stem}-{:05}-of-{count:05}.gguf", index + 1));
                shard.write(&path);
                path
            })
            .collect()
    }
}

fn write_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
