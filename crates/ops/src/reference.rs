//! The backend that runs every op's scalar reference: slow, plain, and what fast kernels are tested against.

use kapitsa_tensor::Weight;

use crate::kv::{HostKv, KvLayout, PageId, Part};
use crate::state::{HostStates, StateId, StateLayout};
use crate::{Backend, Batch, DeviceError, ElementType, Outputs, Program, Tensor, Walk};

/// Runs references on one thread.
#[derive(Debug)]
pub struct Reference {
    arena: Vec<f32>,
    kv: HostKv,
    states: HostStates,
}

impl Reference {
    /// A backend with an empty KV cache.
    pub fn new(layout: KvLayout) -> Self {
        Reference { arena: vec![], kv: HostKv::new(layout), states: HostStates::default() }
    }
}

impl Backend for Reference {
    fn load(&mut self, _: &Program, _: &mut dyn FnMut(&Weight)) -> Result<(), DeviceError> {
        Ok(())
    }

    fn reserve(&mut self, group: usize, pages: usize) -> Result<(), DeviceError> {
        self.kv.reserve(group, pages)
    }

    fn reserve_states(&mut self, layout: &StateLayout, count: usize) -> Result<(), DeviceError> {
        self.states.reserve(layout, count)
    }

    fn save_state(&self, id: StateId) -> Vec<f32> {
        self.states.save(id)
    }

    fn load_state(&mut self, id: StateId, values: &[f32]) {
        self.states.load(id, values);
    }

    fn copy_page(&mut self, group: usize, from: PageId, to: PageId) {
        self.kv.copy_page(group, from, to);
    }

    fn commit(&mut self, program: &Program, batch: &Batch, sequence: usize, path: &[usize]) {
        self.kv.commit(batch, sequence, path);
        let mut memory = Memory { program, batch, arena: &mut self.arena, kv: &mut self.kv, states: &mut self.states };
        program.ops().iter().for_each(|op| op.rule().commit(&mut memory, sequence, path));
    }

    fn run(&mut self, program: &Program, batch: &Batch, outputs: &mut Outputs) -> Result<(), DeviceError> {
        self.arena.resize(self.arena.len().max(program.arena_len()), 0.0);
        let mut memory = Memory { program, batch, arena: &mut self.arena, kv: &mut self.kv, states: &mut self.states };
        for op in program.ops() {
            op.rule().reference(&mut memory);
        }
        outputs.logits.extend(memory.read(&program.logits()));
        for (tap, x) in program.taps() {
            outputs.add(*tap, x.element(), &memory.arena[memory.place(x)]);
        }
        Ok(())
    }
}

/// What a reference may touch: tensors, the batch, the KV cache.
pub struct Memory<'a> {
    program: &'a Program,
    /// The rows of this step.
    pub batch: &'a Batch,
    arena: &'a mut [f32],
    kv: &'a mut HostKv,
    states: &'a mut HostStates,
}

impl Memory<'_> {
    /// A copy of `x`, `[rows, width]`.
    pub fn read(&self, x: &Tensor) -> Vec<f32> {
        assert_eq!(x.element(), ElementType::F32);
        self.arena[self.place(x)].to_vec()
    }

    /// A copy of the indices `x`, `[rows, width]`.
    pub fn read_indices(&self, x: &Tensor) -> Vec<u32> {
        assert_eq!(x.element(), ElementType::U32);
        self.arena[self.place(x)].iter().map(|v| v.to_bits()).collect()
    }

    /// Stores `values` to all of `x`.
    pub fn write(&mut self, x: &Tensor, values: &[f32]) {
        assert_eq!(x.element(), ElementType::F32);
        let place = self.place(x);
        self.arena[place].copy_from_slice(values);
    }

    /// Stores indices to all of `x`.
    pub fn write_indices(&mut self, x: &Tensor, values: &[u32]) {
        assert_eq!(x.element(), ElementType::U32);
        let place = self.place(x);
        for (to, from) in self.arena[place].iter_mut().zip(values) {
            *to = f32::from_bits(*from);
        }
    }

    /// Computes `out` row by row from the rows of `x`.
    pub fn map_rows(&mut self, x: &Tensor, out: &Tensor, mut row: impl FnMut(&[f32], &mut [f32])) {
        let input = self.read(x);
        let mut output = vec![0.0; input.len() / x.width() * out.width()];
        for (x, out) in input.chunks_exact(x.width()).zip(output.chunks_exact_mut(out.width())) {
            row(x, out);
        }
        self.write(out, &output);
    }

    /// Stores the key or value `values` of `row` for one head of attention layer `layer`.
    pub fn write_kv(&mut self, layer: usize, row: usize, part: Part, head: usize, values: &[f32]) {
        let (group, _) = self.kv.layout().layers[layer];
        let pages = &self.batch.context(row).pages[group];
        self.kv.write(layer, pages, self.batch.slot(row), part, head, values);
    }

    /// The key or value at `position` on the path of `row`, for one head of attention layer `layer`.
    pub fn read_kv(&self, layer: usize, row: usize, position: usize, part: Part, head: usize) -> Vec<f32> {
        let (group, _) = self.kv.layout().layers[layer];
        let dim = self.kv.layout().groups[group].shape.head_dim;
        let slot = self.batch.key_slot(row, position);
        let page = self.batch.context(row).pages[group][slot / crate::kv::PAGE_TOKENS];
        let mut out = vec![0.0; dim];
        self.kv.head_page(layer, page, part, head).read(part, slot % crate::kv::PAGE_TOKENS, &mut out);
        out
    }

    /// Scans the rows of all sequences with recurrent op `index`: `step(state, memory, row)` moves the state on over a row and
    /// gives the row's result. Returns all results, row by row.
    pub fn scan(&mut self, index: usize, mut step: impl FnMut(&mut [f32], usize) -> Vec<f32>) -> Vec<f32> {
        let batch = self.batch;
        let mut results = vec![vec![]; batch.len()];
        for (sequence, context) in batch.sequences().iter().enumerate() {
            let before = self.state(sequence, index);
            let mut state = before.clone();
            batch.walk(sequence, |walk| match walk {
                Walk::Restart => state.copy_from_slice(&before),
                Walk::Row(row) => results[row] = step(&mut state, row),
            });
            if !context.is_draft && !batch.rows_of(sequence).is_empty() {
                self.set_state(sequence, index, &state);
            }
        }
        results.concat()
    }

    /// Moves what recurrent op `index` keeps of `sequence` on over the rows `path`.
    pub fn advance(
        &mut self,
        index: usize,
        sequence: usize,
        path: &[usize],
        mut step: impl FnMut(&mut [f32], usize) -> Vec<f32>,
    ) {
        let mut state = self.state(sequence, index);
        path.iter().for_each(|&row| drop(step(&mut state, row)));
        self.set_state(sequence, index, &state);
    }

    /// What recurrent op `index` keeps of `sequence`; zeros before the first token.
    fn state(&self, sequence: usize, index: usize) -> Vec<f32> {
        let context = &self.batch.sequences()[sequence];
        let part = self.states.part(context.state, index);
        if context.cached == 0 { vec![0.0; part.len()] } else { self.states.values()[part].to_vec() }
    }

    fn set_state(&mut self, sequence: usize, index: usize, state: &[f32]) {
        let part = self.states.part(self.batch.sequences()[sequence].state, index);
        self.states.values_mut()[part].copy_from_slice(state);
    }

    fn place(&self, x: &Tensor) -> std::ops::Range<usize> {
        self.program.place(*x, self.batch.len(), self.batch.wanted().len())
    }
}
