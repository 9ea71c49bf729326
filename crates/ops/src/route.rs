//! The `k` experts with the largest router logits of each row, in ascending order of their ids.
//!
//! Softmax and sigmoid are monotone, so the largest logits are the largest scores. Of equal logits the lower id wins.
//! The ascending order fixes the order in which experts are summed, whatever batch or stream they come from.

use crate::reference::Memory;
use crate::{ElementType, Recorder, Rule, Tensor};

/// Experts are in so many groups of equal size, in order; only those of some groups are chosen from. A group is as good as
/// its two best experts together (DeepSeek-V3, arXiv:2412.19437, section 2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertGroups {
    /// Number of groups, at most [`ExpertGroups::MAX`].
    pub count: usize,
    /// Groups that are chosen from.
    pub kept: usize,
}

impl ExpertGroups {
    /// Most groups there can be.
    pub const MAX: usize = 64;
}

/// `logits`: `[rows, experts]`; `out`: `[rows, k]`, ids.
#[derive(Clone, Debug)]
pub struct Route {
    /// Router logits, or scores ([`crate::RouterScores`]).
    pub logits: Tensor,
    /// The limit to groups, if there is one.
    pub groups: Option<ExpertGroups>,
    /// Result; its width is `k`.
    pub out: Tensor,
}

impl Recorder {
    /// Chooses `k` experts for each row.
    pub fn route(&mut self, logits: Tensor, k: usize, groups: Option<ExpertGroups>) -> Tensor {
        let out = self.tensor(logits.rows(), k, ElementType::U32);
        self.push(Route { logits, groups, out });
        out
    }
}

impl Route {
    /// Chooses for one row: `logits` `[experts]`, `out` `[k]`. NaN counts as the smallest logit.
    pub fn choose(&self, logits: &[f32], out: &mut [u32]) {
        let all = 0..logits.len() as u32;
        match self.groups {
            None => best(all, |id| logits[id as usize], out),
            Some(ExpertGroups { count, kept }) => {
                let size = logits.len() / count;
                let score = |group: u32| two_best(&logits[group as usize * size..][..size]);
                let mut groups = [0; ExpertGroups::MAX];
                best(0..count as u32, score, &mut groups[..kept]);
                let kept = groups[..kept].iter().flat_map(|&group| all.clone().skip(group as usize * size).take(size));
                best(kept, |id| logits[id as usize], out);
            }
        }
        out.sort_unstable();
    }
}

/// The best of `ids`, the best first: as many as `out` holds, which is few.
fn best(ids: impl Iterator<Item = u32>, score: impl Fn(u32) -> f32, out: &mut [u32]) {
    let key = |id: u32| Some(score(id)).filter(|v| !v.is_nan()).unwrap_or(f32::NEG_INFINITY);
    let better = |a: &u32, b: &u32| key(*b).total_cmp(&key(*a)).then(a.cmp(b));
    let mut len = 0;
    for id in ids {
        let at = out[..len].partition_point(|other| better(other, &id).is_lt());
        if at < out.len() {
            len = out.len().min(len + 1);
            out[at..len].rotate_right(1);
            out[at] = id;
        }
    }
}

/// The sum of the two largest; the one itself if there is only one.
fn two_best(scores: &[f32]) -> f32 {
    let (mut first, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
    for &score in scores {
        if score > first {
            (first, second) = (score, first);
        } else if score > second {
            second = score;
        }
    }
    if scores.len() == 1 { first } else { first + second }
}

impl Rule for Route {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.logits]
    }

    fn output(&self) -> Option<Tensor> {
        Some(self.out)
    }

    fn check(&self) {
        let Self { logits, groups, out } = self;
        assert!(logits.is_f32() && !out.is_f32() && out.rows() == logits.rows(), "{self:?}");
        let mut choice = logits.width();
        if let Some(ExpertGroups { count, kept }) = groups {
            assert!(0 < *kept && kept <= count && *count <= ExpertGroups::MAX && choice % count == 0, "{self:?}");
            choice = choice / count * kept;
        }
        assert!(0 < out.width() && out.width() <= choice, "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        let logits = memory.read(&self.logits);
        let mut out = vec![0; logits.len() / self.logits.width() * self.out.width()];
        for (logits, out) in logits.chunks_exact(self.logits.width()).zip(out.chunks_exact_mut(self.out.width())) {
            self.choose(logits, out);
        }
        memory.write_indices(&self.out, &out);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Capacity, ElementType, ExpertGroups, Op, Recorder, Rows};

    fn choose(logits: &[f32], k: usize, groups: Option<ExpertGroups>) -> Vec<u32> {
        let mut rec = Recorder::new(Capacity { rows: 1, wanted: 1 }, &[]);
        let x = rec.tensor(Rows::Batch, logits.len(), ElementType::F32);
        rec.route(x, k, groups);
        let mut out = vec![0; k];
        let x = rec.gather_rows(x);
        match &rec.finish(x).ops()[0] {
            Op::Route(op) => op.choose(logits, &mut out),
            other => panic!("{other:?}"),
        }
        out
    }

    #[test]
    fn ties_go_to_the_lower_id_and_ids_come_back_ascending() {
        assert_eq!(choose(&[1.0, 5.0, 0.0, 5.0, 1.0, f32::NAN], 3, None), [0, 1, 3]);
        assert_eq!(choose(&[f32::NAN; 4], 3, None), [0, 1, 2]);
    }

    #[test]
    fn groups_count_by_their_two_best() {
        let logits = [9.0, 0.0, 5.0, 5.0, 6.0, 2.0];
        assert_eq!(choose(&logits, 2, Some(ExpertGroups { count: 3, kept: 1 })), [2, 3]);
        assert_eq!(choose(&logits, 3, Some(ExpertGroups { count: 3, kept: 2 })), [0, 2, 3]);
    }
}
