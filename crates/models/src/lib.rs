//! Model families: one file each with its weights and wiring, over shared layers.
//!
//! A model knows its mathematics and the Hugging Face names of its weights; containers (GGUF, MLX packs) are translated
//! to these before it sees them. [`load`] checks every shape and type against the config and records the forward pass
//! once, so recording cannot fail afterwards.
//!
//! Invariants: no format, device, sampling or page here.
#![forbid(unsafe_code)]

mod layers;
mod llama;
mod nemotron_h;
mod qwen2;
mod qwen3;
mod qwen3_5;
mod vision;

use kapitsa_ops::kv::KvShape;
use kapitsa_ops::{Capacity, Recorder, Tensor};
use kapitsa_weights::{Checkpoint, Config, LoadError, Weights, short};
pub use vision::{VisionShape, VisionTower};

/// A loaded model.
pub trait Model: Send + Sync {
    /// Sizes that the engine needs.
    fn info(&self) -> &ModelInfo;

    /// Records the forward pass and returns the logits, `[wanted, vocab]`.
    ///
    /// Tokens, positions and parents are the batch's; a row's parent is the row before it unless the batch says otherwise.
    fn forward(&self, rec: &mut Recorder) -> Tensor;

    /// The tower that makes tokens of images, if the checkpoint has one.
    fn vision(&self) -> Option<&VisionTower> {
        None
    }

    /// The head that predicts one token more, if the checkpoint has one.
    fn prediction_head(&self) -> Option<&dyn PredictionHead> {
        None
    }
}

/// A head that predicts the token after the next (multi-token prediction).
///
/// A row is that of the trunk one token before: its token is the one after the trunk's, its input
/// ([`Batch::set_input`](kapitsa_ops::Batch::set_input)) the trunk's hidden state, `[hidden]`.
pub trait PredictionHead: Send + Sync {
    /// What its attention layer, the next after the trunk's, keeps for a token.
    fn kv(&self) -> KvShape;

    /// Records the head and returns the logits, `[wanted, vocab]`. What it offers at [`Tap::FinalNorm`](kapitsa_ops::Tap)
    /// can be its next input.
    fn forward(&self, rec: &mut Recorder) -> Tensor;
}

/// What a model is, apart from its weights.
#[derive(Clone, Debug)]
pub struct ModelInfo {
    /// The family's name, as configs spell it.
    pub architecture: &'static str,
    /// Number of token ids.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Tokens that the model was trained to see.
    pub context: usize,
    /// What each attention layer keeps for a token.
    pub kv: Vec<KvShape>,
    /// Values that each recurrent op keeps of a sequence.
    pub states: Vec<usize>,
}

type LoadFn = fn(&Config, &Weights<'_>) -> Result<Box<dyn Model>, LoadError>;

/// One family: how to load it, and the names that configs call it.
struct Architecture {
    names: &'static [&'static str],
    load: LoadFn,
}

const ARCHITECTURES: &[Architecture] = &[
    llama::LLAMA,
    qwen2::QWEN2,
    qwen3::QWEN3,
    qwen3::QWEN3_MOE,
    qwen3_5::QWEN3_5,
    qwen3_5::QWEN3_5_MOE,
    nemotron_h::NEMOTRON_H,
];

/// Largest arena of one row. Large real models need a third of it, for their vocabularies; without a bound a file of a few
/// megabytes with many tiny experts or outputs fills the memory when a prompt is read.
const MAX_ROW_VALUES: usize = 1 << 22;

/// Largest arena of one patch of an image. Real towers need a quarter of it; images have thousands of patches.
const MAX_PATCH_VALUES: usize = 1 << 16;
/// Most values that recurrent layers keep of a sequence: ten times what the largest real models do.
const MAX_STATE_VALUES: usize = 1 << 28;

/// The names of all families, as configs spell them (`model_type`).
pub fn families() -> Vec<&'static str> {
    ARCHITECTURES.iter().flat_map(|architecture| architecture.names).copied().collect()
}

/// Loads the model of a checkpoint.
///
/// # Errors
/// If the family is not supported, or a config key, weight, shape or type is missing, wrong or left over, or
/// if the model takes more memory for a token than any real one.
pub fn load(checkpoint: &Checkpoint) -> Result<Box<dyn Model>, LoadError> {
    let config = checkpoint.config();
    let name = config.architecture();
    let Some(architecture) = ARCHITECTURES.iter().find(|a| a.names.contains(&name)) else {
        let reason = format!("architecture `{}`; supported are {}", short(name), families().join(", "));
        return Err(LoadError::unsupported(config.path(), reason));
    };
    let model = (architecture.load)(config, &checkpoint.weights()).map_err(|e| e.in_file(config.path()))?;
    if let Some(name) = checkpoint.unused().first() {
        let reason =
            format!("is not a weight of architecture `{}`; the file may be of another variant", config.architecture());
        return Err(LoadError::tensor(name, reason).in_file(config.path()));
    }
    let values = |forward: &dyn Fn(&mut Recorder) -> Tensor| {
        let mut rec = Recorder::new(Capacity { rows: 1, wanted: 1 }, &[]);
        let result = forward(&mut rec);
        rec.finish(result).arena_len()
    };
    let tower = model.vision().map_or(0, |tower| values(&|rec| tower.forward(rec)));
    let kept = model.info().states.iter().try_fold(0usize, |sum, len| sum.checked_add(*len));
    for (found, most, what) in [
        (values(&|rec| model.forward(rec)), MAX_ROW_VALUES, "needs {} working values for each token"),
        (tower, MAX_PATCH_VALUES, "needs {} working values for each patch of an image"),
        (kept.unwrap_or(usize::MAX), MAX_STATE_VALUES, "keeps {} values of each conversation"),
    ] {
        if found > most {
            let reason = format!("a model that {}, expected at most {most}", what.replace("{}", &found.to_string()));
            return Err(LoadError::unsupported(config.path(), reason));
        }
    }
    Ok(model)
}
