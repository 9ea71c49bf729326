//! The `k` experts with the largest router logits of each row, in ascending order of their ids.
//!
//! Softmax and sigmoid are monotone, so the largest logits are the largest scores. Of equal logits the lower id wins.
//! The ascending order fixes the order in which experts are summed, whatever batch or stream they come from.

use crate::reference::Memory;
use crate::{ElementType, Recorder, Rule, Tensor};

/// `logits`: `[rows, experts]`; `out`: `[rows, k]`, ids.
#[derive(Clone, Debug)]
pub struct Route {
    /// Router logits.
    pub logits: Tensor,
    /// Result; its width is `k`.
    pub out: Tensor,
}

impl Recorder {
    /// Chooses `k` experts for each row.
    pub fn route(&mut self, logits: Tensor, k: usize) -> Tensor {
        let out = self.tensor(logits.rows(), k, ElementType::U32);
        self.push(Route { logits, out });
        out
    }
}

impl Route {
    /// Chooses for one row: `logits` `[experts]`, `out` `[k]`. NaN counts as the smallest logit.
    pub fn choose(logits: &[f32], out: &mut [u32]) {
        let key = |id: u32| Some(logits[id as usize]).filter(|v| !v.is_nan()).unwrap_or(f32::NEG_INFINITY);
        let better = |a: &u32, b: &u32| key(*b).total_cmp(&key(*a)).then(a.cmp(b));
        // The best so far, the best first; `k` is small.
        let mut len = 0;
        for id in 0..logits.len() as u32 {
            let at = out[..len].partition_point(|other| better(other, &id).is_lt());
            if at < out.len() {
                len = out.len().min(len + 1);
                out[at..len].rotate_right(1);
                out[at] = id;
            }
        }
        out.sort_unstable();
    }
}

impl Rule for Route {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.logits]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { logits, out } = self;
        assert!(logits.is_f32() && !out.is_f32() && out.rows() == logits.rows(), "{self:?}");
        assert!(0 < out.width() && out.width() <= logits.width(), "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let logits = memory.read(&self.logits);
        let mut out = vec![0; logits.len() / self.logits.width() * self.out.width()];
        for (logits, out) in logits.chunks_exact(self.logits.width()).zip(out.chunks_exact_mut(self.out.width())) {
            Route::choose(logits, out);
        }
        memory.write_indices(&self.out, &out);
    }
}

#[cfg(test)]
mod tests {
    use super::Route;

    #[test]
    fn ties_go_to_the_lower_id_and_ids_come_back_ascending() {
        let mut out = [0; 3];
        Route::choose(&[1.0, 5.0, 0.0, 5.0, 1.0, f32::NAN], &mut out);
        assert_eq!(out, [0, 1, 3]);
        Route::choose(&[f32::NAN; 4], &mut out);
        assert_eq!(out, [0, 1, 2]);
    }
}
