//! Stores the rows' keys and values in their slots of the KV cache, rounded to the cache's type.

use crate::kv::Part;
use crate::reference::Memory;
use crate::{Recorder, Rows, Rule, Tensor};

/// `keys`, `values`: `[rows, kv_heads · head_dim]`; keys are rotated already.
#[derive(Clone, Debug)]
pub struct KvWrite {
    /// Keys.
    pub keys: Tensor,
    /// Values.
    pub values: Tensor,
    /// Attention layer, counted over layers with attention.
    pub layer: usize,
    /// Elements of a head.
    pub head_dim: usize,
}

impl Recorder {
    /// Stores keys and values for `layer`.
    pub fn kv_write(&mut self, keys: Tensor, values: Tensor, layer: usize, head_dim: usize) {
        self.push(KvWrite { keys, values, layer, head_dim });
    }
}

impl Rule for KvWrite {
    fn inputs(&self) -> Vec<Tensor> {
        vec![self.keys, self.values]
    }

    fn output(&self) -> Option<Tensor> {
        None
    }

    fn check(&self) {
        let Self { keys, values, head_dim, .. } = self;
        assert!(keys.is_f32() && values.is_f32(), "{self:?}");
        assert!(keys.rows() == Rows::Batch && values.rows() == Rows::Batch, "{self:?}");
        assert!(keys.width() == values.width() && keys.width() % head_dim == 0, "{self:?}");
    }

    fn reference(&self, memory: &mut Memory<'_>) {
        for (part, x) in [(Part::Key, self.keys), (Part::Value, self.values)] {
            let data = memory.read(&x);
            for (row, data) in data.chunks_exact(x.width()).enumerate() {
                for (head, data) in data.chunks_exact(self.head_dim).enumerate() {
                    memory.write_kv(self.layer, row, part, head, data);
                }
            }
        }
    }
}
