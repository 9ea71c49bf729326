//! Joining neighbours, best pair first: the loop of SentencePiece's pair merging.

use std::{cmp::Reverse, collections::BinaryHeap};

const NONE: u32 = u32::MAX;

/// A run of the text that is one token so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    /// Start in the text, in bytes.
    pub(crate) start: u32,
    /// Length in bytes; 0 once the symbol has been joined to its left neighbour.
    pub(crate) len: u32,
    /// Token id, or [`Symbol::NO_TOKEN`].
    pub(crate) id: u32,
    previous: u32,
    next: u32,
}

impl Symbol {
    /// No token has this text.
    pub(crate) const NO_TOKEN: u32 = u32::MAX;

    pub(crate) fn new(start: usize, len: usize, id: Option<u32>) -> Self {
        Self { start: start as u32, len: len as u32, id: id.unwrap_or(Self::NO_TOKEN), previous: NONE, next: NONE }
    }

    /// Start and end in the text.
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        self.start as usize..(self.start + self.len) as usize
    }
}

/// What joining two neighbours would give. Lower rank is joined first; among equals the leftmost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Join {
    pub(crate) rank: u32,
    pub(crate) id: u32,
}

/// A pair that may be joined, as a queue entry: rank, position of the left symbol, then what must still hold when its
/// turn comes.
type Candidate = Reverse<(u32, u32, u32, u32)>;

/// Joins neighbours until none can be joined; symbols of length 0 are then leftovers to skip. `join` looks at two
/// neighbours. O(n log n) in the number of symbols.
pub(crate) fn merge(symbols: &mut [Symbol], join: impl Fn(&Symbol, &Symbol) -> Option<Join>) {
    let mut queue = BinaryHeap::new();
    let count = symbols.len() as u32;
    for (index, symbol) in symbols.iter_mut().enumerate() {
        let index = index as u32;
        symbol.previous = index.wrapping_sub(1); // NONE for the first
        symbol.next = if index + 1 < count { index + 1 } else { NONE };
    }
    let consider = |symbols: &[Symbol], queue: &mut BinaryHeap<Candidate>, left: u32, right: u32| {
        let (a, b) = (&symbols[left as usize], &symbols[right as usize]);
        if let Some(found) = join(a, b) {
            queue.push(Reverse((found.rank, left, a.len + b.len, found.id)));
        }
    };
    for left in 1..count {
        consider(symbols, &mut queue, left - 1, left);
    }
    while let Some(Reverse((_, left, joined_len, id))) = queue.pop() {
        let symbol = symbols[left as usize];
        // The entry is stale if either side has changed since: symbols only ever grow to the right, so equal total
        // length means equal halves.
        if symbol.len == 0 || symbol.next == NONE {
            continue;
        }
        let right = symbols[symbol.next as usize];
        if symbol.len + right.len != joined_len {
            continue;
        }
        symbols[symbol.next as usize].len = 0;
        symbols[left as usize] = Symbol { len: joined_len, id, next: right.next, ..symbol };
        if right.next != NONE {
            symbols[right.next as usize].previous = left;
            consider(symbols, &mut queue, left, right.next);
        }
        if symbol.previous != NONE {
            consider(symbols, &mut queue, symbol.previous, left);
        }
    }
}
