//! Grouped-query attention, with rotary positions or without, with an output gate or without.

use kapitsa_ops::kv::KvShape;
use kapitsa_ops::{Recorder, Tensor};
use kapitsa_weights::{Config, LoadError, Weights};

use super::{Gain, Linear, RmsNorm, Rope, bounded_or};

/// Queries, keys and values of one layer, and the way back to the residual stream.
pub(crate) struct Attention {
    shape: AttentionShape,
    q: Linear,
    k: Linear,
    v: Linear,
    o: Linear,
    head_norms: Option<(RmsNorm, RmsNorm)>,
}

/// Sizes and variants of an attention layer, before its weights are read.
#[derive(Clone)]
pub(crate) struct AttentionShape {
    /// Counted over layers with attention.
    layer: usize,
    hidden: usize,
    heads: usize,
    kv: KvShape,
    qkv_bias: bool,
    o_bias: bool,
    head_norms: Option<(Gain, f32)>,
    output_gate: bool,
}

impl Attention {
    /// Reads the sizes of attention layer `layer` from the config.
    pub(crate) fn shape(config: &Config, layer: usize) -> Result<AttentionShape, LoadError> {
        let hidden = config.usize("hidden_size")?;
        let heads = config.bounded("num_attention_heads", 1..=65_536)?;
        let kv_heads = bounded_or(config, "num_key_value_heads", 1..=heads, heads)?;
        if heads % kv_heads != 0 {
            return Err(
                config.error("num_key_value_heads", format!("is {kv_heads}, expected a divisor of {heads} heads"))
            );
        }
        let head_dim = bounded_or(config, "head_dim", 1..=65_536, hidden / heads)?;
        Ok(AttentionShape {
            layer,
            hidden,
            heads,
            kv: KvShape { kv_heads, head_dim, window: window(config, layer)? },
            qkv_bias: false,
            o_bias: false,
            head_norms: None,
            output_gate: false,
        })
    }

    /// What the layer keeps for each token.
    pub(crate) fn kv_shape(&self) -> KvShape {
        self.shape.kv
    }

    /// Records the layer: `x` and the result are `[rows, hidden]`; `rope` is the model's, with the angles of the rows, if it
    /// has one.
    pub(crate) fn forward(&self, rec: &mut Recorder, x: Tensor, rope: Option<(&Rope, Tensor)>) -> Tensor {
        let AttentionShape { layer, heads, kv, output_gate, .. } = self.shape;
        let mut q = self.q.forward(rec, x);
        let mut k = self.k.forward(rec, x);
        let v = self.v.forward(rec, x);
        // Each head's query is followed by its gate.
        let gate = output_gate.then(|| {
            let gate = rec.columns(q, 2 * kv.head_dim, kv.head_dim, kv.head_dim);
            q = rec.columns(q, 2 * kv.head_dim, 0, kv.head_dim);
            gate
        });
        if let Some((q_norm, k_norm)) = &self.head_norms {
            q = q_norm.forward(rec, q);
            k = k_norm.forward(rec, k);
        }
        if let Some((rope, angles)) = rope {
            q = rec.rotary(q, angles, kv.head_dim, rope.pairs);
            k = rec.rotary(k, angles, kv.head_dim, rope.pairs);
        }
        rec.kv_write(k, v, layer, kv.head_dim);
        let scale = 1.0 / (kv.head_dim as f32).sqrt();
        let mut h = rec.attention(q, layer, (heads, kv.kv_heads), scale, kv.window);
        if let Some(gate) = gate {
            h = rec.sigmoid_mul(h, gate);
        }
        self.o.forward(rec, h)
    }
}

impl AttentionShape {
    /// Whether queries, keys and values, and the output projection, have biases.
    pub(crate) fn biases(self, qkv: bool, o: bool) -> Self {
        AttentionShape { qkv_bias: qkv, o_bias: o, ..self }
    }

    /// Every query and key head is normalised before it is rotated.
    pub(crate) fn head_norms(self, gain: Gain, eps: f32) -> Self {
        AttentionShape { head_norms: Some((gain, eps)), ..self }
    }

    /// What comes out of attention is gated, element by element.
    pub(crate) fn output_gate(self) -> Self {
        AttentionShape { output_gate: true, ..self }
    }

    /// Outputs of the three projections.
    fn widths(&self) -> [usize; 3] {
        let KvShape { kv_heads, head_dim, .. } = self.kv;
        let gated = if self.output_gate { 2 } else { 1 };
        [gated * self.heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]
    }

    /// Reads the weights.
    pub(crate) fn load(self, w: &Weights<'_>) -> Result<Attention, LoadError> {
        let [q, k, v] = self.widths();
        let project = |name, width| Linear::load(w, name, width, self.hidden, self.qkv_bias);
        let qkv = [project("q_proj", q)?, project("k_proj", k)?, project("v_proj", v)?];
        self.with(w, qkv)
    }

    /// Reads the weights, those of queries, keys and values out of the one matrix `joined` of scope `qkv`.
    pub(crate) fn load_joined(self, w: &Weights<'_>, qkv: &Weights<'_>, joined: &str) -> Result<Attention, LoadError> {
        let widths = self.widths();
        let joined = Linear::load(qkv, joined, widths.iter().sum(), self.hidden, self.qkv_bias)?;
        self.with(w, joined.split(qkv, widths)?)
    }

    fn with(self, w: &Weights<'_>, [q, k, v]: [Linear; 3]) -> Result<Attention, LoadError> {
        let head_dim = self.kv.head_dim;
        let norm = |name, (gain, eps)| RmsNorm::load(w, name, head_dim, gain, eps);
        let norms = |settings| Ok::<_, LoadError>((norm("q_norm", settings)?, norm("k_norm", settings)?));
        Ok(Attention {
            q,
            k,
            v,
            o: Linear::load(w, "o_proj", self.hidden, self.heads * head_dim, self.o_bias)?,
            head_norms: self.head_norms.map(norms).transpose()?,
            shape: self,
        })
    }
}

/// The sliding window of layer `layer`, if it has one: `layer_types` decides where the config has it, else
/// `max_window_layers` counts the layers below that see everything.
fn window(config: &Config, layer: usize) -> Result<Option<usize>, LoadError> {
    if !config.bool_or("use_sliding_window", false)? || !config.has("sliding_window") {
        return Ok(None);
    }
    let window = config.bounded("sliding_window", 1..=usize::MAX)?;
    let slides = match config.opt_strs("layer_types")? {
        Some(kinds) => {
            let layers = config.usize("num_hidden_layers")?;
            if kinds.len() != layers {
                let reason = format!("has {} entries, expected {layers}, one for each layer", kinds.len());
                return Err(config.error("layer_types", reason));
            }
            kinds[layer] == "sliding_attention"
        }
        None => layer >= config.usize_or("max_window_layers", 0)?,
    };
    Ok(slides.then_some(window))
}
