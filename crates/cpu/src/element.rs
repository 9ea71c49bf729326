//! Element types of plain weights and of the KV cache.

use half::{bf16, f16};

use crate::simd::Simd;

/// A stored type that widens exactly to f32.
pub(crate) trait Element {
    type Stored: Copy;

    /// Sixteen elements.
    ///
    /// # Safety
    /// `from` is valid for 16 elements; the machine has the instructions of `S`.
    unsafe fn load<S: Simd>(from: *const Self::Stored) -> S::F32;

    /// One element.
    fn widen(value: Self::Stored) -> f32;
}

pub(crate) struct F32;
pub(crate) struct F16;
pub(crate) struct Bf16;

impl Element for F32 {
    type Stored = f32;

    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const f32) -> S::F32 {
        // SAFETY: the caller's promise.
        unsafe { S::load_f32(from) }
    }

    #[inline(always)]
    fn widen(value: f32) -> f32 {
        value
    }
}

impl Element for F16 {
    type Stored = f16;

    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const f16) -> S::F32 {
        // SAFETY: the caller's promise; `f16` is its bits.
        unsafe { S::load_f16(from.cast()) }
    }

    #[inline(always)]
    fn widen(value: f16) -> f32 {
        value.to_f32()
    }
}

impl Element for Bf16 {
    type Stored = bf16;

    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const bf16) -> S::F32 {
        // SAFETY: the caller's promise; `bf16` is its bits.
        unsafe { S::load_bf16(from.cast()) }
    }

    #[inline(always)]
    fn widen(value: bf16) -> f32 {
        value.to_f32()
    }
}
