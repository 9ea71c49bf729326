//! Which pages of the KV cache belong to which sequence.

use kapitsa_ops::kv::{KvLayout, PAGE_TOKENS, PageId};
use kapitsa_ops::{Backend, DeviceError, SequenceContext};

/// One timeline of tokens and the KV pages that hold its committed part.
#[derive(Debug)]
pub struct Sequence {
    cached: usize,
    pages: Vec<Vec<PageId>>,
}

impl Sequence {
    /// Tokens whose keys and values are in the cache.
    pub fn cached(&self) -> usize {
        self.cached
    }

    /// Commits `count` tokens that a batch has just computed.
    pub fn commit(&mut self, count: usize) {
        self.cached += count;
    }

    /// What a batch needs to continue it.
    pub fn context(&self) -> SequenceContext {
        SequenceContext { cached: self.cached, pages: self.pages.clone() }
    }
}

/// Free pages of each KV group.
#[derive(Debug)]
pub struct PagePool {
    free: Vec<Vec<PageId>>,
    made: Vec<usize>,
}

impl PagePool {
    /// A pool that owns no page yet.
    pub fn new(layout: &KvLayout) -> Self {
        PagePool { free: vec![vec![]; layout.groups.len()], made: vec![0; layout.groups.len()] }
    }

    /// A sequence without tokens.
    pub fn sequence(&self) -> Sequence {
        Sequence { cached: 0, pages: vec![vec![]; self.free.len()] }
    }

    /// Gives `sequence` pages for `rows` more tokens.
    ///
    /// # Errors
    /// If the backend has no memory for more; the sequence keeps what it has.
    pub fn grow(&mut self, backend: &mut dyn Backend, sequence: &mut Sequence, rows: usize) -> Result<(), DeviceError> {
        let needed = (sequence.cached + rows).div_ceil(PAGE_TOKENS);
        for (group, pages) in sequence.pages.iter_mut().enumerate() {
            while pages.len() < needed {
                let page = match self.free[group].pop() {
                    Some(page) => page,
                    None => {
                        backend.reserve(group, self.made[group] + 1)?;
                        self.made[group] += 1;
                        PageId(self.made[group] as u32 - 1)
                    }
                };
                pages.push(page);
            }
        }
        Ok(())
    }

    /// Takes back all pages of a sequence.
    pub fn release(&mut self, sequence: Sequence) {
        for (free, pages) in self.free.iter_mut().zip(sequence.pages) {
            free.extend(pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use kapitsa_ops::kv::KvShape;
    use kapitsa_ops::{Batch, Outputs, Program};
    use kapitsa_tensor::DType;

    use super::*;

    /// Has room for three pages in each group.
    struct Small {
        reserved: Vec<usize>,
    }

    impl Backend for Small {
        fn load(&mut self, _: &Program, _: &mut dyn FnMut(&kapitsa_tensor::Weight)) -> Result<(), DeviceError> {
            Ok(())
        }

        fn reserve(&mut self, group: usize, pages: usize) -> Result<(), DeviceError> {
            if pages > 3 {
                return Err(DeviceError::OutOfMemory { what: "the KV cache", bytes: 1 });
            }
            self.reserved[group] = self.reserved[group].max(pages);
            Ok(())
        }

        fn run(&mut self, _: &Program, _: &Batch) -> Result<Outputs, DeviceError> {
            unreachable!("pages are handed out without running anything")
        }
    }

    #[test]
    fn pages_are_never_shared_and_come_back() {
        let full = KvShape { kv_heads: 1, head_dim: 4, window: None };
        let layout = KvLayout::new(DType::F16, &[full, KvShape { window: Some(8), ..full }]);
        let (mut pool, mut backend) = (PagePool::new(&layout), Small { reserved: vec![0; 2] });
        let (mut a, mut b) = (pool.sequence(), pool.sequence());
        pool.grow(&mut backend, &mut a, 64).unwrap();
        pool.grow(&mut backend, &mut b, 65).unwrap();
        a.commit(64);
        for group in 0..2 {
            let (a, b) = (&a.context().pages[group], &b.context().pages[group]);
            assert_eq!((a.len(), b.len(), a.iter().any(|page| b.contains(page))), (1, 2, false));
        }
        assert!(pool.grow(&mut backend, &mut a, 1).is_err(), "three pages are in use");
        assert_eq!(a.cached(), 64);
        pool.release(b);
        pool.grow(&mut backend, &mut a, 1).unwrap();
        pool.release(a);
        assert_eq!(backend.reserved, [3, 3]);
        assert_eq!(pool.free.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
    }
}
