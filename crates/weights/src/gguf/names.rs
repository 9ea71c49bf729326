//! Tensor names of GGUF files and their Hugging Face spelling.

/// Names outside the layers. The ending (`.weight`, `.bias`) stays.
const ROOT: &[(&str, &str)] = &[
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
    ("rope_freqs", "rope_freqs"),
];

/// Names after `blk.{layer}.` and after `model.layers.{layer}.`.
const LAYER: &[(&str, &str)] = &[
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

/// Experts stored one by one, as early files do: `ffn_up.{expert}` and `mlp.experts.{expert}.up_proj`.
const EXPERT: &[(&str, &str)] = &[("ffn_gate", "gate_proj"), ("ffn_up", "up_proj"), ("ffn_down", "down_proj")];

/// The Hugging Face name of GGUF tensor `name`, or `None` if the table does not have it.
pub(crate) fn to_hugging_face(name: &str) -> Option<String> {
    let (stem, ending) = name.rsplit_once('.')?;
    if !matches!(ending, "weight" | "bias") {
        return None;
    }
    let Some(rest) = stem.strip_prefix("blk.") else {
        return find(ROOT, stem, false).map(|stem| format!("{stem}.{ending}"));
    };
    let (layer, stem) = rest.split_once('.')?;
    let layer = number(layer)?;
    if let Some((stem, expert)) = stem.split_once('.') {
        let (stem, expert) = (find(EXPERT, stem, false)?, number(expert)?);
        return Some(format!("model.layers.{layer}.mlp.experts.{expert}.{stem}.{ending}"));
    }
    find(LAYER, stem, false).map(|stem| format!("model.layers.{layer}.{stem}.{ending}"))
}

/// The GGUF name of Hugging Face tensor `name`, for messages: the reverse of [`to_hugging_face`].
pub(crate) fn to_gguf(name: &str) -> Option<String> {
    let (stem, ending) = name.rsplit_once('.')?;
    let Some(rest) = stem.strip_prefix("model.layers.") else {
        return find(ROOT, stem, true).map(|stem| format!("{stem}.{ending}"));
    };
    let (layer, stem) = rest.split_once('.')?;
    let layer = number(layer)?;
    if let Some((expert, stem)) = stem.strip_prefix("mlp.experts.").and_then(|rest| rest.split_once('.')) {
        let (stem, expert) = (find(EXPERT, stem, true)?, number(expert)?);
        return Some(format!("blk.{layer}.{stem}.{expert}.{ending}"));
    }
    find(LAYER, stem, true).map(|stem| format!("blk.{layer}.{stem}.{ending}"))
}

fn find(table: &'static [(&'static str, &'static str)], key: &str, reverse: bool) -> Option<&'static str> {
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

    #[test]
    fn there_and_back() {
        for (gguf, hf) in [
            ("token_embd.weight", "model.embed_tokens.weight"),
            ("output.weight", "lm_head.weight"),
            ("rope_freqs.weight", "rope_freqs.weight"),
            ("blk.12.attn_q.bias", "model.layers.12.self_attn.q_proj.bias"),
            ("blk.0.ffn_gate_inp.weight", "model.layers.0.mlp.gate.weight"),
            ("blk.0.ffn_down_exps.weight", "model.layers.0.mlp.experts.down_proj.weight"),
            ("blk.3.ffn_up.7.weight", "model.layers.3.mlp.experts.7.up_proj.weight"),
        ] {
            assert_eq!(to_hugging_face(gguf).as_deref(), Some(hf));
            assert_eq!(to_gguf(hf).as_deref(), Some(gguf));
        }
        for gguf in
            ["blk.01.attn_q.weight", "blk.x.attn_q.weight", "attn_q.weight", "blk.1.attn_q", "", ".", "blk..weight"]
        {
            assert_eq!(to_hugging_face(gguf), None, "{gguf}");
        }
    }
}
