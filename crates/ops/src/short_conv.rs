//! Depthwise causal convolution over the last few rows of a path, then SiLU: `out_c = silu(bias_c + Σ_j w_{c,j} ·
//! x_{t-taps+1+j,c})`. The last tap is the row's own.
//!
//! State: the `taps - 1` inputs before the next row, the oldest first, `[taps - 1, channels]`.

use crate::reference::Memory;
use crate::sigmoid_mul::sigmoid;
use crate::{ElementType, Recorder, Rows, Rule, Tensor, Vector};

/// `x`, `out`: `[rows, channels]`.
#[derive(Clone, Debug)]
pub struct ShortConv {
    /// Input.
    pub x: Tensor,
    /// `[taps, channels]`.
    pub weight: Vector,
    /// `[channels]`.
    pub bias: Option<Vector>,
    /// Index among the recurrent ops.
    pub state: usize,
    /// Result.
    pub out: Tensor,
}

impl Recorder {
    /// Convolves along the path of each row; `state` counts recurrent ops in the order of recording.
    pub fn short_conv(&mut self, x: Tensor, weight: &Vector, bias: Option<&Vector>, state: usize) -> Tensor {
        let out = self.tensor(Rows::Batch, x.width(), ElementType::F32);
        self.push(ShortConv { x, weight: weight.clone(), bias: bias.cloned(), state, out });
        out
    }
}

impl ShortConv {
    /// Inputs that a result depends on.
    pub fn taps(&self) -> usize {
        self.weight.values().len() / self.x.width()
    }

    fn step(&self, window: &mut [f32], x: &[f32]) -> Vec<f32> {
        let (channels, taps) = (x.len(), self.taps());
        let out = (0..channels).map(|c| {
            let weights = self.weight.values()[c..].iter().step_by(channels);
            let past = (0..taps - 1).map(|tap| window[tap * channels + c]);
            let bias = self.bias.as_ref().map_or(0.0, |bias| bias.values()[c]);
            let sum = past.chain([x[c]]).zip(weights).fold(bias, |sum, (x, w)| sum + x * w);
            sum * sigmoid(sum)
        });
        let out = out.collect();
        if taps > 1 {
            window.rotate_left(channels);
            window[(taps - 2) * channels..].copy_from_slice(x);
        }
        out
    }
}

impl Rule for ShortConv {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.x]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { x, weight, bias, out, .. } = self;
        assert!(x.is_f32() && x.rows() == Rows::Batch, "{self:?}");
        assert!(self.taps() > 0 && weight.values().len() == self.taps() * x.width(), "{self:?}");
        assert!(bias.as_ref().is_none_or(|bias| bias.values().len() == x.width()), "{self:?}");
        assert!((out.rows(), out.width()) == (x.rows(), x.width()), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let (x, width) = (memory.read(&self.x), self.x.width());
        let out = memory.scan(self.state, |window, row| self.step(window, &x[row * width..][..width]));
        memory.write(&self.out, &out);
    }

    fn state(&self) -> Option<(usize, usize)> {
        Some((self.state, (self.taps() - 1) * self.x.width()))
    }

    fn commit(&self, memory: &mut Memory<'_>, sequence: usize, path: &[usize]) {
        let (x, width) = (memory.read(&self.x), self.x.width());
        memory.advance(self.state, sequence, path, |window, row| self.step(window, &x[row * width..][..width]));
    }
}
