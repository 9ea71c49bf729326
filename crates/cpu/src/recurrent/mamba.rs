//! The scan of Mamba-2 on 16 lanes, which are elements of a head; a sum over the state's elements goes through them in order,
//! fused.

use kapitsa_ops::state::HostStates;
use kapitsa_ops::{Batch, Mamba2, MambaShape};

use super::{Rows, Scan, Scratch, TILE, VECTORS, tiles};
use crate::isa::{Isa, Kernel};
use crate::pool::Pool;
use crate::shared::SharedOut;
use crate::simd::{LANES, Simd};

/// `xbc` and `dt` are the op's inputs, `out` its result, which is written if `rows` are all.
pub(crate) fn mamba(
    isa: Isa,
    pool: &mut Pool,
    scratch: &mut Scratch,
    (op, batch, rows, states): (&Mamba2, &Batch, Rows<'_>, &mut HostStates),
    [xbc, dt]: [&[f32]; 2],
    out: &mut [f32],
) {
    let MambaShape { heads, head_dim, state_dim, .. } = op.shape;
    let emits = matches!(rows, Rows::All);
    let out = SharedOut::new(out);
    let scan = Scan { batch, states, rows, index: op.state, heads, len: state_dim * head_dim, keys: head_dim };
    scan.run(pool, scratch, |moved, head, row, state| {
        let xbc = &xbc[row * op.xbc.width()..][..op.xbc.width()];
        let [x, b, c] = op.places(head).map(|place| &xbc[place]);
        let (step, keep) = op.gates(head, dt[row * heads + head]);
        let out = match emits {
            // SAFETY: a row's result of one head is written by the task of that head.
            true => unsafe { out.part((row * heads + head) * head_dim, head_dim) },
            false => &mut [],
        };
        moved.iter_mut().zip(x).for_each(|(moved, x)| *moved = step * x);
        // SAFETY: sizes are those of the op's shape, which its check has compared.
        unsafe { isa.run(Step { moved, b, c, keep, state, out: &mut *out }) };
        out.iter_mut().zip(x).for_each(|(out, x)| *out += op.skip.values()[head] * x);
    });
}

/// One row of one head, without the skip.
struct Step<'a> {
    /// `Δ x`.
    moved: &'a [f32],
    b: &'a [f32],
    c: &'a [f32],
    keep: f32,
    /// `[state_dim, head_dim]`.
    state: &'a mut [f32],
    /// `[head_dim]`, or empty if nobody asks.
    out: &'a mut [f32],
}

impl Kernel for Step<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Step { moved, b, c, keep, state, out } = self;
        let width = moved.len();
        let mut spare = [0.0; TILE];
        for (at, count) in tiles(width) {
            let out = if out.is_empty() { &mut spare[..count] } else { &mut out[at..at + count] };
            // SAFETY: columns `at..at + count` of `state` and `moved` exist, and `out` has so many.
            unsafe {
                let (state, moved) = (state.as_mut_ptr().add(at), moved.as_ptr().add(at));
                match count {
                    TILE => columns::<S, VECTORS>((b, c), keep, moved, state, width, out.as_mut_ptr()),
                    LANES => columns::<S, 1>((b, c), keep, moved, state, width, out.as_mut_ptr()),
                    _ => columns_one_by_one::<S>((b, c), keep, moved, state, width, out),
                }
            }
        }
    }
}

/// `N` vectors of columns: rows of `state` lie `width` apart.
///
/// # Safety
/// As [`Simd`]; `state` has `b.len()` rows, of which `N · 16` columns exist, as they do of `moved` and `out`.
#[inline(always)]
unsafe fn columns<S: Simd, const N: usize>(
    (b, c): (&[f32], &[f32]),
    keep: f32,
    moved: *const f32,
    state: *mut f32,
    width: usize,
    out: *mut f32,
) {
    // SAFETY: the caller's promise, row by row.
    unsafe {
        let mut x = [S::splat(0.0); N];
        for (n, x) in x.iter_mut().enumerate() {
            *x = S::load_f32(moved.add(n * LANES));
        }
        let keep = S::splat(keep);
        let mut sums = [S::splat(0.0); N];
        for (i, (b, c)) in b.iter().zip(c).enumerate() {
            let (row, b, c) = (state.add(i * width), S::splat(*b), S::splat(*c));
            for n in 0..N {
                let s = S::fma(b, x[n], S::mul(S::load_f32(row.add(n * LANES)), keep));
                S::store_f32(row.add(n * LANES), s);
                sums[n] = S::fma(s, c, sums[n]);
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
/// `state` has `b.len()` rows, of which `out.len()` columns exist, as they do of `moved`.
#[inline(always)]
unsafe fn columns_one_by_one<S: Simd>(
    (b, c): (&[f32], &[f32]),
    keep: f32,
    moved: *const f32,
    state: *mut f32,
    width: usize,
    out: &mut [f32],
) {
    for (column, out) in out.iter_mut().enumerate() {
        *out = 0.0;
        for (i, (b, c)) in b.iter().zip(c).enumerate() {
            // SAFETY: the caller's promise.
            let (s, x) = unsafe { (&mut *state.add(i * width + column), *moved.add(column)) };
            *s = S::fma_lane(*b, x, *s * keep);
            *out = S::fma_lane(*s, *c, *out);
        }
    }
}
