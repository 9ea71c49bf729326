//! Files under `tests/fixtures` and the tensors in them. Everything here panics on failure: it runs in tests only.

use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};

/// The path of `name` under `tests/fixtures`, such as `oracle/models/llama`.
///
/// # Panics
/// If there is no such file or folder.
pub fn fixture(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(name);
    path.canonicalize().unwrap_or_else(|error| panic!("fixture {name}: {error}"))
}

/// The tensors of a safetensors file, read into memory.
#[derive(Clone, Debug)]
pub struct Tensors {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// A tensor as it is stored.
#[derive(Clone, Debug)]
pub struct RawTensor {
    /// Element type.
    pub dtype: Dtype,
    /// Outermost dimension first.
    pub shape: Vec<usize>,
    /// Little-endian elements.
    pub data: Vec<u8>,
}

impl Tensors {
    /// Reads the file `path`.
    pub fn open(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        SafeTensors::deserialize(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Tensors { path, bytes }
    }

    /// Reads a file under `tests/fixtures`.
    pub fn fixture(name: &str) -> Self {
        Self::open(fixture(name))
    }

    fn parsed(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes).expect("checked when it was opened")
    }

    /// All keys, sorted.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.parsed().names().into_iter().map(String::from).collect();
        keys.sort_unstable();
        keys
    }

    /// Whether there is a tensor `key`.
    pub fn has(&self, key: &str) -> bool {
        self.parsed().tensor(key).is_ok()
    }

    /// The tensor `key`.
    pub fn raw(&self, key: &str) -> RawTensor {
        let file = self.parsed();
        let tensor = file.tensor(key).unwrap_or_else(|error| panic!("{}: {error}", self.path.display()));
        RawTensor { dtype: tensor.dtype(), shape: tensor.shape().to_vec(), data: tensor.data().to_vec() }
    }

    /// Shape of `key`, outermost dimension first.
    pub fn shape(&self, key: &str) -> Vec<usize> {
        self.raw(key).shape
    }

    /// Values of `key` (F32, F16 or BF16), widened.
    pub fn f32(&self, key: &str) -> Vec<f32> {
        self.raw(key).f32().unwrap_or_else(|| self.wrong_type(key))
    }

    /// Values of `key` (I32 or I64).
    pub fn i32(&self, key: &str) -> Vec<i32> {
        self.i64(key).into_iter().map(|value| i32::try_from(value).expect("fits in 32 bits")).collect()
    }

    /// Values of `key` (I32, I64, U8 or BOOL).
    pub fn i64(&self, key: &str) -> Vec<i64> {
        let RawTensor { dtype, data, .. } = self.raw(key);
        match dtype {
            Dtype::I64 => data.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect(),
            Dtype::I32 => data.as_chunks().0.iter().map(|bytes| i64::from(i32::from_le_bytes(*bytes))).collect(),
            Dtype::U8 | Dtype::BOOL => data.iter().map(|byte| i64::from(*byte)).collect(),
            _ => self.wrong_type(key),
        }
    }

    fn wrong_type<T>(&self, key: &str) -> T {
        panic!("{}: {key} is {:?}", self.path.display(), self.raw(key).dtype)
    }
}

impl RawTensor {
    /// The values of a floating-point tensor, widened.
    pub fn f32(&self) -> Option<Vec<f32>> {
        match self.dtype {
            Dtype::F32 => Some(self.data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()),
            Dtype::F16 => {
                Some(self.data.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect())
            }
            Dtype::BF16 => {
                Some(self.data.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect())
            }
            _ => None,
        }
    }
}

/// A safetensors file of F32 tensors, to write small checkpoints: `(name, shape, values)`.
pub fn safetensors_file(tensors: &[(&str, Vec<usize>, Vec<f32>)]) -> Vec<u8> {
    let raw = tensors.iter().map(|(name, shape, values)| {
        let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        (name.to_string(), RawTensor { dtype: Dtype::F32, shape: shape.clone(), data })
    });
    safetensors_raw_file(&raw.collect::<Vec<_>>())
}

/// A safetensors file of tensors of any type.
pub fn safetensors_raw_file(tensors: &[(String, RawTensor)]) -> Vec<u8> {
    let views = tensors.iter().map(|(name, tensor)| {
        let view = safetensors::tensor::TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.data);
        (name.as_str(), view.expect("shape and data agree"))
    });
    safetensors::serialize(views, None).expect("tensors serialize")
}
