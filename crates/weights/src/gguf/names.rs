//! Tensor names of GGUF files and their Hugging Face spelling.

use std::fmt::Display;

type Table = [(&'static str, &'static str)];

/// Names outside the blocks. Here and below the ending (`.weight`, `.bias`) stays.
const ROOT: &Table = &[
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
    ("rope_freqs", "rope_freqs"),
];

/// Names after `blk.{block}.` and after `model.layers.{layer}.`.
const LAYER: &Table = &[
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("attn_rot_embd", "self_attn.rotary_emb.inv_freq"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_exps", "mlp.experts.gate_proj"),
    ("ffn_up_exps", "mlp.experts.up_proj"),
    ("ffn_down_exps", "mlp.experts.down_proj"),
    ("ffn_gate_up_exps", "mlp.experts.gate_up_proj"),
];

/// The same for Qwen3.5, before those of `LAYER`: the second norm has another name, and there are delta nets.
const HYBRID: &Table = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("attn_qkv", "linear_attn.in_proj_qkv"),
    ("attn_gate", "linear_attn.in_proj_z"),
    ("ssm_alpha", "linear_attn.in_proj_a"),
    ("ssm_beta", "linear_attn.in_proj_b"),
    ("ssm_conv1d", "linear_attn.conv1d"),
    ("ssm_norm", "linear_attn.norm"),
    ("ssm_out", "linear_attn.out_proj"),
    ("ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
    ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
    ("ffn_down_shexp", "mlp.shared_expert.down_proj"),
];

/// Names of Qwen3.5 without an ending that both sides have. The values of `ssm_a` are those of `-exp(A_log)`.
const HYBRID_COMPLETE: &Table =
    &[("ssm_a", "linear_attn.A_log"), ("ssm_dt.bias", "linear_attn.dt_bias"), ("ssm_dt", "linear_attn.dt_bias")];

/// Names after `blk.{block}.` of the first block that predicts further tokens, beside those of its layer.
const MTP: &Table = &[
    ("nextn.eh_proj", "mtp.fc"),
    ("nextn.enorm", "mtp.pre_fc_norm_embedding"),
    ("nextn.hnorm", "mtp.pre_fc_norm_hidden"),
    ("nextn.shared_head_norm", "mtp.norm"),
    ("nextn.embed_tokens", "mtp.embed_tokens"),
    ("nextn.shared_head_head", "mtp.lm_head"),
];

/// Experts stored one by one, as early files do: `ffn_up.{expert}` and `mlp.experts.{expert}.up_proj`.
const EXPERT: &Table = &[("ffn_gate", "gate_proj"), ("ffn_up", "up_proj"), ("ffn_down", "down_proj")];

/// How the files of an architecture name their tensors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    /// For Qwen3.5: the block behind the last layer. The blocks from there on predict further tokens.
    pub(crate) first_mtp: Option<u32>,
}

impl Names {
    /// The Hugging Face name of GGUF tensor `name`, or `None` if the tables do not have it.
    pub(crate) fn to_hugging_face(self, name: &str) -> Option<String> {
        let Some(rest) = name.strip_prefix("blk.") else {
            return with_ending(name, |stem| find(ROOT, stem, false));
        };
        let (block, rest) = rest.split_once('.')?;
        let block = number(block)?;
        let Some(index) = self.first_mtp.and_then(|first| block.checked_sub(first)) else {
            return Some(format!("model.layers.{block}.{}", self.within_layer(rest, false)?));
        };
        let beside = with_ending(rest, |stem| find(MTP, stem, false)).filter(|_| index == 0);
        beside.or_else(|| Some(format!("mtp.layers.{index}.{}", self.within_layer(rest, false)?)))
    }

    /// The GGUF name of Hugging Face tensor `name`, for messages: the reverse of [`to_hugging_face`](Self::to_hugging_face).
    pub(crate) fn to_gguf(self, name: &str) -> Option<String> {
        let (first, rest) = if let Some(rest) = name.strip_prefix("model.layers.") {
            (0, rest)
        } else if let Some(rest) = name.strip_prefix("mtp.layers.") {
            (self.first_mtp?, rest)
        } else if let Some(own) = with_ending(name, |stem| find(MTP, stem, true)) {
            return Some(format!("blk.{}.{own}", self.first_mtp?));
        } else {
            return with_ending(name, |stem| find(ROOT, stem, true));
        };
        let (index, rest) = rest.split_once('.')?;
        let block = number(index)?.checked_add(first)?;
        Some(format!("blk.{block}.{}", self.within_layer(rest, true)?))
    }

    fn within_layer(self, name: &str, reverse: bool) -> Option<String> {
        let hybrid = self.first_mtp.is_some();
        let complete = find(HYBRID_COMPLETE, name, reverse).filter(|_| hybrid).map(String::from);
        let rename = |stem: &str| {
            let found = find(HYBRID, stem, reverse).filter(|_| hybrid).or_else(|| find(LAYER, stem, reverse));
            found.map(String::from).or_else(|| expert(stem, reverse))
        };
        complete.or_else(|| with_ending(name, rename))
    }
}

fn expert(stem: &str, reverse: bool) -> Option<String> {
    if reverse {
        let (index, stem) = stem.strip_prefix("mlp.experts.")?.split_once('.')?;
        Some(format!("{}.{}", find(EXPERT, stem, true)?, number(index)?))
    } else {
        let (stem, index) = stem.split_once('.')?;
        Some(format!("mlp.experts.{}.{}", number(index)?, find(EXPERT, stem, false)?))
    }
}

/// `name` with another stem and the same ending.
fn with_ending<S: Display>(name: &str, rename: impl Fn(&str) -> Option<S>) -> Option<String> {
    let (stem, ending) = name.rsplit_once('.')?;
    let stem = rename(stem).filter(|_| matches!(ending, "weight" | "bias"))?;
    Some(format!("{stem}.{ending}"))
}

fn find(table: &'static Table, key: &str, reverse: bool) -> Option<&'static str> {
    let mut entries = table.iter().map(|&(gguf, hf)| if reverse { (hf, gguf) } else { (gguf, hf) });
    entries.find(|(from, _)| *from == key).map(|(_, to)| to)
}

/// A number in its usual spelling: `01` and `+1` are not.
fn number(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Names = Names { first_mtp: None };
    const QWEN35: Names = Names { first_mtp: Some(4) };

    #[test]
    fn there_and_back() {
        for (gguf, hf) in [
            ("token_embd.weight", "model.embed_tokens.weight"),
            ("output.weight", "lm_head.weight"),
            ("rope_freqs.weight", "rope_freqs.weight"),
            ("blk.3.attn_q.bias", "model.layers.3.self_attn.q_proj.bias"),
            ("blk.0.ffn_gate_inp.weight", "model.layers.0.mlp.gate.weight"),
            ("blk.0.ffn_down_exps.weight", "model.layers.0.mlp.experts.down_proj.weight"),
            ("blk.3.ffn_up.7.weight", "model.layers.3.mlp.experts.7.up_proj.weight"),
        ] {
            for names in [PLAIN, QWEN35] {
                assert_eq!(names.to_hugging_face(gguf).as_deref(), Some(hf));
                assert_eq!(names.to_gguf(hf).as_deref(), Some(gguf));
            }
        }
        let norm = "model.layers.12.post_attention_layernorm.weight";
        assert_eq!(PLAIN.to_gguf(norm).as_deref(), Some("blk.12.ffn_norm.weight"));
        assert_eq!(PLAIN.to_hugging_face("blk.12.ffn_norm.weight").as_deref(), Some(norm));
        for gguf in [
            "blk.01.attn_q.weight",
            "blk.x.attn_q.weight",
            "attn_q.weight",
            "blk.1.attn_q",
            "blk.3.ffn_up.07.weight",
            "blk.3.ffn_up.7.scale",
            "",
            ".",
            "blk..weight",
        ] {
            assert_eq!(PLAIN.to_hugging_face(gguf), None, "{gguf}");
            assert_eq!(QWEN35.to_hugging_face(gguf), None, "{gguf}");
        }
    }

    #[test]
    fn hybrids_there_and_back() {
        for (gguf, hf) in [
            ("blk.3.post_attention_norm.weight", "model.layers.3.post_attention_layernorm.weight"),
            ("blk.0.attn_gate.weight", "model.layers.0.linear_attn.in_proj_z.weight"),
            ("blk.0.ssm_a", "model.layers.0.linear_attn.A_log"),
            ("blk.0.ssm_dt.bias", "model.layers.0.linear_attn.dt_bias"),
            ("blk.0.ffn_gate_inp_shexp.weight", "model.layers.0.mlp.shared_expert_gate.weight"),
            ("blk.4.nextn.eh_proj.weight", "mtp.fc.weight"),
            ("blk.4.nextn.shared_head_norm.weight", "mtp.norm.weight"),
            ("blk.4.attn_norm.weight", "mtp.layers.0.input_layernorm.weight"),
            ("blk.5.ffn_up.7.weight", "mtp.layers.1.mlp.experts.7.up_proj.weight"),
        ] {
            assert_eq!(QWEN35.to_hugging_face(gguf).as_deref(), Some(hf));
            assert_eq!(QWEN35.to_gguf(hf).as_deref(), Some(gguf));
        }
        assert_eq!(QWEN35.to_hugging_face("blk.1.ssm_dt").as_deref(), Some("model.layers.1.linear_attn.dt_bias"));
        for gguf in ["blk.3.nextn.eh_proj.weight", "blk.5.nextn.eh_proj.weight", "blk.0.ssm_a.weight", "blk.0.attn_qkv"]
        {
            assert_eq!(QWEN35.to_hugging_face(gguf), None, "{gguf}");
        }
        for hf in ["mtp.norm.weight", "mtp.layers.0.input_layernorm.weight", "model.layers.0.linear_attn.A_log"] {
            assert_eq!(PLAIN.to_gguf(hf), None, "{hf}");
        }
        assert_eq!(QWEN35.to_gguf("mtp.layers.4294967295.input_layernorm.weight"), None);
    }
}
