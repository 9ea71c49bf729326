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

    /// A weight in one of the formats below that have room for `cols` columns, chosen by `kind`. Values are mostly below
    /// `2 / sqrt(cols)`, so that products with values near 1 are near 1, too.
    pub fn weight(&mut self, kind: usize, rows: usize, cols: usize) -> Weight {
        let formats = formats();
        let fitting: Vec<_> = formats.iter().filter(|(format, ..)| cols.is_multiple_of(format.block_len())).collect();
        self.weight_of(fitting[kind % fitting.len()], rows, cols)
    }

    /// A weight in one of the formats that [`weight`](Self::weight) chooses from.
    ///
    /// # Panics
    /// If the format is none of them or does not fit.
    pub fn weight_in(&mut self, format: Format, rows: usize, cols: usize) -> Weight {
        self.weight_of(formats().iter().find(|kind| kind.0 == format).expect("a known format"), rows, cols)
    }

    fn weight_of(&mut self, (format, block, largest): &Kind, rows: usize, cols: usize) -> Weight {
        let scale = 2.0 / (cols as f32).sqrt();
        let sizes = format.planes(rows, cols).expect("the columns fit");
        let planes: Vec<Vec<u8>> = match format {
            Format::F32 => vec![self.values(rows * cols, scale).iter().flat_map(|v| v.to_le_bytes()).collect()],
            Format::F16 | Format::Bf16 => vec![self.halves(rows * cols, scale, *format == Format::Bf16, -1.0)],
            Format::MlxAffine(mlx) => {
                let (count, brain) = (rows * cols / mlx.group(), mlx.scale_dtype() == DType::Bf16);
                let scales = self.halves(count, 2.0 * scale / largest, brain, 1.0);
                vec![self.bytes(sizes[0]), scales, self.halves(count, scale, brain, -1.0)]
            }
            _ => {
                let mut bytes = self.bytes(sizes[0]);
                let (size, fields) = block;
                for block in bytes.chunks_exact_mut(*size) {
                    for (i, &at) in fields.iter().enumerate() {
                        // The first field is a factor, a second one a minimum.
                        let largest = if i == 0 { *largest } else { 2.0 };
                        block[at..][..2].copy_from_slice(&self.halves(1, scale / largest, false, 1.0));
                    }
                }
                vec![bytes]
            }
        };
        Weight::new("random", *format, rows, cols, planes.into_iter().map(Bytes::from).collect()).expect("sizes fit")
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.bits() as u8).collect()
    }

    /// `len` numbers below `scale` as f16 or bf16: of both signs if `least` is -1, from half of it on if it is 1.
    fn halves(&mut self, len: usize, scale: f32, brain: bool, least: f32) -> Vec<u8> {
        let value = |v: f32| if least < 0.0 { v * scale } else { (3.0 + v) / 4.0 * scale };
        let bytes = |v: f32| if brain { bf16::from_f32(v).to_le_bytes() } else { f16::from_f32(v).to_le_bytes() };
        (0..len).flat_map(|_| bytes(value(self.hump()))).collect()
    }
}

/// A format with the size of its blocks and the places of their f16 fields, and its largest code times its largest scale.
type Kind = (Format, (usize, Vec<usize>), f32);

/// Plain elements, every format with a fast kernel, and one without.
fn formats() -> Vec<Kind> {
    let plain = |format| (format, (0, vec![]), 1.0);
    let gguf = |kind: GgufType, fields: &[usize], largest| {
        (Format::Gguf(kind), (kind.block_bytes(), fields.to_vec()), largest)
    };
    let mlx = |bits, group, dtype| {
        let format = MlxAffine::new(bits, group, dtype).expect("a known kind");
        (Format::MlxAffine(format), (0, vec![]), if bits == 4 { 15.0 } else { 255.0 })
    };
    vec![
        plain(Format::F32),
        plain(Format::Bf16),
        plain(Format::F16),
        gguf(GgufType::Q4_0, &[0], 8.0),
        gguf(GgufType::Q4_1, &[0, 2], 15.0),
        gguf(GgufType::Q5_0, &[0], 16.0),
        gguf(GgufType::Q5_1, &[0, 2], 31.0),
        gguf(GgufType::Q8_0, &[0], 128.0),
        gguf(GgufType::Iq4Nl, &[0], 127.0),
        mlx(4, 32, DType::Bf16),
        mlx(8, 32, DType::F16),
        mlx(4, 64, DType::F16),
        mlx(8, 64, DType::Bf16),
        gguf(GgufType::Q4K, &[0, 2], 15.0 * 63.0),
        gguf(GgufType::Q5K, &[0, 2], 31.0 * 63.0),
        gguf(GgufType::Q6K, &[208], 32.0 * 128.0),
    ]
}
