//! Nemotron-H (arXiv:2504.03624) and Nemotron 3: one mixer a layer, of four kinds: Mamba-2, attention without positions, an MLP,
//! or experts that may work in a narrower space. `nemotron_h_omni` holds the same model beside towers for other senses.

use kapitsa_ops::{Recorder, Tap, Tensor};
use kapitsa_tensor::Weight;
use kapitsa_weights::{Config, LoadError, Weights, short};

use crate::layers::{
    Attention, Experts, Gain, Linear, Mamba, Mlp, Moe, RmsNorm, Router, Shared, context, head, require,
};
use crate::{Architecture, Model, ModelInfo};

pub(crate) const NEMOTRON_H: Architecture = Architecture {
    names: &["nemotron_h", "nemotron_h_puzzle", "nemotron_h_omni", "NemotronH_Omni_Reasoning_V3"],
    load,
};

struct NemotronH {
    info: ModelInfo,
    embed: Weight,
    blocks: Vec<(RmsNorm, Block)>,
    norm: RmsNorm,
    head: Linear,
}

enum Block {
    Mamba(Mamba),
    Attention(Attention),
    Mlp(Mlp),
    Moe(Moe),
}

/// What a layer's mixer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mamba,
    Attention,
    Mlp,
    Moe,
}

fn load(config: &Config, weights: &Weights<'_>) -> Result<Box<dyn Model>, LoadError> {
    let hidden = config.bounded("hidden_size", 1..=1 << 24)?;
    let vocab = config.bounded("vocab_size", 1..=1 << 24)?;
    let eps = config.f32_or("layer_norm_epsilon", 1e-5)?;
    let backbone = weights.at("backbone");
    let (mut kv, mut states) = (vec![], vec![]);
    let mut blocks = vec![];
    for (index, (kind, own)) in layers(config)?.into_iter().enumerate() {
        let config = own.as_ref().unwrap_or(config);
        let w = backbone.at("layers").at(&index.to_string());
        let mixer = w.at("mixer");
        let block = match kind {
            Kind::Mamba => {
                let mamba = Mamba::load(config, &mixer, eps, states.len())?;
                states.extend(mamba.states());
                Block::Mamba(mamba)
            }
            Kind::Attention => {
                let bias = config.bool_or("attention_bias", false)?;
                let attention = Attention::shape(config, kv.len())?.biases(bias, bias).load(&mixer)?;
                kv.push(attention.kv_shape());
                Block::Attention(attention)
            }
            Kind::Mlp => Block::Mlp(mlp(config, &mixer, "intermediate_size")?),
            Kind::Moe => Block::Moe(moe(config, &mixer)?),
        };
        blocks.push((RmsNorm::load(&w, "norm", hidden, Gain::Whole, eps)?, block));
    }
    // Nothing runs these yet: the head that predicts further tokens, and what turns images and sound into embeddings.
    for part in ["mtp", "vision_model", "vision_projector", "mlp1", "sound_encoder", "sound_projection"] {
        weights.ignore(&format!("{part}."));
    }
    let embed = backbone.matrix("embeddings", vocab, hidden)?;
    let head = head(config, weights, &embed)?;
    let norm = RmsNorm::load(&backbone, "norm_f", hidden, Gain::Whole, eps)?;
    let info = ModelInfo {
        architecture: "nemotron_h",
        vocab,
        hidden,
        layers: blocks.len(),
        context: context(config)?,
        kv,
        states,
    };
    Ok(Box::new(NemotronH { info, embed, blocks, norm, head }))
}

/// The kind of each layer, and the config that holds for it if it has its own.
fn layers(config: &Config) -> Result<Vec<(Kind, Option<Config>)>, LoadError> {
    if let Some(own) = config.overlays("block_configs")? {
        count(config, "block_configs", own.len())?;
        let kind = |own: Config| Ok((kind(&own, "block_type", own.str("block_type")?)?, Some(own)));
        return own.into_iter().map(kind).collect();
    }
    let pattern = config.opt_str("hybrid_override_pattern")?;
    let kinds: Vec<Kind> = match (config.opt_strs("layers_block_type")?, pattern) {
        (Some(names), _) => {
            names.into_iter().map(|name| kind(config, "layers_block_type", name)).collect::<Result<_, _>>()?
        }
        (None, Some(pattern)) => {
            let letters = pattern.char_indices().map(|(at, letter)| &pattern[at..at + letter.len_utf8()]);
            letters.map(|letter| kind(config, "hybrid_override_pattern", letter)).collect::<Result<_, _>>()?
        }
        (None, None) => return Err(config.error("layers_block_type", "is absent, expected the kind of each layer")),
    };
    count(config, "layers_block_type", kinds.len())?;
    Ok(kinds.into_iter().map(|kind| (kind, None)).collect())
}

fn count(config: &Config, key: &str, layers: usize) -> Result<(), LoadError> {
    match layers {
        1..=4096 => Ok(()),
        _ => Err(config.error(key, format!("has {layers} entries, expected 1 to 4096"))),
    }
}

fn kind(config: &Config, key: &str, name: &str) -> Result<Kind, LoadError> {
    match name {
        "M" | "mamba" | "linear_attention" => Ok(Kind::Mamba),
        "*" | "attention" | "full_attention" => Ok(Kind::Attention),
        "-" | "mlp" => Ok(Kind::Mlp),
        "E" | "moe" => Ok(Kind::Moe),
        other => {
            let reason = format!("has `{}`, expected mamba (M), attention (*), mlp (-) or moe (E)", short(other));
            Err(config.error(key, reason))
        }
    }
}

fn mlp(config: &Config, w: &Weights<'_>, inner: &str) -> Result<Mlp, LoadError> {
    require(config, "mlp_hidden_act", "relu2")?;
    Mlp::plain(config, w, config.usize(inner)?)
}

fn moe(config: &Config, w: &Weights<'_>) -> Result<Moe, LoadError> {
    let hidden = config.usize("hidden_size")?;
    let count = config.bounded("n_routed_experts", 1..=65_536)?;
    let inner = config.usize("moe_intermediate_size")?;
    let latent = config.opt_usize("moe_latent_size")?;
    let experts = Experts::plain(w, count, latent.unwrap_or(hidden), inner)?;
    let mut moe = Moe::new(Router::sigmoid(config, w, count)?, experts);
    if let Some(latent) = latent {
        let down = Linear::load(w, "fc1_latent_proj", latent, hidden, false)?;
        moe = moe.latent(down, Linear::load(w, "fc2_latent_proj", hidden, latent, false)?);
    }
    if config.usize_or("n_shared_experts", 1)? > 0 {
        let mlp = mlp(config, &w.at("shared_experts"), "moe_shared_expert_intermediate_size")?;
        moe = moe.shared(Shared { mlp, gate: None });
    }
    Ok(moe)
}

impl Model for NemotronH {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn forward(&self, rec: &mut Recorder) -> Tensor {
        let mut x = rec.embed(&self.embed);
        rec.tap(Tap::Embedding, x);
        for (index, (norm, block)) in self.blocks.iter().enumerate() {
            let h = norm.forward(rec, x);
            let h = match block {
                Block::Mamba(mamba) => mamba.forward(rec, h),
                Block::Attention(attention) => attention.forward(rec, h, None),
                Block::Mlp(mlp) => mlp.forward(rec, h),
                Block::Moe(moe) => moe.forward(rec, h, index),
            };
            rec.tap(Tap::Mixer(index), h);
            x = rec.add(x, h);
            rec.tap(Tap::Layer(index), x);
        }
        let x = rec.gather_rows(x);
        let x = self.norm.forward(rec, x);
        rec.tap(Tap::FinalNorm, x);
        self.head.forward(rec, x)
    }
}
