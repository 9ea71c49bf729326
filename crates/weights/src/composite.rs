//! One spelling for the tensors of checkpoints that hold more than a language model.
//!
//! The layers that are `model.layers.` in a text-only checkpoint are `model.language_model.layers.` beside a vision tower,
//! and `language_model.model.layers.` in an MLX pack. Here they are `model.layers.` always, and the tower is `visual.`.

/// How names begin in files and here.
const BEGINNINGS: &[(&str, &str)] = &[
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
    ("language_model.backbone.", "backbone."),
    ("model.visual.", "visual."),
    ("vision_tower.", "visual."),
];

/// Our spelling of the file's `name`.
pub(crate) fn from_file(name: &str) -> String {
    let mut found = BEGINNINGS.iter().filter_map(|(file, ours)| Some(format!("{ours}{}", name.strip_prefix(file)?)));
    found.next().unwrap_or_else(|| name.to_string())
}

/// The spelling of our `name` in a file that has names that begin as `is_there` says, if it differs.
pub(crate) fn to_file(name: &str, is_there: impl Fn(&str) -> bool) -> Option<String> {
    let mut found = BEGINNINGS.iter().filter(|(file, ours)| name.starts_with(ours) && is_there(file));
    found.next().map(|(file, ours)| format!("{file}{}", &name[ours.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for (file, ours) in [
            ("model.language_model.layers.0.mlp.gate.weight", "model.layers.0.mlp.gate.weight"),
            ("language_model.model.norm.weight", "model.norm.weight"),
            ("language_model.lm_head.scales", "lm_head.scales"),
            ("language_model.backbone.norm_f.weight", "backbone.norm_f.weight"),
            ("model.visual.pos_embed.weight", "visual.pos_embed.weight"),
            ("vision_tower.pos_embed.weight", "visual.pos_embed.weight"),
        ] {
            assert_eq!(from_file(file), ours);
            assert_eq!(to_file(ours, |beginning| file.starts_with(beginning)).as_deref(), Some(file));
            assert_eq!(to_file(ours, |_| false), None);
        }
        for name in
            ["model.norm.weight", "lm_head.weight", "mtp.fc.weight", "language_model.x", "model.language_modelx", ""]
        {
            assert_eq!(from_file(name), name);
        }
    }
}
