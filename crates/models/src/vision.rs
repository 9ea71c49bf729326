//! The vision tower of Qwen3-VL and its descendants (arXiv:2511.21631): a transformer over the patches of one image, whose
//! outputs stand for tokens of the language model. Each token is a square of `merge²` patches.

use std::sync::Arc;

use kapitsa_ops::{Batch, Frequencies, GeluKind, PairLayout, Recorder, SequenceContext, Tap, Tensor};
use kapitsa_weights::{Config, LoadError, Weights};

use crate::layers::{LayerNorm, Linear, bounded_or, require};

/// A loaded tower.
pub struct VisionTower {
    shape: VisionShape,
    patch_embedding: Linear,
    /// `[side, side, hidden]`.
    positions: Vec<f32>,
    side: usize,
    frequencies: Frequencies,
    blocks: Vec<Block>,
    merger_norm: LayerNorm,
    merger: [Linear; 2],
}

/// Sizes that the engine and whoever prepares images need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisionShape {
    /// The token that stands for each part of an image in a prompt.
    pub image_token: u32,
    /// Patches of a token, along each side.
    pub merge: usize,
    /// Values of a patch.
    pub patch_values: usize,
    /// Width of the tower.
    pub hidden: usize,
    /// Width of its outputs, which is that of the language model.
    pub out: usize,
}

struct Block {
    attention_norm: LayerNorm,
    qkv: [Linear; 3],
    heads: usize,
    out: Linear,
    mlp_norm: LayerNorm,
    mlp: [Linear; 2],
}

/// Of all norms.
const EPS: f32 = 1e-6;

impl VisionTower {
    /// Reads the tower of a checkpoint, if it has one.
    ///
    /// # Errors
    /// If a config key or weight is missing or wrong.
    pub fn load(config: &Config, weights: &Weights<'_>) -> Result<Option<Self>, LoadError> {
        let w = weights.at("visual");
        let Some(vision) = config.section("vision_config")?.filter(|_| w.has("patch_embed.proj.weight")) else {
            return Ok(None);
        };
        require(&vision, "hidden_act", "gelu_pytorch_tanh")?;
        let size = |key, default| bounded_or(&vision, key, 1..=1 << 16, default);
        let small = |key, default| bounded_or(&vision, key, 1..=256, default);
        let (hidden, inner) = (size("hidden_size", 1152)?, size("intermediate_size", 4304)?);
        let heads = size("num_heads", 16)?;
        let (merge, patch) = (small("spatial_merge_size", 2)?, small("patch_size", 16)?);
        if hidden % heads != 0 || !(hidden / heads).is_multiple_of(4) {
            let reason = format!("is {heads}, expected heads of a multiple of 4 values out of {hidden}");
            return Err(vision.error("num_heads", reason));
        }
        let kernel = [small("in_channels", 3)?, small("temporal_patch_size", 2)?, patch, patch];
        let positions = bounded_or(&vision, "num_position_embeddings", 1..=1 << 20, 2304)?;
        let side = positions.isqrt();
        if side * side != positions {
            return Err(vision.error("num_position_embeddings", format!("is {positions}, expected a square")));
        }
        let out = config.usize("hidden_size")?;
        let image_token = config.usize("image_token_id")? as u32;
        let patch_values = kernel.iter().product();
        let depth = size("depth", 27)?;
        let blocks = (0..depth).map(|index| Block::load(&w.at("blocks").at(&index.to_string()), hidden, heads, inner));
        let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
        let merged = merge * merge * hidden;
        let merger = w.at("merger");
        Ok(Some(VisionTower {
            shape: VisionShape { image_token, merge, patch_values, hidden, out },
            patch_embedding: Linear::patches(&w, "patch_embed.proj", hidden, kernel)?,
            positions: w.tensor("pos_embed.weight", &[positions, hidden])?,
            side,
            frequencies: frequencies(&vision, hidden / heads)?,
            blocks,
            merger_norm: LayerNorm::load(&merger, "norm", hidden, EPS)?,
            merger: [
                Linear::load(&merger, "linear_fc1", merged, merged, true)?,
                Linear::load(&merger, "linear_fc2", out, merged, true)?,
            ],
        }))
    }

    /// Sizes.
    pub fn shape(&self) -> VisionShape {
        self.shape
    }

    /// The rows of an image of `(rows, columns)` patches, whose values are `patches`, `[rows · columns, patch_values]`, in the order
    /// of tokens, those of a token row by row.
    ///
    /// # Panics
    /// If the values are not so many.
    pub fn batch(&self, grid: (usize, usize), patches: &[f32]) -> Batch {
        let VisionShape { merge, patch_values, .. } = self.shape;
        assert_eq!(patches.len(), grid.0 * grid.1 * patch_values, "values of {grid:?} patches");
        let mut batch = Batch::new();
        let sequence = batch.add_sequence(SequenceContext::default());
        for (index, patch) in patches.chunks_exact(patch_values).enumerate() {
            let row = batch.add_row(sequence, 0, None);
            let coordinates = self.coordinates(grid.1, index);
            batch.set_coordinates(row, coordinates);
            batch.set_input(row, &self.input(grid, coordinates, patch));
            if index.is_multiple_of(merge * merge) {
                batch.want(row);
            }
        }
        batch
    }

    /// What a patch's row brings along: its values and its position's embedding.
    fn input(&self, (rows, columns): (usize, usize), [_, row, column]: [usize; 3], patch: &[f32]) -> Vec<f32> {
        let (top, down) = self.source(row, rows);
        let (left, right) = self.source(column, columns);
        let hidden = self.shape.hidden;
        let at = |row: usize, column: usize, value: usize| {
            let (row, column) = (row.min(self.side - 1), column.min(self.side - 1));
            self.positions[(row * self.side + column) * hidden + value]
        };
        let position = (0..hidden).map(|value| {
            let upper = at(top, left, value) * (1.0 - right) + at(top, left + 1, value) * right;
            let lower = at(top + 1, left, value) * (1.0 - right) + at(top + 1, left + 1, value) * right;
            upper * (1.0 - down) + lower * down
        });
        patch.iter().copied().chain(position).collect()
    }

    /// Coordinates of patch `index` of an image with so many columns of patches, for the row's rotary embedding.
    fn coordinates(&self, columns: usize, index: usize) -> [usize; 3] {
        let merge = self.shape.merge;
        let (token, part) = (index / (merge * merge), index % (merge * merge));
        let (row, column) = (token / (columns / merge), token % (columns / merge));
        [0, row * merge + part / merge, column * merge + part % merge]
    }

    /// Where place `at` of `count` lies in the table of positions, whose corners are the image's: the place before it, and how
    /// far it is from that.
    fn source(&self, at: usize, count: usize) -> (usize, f32) {
        if count == 1 {
            return (0, 0.0);
        }
        let place = at as f32 * (self.side - 1) as f32 / (count - 1) as f32;
        (place as usize, place.fract())
    }

    /// Records the tower for the patches of one image each sequence; of every token's patches the first is wanted. Returns
    /// `[wanted, out]`.
    pub fn forward(&self, rec: &mut Recorder) -> Tensor {
        let VisionShape { merge, patch_values, hidden, .. } = self.shape;
        let angles = rec.rotary_angles(&self.frequencies);
        let patches = rec.input(0, patch_values);
        let positions = rec.input(patch_values, hidden);
        let x = self.patch_embedding.forward(rec, patches);
        rec.tap(Tap::Embedding, x);
        let mut x = rec.add(x, positions);
        for (index, block) in self.blocks.iter().enumerate() {
            x = block.forward(rec, x, angles);
            rec.tap(Tap::Layer(index), x);
        }
        let x = self.merger_norm.forward(rec, x);
        let x = rec.merge_rows(x, merge * merge);
        let x = self.merger[0].forward(rec, x);
        let x = rec.gelu(x, GeluKind::Exact);
        self.merger[1].forward(rec, x)
    }
}

impl Block {
    fn load(w: &Weights<'_>, hidden: usize, heads: usize, inner: usize) -> Result<Self, LoadError> {
        let qkv = Linear::load(w, "attn.qkv", 3 * hidden, hidden, true)?;
        Ok(Block {
            attention_norm: LayerNorm::load(w, "norm1", hidden, EPS)?,
            qkv: qkv.split(w, [hidden; 3])?,
            heads,
            out: Linear::load(w, "attn.proj", hidden, hidden, true)?,
            mlp_norm: LayerNorm::load(w, "norm2", hidden, EPS)?,
            mlp: [
                Linear::load(w, "mlp.linear_fc1", inner, hidden, true)?,
                Linear::load(w, "mlp.linear_fc2", hidden, inner, true)?,
            ],
        })
    }

    fn forward(&self, rec: &mut Recorder, x: Tensor, angles: Tensor) -> Tensor {
        let h = self.attention_norm.forward(rec, x);
        let [q, k, v] = self.qkv.each_ref().map(|linear| linear.forward(rec, h));
        let head_dim = q.width() / self.heads;
        let [q, k] = [q, k].map(|x| rec.rotary(x, angles, head_dim, PairLayout::HalfSplit));
        let h = rec.full_attention([q, k, v], self.heads, 1.0 / (head_dim as f32).sqrt());
        let h = self.out.forward(rec, h);
        let x = rec.add(x, h);
        let h = self.mlp_norm.forward(rec, x);
        let h = self.mlp[0].forward(rec, h);
        let h = rec.gelu(h, GeluKind::Tanh);
        let h = self.mlp[1].forward(rec, h);
        rec.add(x, h)
    }
}

/// Half of the pairs turn by the row, half by the column, both at the same speeds.
fn frequencies(vision: &Config, head_dim: usize) -> Result<Frequencies, LoadError> {
    let rope = vision.section("rope_parameters")?;
    let theta = rope.map_or(Ok(10_000.0), |rope| rope.f32_or("rope_theta", 10_000.0))?;
    let quarter = head_dim / 4;
    let speed = |pair: usize| theta.powf(-2.0 * (pair % quarter) as f32 / (2 * quarter) as f32);
    let axes: Arc<[u8]> = (0..2 * quarter).map(|pair| if pair < quarter { 1 } else { 2 }).collect();
    Ok(Frequencies { per_position: (0..2 * quarter).map(speed).collect(), magnitude: 1.0, axes: Some(axes) })
}
