//! Rotary position embedding (Su et al., arXiv:2104.09864): pairs of a head's elements turn by position · frequency.
//!
//! The angles depend on the position alone, so they are computed once a step and shared by all layers.

use std::sync::Arc;

use crate::reference::Memory;
use crate::{ElementType, Recorder, Rows, Rule, Tensor};

/// Which elements of a head form a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairLayout {
    /// `i` and `i + rotary_dim / 2`.
    HalfSplit,
    /// `2i` and `2i + 1`, as llama GGUF files store queries and keys.
    Adjacent,
}

/// How fast each pair turns.
#[derive(Clone, Debug, PartialEq)]
pub struct Frequencies {
    /// Radians for each position, one a pair: `[rotary_dim / 2]`.
    pub per_position: Arc<[f32]>,
    /// Multiplies cosines and sines (YaRN's attention factor; 1 otherwise).
    pub magnitude: f32,
    /// Which coordinate (0 time, 1 height, 2 width) turns each pair. Without it all go by the first, which for text is the
    /// position.
    pub axes: Option<Arc<[u8]>>,
}

/// `out`: `[rows, rotary_dim]`, all cosines, then all sines. Coordinates come from the batch.
#[derive(Clone, Debug)]
pub struct RotaryAngles {
    /// Angles for one position.
    pub frequencies: Frequencies,
    /// Result.
    pub out: Tensor,
}

/// `x`, `out`: `[rows, heads · head_dim]`; `angles`: `[rows, rotary_dim]`. Elements from `rotary_dim` on pass unchanged.
#[derive(Clone, Debug)]
pub struct Rotary {
    /// Input.
    pub x: Tensor,
    /// From [`RotaryAngles`].
    pub angles: Tensor,
    /// Elements of a head.
    pub head_dim: usize,
    /// Which elements form a pair.
    pub pairs: PairLayout,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Angles of the rows' positions.
    pub fn rotary_angles(&mut self, frequencies: &Frequencies) -> Tensor {
        let out = self.tensor(Rows::Batch, 2 * frequencies.per_position.len(), ElementType::F32);
        self.push(RotaryAngles { frequencies: frequencies.clone(), out });
        out
    }

    /// Turns every head of `x`.
    pub fn rotary(&mut self, x: Tensor, angles: Tensor, head_dim: usize, pairs: PairLayout) -> Tensor {
        let out = self.tensor(x.rows(), x.width(), ElementType::F32);
        self.push(Rotary { x, angles, head_dim, pairs, out });
        out
    }
}

impl RotaryAngles {
    /// Cosines and sines for one row, to `out` (`[rotary_dim]`).
    pub fn at(&self, coordinates: [usize; 3], out: &mut [f32]) {
        let (cosines, sines) = out.split_at_mut(self.frequencies.per_position.len());
        for (i, frequency) in self.frequencies.per_position.iter().enumerate() {
            let axis = self.frequencies.axes.as_ref().map_or(0, |axes| axes[i] as usize);
            let (sin, cos) = (coordinates[axis] as f32 * frequency).sin_cos();
            cosines[i] = cos * self.frequencies.magnitude;
            sines[i] = sin * self.frequencies.magnitude;
        }
    }
}

impl Rotary {
    /// Turns one head: `x`, `out` `[head_dim]`; `angles` `[rotary_dim]`.
    pub fn turn(&self, x: &[f32], angles: &[f32], out: &mut [f32]) {
        let half = angles.len() / 2;
        let (cosines, sines) = angles.split_at(half);
        out.copy_from_slice(x);
        for i in 0..half {
            let (a, b) = match self.pairs {
                PairLayout::HalfSplit => (i, i + half),
                PairLayout::Adjacent => (2 * i, 2 * i + 1),
            };
            out[a] = x[a] * cosines[i] - x[b] * sines[i];
            out[b] = x[b] * cosines[i] + x[a] * sines[i];
        }
    }
}

impl Rule for RotaryAngles {
    fn inputs(&self) -> Vec<Tensor> {
        vec![]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Frequencies { per_position, axes, .. } = &self.frequencies;
        assert_eq!(self.out.width(), 2 * per_position.len(), "{self:?}");
        assert!(axes.as_ref().is_none_or(|axes| axes.len() == per_position.len()), "{self:?}");
        assert!(axes.iter().flat_map(|axes| axes.iter()).all(|&axis| axis < 3), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let width = self.out.width();
        let mut out = vec![0.0; memory.batch.len() * width];
        for (row, out) in out.chunks_exact_mut(width).enumerate() {
            self.at(memory.batch.coordinates(row), out);
        }
        memory.write(&self.out, &out);
    }
}

impl Rule for Rotary {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.x, self.angles]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { x, angles, head_dim, out, .. } = self;
        assert!(x.is_f32() && angles.is_f32() && x.width() % head_dim == 0, "{self:?}");
        assert!(angles.width() <= *head_dim && angles.width() % 2 == 0 && angles.rows() == x.rows(), "{self:?}");
        assert!((out.rows(), out.width()) == (x.rows(), x.width()), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let angles = memory.read(&self.angles);
        let mut angles = angles.chunks_exact(self.angles.width());
        memory.map_rows(&self.x, &self.out, |x, out| {
            let angles = angles.next().expect("as many rows as x");
            for (x, out) in x.chunks_exact(self.head_dim).zip(out.chunks_exact_mut(self.head_dim)) {
                self.turn(x, angles, out);
            }
        });
    }
}
