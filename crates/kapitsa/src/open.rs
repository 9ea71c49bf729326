//! Opens a model on a device.

use std::path::Path;

use kapitsa_cpu::{Activations, Cpu, CpuOptions};
use kapitsa_engine::{Engine, Limits, Runner};
use kapitsa_ops::Backend;
use kapitsa_ops::kv::KvLayout;
use kapitsa_ops::state::StateLayout;
use kapitsa_tensor::DType;
use kapitsa_weights::Checkpoint;

use crate::{Error, Memory};

/// How to run a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Worker threads; one for each core if `None`.
    pub threads: Option<usize>,
    /// Element type of the KV cache.
    pub kv: DType,
    /// What quantised weights multiply.
    pub activations: Activations,
    /// Tokens that a conversation can hold. If `None`, what the model was trained for, or less if memory is short.
    pub context: Option<usize>,
    /// Replies under way at a time.
    pub slots: usize,
    /// Requests that wait beside these before more are refused.
    pub queue: usize,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            threads: None,
            kv: DType::F16,
            activations: Activations::Int8,
            context: None,
            slots: 4,
            queue: 64,
        }
    }
}

impl OpenOptions {
    /// f32 activations and f32 KV cache everywhere.
    pub fn exact(self) -> Self {
        OpenOptions { kv: DType::F32, activations: Activations::F32, ..self }
    }
}

/// Cores that this process may use, one thread each: two threads of one core would wait for the same multipliers. Which thread
/// runs where is left to the system, which fills idle cores first.
fn cores() -> usize {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    sysinfo::System::physical_core_count().map_or(threads, |cores| cores.clamp(1, threads))
}

/// Loads a checkpoint's model and starts an engine for it.
pub(crate) fn engine(checkpoint: &Checkpoint, options: &OpenOptions) -> Result<Engine, Error> {
    engine_on(checkpoint, options, None)
}

/// As [`engine`], on a backend that is there already.
pub(crate) fn engine_on(
    checkpoint: &Checkpoint,
    options: &OpenOptions,
    backend: Option<Box<dyn Backend>>,
) -> Result<Engine, Error> {
    let model = kapitsa_models::load(checkpoint)?;
    let info = model.info().clone();
    if let Some(found) = options.context.filter(|context| !(1..=info.context).contains(context)) {
        return Err(Error::Context { found, trained: info.context });
    }
    let layout = KvLayout::new(options.kv, &info.kv);
    let threads = options.threads.unwrap_or_else(cores);
    let cpu = CpuOptions { activations: options.activations, ..CpuOptions::new(threads) };
    let backend = match backend {
        Some(backend) => backend,
        None => Box::new(Cpu::new(layout.clone(), &cpu)?),
    };
    let runner = Runner::load(model, backend, &layout, &mut |weight| checkpoint.release(weight))?;
    let states = StateLayout::new(&info.states).len() * size_of::<f32>() * (options.slots + 1);
    let available = Memory::now().available_bytes.saturating_sub(states as u64);
    let limits = limits(&layout, info.context, options, available)?;
    let (context, kv_tokens) = (limits.context, limits.kv_tokens);
    tracing::info!(
        architecture = info.architecture,
        layers = info.layers,
        context,
        kv_tokens,
        threads,
        kv = %options.kv,
        "loaded"
    );
    Ok(Engine::start(runner, limits)?)
}

/// What fits the memory that is left once the weights are loaded. Pages of the KV cache are made when tokens need them, so
/// this is a bound, not a reservation.
fn limits(layout: &KvLayout, trained: usize, options: &OpenOptions, available: u64) -> Result<Limits, Error> {
    // The rest is for activations, logits and whatever else runs on the machine.
    let budget = available / 4 * 3;
    let token_bytes = layout.token_bytes().max(1);
    let fits = usize::try_from(budget / token_bytes as u64).unwrap_or(usize::MAX);
    let context = options.context.unwrap_or(trained.min(fits));
    if context == 0 || context > fits {
        return Err(Error::Memory { context: context.max(1), token_bytes, fits });
    }
    if context < trained && options.context.is_none() {
        tracing::warn!(context, trained, token_bytes, "memory holds a shorter context than the model was trained for");
    }
    let kv_tokens = fits.min(context.saturating_mul(options.slots));
    Ok(Limits { context, slots: options.slots, queue: options.queue, kv_tokens })
}

/// Opens an engine without tokenizer or template: token ids only.
///
/// # Errors
/// If the files are not a model that this build can run.
pub fn open_engine(path: &Path, options: &OpenOptions) -> Result<Engine, Error> {
    engine(&Checkpoint::open(path)?, options)
}

#[cfg(test)]
mod tests {
    use kapitsa_ops::kv::KvShape;

    use super::*;

    /// 1024 bytes a token, of a model trained for 1000 tokens.
    fn of(available: u64, context: Option<usize>, slots: usize) -> Result<(usize, usize), String> {
        let layout = KvLayout::new(DType::F16, &[KvShape { kv_heads: 4, head_dim: 64, window: None }]);
        assert_eq!(layout.token_bytes(), 1024);
        let options = OpenOptions { context, slots, ..OpenOptions::default() };
        let limits = limits(&layout, 1000, &options, available).map_err(|error| error.to_string())?;
        Ok((limits.context, limits.kv_tokens))
    }

    #[test]
    fn the_context_is_what_model_and_memory_allow() {
        assert_eq!(of(1 << 30, None, 4), Ok((1000, 4000)));
        assert_eq!(of(1 << 21, None, 4), Ok((1000, 1536)), "two megabytes, of which three quarters are used");
        assert_eq!(of(1 << 20, None, 4), Ok((768, 768)));
        assert_eq!(of(1 << 20, Some(500), 1), Ok((500, 500)));
        assert_eq!(of(u64::MAX, Some(1), 0), Ok((1, 0)));
    }

    #[test]
    fn a_context_that_does_not_fit_is_refused_with_the_numbers() {
        let message = of(1 << 20, Some(900), 4).unwrap_err();
        assert_eq!(
            message,
            "a context of 900 tokens needs 921600 bytes (1024 a token), the memory left holds 768 tokens; \
             ask for --context 768 or less, or end other programs"
        );
        let message = of(0, None, 4).unwrap_err();
        assert!(
            message.starts_with("a context of 1 tokens needs 1024 bytes") && message.contains("holds 0"),
            "{message}"
        );
    }
}
