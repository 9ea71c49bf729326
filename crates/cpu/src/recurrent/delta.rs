//! The gated delta rule on 16 lanes.
//!
//! A sum over the elements of a key goes through them in order, fused; lanes are elements of the value.

use kapitsa_ops::state::HostStates;
use kapitsa_ops::{Batch, DeltaShape, GatedDelta};

use super::{Rows, Scan, Scratch, TILE, VECTORS, tiles};
use crate::isa::{Isa, Kernel};
use crate::pool::Pool;
use crate::rows::sum_of_squares;
use crate::shared::SharedOut;
use crate::simd::{LANES, Simd};

/// `qkv`, `a` and `b` are the op's inputs, `out` its result, which is written if `rows` are all.
pub(crate) fn delta(
    isa: Isa,
    pool: &mut Pool,
    scratch: &mut Scratch,
    (op, batch, rows, states): (&GatedDelta, &Batch, Rows<'_>, &mut HostStates),
    [qkv, a, b]: [&[f32]; 3],
    out: &mut [f32],
) {
    let DeltaShape { value_heads: heads, key_dim, value_dim, .. } = op.shape;
    let emits = matches!(rows, Rows::All);
    let out = SharedOut::new(out);
    let scan = Scan { batch, states, rows, index: op.state, heads, len: key_dim * value_dim, keys: 2 * key_dim };
    scan.run(pool, scratch, |keys, head, row, state| {
        let qkv = &qkv[row * op.qkv.width()..][..op.qkv.width()];
        let [q, k, v] = op.places(head).map(|place| &qkv[place]);
        let (alpha, beta) = op.gates(head, a[row * heads + head], b[row * heads + head]);
        let result = match emits {
            // SAFETY: a row's result of one head is written by the task of that head.
            true => unsafe { out.part((row * heads + head) * value_dim, value_dim) },
            false => &mut [],
        };
        // SAFETY: sizes are those of the op's shape, which its check has compared; `keys` holds two keys.
        unsafe { isa.run(Step { q, k, v, alpha, beta, keys, state, out: result }) };
    });
}

/// One row of one head.
struct Step<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    alpha: f32,
    beta: f32,
    /// Room for the scaled query and key.
    keys: &'a mut [f32],
    /// `[key_dim, value_dim]`.
    state: &'a mut [f32],
    /// `[value_dim]`, or empty if nobody asks.
    out: &'a mut [f32],
}

impl Kernel for Step<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Step { q, k, v, alpha, beta, keys, state, out } = self;
        let (dim, width) = (k.len(), v.len());
        let (query, key) = keys.split_at_mut(dim);
        scale(q, 1.0 / (sum_of_squares(q) + GatedDelta::UNIT_EPS).sqrt() / (dim as f32).sqrt(), query);
        scale(k, 1.0 / (sum_of_squares(k) + GatedDelta::UNIT_EPS).sqrt(), key);
        let mut spare = [0.0; TILE];
        for (at, count) in tiles(width) {
            let out = if out.is_empty() { &mut spare[..count] } else { &mut out[at..at + count] };
            // SAFETY: columns `at..at + count` of `state` and `v` exist, and `out` has so many.
            unsafe {
                let state = state.as_mut_ptr().add(at);
                let v = v.as_ptr().add(at);
                match count {
                    TILE => columns::<S, VECTORS>((query, key), (alpha, beta), v, state, width, out.as_mut_ptr()),
                    LANES => columns::<S, 1>((query, key), (alpha, beta), v, state, width, out.as_mut_ptr()),
                    _ => columns_one_by_one::<S>((query, key), (alpha, beta), v, state, width, out),
                }
            }
        }
    }
}

#[inline(always)]
fn scale(x: &[f32], factor: f32, out: &mut [f32]) {
    out.iter_mut().zip(x).for_each(|(out, x)| *out = x * factor);
}

/// `N` vectors of columns: rows of `state` lie `width` apart.
///
/// # Safety
/// As [`Simd`]; `state` has `key.len()` rows, of which `N · 16` columns exist, as they do of `v` and `out`.
#[inline(always)]
unsafe fn columns<S: Simd, const N: usize>(
    (query, key): (&[f32], &[f32]),
    (alpha, beta): (f32, f32),
    v: *const f32,
    state: *mut f32,
    width: usize,
    out: *mut f32,
) {
    // SAFETY: the caller's promise, row by row.
    unsafe {
        let zero = S::splat(0.0);
        let keep = S::splat(alpha);
        let mut read = [zero; N];
        for (i, k) in key.iter().enumerate() {
            let (row, k) = (state.add(i * width), S::splat(*k));
            for (n, read) in read.iter_mut().enumerate() {
                *read = S::fma(S::mul(S::load_f32(row.add(n * LANES)), keep), k, *read);
            }
        }
        let (minus, beta) = (S::splat(-1.0), S::splat(beta));
        let mut new = [zero; N];
        for n in 0..N {
            new[n] = S::mul(S::fma(read[n], minus, S::load_f32(v.add(n * LANES))), beta);
        }
        let mut sums = [zero; N];
        for (i, (k, q)) in key.iter().zip(query).enumerate() {
            let (row, k, q) = (state.add(i * width), S::splat(*k), S::splat(*q));
            for n in 0..N {
                let s = S::fma(k, new[n], S::mul(S::load_f32(row.add(n * LANES)), keep));
                S::store_f32(row.add(n * LANES), s);
                sums[n] = S::fma(s, q, sums[n]);
            }
        }
        for (n, sum) in sums.into_iter().enumerate() {
            S::store_f32(out.add(n * LANES), sum);
        }
    }
}

/// As [`columns`] for as many as `out` has, with the same bits.
///
/// # Safety
/// `state` has `key.len()` rows, of which `out.len()` columns exist, as they do of `v`.
#[inline(always)]
unsafe fn columns_one_by_one<S: Simd>(
    (query, key): (&[f32], &[f32]),
    (alpha, beta): (f32, f32),
    v: *const f32,
    state: *mut f32,
    width: usize,
    out: &mut [f32],
) {
    for (column, out) in out.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        let at = |i: usize| unsafe { &mut *state.add(i * width + column) };
        let read = key.iter().enumerate().fold(0.0, |sum, (i, k)| S::fma_lane(*at(i) * alpha, *k, sum));
        // SAFETY: the caller's promise.
        let new = S::fma_lane(read, -1.0, unsafe { *v.add(column) }) * beta;
        *out = 0.0;
        for (i, (k, q)) in key.iter().zip(query).enumerate() {
            let s = at(i);
            *s = S::fma_lane(*k, new, *s * alpha);
            *out = S::fma_lane(*s, *q, *out);
        }
    }
}
