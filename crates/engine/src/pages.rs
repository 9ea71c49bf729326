//! Which pages of the KV cache are free. Pure: no memory, no device.

use kapitsa_ops::kv::{PAGE_TOKENS, PageId};

/// Page ids up to a capacity. All KV groups of a sequence hold the same tokens, so an id stands for the page of that
/// number in every group.
#[derive(Debug)]
pub(crate) struct PagePool {
    free: Vec<PageId>,
    /// Ids below this have been handed out at least once.
    made: usize,
    capacity: usize,
}

impl PagePool {
    /// `capacity` pages, all free.
    pub(crate) fn new(capacity: usize) -> Self {
        PagePool { free: vec![], made: 0, capacity }
    }

    /// Pages that can be taken now.
    pub(crate) fn available(&self) -> usize {
        self.free.len() + (self.capacity - self.made)
    }

    /// Ids handed out so far are below this: the device needs memory for no more.
    pub(crate) fn made(&self) -> usize {
        self.made
    }

    /// A free page; used ones first, so that memory grows only when it must.
    pub(crate) fn take(&mut self) -> Option<PageId> {
        if let Some(page) = self.free.pop() {
            return Some(page);
        }
        let page = (self.made < self.capacity).then_some(PageId(self.made as u32))?;
        self.made += 1;
        Some(page)
    }

    /// `count` free pages, or none if there are not so many.
    pub(crate) fn take_many(&mut self, count: usize) -> Option<Vec<PageId>> {
        if count > self.available() {
            return None;
        }
        (0..count).map(|_| self.take()).collect()
    }

    /// Takes pages back.
    pub(crate) fn give_back(&mut self, pages: impl IntoIterator<Item = PageId>) {
        self.free.extend(pages);
    }
}

/// Pages that `tokens` need.
pub(crate) fn pages_for(tokens: usize) -> usize {
    tokens.div_ceil(PAGE_TOKENS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_handed_out_once_and_used_ones_first() {
        let mut pool = PagePool::new(3);
        assert!(pool.take_many(4).is_none());
        let two = pool.take_many(2).unwrap();
        assert_eq!((two.as_slice(), pool.made(), pool.available()), (&[PageId(0), PageId(1)][..], 2, 1));
        pool.give_back([PageId(0)]);
        assert_eq!((pool.take(), pool.made()), (Some(PageId(0)), 2));
        assert_eq!((pool.take(), pool.take()), (Some(PageId(2)), None));
        pool.give_back((0..3).map(PageId));
        assert_eq!(pool.available(), 3);
    }

    #[test]
    fn a_page_holds_64_tokens() {
        assert_eq!([0, 1, 64, 65].map(pages_for), [0, 1, 1, 2]);
    }
}
