//! What this machine can do at best: how fast it reads memory, which bounds decoding, and how fast it multiplies, which bounds
//! prefill.

use std::hint::black_box;
use std::time::Instant;

use kapitsa_ops::DeviceError;

use crate::isa::{Isa, Kernel};
use crate::memory::Large;
use crate::pool::Pool;
use crate::simd::{LANES, Simd};

/// Bytes that a thread is ahead of itself in asking for memory.
const AHEAD: usize = 4096;
/// More than caches hold.
const BYTES: usize = 256 << 20;
/// Passes, of which the median counts: other programs disturb single ones.
const PASSES: usize = 9;
/// Independent sums, which hide the latency of an operation.
const SUMS: usize = 12;
/// Operations on each sum in a pass: some milliseconds.
const ROUNDS: usize = 1_000_000;

/// Bytes a second that `threads` threads read together, in order and with prefetches, as the product kernels do.
///
/// # Errors
/// If memory or threads are short.
pub fn read_bandwidth(threads: usize) -> Result<f64, DeviceError> {
    let mut buffer = Large::<u8>::zeros(BYTES, "the measurement")?;
    buffer.as_mut_slice().fill(1);
    let parts: Vec<&[u8]> = buffer.as_slice().chunks(BYTES.div_ceil(threads.max(1)).next_multiple_of(64)).collect();
    Ok(BYTES as f64 / seconds(threads, |worker| Read(parts.get(worker).copied().unwrap_or(&[])))?)
}

/// Products of eight-bit integers a second, each with its sum, that `threads` threads make in registers.
///
/// # Errors
/// If threads are short.
pub fn integer_peak(threads: usize) -> Result<f64, DeviceError> {
    Ok((threads * SUMS * ROUNDS * LANES * 4) as f64 / seconds(threads, |_| Integers)?)
}

/// Products of f32 a second, each with its sum, that `threads` threads make in registers.
///
/// # Errors
/// If threads are short.
pub fn float_peak(threads: usize) -> Result<f64, DeviceError> {
    Ok((threads * SUMS * ROUNDS * LANES) as f64 / seconds(threads, |_| Floats)?)
}

/// Median time of all workers' kernels.
fn seconds<K: Kernel>(threads: usize, kernel: impl Fn(usize) -> K + Sync) -> Result<f64, DeviceError> {
    let (mut pool, isa) = (Pool::new(threads)?, Isa::best());
    let mut seconds = [0.0; PASSES];
    for seconds in &mut seconds {
        let start = Instant::now();
        // SAFETY: these kernels make no demands.
        pool.run(&|worker| unsafe { isa.run(kernel(worker)) });
        *seconds = start.elapsed().as_secs_f64();
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[PASSES / 2])
}

struct Read<'a>(&'a [u8]);

impl Kernel for Read<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: every line is read inside the slice; prefetches may go anywhere.
        unsafe {
            let mut all = [S::splat_i32(0); 4];
            for lines in self.0.as_chunks::<256>().0 {
                for (i, all) in all.iter_mut().enumerate() {
                    let line = lines.as_ptr().add(64 * i);
                    S::prefetch(line.wrapping_add(AHEAD));
                    *all = S::or(*all, S::load_bytes(line));
                }
            }
            black_box(all);
        }
    }
}

struct Integers;

impl Kernel for Integers {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: only registers are used.
        unsafe {
            let mut sums = [S::splat_i32(black_box(0)); SUMS];
            let (codes, x) = (S::splat_i32(black_box(0x0102_0304)), black_box(0x0403_0201));
            for _ in 0..ROUNDS {
                for sum in &mut sums {
                    *sum = S::dot4::<false>(*sum, codes, x);
                }
            }
            black_box(sums);
        }
    }
}

struct Floats;

impl Kernel for Floats {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: only registers are used.
        unsafe {
            let mut sums = [S::splat(black_box(0.0)); SUMS];
            let (a, b) = (S::splat(black_box(1.5)), S::splat(black_box(0.5)));
            for _ in 0..ROUNDS {
                for sum in &mut sums {
                    *sum = S::fma(a, b, *sum);
                }
            }
            black_box(sums);
        }
    }
}
