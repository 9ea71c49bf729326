//! The KV cache: pages of 64 tokens, for each group of layers with equal window, heads and type.
//!
//! Invariant: a page is immutable once its 64 tokens are committed; whoever shares it may rely on its bits.

use half::{bf16, f16};
use kapitsa_tensor::DType;

use crate::{Batch, DeviceError};

/// Tokens of a page.
pub const PAGE_TOKENS: usize = 64;

/// Index of a page in the storage of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(pub u32);

/// What one attention layer keeps for each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvShape {
    /// Key (and value) heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Sliding window: a query sees itself and the `window - 1` tokens before it. `None` sees all.
    pub window: Option<usize>,
}

/// Layers that share pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvGroup {
    /// What each layer of the group keeps for a token.
    pub shape: KvShape,
    /// Number of layers in the group.
    pub layers: usize,
}

/// Which group each attention layer belongs to, and the element type of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvLayout {
    /// Element type of keys and values.
    pub dtype: DType,
    /// The groups, in order of their first layer.
    pub groups: Vec<KvGroup>,
    /// For each attention layer: its group and its index there.
    pub layers: Vec<(usize, usize)>,
}

impl KvLayout {
    /// Groups the attention layers of a model.
    pub fn new(dtype: DType, layers: &[KvShape]) -> Self {
        let mut layout = KvLayout { dtype, groups: vec![], layers: vec![] };
        for &shape in layers {
            let group = layout.groups.iter().position(|g| g.shape == shape).unwrap_or_else(|| {
                layout.groups.push(KvGroup { shape, layers: 0 });
                layout.groups.len() - 1
            });
            layout.layers.push((group, layout.groups[group].layers));
            layout.groups[group].layers += 1;
        }
        layout
    }

    /// Elements of one page of `group`.
    pub fn page_len(&self, group: usize) -> usize {
        let KvGroup { shape, layers } = &self.groups[group];
        layers * 2 * shape.kv_heads * PAGE_TOKENS * shape.head_dim
    }

    /// Bytes that one token takes in all groups.
    pub fn token_bytes(&self) -> usize {
        (0..self.groups.len()).map(|g| self.page_len(g) / PAGE_TOKENS * self.dtype.bytes()).sum()
    }
}

/// Keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Rotated keys.
    Key,
    /// Values.
    Value,
}

/// Pages in host memory. In a page: layer, part, head; then keys by element and token, so that the same element of tokens
/// side by side is one vector, values by token and element.
#[derive(Debug)]
pub struct HostKv {
    layout: KvLayout,
    groups: Vec<Vec<Page>>,
}

#[derive(Debug)]
enum Page {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
}

/// A head's keys `[head_dim, 64]` or values `[64, head_dim]` in one page.
#[derive(Clone, Copy, Debug)]
pub enum HeadPage<'a> {
    /// Stored as f32.
    F32(&'a [f32]),
    /// Stored as f16.
    F16(&'a [f16]),
    /// Stored as bf16.
    Bf16(&'a [bf16]),
}

/// A [`HeadPage`] to write to.
#[derive(Debug)]
pub enum HeadPageMut<'a> {
    /// Stored as f32.
    F32(&'a mut [f32]),
    /// Stored as f16.
    F16(&'a mut [f16]),
    /// Stored as bf16.
    Bf16(&'a mut [bf16]),
}

impl HostKv {
    /// An empty cache.
    pub fn new(layout: KvLayout) -> Self {
        let groups = layout.groups.iter().map(|_| vec![]).collect();
        HostKv { layout, groups }
    }

    /// Its layout.
    pub fn layout(&self) -> &KvLayout {
        &self.layout
    }

    /// Makes sure that `group` has at least `pages` pages; new ones are zero.
    ///
    /// # Errors
    /// If memory is short.
    pub fn reserve(&mut self, group: usize, pages: usize) -> Result<(), DeviceError> {
        let len = self.layout.page_len(group);
        while self.groups[group].len() < pages {
            let page = match self.layout.dtype {
                DType::F32 => zeroed(len).map(Page::F32),
                DType::F16 => zeroed(len).map(Page::F16),
                DType::Bf16 => zeroed(len).map(Page::Bf16),
            };
            let bytes = len * self.layout.dtype.bytes();
            self.groups[group].push(page.ok_or(DeviceError::OutOfMemory { what: "the KV cache", bytes })?);
        }
        Ok(())
    }

    /// Copies page `from` of `group` to page `to`.
    pub fn copy_page(&mut self, group: usize, from: PageId, to: PageId) {
        let pages = [from, to].map(|page| page.0 as usize);
        let [from, to] = self.groups[group].get_disjoint_mut(pages).expect("two pages that exist");
        match (from, to) {
            (Page::F32(from), Page::F32(to)) => to.copy_from_slice(from),
            (Page::F16(from), Page::F16(to)) => to.copy_from_slice(from),
            (Page::Bf16(from), Page::Bf16(to)) => to.copy_from_slice(from),
            _ => unreachable!("a cache has one type of elements"),
        }
    }

    /// Moves keys and values of the rows `path` of a draft to the slots of their positions. A row never lies before its
    /// position, so going up the path overwrites nothing that is still needed.
    pub fn commit(&mut self, batch: &Batch, sequence: usize, path: &[usize]) {
        let context = &batch.sequences()[sequence];
        for (&row, to) in path.iter().zip(context.cached..).filter(|&(&row, to)| batch.slot(row) != to) {
            for layer in 0..self.layout.layers.len() {
                self.move_token(layer, &context.pages[self.layout.layers[layer].0], batch.slot(row), to);
            }
        }
    }

    fn move_token(&mut self, layer: usize, pages: &[PageId], from: usize, to: usize) {
        let KvShape { kv_heads, head_dim, .. } = self.layout.groups[self.layout.layers[layer].0].shape;
        let mut values = vec![0.0; head_dim];
        for (head, part) in (0..kv_heads).flat_map(|head| [(head, Part::Key), (head, Part::Value)]) {
            self.head_page(layer, pages[from / PAGE_TOKENS], part, head).read(part, from % PAGE_TOKENS, &mut values);
            self.write(layer, pages, to, part, head, &values);
        }
    }

    /// Keys or values of `head` of attention layer `layer` in `page`.
    pub fn head_page(&self, layer: usize, page: PageId, part: Part, head: usize) -> HeadPage<'_> {
        let (group, _) = self.layout.layers[layer];
        let range = self.head_range(layer, part, head);
        match &self.groups[group][page.0 as usize] {
            Page::F32(data) => HeadPage::F32(&data[range]),
            Page::F16(data) => HeadPage::F16(&data[range]),
            Page::Bf16(data) => HeadPage::Bf16(&data[range]),
        }
    }

    /// As [`head_page`](Self::head_page), to write to.
    pub fn head_page_mut(&mut self, layer: usize, page: PageId, part: Part, head: usize) -> HeadPageMut<'_> {
        let (group, _) = self.layout.layers[layer];
        let range = self.head_range(layer, part, head);
        match &mut self.groups[group][page.0 as usize] {
            Page::F32(data) => HeadPageMut::F32(&mut data[range]),
            Page::F16(data) => HeadPageMut::F16(&mut data[range]),
            Page::Bf16(data) => HeadPageMut::Bf16(&mut data[range]),
        }
    }

    /// Stores `values` (`[head_dim]`) at `slot` of a sequence whose pages for the layer's group are `pages`.
    pub fn write(&mut self, layer: usize, pages: &[PageId], slot: usize, part: Part, head: usize, values: &[f32]) {
        let (start, step) = token_place(slot % PAGE_TOKENS, part, values.len());
        match self.head_page_mut(layer, pages[slot / PAGE_TOKENS], part, head) {
            HeadPageMut::F32(data) => put(&mut data[start..], step, values, |v| v),
            HeadPageMut::F16(data) => put(&mut data[start..], step, values, f16::from_f32),
            HeadPageMut::Bf16(data) => put(&mut data[start..], step, values, bf16::from_f32),
        }
    }

    fn head_range(&self, layer: usize, part: Part, head: usize) -> std::ops::Range<usize> {
        let (group, index) = self.layout.layers[layer];
        let KvShape { kv_heads, head_dim, .. } = self.layout.groups[group].shape;
        let len = PAGE_TOKENS * head_dim;
        let start = ((index * 2 + (part == Part::Value) as usize) * kv_heads + head) * len;
        start..start + len
    }
}

impl HeadPage<'_> {
    /// Widens the key or value of the page's `token`-th token to `out`, `[head_dim]`.
    pub fn read(&self, part: Part, token: usize, out: &mut [f32]) {
        let (start, step) = token_place(token, part, out.len());
        match self {
            HeadPage::F32(data) => get(&data[start..], step, out, |v| v),
            HeadPage::F16(data) => get(&data[start..], step, out, f16::to_f32),
            HeadPage::Bf16(data) => get(&data[start..], step, out, bf16::to_f32),
        }
    }
}

/// Where a token's first element lies, and how far the next one is.
fn token_place(token: usize, part: Part, head_dim: usize) -> (usize, usize) {
    match part {
        Part::Key => (token, PAGE_TOKENS),
        Part::Value => (token * head_dim, 1),
    }
}

fn put<T>(data: &mut [T], step: usize, values: &[f32], narrow: impl Fn(f32) -> T) {
    data.iter_mut().step_by(step).zip(values).for_each(|(to, from)| *to = narrow(*from));
}

fn get<T: Copy>(data: &[T], step: usize, out: &mut [f32], widen: impl Fn(T) -> f32) {
    out.iter_mut().zip(data.iter().step_by(step)).for_each(|(to, from)| *to = widen(*from));
}

fn zeroed<T: Copy + Default>(len: usize) -> Option<Vec<T>> {
    let mut data = Vec::new();
    data.try_reserve_exact(len).ok()?;
    data.resize(len, T::default());
    Some(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_of_equal_shape_share_a_group() {
        let full = KvShape { kv_heads: 2, head_dim: 4, window: None };
        let local = KvShape { window: Some(8), ..full };
        let layout = KvLayout::new(DType::F16, &[local, full, local, local, full]);
        assert_eq!(layout.layers, [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1)]);
        assert_eq!((layout.groups[0].layers, layout.groups[1].layers), (3, 2));
        assert_eq!(layout.token_bytes(), 5 * 2 * 2 * 4 * 2);
    }

    #[test]
    fn writes_land_where_reads_look() {
        let shape = KvShape { kv_heads: 2, head_dim: 4, window: None };
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let mut kv = HostKv::new(KvLayout::new(dtype, &[shape; 3]));
            kv.reserve(0, 4).unwrap();
            let pages = [PageId(3), PageId(1)];
            for part in [Part::Value, Part::Key] {
                let read = |kv: &HostKv, token| {
                    let mut out = [0.0; 4];
                    kv.head_page(2, PageId(1), part, 1).read(part, token, &mut out);
                    out
                };
                assert_eq!(read(&kv, 6), [0.0; 4]);
                kv.write(2, &pages, 70, part, 1, &[1.0, 2.0, 3.0, 4.5]);
                assert_eq!((read(&kv, 6), read(&kv, 5), read(&kv, 7)), ([1.0, 2.0, 3.0, 4.5], [0.0; 4], [0.0; 4]));
            }
        }
    }
}
