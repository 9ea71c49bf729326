//! Tensors by name and shape, for model files.

use kapitsa_tensor::Weight;

use crate::bind::{Expected, bind, bind_tensor};
use crate::store::{Store, StoredTensor};
use crate::{Container, LoadError};

/// The tensors under a name, always in Hugging Face spelling: `model.layers.0.self_attn`.
///
/// Everything that is asked for is marked as used; [`Checkpoint::unused`](crate::Checkpoint::unused) lists the rest.
#[derive(Clone)]
pub struct Weights<'a> {
    store: &'a Store,
    /// Ends in a dot, except at the root, where it is empty.
    scope: String,
}

impl<'a> Weights<'a> {
    pub(crate) fn root(store: &'a Store) -> Self {
        Weights { store, scope: String::new() }
    }

    /// The tensors under `name` within this scope.
    pub fn at(&self, name: &str) -> Weights<'a> {
        Weights { store: self.store, scope: format!("{}{name}.", self.scope) }
    }

    /// Which container the tensors come from, for conventions that differ: some keep other values, not just other names.
    pub fn container(&self) -> Container {
        self.store.container
    }

    /// Whether a tensor is there. `name` is complete, such as `q_proj.bias` or `lm_head.weight`.
    pub fn has(&self, name: &str) -> bool {
        let name = self.full(name);
        self.store.peek(&name).is_some() || self.store.peek(&format!("{name}_packed")).is_some()
    }

    /// Shape of a tensor as stored (packed columns count as stored), outermost dimension first.
    pub fn shape(&self, name: &str) -> Option<&'a [usize]> {
        self.store.peek(&self.full(name)).map(|tensor| &tensor.shape[..])
    }

    /// An error about tensor `name` of this scope.
    pub fn error(&self, name: &str, reason: impl Into<String>) -> LoadError {
        LoadError::tensor(self.full(name), reason).in_file(&self.store.path)
    }

    /// The matrix `[rows, cols]` of module `name`: `q_proj` is `<scope>.q_proj.weight` with the scales and the like that
    /// belong to its format. The bytes stay in the file.
    ///
    /// # Errors
    /// If a tensor is missing, has another shape, or a type that is not read.
    pub fn matrix(&self, name: &str, rows: usize, cols: usize) -> Result<Weight, LoadError> {
        bind(self.store, &self.full(name), Expected { stack: None, rows, cols })
    }

    /// The `len` values of a one-dimensional tensor of F32, F16 or BF16, widened exactly. `name` is complete, such as
    /// `input_layernorm.weight` or `q_proj.bias`.
    ///
    /// # Errors
    /// If the tensor is missing, has another shape or type.
    pub fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        let name = self.full(name);
        let hint = "the file is incomplete or of another model";
        let tensor = self.store.take(&name).ok_or_else(|| self.store.missing(&name, hint))?;
        if tensor.shape != [len] {
            return Err(tensor.error(format!(
                "has shape {:?} ({}), expected [{len}] by the configuration; they belong to different models",
                tensor.shape, tensor.kind
            )));
        }
        let Some(dtype) = tensor.kind.dtype() else {
            return Err(tensor.error(format!("has type {}, expected F32, F16 or BF16", tensor.kind)));
        };
        Ok((0..len).map(|index| dtype.read(&tensor.data, index)).collect())
    }

    /// The matrices `[rows, cols]` of `count` experts, in order, in whichever of these forms they are stored
    /// (`name` is `gate_proj`, `up_proj` or `down_proj`, the scope ends in `mlp`):
    ///
    /// - one by one, `experts.{e}.<name>.weight`;
    /// - stacked `[count, rows, cols]`, `experts.<name>` (with or without `.weight`) or, in MLX packs, `switch_mlp.<name>`;
    /// - gate and up stacked together `[count, 2 rows, cols]`, gate rows first: `gate_up_proj` in either place.
    ///
    /// # Errors
    /// As for [`matrix`](Self::matrix).
    pub fn experts(&self, name: &str, count: usize, rows: usize, cols: usize) -> Result<Vec<Weight>, LoadError> {
        let single = self.at("experts");
        if single.has(&format!("0.{name}.weight")) {
            return (0..count).map(|expert| single.matrix(&format!("{expert}.{name}"), rows, cols)).collect();
        }
        let places = ["experts", "switch_mlp"].map(|place| format!("{}{place}.{name}", self.scope));
        for module in &places {
            if let Some(tensor) = self.stacked(module) {
                let stack = self.bind_stack(module, tensor, count, rows, cols)?;
                return (0..count).map(|expert| part(&stack, tensor, expert, expert * rows, rows)).collect();
            }
        }
        let half = match name {
            "gate_proj" => Some(0),
            "up_proj" => Some(1),
            _ => None,
        };
        if let Some(half) = half {
            for place in ["experts", "switch_mlp"] {
                let module = format!("{}{place}.gate_up_proj", self.scope);
                let Some(tensor) = self.stacked(&module) else { continue };
                let double = rows.checked_mul(2).ok_or_else(|| tensor.error(format!("cannot have 2 x {rows} rows")))?;
                let stack = self.bind_stack(&module, tensor, count, double, cols)?;
                let first = |expert: usize| expert * double + half * rows;
                return (0..count).map(|expert| part(&stack, tensor, expert, first(expert), rows)).collect();
            }
        }
        Err(self.store.missing(&format!("{}.weight", places[0]), "no form of these experts is in the file"))
    }

    /// A stacked tensor; Hugging Face checkpoints leave out the ending.
    fn stacked(&self, module: &str) -> Option<&'a StoredTensor> {
        self.store.take(&format!("{module}.weight")).or_else(|| self.store.take(module))
    }

    fn bind_stack(
        &self,
        module: &str,
        tensor: &StoredTensor,
        count: usize,
        rows: usize,
        cols: usize,
    ) -> Result<Weight, LoadError> {
        bind_tensor(self.store, module, tensor, Expected { stack: Some(count), rows, cols })
    }

    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.scope)
    }
}

/// Rows of one expert out of a stack.
fn part(stack: &Weight, tensor: &StoredTensor, expert: usize, first: usize, rows: usize) -> Result<Weight, LoadError> {
    let name = format!("{}[{expert}]", stack.name());
    stack.view(name, first, rows).map_err(|error| LoadError::from(error).in_file(&tensor.path))
}

impl std::fmt::Debug for Weights<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Weights({})", self.scope)
    }
}
