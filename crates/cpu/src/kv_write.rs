//! Stores keys and values in their pages: rows that fill neighbouring slots of a page together.

use half::slice::HalfFloatSliceExt;
use kapitsa_ops::kv::{HeadPageMut, HostKv, PAGE_TOKENS, Part};
use kapitsa_ops::{Batch, KvWrite};

/// `x`: `[rows, kv_heads · head_dim]`.
pub(crate) fn run(kv: &mut HostKv, batch: &Batch, op: &KvWrite, part: Part, x: &[f32]) {
    let (group, _) = kv.layout().layers[op.layer];
    let width = op.keys.width();
    let mut row = 0;
    while row < batch.len() {
        let (slot, pages) = (batch.slot(row), &batch.context(row).pages[group]);
        debug_assert!(slot / PAGE_TOKENS < pages.len());
        let joins = |next: &usize| {
            let together = batch.sequence(*next) == batch.sequence(row) && batch.slot(*next) == slot + next - row;
            together && (slot + next - row) / PAGE_TOKENS == slot / PAGE_TOKENS
        };
        let end = row + 1 + (row + 1..batch.len()).take_while(joins).count();
        let (first, rows) = (slot % PAGE_TOKENS, &x[row * width..end * width]);
        for head in 0..width / op.head_dim {
            let from = Head { rows, width, first: head * op.head_dim, dim: op.head_dim };
            match kv.head_page_mut(op.layer, pages[slot / PAGE_TOKENS], part, head) {
                HeadPageMut::F32(page) => from.store(page, part, first, |to, from| to.copy_from_slice(from)),
                HeadPageMut::F16(page) => from.store(page, part, first, |to, from| to.convert_from_f32_slice(from)),
                HeadPageMut::Bf16(page) => from.store(page, part, first, |to, from| to.convert_from_f32_slice(from)),
            }
        }
        row = end;
    }
}

/// The elements `first..first + dim` of rows, at most [`PAGE_TOKENS`].
struct Head<'a> {
    rows: &'a [f32],
    width: usize,
    first: usize,
    dim: usize,
}

impl Head<'_> {
    /// Puts them into the page's tokens from `token` on.
    fn store<T>(&self, page: &mut [T], part: Part, token: usize, narrow: impl Fn(&mut [T], &[f32])) {
        let count = self.rows.len() / self.width;
        match part {
            Part::Key => {
                let mut values = [0.0; PAGE_TOKENS];
                for (i, page) in page.chunks_exact_mut(PAGE_TOKENS).enumerate() {
                    let elements = self.rows[self.first + i..].iter().step_by(self.width);
                    values.iter_mut().zip(elements).for_each(|(to, from)| *to = *from);
                    narrow(&mut page[token..token + count], &values[..count]);
                }
            }
            Part::Value => {
                let page = page[token * self.dim..].chunks_exact_mut(self.dim);
                for (page, row) in page.zip(self.rows.chunks_exact(self.width)) {
                    narrow(page, &row[self.first..][..self.dim]);
                }
            }
        }
    }
}
