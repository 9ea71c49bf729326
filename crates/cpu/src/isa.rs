//! Instruction sets that the kernels are compiled for, chosen at run time.

/// An instruction set. All give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// Whatever the build targets.
    Portable,
    /// 256-bit vectors (AVX2, F16C).
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
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c");
            sets.extend(avx2.then_some(Isa::Avx2));
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni");
            sets.extend((avx2 && avx512).then_some(Isa::Avx512));
        }
        sets
    }

    /// The best set of this machine.
    pub(crate) fn best() -> Isa {
        *Isa::present().last().expect("the portable set is always there")
    }

    /// Runs plain code compiled for this set, so that its loops become vectors of the set's width. Vectors change no bit:
    /// nothing is reordered or fused in plain code.
    #[inline(always)]
    pub(crate) fn vectorised<T>(self, code: impl FnOnce() -> T) -> T {
        match self {
            Isa::Portable => code(),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: kernels are given sets that `Isa::present` has named.
            Isa::Avx2 => unsafe { avx2(code) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx512 => unsafe { avx512(code) },
        }
    }
}

/// # Safety
/// The machine has AVX2 and F16C.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
unsafe fn avx2<T>(code: impl FnOnce() -> T) -> T {
    code()
}

/// # Safety
/// The machine has AVX2, F16C and AVX-512 F, BW, VL.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn avx512<T>(code: impl FnOnce() -> T) -> T {
    code()
}
