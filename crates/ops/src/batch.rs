//! The rows of one step: prefill, decode, several conversations and draft trees are all the same thing.

use crate::kv::PageId;

/// The committed part of a sequence that rows of a batch continue.
#[derive(Clone, Debug)]
pub struct SequenceContext {
    /// Tokens whose keys and values are in the cache.
    pub cached: usize,
    /// For each KV group, the pages in order of their tokens. They must reach over the batch's rows of this sequence too.
    pub pages: Vec<Vec<PageId>>,
}

/// Rows with their tokens, positions, sequences and parents. Plain data; built row by row.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    sequences: Vec<SequenceContext>,
    sequence_rows: Vec<usize>,
    rows: Vec<Row>,
    tail_slots: Vec<u32>,
    wanted: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Row {
    token: u32,
    sequence: usize,
    position: usize,
    slot: usize,
    /// Positions below it lie in the KV slot of the same number; the others in `tail_slots[tail..]`.
    tail_start: usize,
    tail: usize,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a sequence; rows name it by the returned index.
    pub fn add_sequence(&mut self, context: SequenceContext) -> usize {
        self.sequences.push(context);
        self.sequence_rows.push(0);
        self.sequences.len() - 1
    }

    /// Adds a row of `token` and returns its index. `parent` is an earlier row of the same sequence, or `None` for a row
    /// that follows the committed context. The row's position is one after its parent's; its keys and values go to the
    /// next free slot of the sequence.
    ///
    /// # Panics
    /// If `sequence` or `parent` does not exist or `parent` belongs to another sequence: batches are made by the engine.
    pub fn add_row(&mut self, sequence: usize, token: u32, parent: Option<usize>) -> usize {
        let cached = self.sequences[sequence].cached;
        let slot = cached + self.sequence_rows[sequence];
        self.sequence_rows[sequence] += 1;
        let (position, parent_tail_start, parent_tail) = match parent {
            Some(index) => {
                let parent = &self.rows[index];
                assert_eq!(parent.sequence, sequence, "row {index} is no parent in another sequence");
                (parent.position + 1, parent.tail_start, parent.tail)
            }
            None => (cached, cached, 0),
        };
        let tail = self.tail_slots.len();
        let tail_start = if slot == position && parent_tail_start == position {
            position + 1
        } else {
            for i in 0..position - parent_tail_start {
                self.tail_slots.push(self.tail_slots[parent_tail + i]);
            }
            self.tail_slots.push(slot as u32);
            parent_tail_start
        };
        self.rows.push(Row { token, sequence, position, slot, tail_start, tail });
        self.rows.len() - 1
    }

    /// Asks for the logits of `row`; they come back in the order of these calls.
    pub fn want(&mut self, row: usize) {
        assert!(row < self.rows.len());
        self.wanted.push(row);
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows whose logits are wanted.
    pub fn wanted(&self) -> &[usize] {
        &self.wanted
    }

    /// Token of `row`.
    pub fn token(&self, row: usize) -> u32 {
        self.rows[row].token
    }

    /// Position of `row` in its sequence, from 0: its depth, not its place in memory.
    pub fn position(&self, row: usize) -> usize {
        self.rows[row].position
    }

    /// The sequence that `row` belongs to.
    pub fn sequence(&self, row: usize) -> usize {
        self.rows[row].sequence
    }

    /// The context that `row` continues.
    pub fn context(&self, row: usize) -> &SequenceContext {
        &self.sequences[self.rows[row].sequence]
    }

    /// KV slot that `row`'s own key and value go to.
    pub fn slot(&self, row: usize) -> usize {
        self.rows[row].slot
    }

    /// KV slot of the key at `position` on the path from the start of the sequence to `row` (inclusive).
    pub fn key_slot(&self, row: usize, position: usize) -> usize {
        let r = &self.rows[row];
        if position < r.tail_start { position } else { self.tail_slots[r.tail + position - r.tail_start] as usize }
    }

    /// Positions below this on the path of `row` lie in the KV slots of the same numbers.
    pub fn in_place(&self, row: usize) -> usize {
        self.rows[row].tail_start.min(self.rows[row].position + 1)
    }

    /// Whether every key of `row` lies in the slot of its position, as in a chain.
    pub fn is_chain(&self, row: usize) -> bool {
        self.rows[row].tail_start > self.rows[row].position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(batch: &Batch, row: usize) -> Vec<usize> {
        (0..=batch.position(row)).map(|p| batch.key_slot(row, p)).collect()
    }

    #[test]
    fn chains_lie_in_the_slot_of_their_position() {
        let mut batch = Batch::new();
        let s = batch.add_sequence(SequenceContext { cached: 2, pages: vec![] });
        let a = batch.add_row(s, 7, None);
        let b = batch.add_row(s, 8, Some(a));
        assert!(batch.is_chain(b));
        assert_eq!(path(&batch, b), [0, 1, 2, 3]);
    }

    #[test]
    fn tree_rows_see_their_ancestors_only() {
        let mut batch = Batch::new();
        let s = batch.add_sequence(SequenceContext { cached: 2, pages: vec![] });
        let root = batch.add_row(s, 1, None); // slot 2
        let a = batch.add_row(s, 2, Some(root)); // slot 3
        let b = batch.add_row(s, 3, Some(root)); // slot 4
        let c = batch.add_row(s, 4, Some(b)); // slot 5
        let d = batch.add_row(s, 5, Some(a)); // slot 6
        let other_root = batch.add_row(s, 6, None); // slot 7
        assert_eq!(path(&batch, b), [0, 1, 2, 4]);
        assert_eq!(path(&batch, c), [0, 1, 2, 4, 5]);
        assert_eq!(path(&batch, d), [0, 1, 2, 3, 6]);
        assert_eq!(path(&batch, other_root), [0, 1, 7]);
        assert_eq!((batch.position(d), batch.is_chain(d), batch.is_chain(a)), (4, false, true));
    }
}
