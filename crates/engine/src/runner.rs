//! Runs batches: finds or records the program for a batch's shape.

use std::collections::HashMap;

use kapitsa_models::{Model, ModelInfo};
use kapitsa_ops::kv::KvLayout;
use kapitsa_ops::{Backend, Batch, Capacity, DeviceError, Outputs, Program, Recorder, Tap};
use kapitsa_tensor::Weight;

/// A model on a backend.
pub struct Runner {
    model: Box<dyn Model>,
    backend: Box<dyn Backend>,
    groups: usize,
    /// Pages that each KV group has memory for.
    reserved_pages: usize,
    programs: HashMap<(Capacity, Vec<Tap>), Program>,
}

impl Runner {
    /// Puts `model` on `backend`, whose KV layout is `layout`, and makes its weights ready. `copied` hears of each weight
    /// whose stored bytes will be read no more, or only a row at a time.
    ///
    /// # Errors
    /// If memory is short.
    pub fn load(
        model: Box<dyn Model>,
        mut backend: Box<dyn Backend>,
        layout: &KvLayout,
        copied: &mut dyn FnMut(&Weight),
    ) -> Result<Self, DeviceError> {
        // One row and its logits take every weight there is.
        let capacity = Capacity { rows: 1, wanted: 1 };
        let program = record(&*model, capacity, &[]);
        backend.load(&program, copied)?;
        let programs = HashMap::from([((capacity, vec![]), program)]);
        Ok(Runner { model, backend, groups: layout.groups.len(), reserved_pages: 0, programs })
    }

    /// Sizes of the model.
    pub fn model(&self) -> &ModelInfo {
        self.model.info()
    }

    /// Number of KV groups: a sequence has a list of pages for each.
    pub(crate) fn groups(&self) -> usize {
        self.groups
    }

    /// Makes sure that every KV group has at least `pages` pages.
    ///
    /// # Errors
    /// If memory is short.
    pub fn reserve(&mut self, pages: usize) -> Result<(), DeviceError> {
        if pages > self.reserved_pages {
            (0..self.groups).try_for_each(|group| self.backend.reserve(group, pages))?;
            self.reserved_pages = pages;
        }
        Ok(())
    }

    /// One forward pass over `batch`, whose logits and tensors at `taps` are added to `outputs`.
    ///
    /// # Errors
    /// If the backend fails.
    ///
    /// # Panics
    /// If a token is outside the model's vocabulary or a page is missing.
    pub fn run(&mut self, batch: &Batch, taps: &[Tap], outputs: &mut Outputs) -> Result<(), DeviceError> {
        let vocab = self.model.info().vocab;
        assert!((0..batch.len()).all(|row| (batch.token(row) as usize) < vocab), "a token is outside the vocabulary");
        let capacity = Capacity { rows: bucket(batch.len()), wanted: bucket(batch.wanted().len()) };
        let program = self
            .programs
            .entry((capacity, taps.to_vec()))
            .or_insert_with_key(|(capacity, taps)| record(&*self.model, *capacity, taps));
        self.backend.run(program, batch, outputs)
    }
}

fn record(model: &dyn Model, capacity: Capacity, taps: &[Tap]) -> Program {
    let mut rec = Recorder::new(capacity, taps);
    let logits = model.forward(&mut rec);
    rec.finish(logits)
}

/// Programs are recorded for powers of two of rows.
fn bucket(rows: usize) -> usize {
    if rows == 0 { 0 } else { rows.next_power_of_two() }
}
