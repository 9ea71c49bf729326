//! The block types of GGUF: ids, sizes and the way to their decoders.

use super::{blocks, fp4, iq, k_quants, legacy, ternary};

macro_rules! gguf_types {
    ($(
        $(#[$doc:meta])*
        $variant:ident = $id:literal, $name:literal, $len:literal weights in $bytes:literal bytes, $decode:expr;
    )*) => {
        /// A quantised block type of GGUF. One plane: the blocks of a row follow each other without padding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum GgufType {
            $($(#[$doc])* $variant,)*
        }

        impl GgufType {
            /// All block types.
            pub const ALL: &[GgufType] = &[$(GgufType::$variant),*];

            /// The id that tensor infos carry.
            pub const fn id(self) -> u32 {
                match self { $(GgufType::$variant => $id),* }
            }

            /// The name that GGUF tools print.
            pub const fn name(self) -> &'static str {
                match self { $(GgufType::$variant => $name),* }
            }

            /// Weights in a block.
            pub const fn block_len(self) -> usize {
                match self { $(GgufType::$variant => $len),* }
            }

            /// Bytes of a block.
            pub const fn block_bytes(self) -> usize {
                match self { $(GgufType::$variant => $bytes),* }
            }

            /// Decodes the blocks of a row.
            #[inline]
            pub(super) fn row(self, data: &[u8], out: &mut [f32]) {
                match self { $(GgufType::$variant => blocks::<$bytes, $len>(data, out, $decode)),* }
            }
        }
    };
}

gguf_types! {
    /// 4.5 bits a weight, scale.
    Q4_0 = 2, "Q4_0", 32 weights in 18 bytes, legacy::q4_0;
    /// 5 bits a weight, scale and minimum.
    Q4_1 = 3, "Q4_1", 32 weights in 20 bytes, legacy::q4_1;
    /// 5.5 bits a weight, scale.
    Q5_0 = 6, "Q5_0", 32 weights in 22 bytes, legacy::q5_0;
    /// 6 bits a weight, scale and minimum.
    Q5_1 = 7, "Q5_1", 32 weights in 24 bytes, legacy::q5_1;
    /// 8.5 bits a weight, scale.
    Q8_0 = 8, "Q8_0", 32 weights in 34 bytes, legacy::q8_0;
    /// 2.625 bits a weight, groups of 16.
    Q2K = 10, "Q2_K", 256 weights in 84 bytes, k_quants::q2_k;
    /// 3.4375 bits a weight, groups of 16.
    Q3K = 11, "Q3_K", 256 weights in 110 bytes, k_quants::q3_k;
    /// 4.5 bits a weight, groups of 32.
    Q4K = 12, "Q4_K", 256 weights in 144 bytes, k_quants::q4_k;
    /// 5.5 bits a weight, groups of 32.
    Q5K = 13, "Q5_K", 256 weights in 176 bytes, k_quants::q5_k;
    /// 6.5625 bits a weight, groups of 16.
    Q6K = 14, "Q6_K", 256 weights in 210 bytes, k_quants::q6_k;
    /// 2.0625 bits a weight, codebook of 256 eights.
    Iq2Xxs = 16, "IQ2_XXS", 256 weights in 66 bytes, iq::iq2_xxs;
    /// 2.3125 bits a weight, codebook of 512 eights.
    Iq2Xs = 17, "IQ2_XS", 256 weights in 74 bytes, iq::iq2_xs;
    /// 3.0625 bits a weight, codebook of 256 fours.
    Iq3Xxs = 18, "IQ3_XXS", 256 weights in 98 bytes, iq::iq3_xxs;
    /// 1.5625 bits a weight, codebook of 2048 ternary eights.
    Iq1S = 19, "IQ1_S", 256 weights in 50 bytes, iq::iq1_s;
    /// 4.5 bits a weight, 16 uneven levels.
    Iq4Nl = 20, "IQ4_NL", 32 weights in 18 bytes, iq::iq4_nl;
    /// 3.4375 bits a weight, codebook of 512 fours.
    Iq3S = 21, "IQ3_S", 256 weights in 110 bytes, iq::iq3_s;
    /// 2.5625 bits a weight, codebook of 1024 eights.
    Iq2S = 22, "IQ2_S", 256 weights in 82 bytes, iq::iq2_s;
    /// 4.25 bits a weight, 16 uneven levels, groups of 32.
    Iq4Xs = 23, "IQ4_XS", 256 weights in 136 bytes, iq::iq4_xs;
    /// 1.75 bits a weight, the codebook of IQ1_S with finer scales.
    Iq1M = 29, "IQ1_M", 256 weights in 56 bytes, iq::iq1_m;
    /// 1.6875 bits a weight, ternary in base 3.
    Tq1_0 = 34, "TQ1_0", 256 weights in 54 bytes, ternary::tq1_0;
    /// 2.0625 bits a weight, ternary.
    Tq2_0 = 35, "TQ2_0", 256 weights in 66 bytes, ternary::tq2_0;
    /// 4.25 bits a weight, E2M1 with a power of two.
    Mxfp4 = 39, "MXFP4", 32 weights in 17 bytes, fp4::gguf_mxfp4;
    /// 4.5 bits a weight, E2M1 with an E4M3 scale for 16.
    Nvfp4 = 40, "NVFP4", 64 weights in 36 bytes, fp4::gguf_nvfp4;
    /// 1.125 bits a weight, signs.
    Q1_0 = 41, "Q1_0", 128 weights in 18 bytes, ternary::q1_0;
    /// 2.25 bits a weight, -1 to 2, as mainline readers know it.
    Q2_0 = 42, "Q2_0", 64 weights in 18 bytes, ternary::q2_0;
    /// 2.125 bits a weight, -1 to 2, as the fork that introduced the id writes it. See [`GgufType::q2_0_of_size`].
    Q2_0Group128 = 42, "Q2_0 (group 128)", 128 weights in 34 bytes, ternary::q2_0;
}

impl GgufType {
    /// The block type of a GGUF type id, if it is one. Plain types are not: F32 (0), F16 (1), BF16 (30), integers.
    ///
    /// Id 42 stands for two types; this returns [`GgufType::Q2_0`], and [`GgufType::q2_0_of_size`] can tell.
    pub fn from_id(id: u32) -> Option<Self> {
        // The first match wins, so the mainline meaning of 42 does.
        Self::ALL.iter().copied().find(|kind| kind.id() == id)
    }

    /// Which of the two types of id 42 stores `weights` weights in `bytes` bytes.
    ///
    /// `bytes` may include the padding up to the next tensor, at most `alignment - 1` bytes. Small tensors can then
    /// fit both (a weight count under `64 * alignment`); the answer is the mainline type for them, so ask with the
    /// largest tensor of a file. `None` if neither fits.
    pub fn q2_0_of_size(weights: u64, bytes: u64, alignment: u64) -> Option<Self> {
        [GgufType::Q2_0, GgufType::Q2_0Group128].into_iter().find(|kind| {
            let (len, block) = (kind.block_len() as u64, kind.block_bytes() as u64);
            let needed = (weights / len).checked_mul(block);
            weights.is_multiple_of(len) && needed.is_some_and(|n| n <= bytes && bytes - n < alignment.max(1))
        })
    }
}
