//! Recurrent state: what layers without a KV cache keep of a sequence. Its size does not grow.
//!
//! Each recurrent op keeps so many f32 values for each sequence, in its own order. They are those after the last committed
//! token; before the first token all are zero.

use std::ops::Range;

use crate::DeviceError;

/// Index of a sequence's recurrent state in the storage of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateId(pub u32);

/// Where each recurrent op's values lie in a state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateLayout {
    ends: Vec<usize>,
}

impl StateLayout {
    /// `lens`: values that each recurrent op keeps, in order.
    pub fn new(lens: &[usize]) -> Self {
        let sums = lens.iter().scan(0, |end, len| {
            *end += len;
            Some(*end)
        });
        StateLayout { ends: sums.collect() }
    }

    /// Values of a state.
    pub fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values of recurrent op `index`.
    pub fn part(&self, index: usize) -> Range<usize> {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        start..self.ends[index]
    }
}

/// States in host memory, one after the other.
#[derive(Debug, Default)]
pub struct HostStates {
    layout: StateLayout,
    values: Vec<f32>,
}

impl HostStates {
    /// Makes sure that there are `count` states of `layout`.
    ///
    /// # Errors
    /// If memory is short.
    pub fn reserve(&mut self, layout: &StateLayout, count: usize) -> Result<(), DeviceError> {
        if self.layout != *layout {
            *self = HostStates { layout: layout.clone(), values: vec![] };
        }
        let len = layout.len().saturating_mul(count);
        if self.values.len() < len {
            let bytes = len.saturating_mul(size_of::<f32>());
            let fits = self.values.try_reserve_exact(len - self.values.len());
            fits.map_err(|_| DeviceError::OutOfMemory { what: "recurrent states", bytes })?;
            self.values.resize(len, 0.0);
        }
        Ok(())
    }

    /// Where a state lies in [`values_mut`](Self::values_mut).
    fn place(&self, id: StateId) -> Range<usize> {
        let start = id.0 as usize * self.layout.len();
        start..start + self.layout.len()
    }

    /// Where the values of recurrent op `index` lie.
    pub fn part(&self, id: StateId, index: usize) -> Range<usize> {
        let (start, part) = (self.place(id).start, self.layout.part(index));
        start + part.start..start + part.end
    }

    /// A copy of a state.
    pub fn save(&self, id: StateId) -> Vec<f32> {
        self.values[self.place(id)].to_vec()
    }

    /// Overwrites a state with one that was saved.
    pub fn load(&mut self, id: StateId, values: &[f32]) {
        let place = self.place(id);
        self.values[place].copy_from_slice(values);
    }

    /// The values of all states.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The values of all states, to write to.
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }
}
