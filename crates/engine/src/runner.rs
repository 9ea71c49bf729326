//! Runs batches: finds or records the program for a batch's shape.

use std::collections::HashMap;

use kapitsa_models::{Model, ModelInfo, VisionShape};
use kapitsa_ops::kv::{KvLayout, PAGE_TOKENS};
use kapitsa_ops::state::StateLayout;
use kapitsa_ops::{Backend, Batch, Capacity, DeviceError, Outputs, Program, Recorder, SequenceContext, Tap, Tensor};
use kapitsa_tensor::Weight;

/// A model on a backend.
pub struct Runner {
    model: Box<dyn Model>,
    backend: Box<dyn Backend>,
    groups: usize,
    /// Pages that each KV group has memory for.
    reserved_pages: usize,
    states: StateLayout,
    reserved_states: usize,
    programs: HashMap<Shape, Program>,
}

/// What a program is recorded for.
#[derive(PartialEq, Eq, Hash)]
struct Shape {
    part: Part,
    capacity: Capacity,
    taps: Vec<Tap>,
    takes_drafts: bool,
}

/// Which part of a model a program runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Part {
    Trunk,
    PredictionHead,
    VisionTower,
}

/// The recurrent state of a sequence after so many tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Tokens of the sequence.
    pub cached: usize,
    /// As the backend has it; empty if the model has no recurrent layers.
    pub state: Vec<f32>,
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
        let shape = Shape { part: Part::Trunk, capacity, taps: vec![], takes_drafts: false };
        let program = record(&*model, &shape);
        backend.load(&program, copied)?;
        let states = StateLayout::new(&model.info().states);
        let (programs, groups) = (HashMap::from([(shape, program)]), layout.groups.len());
        Ok(Runner { model, backend, groups, reserved_pages: 0, states, reserved_states: 0, programs })
    }

    /// Sizes of the model.
    pub fn model(&self) -> &ModelInfo {
        self.model.info()
    }

    /// Number of KV groups: a sequence has a list of pages for each.
    pub(crate) fn groups(&self) -> usize {
        self.groups
    }

    /// Sizes of the model's vision tower, if it has one.
    pub fn vision(&self) -> Option<VisionShape> {
        self.model.vision().map(|tower| tower.shape())
    }

    /// Whether the model has recurrent layers, so that a sequence cannot go back but to a snapshot.
    pub(crate) fn is_recurrent(&self) -> bool {
        !self.states.is_empty()
    }

    /// Makes sure that every KV group has at least `pages` pages, and that there are `states` recurrent states.
    ///
    /// # Errors
    /// If memory is short.
    pub fn reserve(&mut self, pages: usize, states: usize) -> Result<(), DeviceError> {
        if states > self.reserved_states {
            self.backend.reserve_states(&self.states, states)?;
            self.reserved_states = states;
        }
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
        self.run_part(Part::Trunk, batch, taps, outputs)
    }

    /// As [`run`](Self::run), for the model's prediction head, whose attention layer is the KV layout's last. Every row brings
    /// a hidden state of the trunk along ([`Batch::set_input`]).
    ///
    /// # Errors
    /// If the backend fails.
    ///
    /// # Panics
    /// If the model has no such head, a token is outside its vocabulary, or a page or input is missing.
    pub fn run_prediction_head(
        &mut self,
        batch: &Batch,
        taps: &[Tap],
        outputs: &mut Outputs,
    ) -> Result<(), DeviceError> {
        // Its weights are not among those that every step needs.
        let program = program(&mut self.programs, &*self.model, shape(Part::PredictionHead, batch, taps));
        self.backend.load(program, &mut |_| {})?;
        self.run_part(Part::PredictionHead, batch, taps, outputs)
    }

    /// Embeddings of an image of `(rows, columns)` patches, whose values are `patches`, `[rows · columns, patch_values]`:
    /// added to the logits of `outputs`, `[tokens, hidden]`.
    ///
    /// # Errors
    /// If the backend fails.
    ///
    /// # Panics
    /// If the model has no vision tower or the values are not so many.
    pub fn embed_image(
        &mut self,
        grid: (usize, usize),
        patches: &[f32],
        taps: &[Tap],
        outputs: &mut Outputs,
    ) -> Result<(), DeviceError> {
        let batch = self.model.vision().expect("a model with a vision tower").batch(grid, patches);
        // Its weights are made ready when the first image is met.
        let program = program(&mut self.programs, &*self.model, shape(Part::VisionTower, &batch, taps));
        self.backend.load(program, &mut |_| {})?;
        self.run_part(Part::VisionTower, &batch, taps, outputs)
    }

    fn run_part(&mut self, part: Part, batch: &Batch, taps: &[Tap], outputs: &mut Outputs) -> Result<(), DeviceError> {
        let vocab = self.model.info().vocab;
        assert!((0..batch.len()).all(|row| (batch.token(row) as usize) < vocab), "a token is outside the vocabulary");
        let program = program(&mut self.programs, &*self.model, shape(part, batch, taps));
        self.backend.run(program, batch, outputs)
    }

    /// Right after [`run`](Self::run) with the same `batch` and `taps`: makes the rows `path` of `sequence`, a draft, a part of
    /// it. The path begins at a row without a parent; `cached` is for the caller to move on.
    pub fn commit(&mut self, batch: &Batch, taps: &[Tap], sequence: usize, path: &[usize]) {
        let program = program(&mut self.programs, &*self.model, shape(Part::Trunk, batch, taps));
        self.backend.commit(program, batch, sequence, path);
    }

    /// The recurrent state of a sequence, to come back to.
    pub fn snapshot(&self, context: &SequenceContext) -> Snapshot {
        let state = if self.is_recurrent() { self.backend.save_state(context.state) } else { vec![] };
        Snapshot { cached: context.cached, state }
    }

    /// Goes back to a snapshot of this sequence, or of one with the same tokens whose pages `context` has.
    pub fn restore(&mut self, context: &mut SequenceContext, snapshot: &Snapshot) {
        context.cached = snapshot.cached;
        if self.is_recurrent() {
            self.backend.load_state(context.state, &snapshot.state);
        }
    }

    /// Makes `to` a copy of `from`. `to` has a state and pages of its own, but for pages that `from` has filled, which they
    /// may share.
    pub fn fork(&mut self, from: &SequenceContext, to: &mut SequenceContext) {
        for (group, (from_pages, to_pages)) in from.pages.iter().zip(&to.pages).enumerate() {
            let filled = from_pages.iter().zip(to_pages).take(from.cached.div_ceil(PAGE_TOKENS));
            for (&from, &to) in filled.filter(|(from, to)| from != to) {
                self.backend.copy_page(group, from, to);
            }
        }
        let snapshot = self.snapshot(from);
        self.restore(to, &snapshot);
    }
}

/// The program for a shape, recorded when it is met first.
fn program<'a>(programs: &'a mut HashMap<Shape, Program>, model: &dyn Model, shape: Shape) -> &'a Program {
    programs.entry(shape).or_insert_with_key(|shape| record(model, shape))
}

fn record(model: &dyn Model, shape: &Shape) -> Program {
    let mut rec = Recorder::new(shape.capacity, &shape.taps);
    if shape.takes_drafts {
        rec = rec.taking_drafts();
    }
    let result: Tensor = match shape.part {
        Part::Trunk => model.forward(&mut rec),
        Part::PredictionHead => model.prediction_head().expect("a model with a prediction head").forward(&mut rec),
        Part::VisionTower => model.vision().expect("a model with a vision tower").forward(&mut rec),
    };
    rec.finish(result)
}

fn shape(part: Part, batch: &Batch, taps: &[Tap]) -> Shape {
    let capacity = Capacity { rows: bucket(batch.len()), wanted: bucket(batch.wanted().len()) };
    let takes_drafts = batch.sequences().iter().any(|context| context.is_draft);
    Shape { part, capacity, taps: taps.to_vec(), takes_drafts }
}

/// Programs are recorded for powers of two of rows.
fn bucket(rows: usize) -> usize {
    if rows == 0 { 0 } else { rows.next_power_of_two() }
}
