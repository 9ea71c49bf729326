//! How fast this machine reads memory: the bound of decoding.

use std::hint::black_box;
use std::time::Instant;

use kapitsa_ops::DeviceError;

use crate::isa::{Isa, Kernel};
use crate::pool::Pool;
use crate::simd::Simd;

/// Bytes that a thread is ahead of itself in asking for memory.
const AHEAD: usize = 4096;
/// More than caches hold.
const BYTES: usize = 256 << 20;
/// Passes, of which the median counts: other programs disturb single ones.
const PASSES: usize = 9;

/// Bytes a second that `threads` threads read together, in order and with prefetches, as the product kernels do.
///
/// # Errors
/// If memory or threads are short.
pub fn read_bandwidth(threads: usize) -> Result<f64, DeviceError> {
    let mut pool = Pool::new(threads)?;
    let mut buffer: Vec<u8> = vec![];
    buffer.try_reserve_exact(BYTES).map_err(|_| DeviceError::OutOfMemory { what: "the measurement", bytes: BYTES })?;
    buffer.resize(BYTES, 1);
    let isa = Isa::best();
    let parts: Vec<&[u8]> = buffer.chunks(BYTES.div_ceil(pool.threads()).next_multiple_of(64)).collect();
    let mut seconds = [0.0; PASSES];
    for seconds in &mut seconds {
        let start = Instant::now();
        // SAFETY: reading makes no demands.
        pool.each(parts.len(), |part| unsafe { isa.run(Read(parts[part])) });
        *seconds = start.elapsed().as_secs_f64();
    }
    seconds.sort_by(f64::total_cmp);
    Ok(BYTES as f64 / seconds[PASSES / 2])
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
