//! The metadata of a GGUF model as a Hugging Face configuration.
//!
//! Two keys are ours. `rope_layout` says which components of a head rotate together: `adjacent_pairs` (0 with 1, 2 with 3,
//! ...) for architecture `llama`, whose converter permutes the rows of q and k to suit, and `half_split` for the others.
//! Scaling of kind llama3 has no keys in GGUF; it arrives as the tensor `rope_freqs.weight` of divisors.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::{Map, Value as Json, json};

use super::Metadata;
use super::metadata::{Array, Value};
use super::names::Names;
use crate::LoadError;

/// What a converted configuration needs to know of the tensors.
pub(crate) trait TensorTable {
    /// Shape of a tensor by its GGUF name, outermost dimension first.
    fn shape(&self, name: &str) -> Option<&[usize]>;
}

/// What GGUF metadata say of a model.
pub(crate) struct Converted {
    pub(crate) values: Map<String, Json>,
    /// For messages, the GGUF key behind each Hugging Face key.
    pub(crate) origins: BTreeMap<String, String>,
    /// How tensors are named, if the architecture is known.
    pub(crate) names: Option<Names>,
}

/// GGUF architecture, Hugging Face `model_type`, layout of rotated pairs.
const ARCHITECTURES: &[(&str, &str, &str)] = &[
    ("llama", "llama", "adjacent_pairs"),
    ("qwen2", "qwen2", "half_split"),
    ("qwen3", "qwen3", "half_split"),
    ("qwen3moe", "qwen3_moe", "half_split"),
    ("qwen35", "qwen3_5", "half_split"),
    ("qwen35moe", "qwen3_5_moe", "half_split"),
];

/// Bounds that no real model comes near: a number outside is damage, and products of two inside cannot overflow.
const LAYERS: RangeInclusive<u32> = 1..=4096;
const WIDTH: RangeInclusive<u32> = 1..=1 << 24;
const HEADS: RangeInclusive<u32> = 1..=1 << 16;

/// Converts `metadata`. Of an architecture that is not in the table only `model_type` is given.
pub(crate) fn convert(metadata: &Metadata, tensors: &dyn TensorTable) -> Result<Converted, LoadError> {
    let key = "general.architecture";
    let architecture = metadata.opt_str(key)?.ok_or_else(|| {
        metadata.error(key, "is absent, expected the name of an architecture; this is not a model file")
    })?;
    let mut converter = Converter { metadata, architecture, values: Map::new(), origins: BTreeMap::new() };
    let Some(&(_, model_type, rope_layout)) = ARCHITECTURES.iter().find(|entry| entry.0 == architecture) else {
        converter.set("model_type", key, json!(architecture));
        return Ok(converter.finish(None));
    };
    // Mixtral models came out as `llama` with experts; they have other routing than any of these.
    let num_experts = converter.number("expert_count", 0..=1 << 16)?.unwrap_or(0);
    let model_type = if architecture == "llama" && num_experts > 0 { "mixtral" } else { model_type };
    converter.set("model_type", key, json!(model_type));
    converter.values.insert("rope_layout".into(), json!(rope_layout));
    converter.values.insert("hidden_act".into(), json!("silu"));

    let num_layers = converter.layers_and_widths(tensors)?;
    converter.attention(tensors)?;
    converter.rope()?;
    if converter.is_sparse() {
        converter.experts(num_experts, num_layers, tensors)?;
    }
    if converter.is_hybrid() {
        converter.delta_net()?;
    }
    for (hf, gguf) in [("bos_token_id", "bos_token_id"), ("eos_token_id", "eos_token_id")] {
        let key = format!("tokenizer.ggml.{gguf}");
        if let Some(id) = metadata.opt_u32(&key)? {
            converter.set(hf, &key, json!(id));
        }
    }
    let names = Names { first_mtp: converter.is_hybrid().then_some(num_layers) };
    Ok(converter.finish(Some(names)))
}

struct Converter<'a> {
    metadata: &'a Metadata,
    architecture: &'a str,
    values: Map<String, Json>,
    origins: BTreeMap<String, String>,
}

impl Converter<'_> {
    fn finish(self, names: Option<Names>) -> Converted {
        Converted { values: self.values, origins: self.origins, names }
    }

    /// Experts in place of all MLPs, or of all but some.
    fn is_sparse(&self) -> bool {
        matches!(self.architecture, "qwen3moe" | "qwen35moe")
    }

    /// Delta nets in place of most attention.
    fn is_hybrid(&self) -> bool {
        matches!(self.architecture, "qwen35" | "qwen35moe")
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    fn set(&mut self, hf: &str, gguf_key: &str, value: Json) {
        self.values.insert(hf.into(), value);
        self.origins.insert(hf.into(), gguf_key.into());
    }

    fn error(&self, name: &str, reason: impl Into<String>) -> LoadError {
        self.metadata.error(&self.key(name), reason)
    }

    /// An integer within `range`. A list with one value for each layer is accepted if all are equal.
    fn number(&self, name: &str, range: RangeInclusive<u32>) -> Result<Option<u32>, LoadError> {
        let key = self.key(name);
        let found = match self.metadata.get(&key) {
            Some(Value::Array(Array::Scalars(..))) => {
                let values = self.metadata.opt_u32s(&key)?.unwrap_or_default();
                match values.split_first() {
                    Some((first, rest)) if rest.iter().all(|value| value == first) => Some(*first),
                    _ => return Err(self.error(name, "differs between layers, expected one value for all of them")),
                }
            }
            _ => self.metadata.opt_u32(&key)?,
        };
        match found {
            Some(found) if !range.contains(&found) => {
                Err(self.error(name, format!("is {found}, expected {} to {}", range.start(), range.end())))
            }
            found => Ok(found),
        }
    }

    fn required(&self, name: &str, range: RangeInclusive<u32>) -> Result<u32, LoadError> {
        self.number(name, range.clone())?.ok_or_else(|| {
            self.error(
                name,
                format!("is absent, expected {} to {}; convert the model again", range.start(), range.end()),
            )
        })
    }

    fn copy(&mut self, hf: &str, name: &str, range: RangeInclusive<u32>) -> Result<u32, LoadError> {
        let value = self.required(name, range)?;
        self.set(hf, &self.key(name), json!(value));
        Ok(value)
    }

    fn float(&self, name: &str) -> Result<Option<f32>, LoadError> {
        self.metadata.opt_f32(&self.key(name))
    }

    fn layers_and_widths(&mut self, tensors: &dyn TensorTable) -> Result<u32, LoadError> {
        let mut num_layers = self.copy("num_hidden_layers", "block_count", LAYERS)?;
        if self.is_hybrid() {
            // The last blocks may predict further tokens.
            let name = "nextn_predict_layers";
            let num_mtp_layers = self.number(name, 0..=num_layers - 1)?.unwrap_or(0);
            num_layers -= num_mtp_layers;
            self.set("num_hidden_layers", &self.key("block_count"), json!(num_layers));
            self.set("mtp_num_hidden_layers", &self.key(name), json!(num_mtp_layers));
        }
        self.copy("hidden_size", "embedding_length", WIDTH)?;
        if !self.is_sparse() || self.number("feed_forward_length", 0..=*WIDTH.end())?.is_some_and(|width| width > 0) {
            self.copy("intermediate_size", "feed_forward_length", WIDTH)?;
        }
        if let Some(length) = self.number("context_length", 1..=u32::MAX)? {
            self.set("max_position_embeddings", &self.key("context_length"), json!(length));
        }
        let eps_key = "attention.layer_norm_rms_epsilon";
        let eps =
            self.float(eps_key)?.ok_or_else(|| self.error(eps_key, "is absent, expected a number such as 1e-6"))?;
        self.set("rms_norm_eps", &self.key(eps_key), json!(eps));
        if let Some([vocab, _]) = tensors.shape("token_embd.weight") {
            self.set("vocab_size", "the shape of token_embd.weight", json!(vocab));
        }
        self.values.insert("tie_word_embeddings".into(), json!(tensors.shape("output.weight").is_none()));
        Ok(num_layers)
    }

    fn attention(&mut self, tensors: &dyn TensorTable) -> Result<(), LoadError> {
        let num_heads = self.copy("num_attention_heads", "attention.head_count", HEADS)?;
        let kv_key = "attention.head_count_kv";
        let num_kv_heads = self.number(kv_key, HEADS)?.unwrap_or(num_heads);
        self.set("num_key_value_heads", &self.key(kv_key), json!(num_kv_heads));

        let hidden = self.required("embedding_length", WIDTH)?;
        let head_dim = match self.number("attention.key_length", HEADS)? {
            Some(head_dim) => {
                self.set("head_dim", &self.key("attention.key_length"), json!(head_dim));
                head_dim
            }
            None if hidden.is_multiple_of(num_heads) => {
                self.set("head_dim", &self.key("attention.head_count"), json!(hidden / num_heads));
                hidden / num_heads
            }
            None => {
                return Err(
                    self.error("attention.head_count", format!("is {num_heads}, expected a divisor of {hidden}"))
                );
            }
        };
        if let Some(value_length) = self.number("attention.value_length", HEADS)?.filter(|&length| length != head_dim) {
            return Err(self.error(
                "attention.value_length",
                format!("is {value_length}, expected the width of keys, {head_dim}"),
            ));
        }
        if self.metadata.opt_bool(&self.key("attention.causal"))? == Some(false) {
            return Err(
                self.error("attention.causal", "is false, expected a model that generates text from left to right")
            );
        }
        let has = |name: &str| tensors.shape(name).is_some();
        self.values.insert("attention_bias".into(), json!(has("blk.0.attn_q.bias")));
        self.values.insert("mlp_bias".into(), json!(has("blk.0.ffn_up.bias")));

        if let Some(window) = self.number("attention.sliding_window", 0..=u32::MAX)?.filter(|&window| window > 0) {
            self.set("sliding_window", &self.key("attention.sliding_window"), json!(window));
            self.values.insert("use_sliding_window".into(), json!(true));
            self.values.insert("max_window_layers".into(), json!(0));
            let pattern_key = self.key("attention.sliding_window_pattern");
            if self.metadata.get(&pattern_key).is_some() {
                let kind = |sliding| if sliding { "sliding_attention" } else { "full_attention" };
                let pattern = self.metadata.opt_bools(&pattern_key)?.unwrap_or_default();
                let kinds: Vec<&str> = pattern.into_iter().map(kind).collect();
                self.set("layer_types", &pattern_key, json!(kinds));
            }
        }
        Ok(())
    }

    fn rope(&mut self) -> Result<(), LoadError> {
        let theta = self.float("rope.freq_base")?.unwrap_or(10_000.0);
        let mut rope = Map::from_iter([("rope_theta".to_string(), json!(theta))]);
        let head_dim = self.values["head_dim"].as_u64().unwrap_or_default();
        let width = self.number("rope.dimension_count", HEADS)?.map_or(head_dim, u64::from);
        // Not all families take 1 for granted.
        if width != head_dim || self.is_hybrid() {
            rope.insert("partial_rotary_factor".into(), json!(width as f64 / head_dim as f64));
        }
        if self.is_hybrid() {
            self.rope_sections(&mut rope)?;
        }
        self.rope_scaling(&mut rope)?;
        self.set("rope_parameters", &self.key("rope.scaling.type"), Json::Object(rope));
        Ok(())
    }

    /// How many rotating pairs follow the time, the height and the width of an image.
    fn rope_sections(&self, rope: &mut Map<String, Json>) -> Result<(), LoadError> {
        let name = "rope.dimension_sections";
        let Some(sections) = self.metadata.opt_u32s(&self.key(name))? else { return Ok(()) };
        // Some files have a fourth section, which is empty.
        let three = sections.strip_suffix(&[0]).filter(|three| three.len() == 3).unwrap_or(&sections);
        if three.len() != 3 || three.iter().any(|section| section > HEADS.end()) {
            let found = format!("has {} values up to {}", sections.len(), sections.iter().max().unwrap_or(&0));
            return Err(self.error(name, format!("{found}, expected 3 up to {} (or these and a 0)", HEADS.end())));
        }
        rope.insert("mrope_section".into(), json!(three));
        rope.insert("mrope_interleaved".into(), json!(true));
        Ok(())
    }

    fn rope_scaling(&self, rope: &mut Map<String, Json>) -> Result<(), LoadError> {
        // Files without a type scale linearly, if they have a factor at all; early ones spell the factor differently.
        let kind_key = self.key("rope.scaling.type");
        let kind = self.metadata.opt_str(&kind_key)?.unwrap_or("linear");
        let factor = match self.float("rope.scaling.factor")? {
            Some(factor) => Some(factor),
            None => self.float("rope.scale_linear")?,
        };
        // 0 stands for "not scaled".
        let factor = factor.filter(|&factor| factor != 0.0);
        if factor.is_some_and(|factor| factor < 0.0) {
            return Err(self.error("rope.scaling.factor", "is negative, expected at least 1"));
        }
        match (kind, factor) {
            ("none", _) | ("linear" | "yarn", None) => {
                rope.insert("rope_type".into(), json!("default"));
            }
            ("linear", Some(factor)) => {
                rope.insert("rope_type".into(), json!("linear"));
                rope.insert("factor".into(), json!(factor));
            }
            ("yarn", Some(factor)) => {
                rope.insert("rope_type".into(), json!("yarn"));
                rope.insert("factor".into(), json!(factor));
                let original = match self.number("rope.scaling.original_context_length", 1..=u32::MAX)? {
                    Some(original) => original,
                    None => self.required("context_length", 1..=u32::MAX)?,
                };
                rope.insert("original_max_position_embeddings".into(), json!(original));
                for (hf, name) in [
                    ("attention_factor", "rope.scaling.yarn_attn_factor"),
                    ("extrapolation_factor", "rope.scaling.yarn_ext_factor"),
                    ("beta_fast", "rope.scaling.yarn_beta_fast"),
                    ("beta_slow", "rope.scaling.yarn_beta_slow"),
                ] {
                    if let Some(value) = self.float(name)? {
                        rope.insert(hf.into(), json!(value));
                    }
                }
                // A second spelling multiplies the usual factor in place of replacing it.
                if let Some(value) =
                    self.float("rope.scaling.attn_factor")?.filter(|_| !rope.contains_key("attention_factor"))
                {
                    rope.insert("attention_factor".into(), json!(value * (0.1 * factor.ln() + 1.0)));
                }
            }
            (other, _) => {
                // Whoever computes the frequencies says that it cannot; the file is in order.
                rope.insert("rope_type".into(), json!(other));
            }
        }
        Ok(())
    }

    fn experts(&mut self, num_experts: u32, num_layers: u32, tensors: &dyn TensorTable) -> Result<(), LoadError> {
        if num_experts == 0 {
            return Err(self.error("expert_count", "is absent or 0, expected at least 1"));
        }
        self.set("num_experts", &self.key("expert_count"), json!(num_experts));
        self.copy("num_experts_per_tok", "expert_used_count", 1..=num_experts)?;
        self.copy("moe_intermediate_size", "expert_feed_forward_length", WIDTH)?;
        if self.is_hybrid() {
            self.copy("shared_expert_intermediate_size", "expert_shared_feed_forward_length", WIDTH)?;
        }
        let norm_key = self.key("expert_weights_norm");
        let norm = self.metadata.opt_bool(&norm_key)?.unwrap_or(true);
        self.set("norm_topk_prob", &norm_key, json!(norm));
        if let Some(function) = self.number("expert_gating_func", 0..=u32::MAX)?.filter(|&function| function > 1) {
            return Err(self.error("expert_gating_func", format!("is {function}, expected 1 (softmax)")));
        }
        let dense: Vec<u32> = (0..num_layers)
            .filter(|layer| tensors.shape(&format!("blk.{layer}.ffn_gate_inp.weight")).is_none())
            .collect();
        self.values.insert("decoder_sparse_step".into(), json!(1));
        self.values.insert("mlp_only_layers".into(), json!(dense));
        Ok(())
    }

    /// Sizes of delta nets, under the keys of state-space models.
    fn delta_net(&mut self) -> Result<(), LoadError> {
        self.copy("linear_num_key_heads", "ssm.group_count", HEADS)?;
        self.copy("linear_key_head_dim", "ssm.state_size", HEADS)?;
        self.copy("linear_conv_kernel_dim", "ssm.conv_kernel", HEADS)?;
        let num_heads = self.copy("linear_num_value_heads", "ssm.time_step_rank", HEADS)?;
        let name = "ssm.inner_size";
        let width = self.required(name, WIDTH)?;
        if !width.is_multiple_of(num_heads) {
            return Err(self.error(name, format!("is {width}, expected a multiple of {num_heads}, the value heads")));
        }
        self.set("linear_value_head_dim", &self.key(name), json!(width / num_heads));
        let name = "full_attention_interval";
        let interval = self.number(name, LAYERS)?.unwrap_or(4);
        self.set(name, &self.key(name), json!(interval));
        Ok(())
    }
}
