//! Element types of activations, KV caches and scales.

use half::{bf16, f16};

/// A floating-point element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    Bf16,
}

impl DType {
    /// Size of one element in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            DType::F32 => 4,
            DType::F16 | DType::Bf16 => 2,
        }
    }

    /// Element `index` of little-endian `data`, widened exactly to f32.
    ///
    /// # Panics
    /// If `data` holds fewer than `index + 1` elements.
    pub fn read(self, data: &[u8], index: usize) -> f32 {
        let at = index * self.bytes();
        match self {
            DType::F32 => f32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]),
            DType::F16 => f16::from_le_bytes([data[at], data[at + 1]]).to_f32(),
            DType::Bf16 => bf16::from_le_bytes([data[at], data[at + 1]]).to_f32(),
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
        })
    }
}
