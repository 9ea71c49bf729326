//! Runs batches: finds or records the program for a batch's shape.

use std::collections::HashMap;

use kapitsa_models::Model;
use kapitsa_ops::{Backend, Batch, Capacity, DeviceError, Outputs, Program, Recorder, Tap};

/// A model on a backend.
pub struct Runner {
    model: Box<dyn Model>,
    backend: Box<dyn Backend>,
    programs: HashMap<(Capacity, Vec<Tap>), Program>,
}

impl Runner {
    /// Pairs them. The backend's KV layout must be the model's.
    pub fn new(model: Box<dyn Model>, backend: Box<dyn Backend>) -> Self {
        Runner { model, backend, programs: HashMap::new() }
    }

    /// The model.
    pub fn model(&self) -> &dyn Model {
        &*self.model
    }

    /// The backend.
    pub fn backend(&mut self) -> &mut dyn Backend {
        &mut *self.backend
    }

    /// One forward pass over `batch` that also returns the tensors at `taps`.
    ///
    /// # Errors
    /// If the backend fails.
    ///
    /// # Panics
    /// If a token is outside the model's vocabulary or a page is missing.
    pub fn run(&mut self, batch: &Batch, taps: &[Tap]) -> Result<Outputs, DeviceError> {
        let vocab = self.model.info().vocab;
        assert!((0..batch.len()).all(|row| (batch.token(row) as usize) < vocab), "a token is outside the vocabulary");
        let capacity = Capacity { rows: bucket(batch.len()), wanted: bucket(batch.wanted().len()) };
        let program = self.programs.entry((capacity, taps.to_vec())).or_insert_with(|| {
            let mut rec = Recorder::new(capacity, taps);
            let logits = self.model.forward(&mut rec);
            rec.finish(logits)
        });
        self.backend.run(program, batch)
    }
}

/// Programs are recorded for powers of two of rows.
fn bucket(rows: usize) -> usize {
    if rows == 0 { 0 } else { rows.next_power_of_two() }
}
