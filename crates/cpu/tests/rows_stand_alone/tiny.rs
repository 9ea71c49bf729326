//! A small model with random weights in which every op occurs.

use std::sync::Arc;

use kapitsa_ops::kv::{KvLayout, KvShape};
use kapitsa_ops::{
    Capacity, DeltaShape, Frequencies, KeyHeads, MambaShape, PairLayout, Program, Recorder, Score, Tap, Tensor, Vector,
};
use kapitsa_tensor::{DType, Weight};
use kapitsa_testkit::random::Rng;

/// One layer with every op, so that one program tests them all together.
pub(crate) struct Tiny {
    embed: Weight,
    norm: Vector,
    q: Weight,
    k: Weight,
    v: Weight,
    o: Weight,
    bias: Vector,
    router: Weight,
    experts: [Arc<[Weight]>; 3],
    delta: Delta,
    mamba: Mamba,
    head: Weight,
    heads: (usize, usize),
    head_dim: usize,
    window: Option<usize>,
    pairs: PairLayout,
}

struct Delta {
    shape: DeltaShape,
    /// Queries, keys and values; what decides over the state, twice; the way back.
    weights: [Weight; 4],
    conv: Vector,
    vectors: [Vector; 2],
}

struct Mamba {
    shape: MambaShape,
    /// `x`, `B` and `C`; the step; the way back.
    weights: [Weight; 3],
    conv: [Vector; 2],
    vectors: [Vector; 3],
}

/// Taps of the convolutions.
const TAPS: usize = 4;

pub(crate) const VOCAB: usize = 50;
/// Embeddings of these tokens are NaN, infinite and huge.
pub(crate) const POISON: [u32; 3] = [47, 48, 49];

impl Tiny {
    pub(crate) fn new(seed: u64, window: Option<usize>) -> Self {
        let mut rng = Rng(seed);
        let kv_heads = 1 + rng.below(3);
        let heads = kv_heads * (1 + rng.below(3));
        let head_dim = 2 * (1 + rng.below(20));
        let hidden = [32, 64, 96, 256][rng.below(4)];
        let inner = [32, 64, 96, 256][rng.below(4)];
        let plain = |rng: &mut Rng, rows, cols| {
            let kind = rng.below(100);
            rng.weight(kind, rows, cols)
        };
        let embed = poisoned_embedding(&mut rng, hidden);
        let delta = delta(&mut rng, hidden);
        let mamba = mamba(&mut rng, hidden);
        let expert = |rng: &mut Rng, rows, cols| (0..5).map(|_| plain(rng, rows, cols)).collect::<Arc<[Weight]>>();
        Tiny {
            embed,
            norm: Vector::new("norm", rng.values(hidden, 2.0)),
            q: plain(&mut rng, heads * head_dim, hidden),
            k: plain(&mut rng, kv_heads * head_dim, hidden),
            v: plain(&mut rng, kv_heads * head_dim, hidden),
            o: plain(&mut rng, hidden, heads * head_dim),
            bias: Vector::new("bias", rng.values(heads * head_dim, 0.5)),
            router: plain(&mut rng, 5, hidden),
            experts: [
                expert(&mut rng, inner, hidden),
                expert(&mut rng, inner, hidden),
                expert(&mut rng, hidden, inner),
            ],
            delta,
            mamba,
            head: plain(&mut rng, VOCAB, hidden),
            heads: (heads, kv_heads),
            head_dim,
            window,
            pairs: if rng.below(2) == 0 { PairLayout::HalfSplit } else { PairLayout::Adjacent },
        }
    }

    pub(crate) fn layout(&self, dtype: DType) -> KvLayout {
        let shape = KvShape { kv_heads: self.heads.1, head_dim: self.head_dim, window: self.window };
        KvLayout::new(dtype, &[shape; 2])
    }

    pub(crate) fn record(&self, rows: usize, wanted: usize) -> Program {
        let mut rec = Recorder::new(Capacity { rows, wanted }, &[Tap::Layer(0)]).taking_drafts();
        let per_position = (0..self.head_dim / 2).map(|i| 0.9f32.powi(i as i32)).collect();
        let angles = rec.rotary_angles(&Frequencies { per_position, magnitude: 1.0, axes: None });
        let mut x = rec.embed(&self.embed);
        for layer in 0..2 {
            let h = rec.rms_norm(x, &self.norm, 1e-5);
            let q = rec.linear(h, &self.q, Some(&self.bias));
            let k = rec.linear(h, &self.k, None);
            let v = rec.linear(h, &self.v, None);
            let q = rec.rotary(q, angles, self.head_dim, self.pairs);
            let k = rec.rotary(k, angles, self.head_dim, self.pairs);
            rec.kv_write(k, v, layer, self.head_dim);
            let h = rec.attention(q, layer, self.heads, 1.0 / (self.head_dim as f32).sqrt(), self.window);
            let h = rec.linear(h, &self.o, None);
            x = rec.add(x, h);
            for recurrent in [Self::delta, Self::mamba] {
                let h = rec.rms_norm(x, &self.norm, 1e-5);
                let h = recurrent(self, &mut rec, h, 4 * layer);
                x = rec.add(x, h);
            }
            let h = rec.rms_norm(x, &self.norm, 1e-5);
            let logits = rec.linear(h, &self.router, None);
            let ids = rec.route(logits, 2, None);
            let weights = rec.expert_weights(logits, ids, Score::Softmax, layer == 0);
            let [gate, up, down] = &self.experts;
            let (gate, up) = (rec.expert_linear(h, gate, ids), rec.expert_linear(h, up, ids));
            let h = rec.silu_mul(gate, up);
            let h = rec.expert_linear(h, down, ids);
            let h = rec.expert_combine(h, weights);
            x = rec.add(x, h);
            rec.tap(Tap::Layer(layer), x);
        }
        let x = rec.gather_rows(x);
        let logits = rec.linear(x, &self.head, None);
        rec.finish(logits)
    }

    fn delta(&self, rec: &mut Recorder, x: Tensor, state: usize) -> Tensor {
        let Delta { shape, weights: [qkv, a, b, out], conv, vectors: [decay, bias] } = &self.delta;
        let [qkv, a, b] = [qkv, a, b].map(|weight| rec.linear(x, weight, None));
        let qkv = rec.short_conv(qkv, conv, None, state);
        let h = rec.gated_delta([qkv, a, b], decay, bias, *shape, state + 1);
        rec.linear(h, out, None)
    }

    fn mamba(&self, rec: &mut Recorder, x: Tensor, state: usize) -> Tensor {
        let Mamba { shape, weights: [xbc, dt, out], conv: [conv, conv_bias], vectors } = &self.mamba;
        let [xbc, dt] = [xbc, dt].map(|weight| rec.linear(x, weight, None));
        let xbc = rec.short_conv(xbc, conv, Some(conv_bias), state + 2);
        let h = rec.mamba2([xbc, dt], vectors.each_ref(), *shape, state + 3);
        rec.linear(h, out, None)
    }
}

fn delta(rng: &mut Rng, hidden: usize) -> Delta {
    let key_heads = 1 + rng.below(2);
    let order = if rng.below(2) == 0 { KeyHeads::Grouped } else { KeyHeads::Tiled };
    let (key_dim, value_dim) = (1 + rng.below(20), 1 + rng.below(90));
    let shape = DeltaShape { key_heads, value_heads: key_heads * (1 + rng.below(2)), key_dim, value_dim, order };
    let (heads, width) = (shape.value_heads, shape.qkv_width());
    Delta {
        shape,
        weights: [(width, hidden), (heads, hidden), (heads, hidden), (hidden, heads * value_dim)]
            .map(|(rows, cols)| rng.weight(0, rows, cols)),
        conv: Vector::new("conv", rng.values(TAPS * width, 0.5)),
        vectors: [decay(rng, heads), Vector::new("bias", rng.values(heads, 1.0))],
    }
}

fn mamba(rng: &mut Rng, hidden: usize) -> Mamba {
    let groups = 1 + rng.below(2);
    let (head_dim, state_dim) = (1 + rng.below(90), 1 + rng.below(20));
    let shape = MambaShape {
        heads: groups * (1 + rng.below(2)),
        head_dim,
        groups,
        state_dim,
        step_limits: (0.0, f32::INFINITY),
    };
    let (heads, width) = (shape.heads, shape.xbc_width());
    let mut vector = |len| Vector::new("vector", rng.values(len, 0.5));
    let conv = [vector(TAPS * width), vector(width)];
    let (bias, skip) = (vector(heads), vector(heads));
    Mamba {
        shape,
        weights: [(width, hidden), (heads, hidden), (hidden, heads * head_dim)]
            .map(|(rows, cols)| rng.weight(0, rows, cols)),
        conv,
        vectors: [decay(rng, heads), bias, skip],
    }
}

/// Negative numbers.
fn decay(rng: &mut Rng, heads: usize) -> Vector {
    Vector::new("decay", rng.values(heads, 1.0).into_iter().map(|v| -v.abs()).collect::<Vec<_>>())
}

fn poisoned_embedding(rng: &mut Rng, hidden: usize) -> Weight {
    let mut values = rng.values(VOCAB * hidden, 1.0);
    for (token, poison) in POISON.into_iter().zip([f32::NAN, f32::INFINITY, 3e38]) {
        for (i, value) in values[token as usize * hidden..][..hidden].iter_mut().enumerate() {
            *value = if i % 3 == 0 { -poison } else { poison };
        }
    }
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Weight::new("embed", kapitsa_tensor::Format::F32, VOCAB, hidden, vec![bytes.into()]).expect("sizes fit")
}
