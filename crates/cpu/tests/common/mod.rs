//! What the tests of this crate share.

use kapitsa_ops::kv::{PAGE_TOKENS, PageId};
use kapitsa_testkit::random::Rng;

/// Pages for sequences of the given lengths, in random order and interleaved.
pub(crate) fn shuffled_pages(rng: &mut Rng, lengths: &[usize]) -> (usize, Vec<Vec<PageId>>) {
    let counts: Vec<usize> = lengths.iter().map(|len| len.div_ceil(PAGE_TOKENS)).collect();
    let total = counts.iter().sum();
    let mut order = rng.shuffled(total).into_iter().map(|p| PageId(p as u32));
    (total, counts.iter().map(|&n| order.by_ref().take(n).collect()).collect())
}
