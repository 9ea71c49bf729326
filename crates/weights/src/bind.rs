//! From stored tensors to a [`Weight`]: which tensors of a module are its planes, and what format they make.
//!
//! | stored | format |
//! | --- | --- |
//! | `weight` F32, F16, BF16 or a GGUF block type | that |
//! | `weight` U32, `scales`, `biases` | MLX affine |
//! | `weight` U32, `scales` U8, maybe `global_scale` | MXFP4, MXFP8, NVFP4 of MLX, as the pack's configuration says |
//! | `weight` F8, `weight_scale` (one, or one a row) or `weight_scale_inv` (128 x 128 blocks) | FP8 |
//! | `weight` U8, `weight_scale` F8_E4M3, `weight_scale_2` | NVFP4 of ModelOpt |
//! | `weight_packed` U8, `weight_scale` F8_E4M3, `weight_global_scale` | NVFP4 of compressed-tensors |

use bytes::Bytes;
use kapitsa_tensor::format::{Fp8, Fp8Code, Fp8Scale, TensorScale};
use kapitsa_tensor::{DType, Format, Weight};
use safetensors::Dtype;

use crate::LoadError;
use crate::gguf::types::TensorType;
use crate::store::{Kind, Store, StoredTensor};

/// Tensors beside a weight that change nothing when activations are not quantised or KV is not FP8.
const IGNORED_COMPANIONS: &[&str] = &["input_scale", "input_global_scale", "k_scale", "v_scale", "weight_shape"];

/// Endings of weights that other tools quantised in ways that are not read.
const FOREIGN: &[(&str, &str)] = &[
    ("qweight", "GPTQ or AWQ"),
    ("weight_blocks", "MXFP4 blocks"),
    ("weight.absmax", "bitsandbytes"),
    ("weight.quant_state.bitsandbytes__nf4", "bitsandbytes"),
];

/// The shape that a weight should have: `[rows, cols]`, or `[stack, rows, cols]` for stacked matrices.
#[derive(Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) stack: Option<usize>,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

impl Expected {
    fn shape(&self, cols: usize) -> Vec<usize> {
        self.stack.into_iter().chain([self.rows, cols]).collect()
    }

    /// `tensor` must have the expected shape, with `cols` as the innermost dimension.
    fn check(&self, tensor: &StoredTensor, cols: usize) -> Result<(), LoadError> {
        let expected = self.shape(cols);
        // A single row may be stored without its dimension.
        if tensor.shape == expected || (self.stack.is_none() && self.rows == 1 && tensor.shape == [cols]) {
            return Ok(());
        }
        Err(tensor.error(format!(
            "has shape {:?} ({}), expected {expected:?} by the configuration; they belong to different models",
            tensor.shape, tensor.kind
        )))
    }
}

/// The matrix or stack of matrices of module `module`. A stack is one weight of `stack * rows` rows.
pub(crate) fn bind(store: &Store, module: &str, expected: Expected) -> Result<Weight, LoadError> {
    let tensor = |suffix: &str| store.take(&format!("{module}.{suffix}"));
    for suffix in IGNORED_COMPANIONS {
        tensor(suffix);
    }
    if let Some(weight) = tensor("weight") {
        return bind_tensor(store, module, weight, expected);
    }
    if let Some(packed) = tensor("weight_packed") {
        return nvfp4(store, module, packed, "weight_global_scale", TensorScale::Divide, expected);
    }
    for (suffix, tool) in FOREIGN {
        if let Some(foreign) = store.peek(&format!("{module}.{suffix}")) {
            return Err(foreign.error(format!(
                "is quantised by {tool}, expected GGUF, MLX, FP8, NVFP4 or plain weights; use another file of this model"
            )));
        }
    }
    Err(store.missing(&format!("{module}.weight"), "the file is incomplete or of another model"))
}

/// As [`bind`], for a weight tensor that was already found (those of stacked experts may have no ending).
pub(crate) fn bind_tensor(
    store: &Store,
    module: &str,
    weight: &StoredTensor,
    expected: Expected,
) -> Result<Weight, LoadError> {
    match weight.kind {
        Kind::Gguf(TensorType::Weight(format)) => {
            expected.check(weight, expected.cols)?;
            make(weight, format, expected, vec![weight.data.clone()])
        }
        Kind::Gguf(other) => Err(weight.error(format!("has type {other}, expected a type that weights can have"))),
        Kind::Safetensors(Dtype::U32) => mlx(store, module, weight, expected),
        Kind::Safetensors(Dtype::U8) => nvfp4(store, module, weight, "weight_scale_2", TensorScale::Multiply, expected),
        Kind::Safetensors(Dtype::F8_E4M3) => fp8(store, module, weight, Fp8Code::E4m3, expected),
        Kind::Safetensors(Dtype::F8_E5M2) => fp8(store, module, weight, Fp8Code::E5m2, expected),
        kind => match kind.dtype() {
            Some(dtype) => {
                expected.check(weight, expected.cols)?;
                make(weight, dtype.into(), expected, vec![weight.data.clone()])
            }
            None => Err(weight.error(format!("has type {kind}, expected F32, F16, BF16 or a quantised type"))),
        },
    }
}

fn make(weight: &StoredTensor, format: Format, expected: Expected, planes: Vec<Bytes>) -> Result<Weight, LoadError> {
    let Some(rows) = expected.stack.unwrap_or(1).checked_mul(expected.rows) else {
        return Err(weight.error(format!("has {:?} matrices of {} rows, too many", expected.stack, expected.rows)));
    };
    Weight::new(weight.name.as_str(), format, rows, expected.cols, planes)
        .map_err(|error| LoadError::from(error).in_file(&weight.path))
}

/// The companion `suffix` of `weight`.
fn companion<'a>(
    store: &'a Store,
    module: &str,
    suffix: &str,
    weight: &StoredTensor,
) -> Result<&'a StoredTensor, LoadError> {
    store.take(&format!("{module}.{suffix}")).ok_or_else(|| {
        weight.error(format!(
            "has type {} but no companion `{suffix}`, expected one; the file is incomplete or of an unknown kind",
            weight.kind
        ))
    })
}

fn mlx(store: &Store, module: &str, weight: &StoredTensor, expected: Expected) -> Result<Weight, LoadError> {
    let scales = companion(store, module, "scales", weight)?;
    let scale_dtype = match scales.kind {
        Kind::Safetensors(Dtype::U8) => None,
        kind => match kind.dtype() {
            Some(dtype) => Some(dtype),
            None => return Err(scales.error(format!("has type {kind}, expected F32, F16, BF16 or U8"))),
        },
    };
    let global_scale = store.take(&format!("{module}.global_scale"));
    // The configuration spells modules as the file does.
    let own_module = weight.name.strip_suffix(".weight").unwrap_or(&weight.name);
    let format = store
        .quantization
        .format(own_module, scale_dtype, global_scale.is_some())
        .map_err(|reason| weight.error(reason))?;
    let cols = expected.cols;
    let (words, groups) = match format {
        // Codes are counted in whole words; `Weight::new` refuses columns that do not fill them.
        Format::MlxAffine(affine) => (cols.saturating_mul(affine.bits()) / 32, cols / affine.group()),
        Format::Mxfp8 => (cols / 4, cols / format.block_len()),
        _ => (cols / 8, cols / format.block_len()),
    };
    let settings = |error: LoadError| match error {
        LoadError::Tensor { path, name, reason } => {
            LoadError::Tensor { path, name, reason: format!("{reason} (as {format}, by config.json)") }
        }
        other => other,
    };
    expected.check(weight, words).map_err(settings)?;
    expected.check(scales, groups).map_err(settings)?;
    let mut planes = vec![weight.data.clone(), scales.data.clone()];
    match format {
        Format::MlxAffine(_) => {
            let biases = companion(store, module, "biases", weight)?;
            expected.check(biases, groups).map_err(settings)?;
            if biases.kind != scales.kind {
                return Err(
                    biases.error(format!("has type {}, expected that of the scales, {}", biases.kind, scales.kind))
                );
            }
            planes.push(biases.data.clone());
        }
        Format::Nvfp4(TensorScale::Amax) => {
            let global_scale = global_scale.map(|tensor| single_f32(tensor, weight)).transpose()?;
            planes.extend(global_scale);
        }
        _ => {}
    }
    make(weight, format, expected, planes)
}

fn nvfp4(
    store: &Store,
    module: &str,
    codes: &StoredTensor,
    tensor_scale: &str,
    meaning: TensorScale,
    expected: Expected,
) -> Result<Weight, LoadError> {
    const GROUP: usize = 16;
    if codes.kind != Kind::Safetensors(Dtype::U8) {
        return Err(codes.error(format!("has type {}, expected U8 (NVFP4)", codes.kind)));
    }
    unstacked(codes, expected)?;
    let scales = companion(store, module, "weight_scale", codes)?;
    let tensor_scale = companion(store, module, tensor_scale, codes)?;
    expected.check(codes, expected.cols / 2)?;
    expected.check(scales, expected.cols / GROUP)?;
    if scales.kind != Kind::Safetensors(Dtype::F8_E4M3) {
        return Err(scales.error(format!("has type {}, expected F8_E4M3", scales.kind)));
    }
    let planes = vec![codes.data.clone(), scales.data.clone(), single_f32(tensor_scale, codes)?];
    make(codes, Format::Nvfp4(meaning), expected, planes)
}

fn fp8(
    store: &Store,
    module: &str,
    weight: &StoredTensor,
    code: Fp8Code,
    expected: Expected,
) -> Result<Weight, LoadError> {
    const BLOCK: usize = 128;
    unstacked(weight, expected)?;
    expected.check(weight, expected.cols)?;
    let (rows, cols) = (expected.rows, expected.cols);
    let blocks = [rows.div_ceil(BLOCK), cols.div_ceil(BLOCK)];
    let inverse = store.take(&format!("{module}.weight_scale_inv"));
    let scales = match inverse {
        Some(scales) => scales,
        None => companion(store, module, "weight_scale", weight)?,
    };
    let Some(scale_dtype) = scales.kind.dtype() else {
        return Err(scales.error(format!("has type {}, expected F32, F16 or BF16", scales.kind)));
    };
    let shape = &scales.shape[..];
    let scale = if inverse.is_some() && shape == blocks {
        Fp8Scale::Block128
    } else if shape.iter().all(|&dim| dim == 1) {
        Fp8Scale::Tensor
    } else if inverse.is_none() && (shape == [rows] || shape == [rows, 1]) {
        Fp8Scale::Channel
    } else if shape == blocks {
        Fp8Scale::Block128
    } else {
        let expected = format!("one scale, one for each of {rows} rows, or {blocks:?} for blocks of 128 x 128");
        return Err(scales.error(format!("has shape {shape:?}, expected {expected}")));
    };
    let format = Format::Fp8(Fp8 { code, scale, scale_dtype });
    make(weight, format, expected, vec![weight.data.clone(), scales.data.clone()])
}

/// Scales of a whole tensor cannot be told apart by matrix in a stack, and no checkpoint is known to have such.
fn unstacked(weight: &StoredTensor, expected: Expected) -> Result<(), LoadError> {
    match expected.stack {
        None => Ok(()),
        Some(_) => {
            Err(weight.error(format!("stacks experts as {}, expected F32, F16, BF16, GGUF or MLX", weight.kind)))
        }
    }
}

/// The bytes of a tensor of one F32.
fn single_f32(tensor: &StoredTensor, weight: &StoredTensor) -> Result<Bytes, LoadError> {
    if tensor.kind.dtype() == Some(DType::F32) && tensor.shape.iter().all(|&dim| dim == 1) {
        return Ok(tensor.data.clone());
    }
    Err(tensor.error(format!("is {} {:?}, expected one F32, the scale of {}", tensor.kind, tensor.shape, weight.name)))
}
