//! The rows of one step: prefill, decode, several conversations and draft trees are all the same thing.

use std::ops::Range;

use crate::kv::PageId;
use crate::state::StateId;

/// The committed part of a sequence that rows of a batch continue.
#[derive(Clone, Debug, Default)]
pub struct SequenceContext {
    /// Tokens that are part of the sequence: their keys and values are in the cache, the recurrent state is that after them.
    pub cached: usize,
    /// For each KV group, the pages in order of their tokens. They must reach over the batch's rows of this sequence too.
    pub pages: Vec<Vec<PageId>>,
    /// The recurrent state; it means nothing while `cached` is 0.
    pub state: StateId,
    /// Whether the rows are a draft: any tree of them is allowed, and they become part of the sequence only when a path is
    /// committed. The rows of a sequence that is no draft are a chain and become part of it in the same step.
    pub is_draft: bool,
}

/// What a walk over rows does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// Goes back to the state before the first row.
    Restart,
    /// Comes to the row of this index, for the first time or once more.
    Row(usize),
}

/// Rows with their tokens, positions, sequences and parents. Plain data; built row by row.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    sequences: Vec<SequenceContext>,
    sequence_rows: Vec<Vec<usize>>,
    rows: Vec<Row>,
    tail_slots: Vec<u32>,
    wanted: Vec<usize>,
    values: Vec<f32>,
}

#[derive(Clone, Debug)]
struct Row {
    token: u32,
    sequence: usize,
    parent: Option<usize>,
    position: usize,
    coordinates: [usize; 3],
    embedding: Option<Range<usize>>,
    input: Option<Range<usize>>,
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
        self.sequence_rows.push(vec![]);
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
        let slot = cached + self.sequence_rows[sequence].len();
        self.sequence_rows[sequence].push(self.rows.len());
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
        let coordinates = [position; 3];
        let (embedding, input) = (None, None);
        self.rows.push(Row {
            token,
            sequence,
            parent,
            position,
            coordinates,
            embedding,
            input,
            slot,
            tail_start,
            tail,
        });
        self.rows.len() - 1
    }

    /// Puts `row` at coordinates (time, height, width) for rotary embeddings; without this all three are its position.
    pub fn set_coordinates(&mut self, row: usize, coordinates: [usize; 3]) {
        self.rows[row].coordinates = coordinates;
    }

    /// Gives `row` an embedding in place of its token's, `[hidden]`: a part of an image.
    pub fn set_embedding(&mut self, row: usize, values: &[f32]) {
        self.rows[row].embedding = Some(self.keep(values));
    }

    /// Gives `row` values for [`crate::Input`]: what a vision tower or a prediction head reads.
    pub fn set_input(&mut self, row: usize, values: &[f32]) {
        self.rows[row].input = Some(self.keep(values));
    }

    fn keep(&mut self, values: &[f32]) -> Range<usize> {
        let start = self.values.len();
        self.values.extend_from_slice(values);
        start..self.values.len()
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

    /// The row before `row` on its path, if that is a row of this batch.
    pub fn parent(&self, row: usize) -> Option<usize> {
        self.rows[row].parent
    }

    /// Coordinates (time, height, width) of `row`.
    pub fn coordinates(&self, row: usize) -> [usize; 3] {
        self.rows[row].coordinates
    }

    /// The embedding that `row` was given.
    pub fn embedding(&self, row: usize) -> Option<&[f32]> {
        self.rows[row].embedding.clone().map(|range| &self.values[range])
    }

    /// The values that `row` was given.
    pub fn input(&self, row: usize) -> Option<&[f32]> {
        self.rows[row].input.clone().map(|range| &self.values[range])
    }

    /// The sequences.
    pub fn sequences(&self) -> &[SequenceContext] {
        &self.sequences
    }

    /// The rows of a sequence, in order.
    pub fn rows_of(&self, sequence: usize) -> &[usize] {
        &self.sequence_rows[sequence]
    }

    /// Walks over the rows of a sequence so that each comes right after its parent, as a scan of recurrent state must. A row
    /// whose parent is not the row before it costs a new walk along its path.
    ///
    /// # Panics
    /// If the sequence is no draft and its rows are no chain.
    pub fn walk(&self, sequence: usize, mut visit: impl FnMut(Walk)) {
        let mut last = None;
        for &row in self.rows_of(sequence) {
            let parent = self.parent(row);
            if parent != last {
                assert!(self.sequences[sequence].is_draft, "row {row} of a sequence that is no draft makes a tree");
                visit(Walk::Restart);
                self.walk_path(parent, &mut visit);
            }
            visit(Walk::Row(row));
            last = Some(row);
        }
    }

    fn walk_path(&self, row: Option<usize>, visit: &mut impl FnMut(Walk)) {
        if let Some(row) = row {
            self.walk_path(self.parent(row), visit);
            visit(Walk::Row(row));
        }
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
        let s = batch.add_sequence(SequenceContext { cached: 2, ..Default::default() });
        let a = batch.add_row(s, 7, None);
        let b = batch.add_row(s, 8, Some(a));
        assert!(batch.is_chain(b));
        assert_eq!(path(&batch, b), [0, 1, 2, 3]);
    }

    #[test]
    fn tree_rows_see_their_ancestors_only() {
        let mut batch = Batch::new();
        let s = batch.add_sequence(SequenceContext { cached: 2, ..Default::default() });
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

    #[test]
    fn walks_come_to_each_row_right_after_its_parent() {
        let mut batch = Batch::new();
        let s = batch.add_sequence(SequenceContext { is_draft: true, ..Default::default() });
        let root = batch.add_row(s, 1, None);
        let a = batch.add_row(s, 2, Some(root));
        let b = batch.add_row(s, 3, Some(a));
        let c = batch.add_row(s, 4, Some(a));
        let mut text = String::new();
        batch.walk(s, |step| match step {
            Walk::Restart => text.push('|'),
            Walk::Row(row) => text.push_str(&row.to_string()),
        });
        assert_eq!((b, c, text.as_str()), (2, 3, "012|013"));
    }
}
