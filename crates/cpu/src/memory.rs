//! Large memory, in huge pages where the system gives them: fewer translations to look up while all of it is read.

use std::marker::PhantomData;

use bytemuck::Pod;
use kapitsa_ops::DeviceError;
use memmap2::{MmapMut, MmapOptions};

/// Makes sure that `vec` can have `len` elements without asking for memory.
pub(crate) fn hold<T>(vec: &mut Vec<T>, len: usize) {
    vec.reserve(len.saturating_sub(vec.len()));
}

/// A slice in memory of its own, which begins as zeros, page by page as it is touched.
pub(crate) struct Large<T> {
    map: Option<MmapMut>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> Large<T> {
    /// `len` zeros. `what`: what they are for.
    ///
    /// # Errors
    /// If the system has no room.
    pub(crate) fn zeros(len: usize, what: &'static str) -> Result<Self, DeviceError> {
        if len == 0 {
            return Ok(Large::default());
        }
        let bytes = len.saturating_mul(size_of::<T>());
        let map = MmapOptions::new().len(bytes).map_anon().map_err(|_| DeviceError::OutOfMemory { what, bytes })?;
        // Without huge pages all is the same, but slower.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Large { map: Some(map), len, element: PhantomData })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        self.map.as_deref().map_or(&[], |map| bytemuck::cast_slice(&map[..self.len * size_of::<T>()]))
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        self.map.as_deref_mut().map_or(&mut [], |map| bytemuck::cast_slice_mut(&mut map[..self.len * size_of::<T>()]))
    }
}

impl<T> Default for Large<T> {
    fn default() -> Self {
        Large { map: None, len: 0, element: PhantomData }
    }
}
