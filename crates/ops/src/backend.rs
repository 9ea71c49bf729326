//! What a device does for the engine.

use kapitsa_tensor::Weight;

use crate::{Batch, Program, Tap};

/// What steps computed. A step adds its rows.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    /// Logits of the wanted rows, `[wanted, vocab]`.
    pub logits: Vec<f32>,
    /// The tensors that the program was asked to return, each `[rows, width]`.
    pub taps: Vec<(Tap, Vec<f32>)>,
}

impl Outputs {
    /// Removes all rows and keeps their memory.
    pub fn clear(&mut self) {
        self.logits.clear();
        self.taps.iter_mut().for_each(|(_, rows)| rows.clear());
    }

    /// Adds rows of `tap`.
    pub fn add(&mut self, tap: Tap, rows: &[f32]) {
        match self.taps.iter_mut().find(|(of, _)| *of == tap) {
            Some((_, all)) => all.extend_from_slice(rows),
            None => self.taps.push((tap, rows.to_vec())),
        }
    }
}

/// A fault of the device or of memory; never of the program.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Memory for weights, the KV cache or the arena cannot be had.
    #[error("out of memory: {bytes} more bytes for {what} are needed; a smaller --context would fit")]
    OutOfMemory {
        /// What it was for.
        what: &'static str,
        /// How many bytes were asked for.
        bytes: usize,
    },
    /// The device's worker threads cannot be started.
    #[error("cannot start {threads} worker threads: {reason}")]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// The system's reason.
        reason: String,
    },
}

/// Runs programs and keeps the KV cache.
///
/// For every row, the result is a function of that row's tokens and context alone: neither the number of rows in the
/// batch, nor their order, nor threads change a bit.
pub trait Backend: Send {
    /// Makes the weights of `program` ready: a device copies or repacks them here, once for all programs of a model.
    /// `copied` hears of each weight whose stored bytes will be read no more, or only a row at a time (embeddings).
    ///
    /// # Errors
    /// If memory is short.
    fn load(&mut self, program: &Program, copied: &mut dyn FnMut(&Weight)) -> Result<(), DeviceError>;

    /// Makes sure that KV group `group` has at least `pages` pages.
    ///
    /// # Errors
    /// If memory is short.
    fn reserve(&mut self, group: usize, pages: usize) -> Result<(), DeviceError>;

    /// Runs `program`, whose weights have been loaded, on `batch`, and adds what it computes to `outputs`. Rows write their keys
    /// and values to their slots; pages must have been reserved.
    ///
    /// # Errors
    /// If the device fails or memory for the arena is short.
    fn run(&mut self, program: &Program, batch: &Batch, outputs: &mut Outputs) -> Result<(), DeviceError>;
}
