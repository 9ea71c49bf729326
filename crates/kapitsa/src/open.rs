//! Opens a model on a device.

use std::path::Path;

use kapitsa_cpu::Cpu;
use kapitsa_engine::Engine;
use kapitsa_ops::kv::KvLayout;
use kapitsa_tensor::DType;
use kapitsa_weights::Checkpoint;

use crate::Error;

/// How to run a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Worker threads; as many as the machine runs at once if `None`.
    pub threads: Option<usize>,
    /// Element type of the KV cache.
    pub kv: DType,
    /// Tokens that a conversation can hold; what the model was trained for if `None`.
    pub context: Option<usize>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions { threads: None, kv: DType::F16, context: None }
    }
}

impl OpenOptions {
    /// f32 activations and f32 KV cache everywhere.
    pub fn exact(self) -> Self {
        OpenOptions { kv: DType::F32, ..self }
    }
}

/// Loads a checkpoint's model and makes an engine for it.
pub(crate) fn engine(checkpoint: &Checkpoint, options: &OpenOptions) -> Result<Engine, Error> {
    let model = kapitsa_models::load(checkpoint)?;
    let info = model.info();
    let context = match options.context {
        Some(0) => return Err(Error::Context { found: 0, trained: info.context }),
        Some(context) if context > info.context => {
            return Err(Error::Context { found: context, trained: info.context });
        }
        Some(context) => context,
        None => info.context,
    };
    let layout = KvLayout::new(options.kv, &info.kv);
    let threads = options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    tracing::info!(architecture = info.architecture, layers = info.layers, context, threads, kv = %options.kv, "loaded");
    let backend = Cpu::new(layout.clone(), threads)?;
    Ok(Engine::new(model, Box::new(backend), &layout, context))
}

/// Opens an engine without tokenizer or template: token ids only.
///
/// # Errors
/// If the files are not a model that this build can run.
pub fn open_engine(path: &Path, options: &OpenOptions) -> Result<Engine, Error> {
    engine(&Checkpoint::open(path)?, options)
}
