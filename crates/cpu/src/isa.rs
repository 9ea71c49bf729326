//! Instruction sets that the kernels are compiled for, chosen at run time.

#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512};
use crate::simd::{Portable, Simd};

/// An instruction set. All give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// Whatever the build targets.
    Portable,
    /// 256-bit vectors (AVX2, FMA, F16C).
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 512-bit vectors with integer dot products (AVX-512 F, BW, VL, VNNI).
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// The sets that this machine has, best last.
    pub fn present() -> Vec<Isa> {
        let mut sets = vec![Isa::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            let features = features();
            let has = |names: &[&str]| names.iter().all(|name| features.contains(&(*name, true)));
            let avx2 = has(&["avx2", "fma", "f16c"]);
            sets.extend(avx2.then_some(Isa::Avx2));
            let avx512 = has(&["avx512f", "avx512bw", "avx512vl", "avx512vnni"]);
            sets.extend((avx2 && avx512).then_some(Isa::Avx512));
        }
        sets
    }

    /// The best set of this machine, which the backend takes.
    pub fn best() -> Isa {
        *Isa::present().last().expect("the portable set is always there")
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => "AVX-512",
        }
    }

    /// Groups of rows whose sums the registers hold.
    pub(crate) fn tile_groups(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => 3,
            _ => 1,
        }
    }

    /// Runs plain code compiled for this set, so that its loops become vectors of the set's width. Vectors change no bit:
    /// nothing is reordered or fused in plain code.
    #[inline(always)]
    pub(crate) fn vectorised(self, code: impl FnOnce()) {
        // SAFETY: plain code makes no demands.
        unsafe { self.run(Plain(code)) }
    }

    /// Runs a kernel compiled for this set.
    ///
    /// # Safety
    /// Whatever the kernel demands beside the instructions.
    #[inline(always)]
    pub(crate) unsafe fn run(self, kernel: impl Kernel) {
        match self {
            // SAFETY: passed on; this set is always there.
            Isa::Portable => unsafe { kernel.run::<Portable>() },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: passed on; sets come from `Isa::present`, or `Cpu::new` has compared them with it.
            Isa::Avx2 => unsafe { avx2(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx512 => unsafe { avx512(kernel) },
        }
    }
}

/// The features of a processor that the sets are made of, and whether this one has them.
pub fn features() -> Vec<(&'static str, bool)> {
    #[cfg(target_arch = "x86_64")]
    return vec![
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("f16c", is_x86_feature_detected!("f16c")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
        ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    vec![]
}

/// Code that is compiled for each instruction set. Its `run` must be `inline(always)`, as must all that it calls, down to
/// the operations of `S`: that is how they come to be compiled with the set's instructions.
pub(crate) trait Kernel {
    /// # Safety
    /// The machine has the instructions of `S`.
    unsafe fn run<S: Simd>(self);
}

struct Plain<F>(F);

impl<F: FnOnce()> Kernel for Plain<F> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        (self.0)()
    }
}

/// # Safety
/// As [`Isa::run`]; the machine has the instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn avx2(kernel: impl Kernel) {
    // SAFETY: passed on.
    unsafe { kernel.run::<Avx2>() }
}

/// # Safety
/// As [`Isa::run`]; the machine has the instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn avx512(kernel: impl Kernel) {
    // SAFETY: passed on.
    unsafe { kernel.run::<Avx512>() }
}
