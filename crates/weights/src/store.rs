//! All tensors of an opened model by their Hugging Face names, whichever container they came from.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use kapitsa_tensor::DType;
use safetensors::Dtype;

use crate::error::short;
use crate::gguf::names::Names;
use crate::gguf::types::TensorType;
use crate::mlx::Quantization;
use crate::{Container, LoadError, composite, gguf, safetensors as st};

/// A tensor as it is stored.
#[derive(Debug)]
pub(crate) struct StoredTensor {
    /// As the file spells it.
    pub(crate) name: String,
    pub(crate) path: Arc<Path>,
    /// Outermost dimension first.
    pub(crate) shape: Vec<usize>,
    pub(crate) kind: Kind,
    pub(crate) data: Bytes,
    /// Whether a loader asked for it.
    used: AtomicBool,
}

/// Element or block type of a stored tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gguf(TensorType),
    Safetensors(Dtype),
}

impl Kind {
    /// The type of plain floating-point elements, if the tensor has such.
    pub(crate) fn dtype(self) -> Option<DType> {
        match self {
            Kind::Gguf(TensorType::Weight(format)) => {
                [DType::F32, DType::F16, DType::Bf16].into_iter().find(|&dtype| format == dtype.into())
            }
            Kind::Safetensors(Dtype::F32) => Some(DType::F32),
            Kind::Safetensors(Dtype::F16) => Some(DType::F16),
            Kind::Safetensors(Dtype::BF16) => Some(DType::Bf16),
            _ => None,
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Kind::Gguf(kind) => kind.fmt(f),
            Kind::Safetensors(dtype) => write!(f, "{dtype:?}"),
        }
    }
}

impl StoredTensor {
    /// An error about this tensor.
    pub(crate) fn error(&self, reason: impl Into<String>) -> LoadError {
        LoadError::tensor(&self.name, reason).in_file(&self.path)
    }
}

/// The tensors of a model.
#[derive(Debug)]
pub(crate) struct Store {
    tensors: HashMap<String, StoredTensor>,
    /// The file of a model in one file, else the folder.
    pub(crate) path: Arc<Path>,
    pub(crate) container: Container,
    pub(crate) quantization: Quantization,
    /// For GGUF of a known architecture.
    gguf_names: Option<Names>,
}

impl Store {
    /// Takes the tensors of GGUF files, with their paths, and translates what `names` has.
    pub(crate) fn from_gguf(
        path: Arc<Path>,
        files: Vec<(Arc<Path>, Vec<gguf::Tensor>)>,
        names: Option<Names>,
    ) -> Result<Self, LoadError> {
        let mut store = Store::empty(path, Container::Gguf, Quantization::default());
        store.gguf_names = names;
        for (path, tensors) in files {
            for tensor in tensors {
                let name = names.and_then(|names| names.to_hugging_face(&tensor.name));
                let name = name.unwrap_or_else(|| tensor.name.clone());
                let gguf::Tensor { name: own_name, shape, kind, data } = tensor;
                store.insert(name, &path, own_name, shape, Kind::Gguf(kind), data)?;
            }
        }
        Ok(store)
    }

    /// Takes the tensors of safetensors files.
    pub(crate) fn from_safetensors(
        path: Arc<Path>,
        files: Vec<st::File>,
        container: Container,
        quantization: Quantization,
    ) -> Result<Self, LoadError> {
        let mut store = Store::empty(path, container, quantization);
        for file in files {
            for st::Tensor { name, shape, dtype, data } in file.tensors {
                store.insert(composite::from_file(&name), &file.path, name, shape, Kind::Safetensors(dtype), data)?;
            }
        }
        Ok(store)
    }

    fn empty(path: Arc<Path>, container: Container, quantization: Quantization) -> Self {
        Store { tensors: HashMap::new(), path, container, quantization, gguf_names: None }
    }

    fn insert(
        &mut self,
        key: String,
        path: &Arc<Path>,
        name: String,
        shape: Vec<usize>,
        kind: Kind,
        data: Bytes,
    ) -> Result<(), LoadError> {
        let tensor = StoredTensor { name, path: path.clone(), shape, kind, data, used: AtomicBool::new(false) };
        match self.tensors.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(tensor);
                Ok(())
            }
            Entry::Occupied(first) => {
                let StoredTensor { name, path, .. } = first.get();
                let reason = format!("is also in {} as `{}`, expected each tensor once", path.display(), short(name));
                Err(tensor.error(reason))
            }
        }
    }

    pub(crate) fn peek(&self, name: &str) -> Option<&StoredTensor> {
        self.tensors.get(name)
    }

    /// A tensor that the caller is about to use.
    pub(crate) fn take(&self, name: &str) -> Option<&StoredTensor> {
        let tensor = self.tensors.get(name)?;
        tensor.used.store(true, Ordering::Relaxed);
        Some(tensor)
    }

    /// Takes all tensors whose names begin with `beginning`.
    pub(crate) fn take_all(&self, beginning: &str) {
        let tensors = self.tensors.iter().filter(|(name, _)| name.starts_with(beginning));
        tensors.for_each(|(_, tensor)| tensor.used.store(true, Ordering::Relaxed));
    }

    /// Names and tensors, sorted by name.
    pub(crate) fn sorted(&self) -> Vec<(&str, &StoredTensor)> {
        let mut tensors: Vec<_> = self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        tensors.sort_unstable_by_key(|(name, _)| *name);
        tensors
    }

    pub(crate) fn is_used(tensor: &StoredTensor) -> bool {
        tensor.used.load(Ordering::Relaxed)
    }

    /// The error for a tensor that is not there, with the file's spelling of its name.
    pub(crate) fn missing(&self, name: &str, hint: &str) -> LoadError {
        let is_there = |beginning: &str| self.tensors.values().any(|tensor| tensor.name.starts_with(beginning));
        let own_name = match self.gguf_names {
            Some(names) => names.to_gguf(name),
            None => composite::to_file(name, is_there),
        };
        let shown = own_name.map_or(name.to_string(), |own| format!("{own} ({name})"));
        LoadError::tensor(shown, format!("is missing, expected by the model's configuration; {hint}"))
            .in_file(&self.path)
    }
}
