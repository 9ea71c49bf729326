//! Reproducible random numbers and weights.

use half::{bf16, f16};
use kapitsa_tensor::format::{GgufType, MlxAffine};
use kapitsa_tensor::{Bytes, DType, Format, Weight};

/// SplitMix64 (Steele, Lea and Flood 2014): one multiply-free state, good enough for test data.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An index below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// A number in -1..1 whose distribution is a hump: the mean of two uniform ones.
    pub fn hump(&mut self) -> f32 {
        let uniform = |bits: u64| (bits >> 40) as f32 / (1 << 23) as f32 - 1.0;
        (uniform(self.bits()) + uniform(self.bits())) / 2.0
    }

    /// `len` such numbers times `scale`.
    pub fn values(&mut self, len: usize, scale: f32) -> Vec<f32> {
        (0..len).map(|_| self.hump() * scale).collect()
    }

    /// The indices below `len` in random order.
    pub fn shuffled(&mut self, len: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..len).collect();
        for i in (1..len).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }

    /// A weight in one of four kinds of format (`kind % 4`): F32, BF16, Q8_0, MLX affine 4-bit. `cols` is a multiple of 32
    /// for the quantised ones.
    pub fn weight(&mut self, kind: usize, rows: usize, cols: usize) -> Weight {
        let scale = 1.0 / (cols as f32).sqrt();
        let values = self.values(rows * cols, 2.0 * scale);
        let (format, planes) = match kind % 4 {
            0 => (Format::F32, vec![values.iter().flat_map(|v| v.to_le_bytes()).collect()]),
            1 => (Format::Bf16, vec![values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect()]),
            2 => {
                let block = |codes: &[f32]| {
                    let step = f16::from_f32(2.0 * scale / 127.0);
                    let codes = codes.iter().map(move |v| (v / step.to_f32()) as i8 as u8);
                    step.to_le_bytes().into_iter().chain(codes).collect::<Vec<u8>>()
                };
                (Format::Gguf(GgufType::Q8_0), vec![values.chunks_exact(32).flat_map(block).collect()])
            }
            _ => {
                let format = MlxAffine::new(4, 32, DType::Bf16).expect("a known kind");
                let scales = values.chunks_exact(32).flat_map(|g| bf16::from_f32(g[0] / 8.0).to_le_bytes()).collect();
                let biases = values.chunks_exact(32).flat_map(|g| bf16::from_f32(-g[0]).to_le_bytes()).collect();
                let codes = (0..rows * cols / 2).map(|_| self.bits() as u8).collect();
                (Format::MlxAffine(format), vec![codes, scales, biases])
            }
        };
        let planes: Vec<Vec<u8>> = planes;
        Weight::new("random", format, rows, cols, planes.into_iter().map(Bytes::from).collect()).expect("sizes fit")
    }
}
