//! Scores and sums of values of a few queries at a time, which share the loads of keys and values.

use kapitsa_ops::kv::PAGE_TOKENS;

use super::run::{RUN_TOKENS, Scores};
use crate::element::Element;
use crate::simd::{LANES, Simd};

/// Queries of the largest tile, and vectors of keys or values that they meet at a time: their sums stay in 32 registers.
pub(super) const TILE: usize = 6;
const VECTORS: usize = 4;

/// Calls `$kernel::<S, E, R>` with `R` the number of queries.
macro_rules! by_queries {
    ($count:expr, $kernel:ident::<$s:ty, $e:ty>($($arg:expr),*)) => {
        match $count {
            1 => $kernel::<$s, $e, 1>($($arg),*),
            2 => $kernel::<$s, $e, 2>($($arg),*),
            3 => $kernel::<$s, $e, 3>($($arg),*),
            4 => $kernel::<$s, $e, 4>($($arg),*),
            5 => $kernel::<$s, $e, 5>($($arg),*),
            _ => $kernel::<$s, $e, 6>($($arg),*),
        }
    };
}

/// Scores of the keys of whole vectors from token `first` to `end` of a page, to `scores[..][at..]`. `qs`: one to
/// [`TILE`] queries `[dim]`; `keys`: `[dim, 64]`; `next`: a page to fetch meanwhile, or this one.
///
/// # Safety
/// The machine has the instructions of `S`.
#[inline(always)]
pub(super) unsafe fn score<S: Simd, E: Element>(
    qs: &[&[f32]],
    keys: &[E::Stored],
    next: *const E::Stored,
    (first, end): (usize, usize),
    at: usize,
    scores: &mut [Scores],
) {
    let ahead = next.addr().wrapping_sub(keys.as_ptr().addr());
    let dim = keys.len() / PAGE_TOKENS;
    assert!(qs.len() <= TILE && scores.len() == qs.len() && qs.iter().all(|q| q.len() == dim));
    assert!(first % LANES == 0 && end <= PAGE_TOKENS && at + (end - first).next_multiple_of(LANES) <= RUN_TOKENS);
    // SAFETY: in bounds by the assertions.
    unsafe { by_queries!(qs.len(), scores_of::<S, E>(qs, keys, ahead, (first, end), at, scores)) }
}

/// # Safety
/// As [`score`], whose assertions hold, for `R` queries.
#[inline(always)]
unsafe fn scores_of<S: Simd, E: Element, const R: usize>(
    qs: &[&[f32]],
    keys: &[E::Stored],
    ahead: usize,
    (first, end): (usize, usize),
    at: usize,
    scores: &mut [Scores],
) {
    let mut token = first;
    // SAFETY: passed on.
    unsafe {
        while token + VECTORS * LANES <= end {
            scores_at::<S, E, R, VECTORS>(qs, keys, ahead, token, at + token - first, scores);
            token += VECTORS * LANES;
        }
        while token < end {
            scores_at::<S, E, R, 1>(qs, keys, ahead, token, at + token - first, scores);
            token += LANES;
        }
    }
}

/// # Safety
/// As [`scores_of`]; the page has `V` vectors from `token` on, and the scores from `at` on.
#[inline(always)]
unsafe fn scores_at<S: Simd, E: Element, const R: usize, const V: usize>(
    qs: &[&[f32]],
    keys: &[E::Stored],
    ahead: usize,
    token: usize,
    at: usize,
    scores: &mut [Scores],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[S::splat(0.0); V]; R];
        for i in 0..keys.len() / PAGE_TOKENS {
            let keys = keys.as_ptr().add(i * PAGE_TOKENS + token);
            fetch::<S, _, V>(keys, ahead);
            let mut k = [S::splat(0.0); V];
            for (v, k) in k.iter_mut().enumerate() {
                *k = E::load::<S>(keys.add(v * LANES));
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let q = S::splat(*qs.get_unchecked(r).get_unchecked(i));
                for (sum, k) in sums.iter_mut().zip(k) {
                    *sum = S::fma(k, q, *sum);
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (v, sum) in sums.into_iter().enumerate() {
                S::store_f32(scores.get_unchecked_mut(r).as_mut_ptr().add(at + v * LANES), sum);
            }
        }
    }
}

/// Fetches what is `ahead` bytes after `V` vectors.
///
/// # Safety
/// The machine has the instructions of `S`.
#[inline(always)]
unsafe fn fetch<S: Simd, T, const V: usize>(vectors: *const T, ahead: usize) {
    for at in (0..V * LANES * size_of::<T>()).step_by(64) {
        // SAFETY: the caller's promise; any address will do.
        unsafe { S::prefetch(vectors.cast::<u8>().wrapping_add(ahead + at)) }
    }
}

/// `sums[r] += Σ weights[r][j] · values[j]`, in order of `j`. `weights`: one to [`TILE`] queries `[count]`; `values`:
/// `[count, dim]`; `next`: values to fetch meanwhile, or these; `sums`: `[queries, dim]`.
///
/// # Safety
/// The machine has the instructions of `S`.
#[inline(always)]
pub(super) unsafe fn accumulate<S: Simd, E: Element>(
    values: &[E::Stored],
    next: *const E::Stored,
    weights: &[&[f32]],
    dim: usize,
    sums: &mut [f32],
) {
    let ahead = next.addr().wrapping_sub(values.as_ptr().addr());
    let count = weights[0].len();
    assert!(weights.len() <= TILE && weights.iter().all(|w| w.len() == count));
    assert!(values.len() == count * dim && sums.len() == weights.len() * dim);
    // SAFETY: in bounds by the assertions.
    unsafe { by_queries!(weights.len(), sums_of::<S, E>(values, ahead, weights, dim, sums)) }
    for (weights, sums) in weights.iter().zip(sums.chunks_exact_mut(dim)) {
        for (i, sum) in sums.iter_mut().enumerate().skip(dim / LANES * LANES) {
            for (weight, values) in weights.iter().zip(values.chunks_exact(dim)) {
                *sum = weight.mul_add(E::widen(values[i]), *sum);
            }
        }
    }
}

/// The elements of whole vectors.
///
/// # Safety
/// As [`accumulate`], whose assertions hold, for `R` queries.
#[inline(always)]
unsafe fn sums_of<S: Simd, E: Element, const R: usize>(
    values: &[E::Stored],
    ahead: usize,
    weights: &[&[f32]],
    dim: usize,
    sums: &mut [f32],
) {
    let mut at = 0;
    // SAFETY: passed on.
    unsafe {
        while at + VECTORS * LANES <= dim {
            sums_at::<S, E, R, VECTORS>(values, ahead, weights, dim, at, sums);
            at += VECTORS * LANES;
        }
        while at + LANES <= dim {
            sums_at::<S, E, R, 1>(values, ahead, weights, dim, at, sums);
            at += LANES;
        }
    }
}

/// # Safety
/// As [`sums_of`]; `at + 16 V <= dim`.
#[inline(always)]
unsafe fn sums_at<S: Simd, E: Element, const R: usize, const V: usize>(
    values: &[E::Stored],
    ahead: usize,
    weights: &[&[f32]],
    dim: usize,
    at: usize,
    sums: &mut [f32],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let start = sums.as_mut_ptr().add(at);
        let mut lanes = [[S::splat(0.0); V]; R];
        for (r, lanes) in lanes.iter_mut().enumerate() {
            for (v, lanes) in lanes.iter_mut().enumerate() {
                *lanes = S::load_f32(start.add(r * dim + v * LANES));
            }
        }
        for j in 0..weights[0].len() {
            let values = values.as_ptr().add(j * dim + at);
            fetch::<S, _, V>(values, ahead);
            let mut value = [S::splat(0.0); V];
            for (v, value) in value.iter_mut().enumerate() {
                *value = E::load::<S>(values.add(v * LANES));
            }
            for (r, lanes) in lanes.iter_mut().enumerate() {
                let weight = S::splat(*weights.get_unchecked(r).get_unchecked(j));
                for (lane, value) in lanes.iter_mut().zip(value) {
                    *lane = S::fma(value, weight, *lane);
                }
            }
        }
        for (r, lanes) in lanes.into_iter().enumerate() {
            for (v, lanes) in lanes.into_iter().enumerate() {
                S::store_f32(start.add(r * dim + v * LANES), lanes);
            }
        }
    }
}
