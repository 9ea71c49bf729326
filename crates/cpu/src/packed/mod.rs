//! Weights as the product kernels read them: panels of 16 outputs side by side.
//!
//! A panel holds all inputs of 16 outputs, scales first, then codes, both in the order of the inputs. The values are those of
//! the stored format, bit for bit; only their places differ. The last panel of a weight is filled up with zeros.
//!
//! Codes come in blocks of 32 inputs. Word `i` (of 8) of a block is a vector whose lane `l` holds the codes of inputs
//! `4 i .. 4 i + 4` of output `l`, a byte each; narrow codes share vectors:
//!
//! | bits | vectors of 64 bytes |
//! | --- | --- |
//! | 4 | four: word `i` in the low nibbles, word `i + 4` in the high ones |
//! | 5 | these four, and one whose bit `i` of a byte is the fifth bit of word `i` |
//! | 6 | these four, and two whose bits `2 i, 2 i + 1` of a byte are the top bits of words `i` and `i + 4` |
//! | 8 | eight |
//!
//! Plain elements have one vector of 16 an input.

mod read;

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use kapitsa_tensor::{DType, Format, GgufType, Weight};

use crate::activations::BLOCK;
use crate::memory::Large;
use crate::pool::Pool;
use crate::shared::SharedOut;
use crate::simd::LANES;

/// Which values a packed weight holds, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Layout {
    /// Plain elements.
    Plain(DType),
    /// Codes with their scales.
    Blocks(Bits, Scales),
}

/// Bits of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bits {
    Four,
    Five,
    Six,
    Eight,
}

/// How codes become values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scales {
    /// `d (code - zero)`: for each block 16 f16.
    Centred { zero: u8 },
    /// `d code + m`: for each block 16 f16 `d`, 16 f16 `m`.
    Affine,
    /// `d scale code - dmin min`: for each eight blocks 16 f16 `d`, 16 f16 `-dmin`, then for each block 16 u8 `scale`, 16 u8
    /// `min`.
    Super,
    /// `d scale (code - 32)`, a scale for each half of a block: for each eight blocks 16 f16 `d`, then for each block 16 i8
    /// of the first half, 16 i8 of the second.
    Halves,
    /// `d code + m` for groups of several blocks: for each group 16 `d`, 16 `m` of the type.
    Groups { blocks: usize, dtype: DType },
}

/// A packed weight `[rows, cols]`.
pub(crate) struct Packed {
    pub(crate) layout: Layout,
    pub(crate) cols: usize,
    /// Where a panel's codes or plain elements begin.
    pub(crate) codes: usize,
    /// Bytes of a panel.
    pub(crate) panel_bytes: usize,
    pub(crate) tiling: Tiling,
    /// Memory of several weights, and where this one's lines begin.
    memory: Arc<Large<Line>>,
    at: usize,
}

/// How a weight's panels are walked through. It has no influence on any output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiling {
    /// Groups of rows of a tile.
    pub(crate) groups: usize,
    /// Whether a task on many rows turns its codes into bytes first.
    pub(crate) widens: bool,
    /// Bytes that a single row is ahead of itself in asking for memory.
    pub(crate) ahead: usize,
}

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line([u8; 64]);

// SAFETY: an array of bytes, whose every value is valid.
unsafe impl Zeroable for Line {}
// SAFETY: as above, without padding.
unsafe impl Pod for Line {}

impl Layout {
    /// The layout for a format; `None` if no kernel reads it.
    pub(crate) fn of(format: &Format) -> Option<Layout> {
        let centred = |zero| Scales::Centred { zero };
        Some(match format {
            Format::F32 => Layout::Plain(DType::F32),
            Format::F16 => Layout::Plain(DType::F16),
            Format::Bf16 => Layout::Plain(DType::Bf16),
            Format::Gguf(kind) => match kind {
                GgufType::Q4_0 => Layout::Blocks(Bits::Four, centred(8)),
                GgufType::Q4_1 => Layout::Blocks(Bits::Four, Scales::Affine),
                GgufType::Q5_0 => Layout::Blocks(Bits::Five, centred(16)),
                GgufType::Q5_1 => Layout::Blocks(Bits::Five, Scales::Affine),
                GgufType::Q8_0 => Layout::Blocks(Bits::Eight, centred(128)),
                GgufType::Q4K => Layout::Blocks(Bits::Four, Scales::Super),
                GgufType::Q5K => Layout::Blocks(Bits::Five, Scales::Super),
                GgufType::Q6K => Layout::Blocks(Bits::Six, Scales::Halves),
                _ => return None,
            },
            Format::MlxAffine(mlx) => {
                let scales = Scales::Groups { blocks: mlx.group() / BLOCK, dtype: mlx.scale_dtype() };
                match mlx.bits() {
                    4 => Layout::Blocks(Bits::Four, scales),
                    8 => Layout::Blocks(Bits::Eight, scales),
                    _ => return None,
                }
            }
            _ => return None,
        })
    }

    /// Whether activations are multiplied in eight bits.
    pub(crate) fn is_quantised(self) -> bool {
        matches!(self, Layout::Blocks(..))
    }

    /// Whether codes have fewer than eight bits.
    pub(crate) fn is_narrow(self) -> bool {
        matches!(self, Layout::Blocks(bits, _) if bits != Bits::Eight)
    }

    /// Bytes of a panel's codes and scales.
    fn panel_bytes(self, cols: usize) -> (usize, usize) {
        match self {
            Layout::Plain(dtype) => (cols * LANES * dtype.bytes(), 0),
            Layout::Blocks(bits, scales) => {
                let blocks = cols / BLOCK;
                let scales = match scales {
                    Scales::Centred { .. } => blocks * 32,
                    Scales::Affine => blocks * 64,
                    Scales::Super => blocks / 8 * SUPER_BYTES,
                    Scales::Halves => blocks / 8 * HALVES_BYTES,
                    Scales::Groups { blocks: group, dtype } => blocks / group * 2 * LANES * dtype.bytes(),
                };
                (blocks * bits.block_bytes(), scales)
            }
        }
    }
}

/// Bytes of eight blocks' [`Scales::Super`].
pub(crate) const SUPER_BYTES: usize = 64 + 8 * 32;
/// Bytes of eight blocks' [`Scales::Halves`].
pub(crate) const HALVES_BYTES: usize = 32 + 8 * 32;

impl Bits {
    /// Vectors of a block's codes.
    const fn vectors(self) -> usize {
        match self {
            Bits::Four => 4,
            Bits::Five => 5,
            Bits::Six => 6,
            Bits::Eight => 8,
        }
    }

    /// Bytes of a block of 16 outputs.
    pub(crate) const fn block_bytes(self) -> usize {
        self.vectors() * 64
    }
}

/// Where the panels of a weight go, and how they look.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    layout: Layout,
    cols: usize,
    codes: usize,
    panel_bytes: usize,
    panels: usize,
}

impl Plan {
    pub(crate) fn new(layout: Layout, weight: &Weight) -> Plan {
        let (codes, scales) = layout.panel_bytes(weight.cols());
        let at = scales.next_multiple_of(64);
        let panel_bytes = (at + codes).next_multiple_of(64);
        Plan { layout, cols: weight.cols(), codes: at, panel_bytes, panels: weight.rows().div_ceil(LANES) }
    }

    /// Lines of all panels.
    pub(crate) fn lines(&self) -> usize {
        self.panels * self.panel_bytes / 64
    }

    /// Writes the panels in parallel. `out`: [`lines`](Self::lines) of zeros.
    pub(crate) fn pack(&self, weight: &Weight, out: &mut [Line], pool: &mut Pool) {
        let lines = self.panel_bytes / 64;
        let out = SharedOut::new(out);
        pool.each(self.panels, |p| {
            // SAFETY: each panel is packed by one task.
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(unsafe { out.part(p * lines, lines) });
            let (scales, codes) = bytes.split_at_mut(self.codes);
            for lane in 0..LANES.min(weight.rows() - p * LANES) {
                read::row(self.layout, weight, p * LANES + lane, lane, codes, scales);
            }
        });
    }

    /// The weight, once it lies in `memory` from line `at` on.
    pub(crate) fn packed(&self, memory: Arc<Large<Line>>, at: usize) -> Packed {
        let tiling = Tiling { groups: 1, widens: false, ahead: 1536 };
        let Plan { layout, cols, codes, panel_bytes, .. } = *self;
        Packed { layout, cols, codes, panel_bytes, tiling, memory, at }
    }
}

impl Packed {
    /// The same weight, walked through in another way.
    pub(crate) fn with(&self, tiling: Tiling) -> Packed {
        Packed { tiling, memory: self.memory.clone(), ..*self }
    }

    /// Start of a panel, a multiple of 64 bytes.
    pub(crate) fn panel(&self, index: usize) -> *const u8 {
        let lines = self.panel_bytes / 64;
        self.memory.as_slice()[self.at + index * lines..][..lines].as_ptr().cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_are_as_large_as_what_they_hold() {
        let bytes = |format: Format, cols| {
            let (codes, scales) = Layout::of(&format).unwrap().panel_bytes(cols);
            codes + scales
        };
        // A panel is 16 rows, with the six-bit scales of Q4_K and Q5_K in bytes.
        for (kind, row, more) in [(GgufType::Q4_0, 144, 0), (GgufType::Q5_1, 192, 0), (GgufType::Q8_0, 272, 0)] {
            assert_eq!(bytes(kind.into(), 256), 16 * (row + more));
        }
        for (kind, row, more) in [(GgufType::Q4K, 144, 4), (GgufType::Q5K, 176, 4), (GgufType::Q6K, 210, 0)] {
            assert_eq!(bytes(kind.into(), 256), 16 * (row + more));
        }
        assert_eq!(bytes(Format::Bf16, 7), 16 * 14);
    }
}
