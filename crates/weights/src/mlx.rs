//! The `quantization` block of MLX packs.
//!
//! ```json
//! {"group_size": 64, "bits": 4, "mode": "affine", "model.layers.0.mlp.gate": {"group_size": 64, "bits": 8}}
//! ```
//! Keys beside the first three are modules with settings of their own: an object, or `false` for one that is not
//! quantised. What decides is the file, though: a module is quantised if it has `.scales`, and modules without them need
//! not be listed.

use std::collections::HashMap;

use kapitsa_tensor::format::{MlxAffine, TensorScale};
use kapitsa_tensor::{DType, Format};

use crate::{Config, LoadError};

/// How modules of a pack are quantised.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quantization {
    default: Option<Settings>,
    modules: HashMap<String, Settings>,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    group: Option<usize>,
    bits: Option<usize>,
    mode: Option<Mode>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Affine,
    Mxfp4,
    Mxfp8,
    Nvfp4,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Affine => "affine",
            Mode::Mxfp4 => "mxfp4",
            Mode::Mxfp8 => "mxfp8",
            Mode::Nvfp4 => "nvfp4",
        }
    }

    /// Group and bits if the settings have none; all there is for the floating-point modes.
    fn usual(self) -> (usize, usize) {
        match self {
            Mode::Affine => (64, 4),
            Mode::Mxfp4 => (32, 4),
            Mode::Mxfp8 => (32, 8),
            Mode::Nvfp4 => (16, 4),
        }
    }
}

impl Quantization {
    /// Reads the block of `config`; `None` if it has none.
    pub(crate) fn read(config: &Config) -> Result<Option<Self>, LoadError> {
        for key in ["quantization", "quantization_config"] {
            let Some(block) = config.section(key)? else { continue };
            // The second key also holds the blocks of other tools, which name their method.
            if block.has("quant_method") || !(block.has("bits") || block.has("group_size")) {
                continue;
            }
            let mut modules = HashMap::new();
            for name in block.keys() {
                if block.opt_bool(name).is_ok() {
                    continue;
                }
                if let Ok(Some(module)) = block.section(name) {
                    modules.insert(name.to_string(), Settings::read(&module)?);
                }
            }
            return Ok(Some(Quantization { default: Some(Settings::read(&block)?), modules }));
        }
        Ok(None)
    }

    /// The format of `module`, whose scales have element type `scales` (`None` for bytes) and which has a tensor
    /// `global_scale` or not.
    ///
    /// # Errors
    /// Says what is wrong with the settings.
    pub(crate) fn format(&self, module: &str, scales: Option<DType>, global_scale: bool) -> Result<Format, String> {
        let own = self.modules.get(module).copied();
        let Some(settings) = own.or(self.default) else {
            return Err("has scales, but config.json has no `quantization` block; fetch the file again".into());
        };
        // Settings without a mode are affine, unless the scales are bytes, which affine ones never are.
        let mode =
            settings.mode.or(if scales.is_none() { self.default.and_then(|default| default.mode) } else { None });
        let mode = mode.unwrap_or(Mode::Affine);
        let (usual_group, usual_bits) = mode.usual();
        let (group, bits) = (settings.group.unwrap_or(usual_group), settings.bits.unwrap_or(usual_bits));
        match (mode, scales) {
            (Mode::Affine, Some(dtype)) => MlxAffine::new(bits as u64, group as u64, dtype).map(Format::MlxAffine),
            (Mode::Affine, None) => Err("has scales of bytes, expected F32, F16 or BF16 for mode affine".into()),
            (_, Some(dtype)) => Err(format!("has scales of {dtype}, expected bytes for mode {}", mode.name())),
            _ if (group, bits) != (usual_group, usual_bits) => Err(format!(
                "has groups of {group} and {bits} bits, expected {usual_group} and {usual_bits} for mode {}",
                mode.name()
            )),
            (Mode::Mxfp4, None) => Ok(Format::Mxfp4),
            (Mode::Mxfp8, None) => Ok(Format::Mxfp8),
            (Mode::Nvfp4, None) => Ok(Format::Nvfp4(if global_scale { TensorScale::Amax } else { TensorScale::None })),
        }
    }
}

impl Settings {
    fn read(block: &Config) -> Result<Self, LoadError> {
        let mode = match block.opt_str("mode")? {
            None => None,
            Some("affine") => Some(Mode::Affine),
            Some("mxfp4") => Some(Mode::Mxfp4),
            Some("mxfp8") => Some(Mode::Mxfp8),
            Some("nvfp4") => Some(Mode::Nvfp4),
            Some(other) => {
                let reason = format!("is \"{other}\", expected affine, mxfp4, mxfp8 or nvfp4");
                return Err(block.error("mode", reason));
            }
        };
        Ok(Settings { group: block.opt_usize("group_size")?, bits: block.opt_usize("bits")?, mode })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(text: &str) -> Result<Option<Quantization>, LoadError> {
        Quantization::read(&Config::from_json(Path::new("config.json"), text).unwrap())
    }

    #[test]
    fn settings_of_modules() {
        let text = r#"{"quantization":{"group_size":32,"bits":4,"mode":"mxfp4","plain":false,"listed":true,
            "a":{"group_size":128,"bits":6},"b":{"mode":"nvfp4"},"c":{"mode":"mxfp8","group_size":64},"d":{"bits":7}}}"#;
        let quantization = read(text).unwrap().unwrap();
        let bf16 = Some(DType::Bf16);
        let affine = |bits, group| Ok(Format::MlxAffine(MlxAffine::new(bits, group, DType::Bf16).unwrap()));
        assert_eq!(quantization.format("x", None, false), Ok(Format::Mxfp4));
        assert_eq!(quantization.format("listed", None, false), Ok(Format::Mxfp4));
        assert_eq!(quantization.format("a", bf16, false), affine(6, 128));
        assert_eq!(quantization.format("b", None, false), Ok(Format::Nvfp4(TensorScale::None)));
        assert_eq!(quantization.format("b", None, true), Ok(Format::Nvfp4(TensorScale::Amax)));
        for (module, scales) in [("x", bf16), ("a", None), ("b", bf16), ("c", None), ("d", bf16)] {
            assert!(quantization.format(module, scales, false).is_err(), "{module}");
        }
        let plain = read(r#"{"quantization_config":{"group_size":64,"bits":4}}"#).unwrap().unwrap();
        assert_eq!(plain.format("x", bf16, false), affine(4, 64));
    }

    #[test]
    fn other_blocks() {
        assert!(read("{}").unwrap().is_none());
        assert!(
            read(r#"{"quantization_config":{"quant_method":"gptq","bits":4,"group_size":128}}"#).unwrap().is_none()
        );
        assert!(read(r#"{"quantization":{"bits":4,"mode":"magic"}}"#).is_err());
        assert!(read(r#"{"quantization":{"bits":-4}}"#).is_err());
        assert!(read(r#"{"quantization":[]}"#).is_err());
        assert!(Quantization::default().format("x", None, false).is_err());
    }
}
