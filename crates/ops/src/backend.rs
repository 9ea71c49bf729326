//! What a device does for the engine.

use kapitsa_tensor::Weight;

use crate::kv::PageId;
use crate::state::{StateId, StateLayout};
use crate::{Batch, ElementType, Program, Tap};

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

    /// Adds rows of `tap` as they lie in an arena. Indices become numbers.
    pub fn add(&mut self, tap: Tap, element: ElementType, rows: &[f32]) {
        let at = self.taps.iter().position(|(of, _)| *of == tap).unwrap_or_else(|| {
            self.taps.push((tap, vec![]));
            self.taps.len() - 1
        });
        let all = &mut self.taps[at].1;
        match element {
            ElementType::F32 => all.extend_from_slice(rows),
            ElementType::U32 => all.extend(rows.iter().map(|bits| bits.to_bits() as f32)),
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

/// Runs programs and keeps the KV cache and recurrent states.
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

    /// Makes sure that there are `count` recurrent states of `layout`. Another layout than before forgets all of them.
    ///
    /// # Errors
    /// If memory is short.
    fn reserve_states(&mut self, layout: &StateLayout, count: usize) -> Result<(), DeviceError>;

    /// A copy of a recurrent state, for the same device and layout to load.
    fn save_state(&self, id: StateId) -> Vec<f32>;

    /// Overwrites a recurrent state with one that was saved.
    fn load_state(&mut self, id: StateId, values: &[f32]);

    /// Copies page `from` of a KV group to page `to`.
    fn copy_page(&mut self, group: usize, from: PageId, to: PageId);

    /// Right after `program` ran on `batch`: makes the rows `path` of `sequence`, a draft, a part of it. The path begins at a
    /// row without a parent. Its keys and values move to the slots of their positions, recurrent states move on over its
    /// rows. The program must have been recorded for drafts.
    fn commit(&mut self, program: &Program, batch: &Batch, sequence: usize, path: &[usize]);

    /// Runs `program`, whose weights have been loaded, on `batch`, and adds what it computes to `outputs`. Rows write their keys
    /// and values to their slots; pages must have been reserved.
    ///
    /// # Errors
    /// If the device fails or memory for the arena is short.
    fn run(&mut self, program: &Program, batch: &Batch, outputs: &mut Outputs) -> Result<(), DeviceError>;
}
