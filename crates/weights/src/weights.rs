//! Tensors by name and shape, for model files.

use kapitsa_tensor::{DType, Weight};

use crate::bind::{Expected, bind, bind_tensor};
use crate::store::{Store, StoredTensor};
use crate::{Container, LoadError};

/// Stacks of experts: the matrix asked for, a module that may have it, and which of how many equal parts of each expert's
/// rows it is there.
const STACKS: &[(&str, &str, usize, usize)] = &[
    ("gate_proj", "experts.gate_proj", 0, 1),
    ("gate_proj", "switch_mlp.gate_proj", 0, 1),
    ("gate_proj", "experts.gate_up_proj", 0, 2),
    ("gate_proj", "switch_mlp.gate_up_proj", 0, 2),
    ("up_proj", "experts.up_proj", 0, 1),
    ("up_proj", "switch_mlp.up_proj", 0, 1),
    ("up_proj", "switch_mlp.fc1", 0, 1),
    ("up_proj", "experts.gate_up_proj", 1, 2),
    ("up_proj", "switch_mlp.gate_up_proj", 1, 2),
    ("down_proj", "experts.down_proj", 0, 1),
    ("down_proj", "switch_mlp.down_proj", 0, 1),
    ("down_proj", "switch_mlp.fc2", 0, 1),
];

/// The tensors under a name, always in Hugging Face spelling: `model.layers.0.self_attn`.
///
/// Checkpoints of several models have one spelling, too: the language model is `model.` (or `backbone.`) and `lm_head.`,
/// the vision tower `visual.`.
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
    /// Of Qwen3.5, for example, GGUF has `-exp(A_log)` in `linear_attn.A_log`, value heads in tiled order (head `h` belongs
    /// to key head `h % key heads`) and, like MLX packs, `1 + weight` in all norms but `linear_attn.norm`.
    pub fn container(&self) -> Container {
        self.store.container
    }

    /// Whether a tensor is there. `name` is complete, such as `q_proj.bias` or `lm_head.weight`.
    pub fn has(&self, name: &str) -> bool {
        let name = self.full(name);
        self.store.peek(&name).is_some() || self.store.peek(&format!("{name}_packed")).is_some()
    }

    /// Marks the tensors of this scope whose names begin with `beginning` as used: parts of a checkpoint that are not run,
    /// such as `mtp.` or `sound_encoder.`.
    pub fn ignore(&self, beginning: &str) {
        self.store.take_all(&self.full(beginning));
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
        self.values(name, &[&[len]])
    }

    /// The values of a tensor of F32, F16 or BF16 and exactly this shape, widened exactly and in the order of the file.
    ///
    /// # Errors
    /// As for [`vector`](Self::vector).
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        self.values(name, &[shape])
    }

    /// The taps `[channels, taps]` of a depthwise convolution, newest input last, such as `conv1d.weight`. Containers
    /// differ in where they have a dimension of 1, but not in the bytes.
    ///
    /// # Errors
    /// As for [`vector`](Self::vector).
    pub fn conv(&self, name: &str, channels: usize, taps: usize) -> Result<Vec<f32>, LoadError> {
        self.values(name, &[&[channels, taps], &[channels, 1, taps], &[channels, taps, 1]])
    }

    /// The kernel of a convolution from patch to patch as the matrix `[outputs, channels · frames · height · width]` that
    /// multiplies a patch's values. MLX packs have the channels last. `name` is complete.
    ///
    /// # Errors
    /// As for [`vector`](Self::vector).
    pub fn patch_kernel(&self, name: &str, outputs: usize, kernel: [usize; 4]) -> Result<Weight, LoadError> {
        let [channels, frames, height, width] = kernel;
        let first = [outputs, channels, frames, height, width];
        let last = [outputs, frames, height, width, channels];
        let values = self.values(name, &[&first, &last])?;
        let is_last = self.container() == Container::MlxPack && self.shape(name) == Some(&last[..]);
        let inner = frames * height * width;
        let place = |at: usize| match is_last {
            true => at / (channels * inner) * channels * inner + at % inner * channels + at / inner % channels,
            false => at,
        };
        let bytes: Vec<u8> = (0..values.len()).flat_map(|at| values[place(at)].to_le_bytes()).collect();
        let weight = Weight::new(self.full(name), DType::F32.into(), outputs, channels * inner, vec![bytes.into()]);
        weight.map_err(|error| LoadError::from(error).in_file(&self.store.path))
    }

    /// The values of a tensor that has one of `shapes`.
    fn values(&self, name: &str, shapes: &[&[usize]]) -> Result<Vec<f32>, LoadError> {
        let name = self.full(name);
        let hint = "the file is incomplete or of another model";
        let tensor = self.store.take(&name).ok_or_else(|| self.store.missing(&name, hint))?;
        if !shapes.contains(&&tensor.shape[..]) {
            let expected: Vec<_> = shapes.iter().map(|shape| format!("{shape:?}")).collect();
            return Err(tensor.error(format!(
                "has shape {:?} ({}), expected {} by the configuration; they belong to different models",
                tensor.shape,
                tensor.kind,
                expected.join(" or ")
            )));
        }
        let Some(dtype) = tensor.kind.dtype() else {
            return Err(tensor.error(format!("has type {}, expected F32, F16 or BF16", tensor.kind)));
        };
        let len = tensor.data.len() / dtype.bytes();
        Ok((0..len).map(|index| dtype.read(&tensor.data, index)).collect())
    }

    /// The matrices `[rows, cols]` of `count` experts, in order, in whichever of these forms they are stored
    /// (`name` is `gate_proj`, `up_proj` or `down_proj`, the scope ends in `mlp` or `mixer`):
    ///
    /// - one by one, `experts.{e}.<name>.weight`;
    /// - stacked `[count, rows, cols]`, `experts.<name>` (with or without `.weight`) or, in MLX packs, `switch_mlp.<name>`,
    ///   or `switch_mlp.fc1` and `.fc2` where there is no gate;
    /// - gate and up stacked together `[count, 2 rows, cols]`, gate rows first: `gate_up_proj` in either place.
    ///
    /// # Errors
    /// As for [`matrix`](Self::matrix).
    pub fn experts(&self, name: &str, count: usize, rows: usize, cols: usize) -> Result<Vec<Weight>, LoadError> {
        let single = self.at("experts");
        if single.has(&format!("0.{name}.weight")) {
            return (0..count).map(|expert| single.matrix(&format!("{expert}.{name}"), rows, cols)).collect();
        }
        for &(_, module, index, parts) in STACKS.iter().filter(|stack| stack.0 == name) {
            let module = self.full(module);
            let Some(tensor) = self.stacked(&module) else { continue };
            let all = rows
                .checked_mul(parts)
                .ok_or_else(|| tensor.error(format!("cannot have {parts} x {rows} rows for each expert")))?;
            let expected = Expected { stack: Some(count), rows: all, cols };
            let stack = bind_tensor(self.store, &module, tensor, expected)?;
            return (0..count).map(|expert| part(&stack, tensor, expert, expert * all + index * rows, rows)).collect();
        }
        let usual = self.full(&format!("experts.{name}.weight"));
        Err(self.store.missing(&usual, "no form of these experts is in the file"))
    }

    /// A stacked tensor; Hugging Face checkpoints leave out the ending.
    fn stacked(&self, module: &str) -> Option<&'a StoredTensor> {
        self.store.take(&format!("{module}.weight")).or_else(|| self.store.take(module))
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
