//! An opened model: files mapped, headers checked, configuration read.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kapitsa_tensor::Weight;
use serde_json::Value;

use crate::folder::{Source, open_safetensors, read_text};
use crate::gguf::config::{TensorTable, convert};
use crate::gguf::{self, Metadata};
use crate::map::Map;
use crate::mlx::Quantization;
use crate::store::Store;
use crate::{Config, LoadError, Weights};

/// What a model is packed in. The tensor names are the same for all (see [`Weights`]); some values are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Container {
    /// One or more GGUF files.
    Gguf,
    /// `config.json` and safetensors files.
    HuggingFace,
    /// As Hugging Face, but written by MLX: convolutions have another layout, norms of some families are shifted.
    MlxPack,
}

/// Names of tensors that follow from the configuration. Old converters stored them.
const DERIVED: &[&str] = &["rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached", "attn.masked_bias"];

/// An opened model.
#[derive(Debug)]
pub struct Checkpoint {
    config: Config,
    store: Store,
    maps: Vec<Map>,
    tokenizer: TokenizerSource,
}

#[derive(Debug)]
enum TokenizerSource {
    Folder(PathBuf),
    Gguf(Box<Metadata>),
}

/// The files that make a tokenizer, unparsed.
#[derive(Debug)]
pub enum TokenizerFiles<'a> {
    /// A folder with `tokenizer.json`.
    HuggingFace {
        /// `tokenizer.json`.
        tokenizer_json: String,
        /// `tokenizer_config.json`.
        tokenizer_config: Option<String>,
        /// `chat_template.jinja`; older models have the template in `tokenizer_config.json`.
        chat_template: Option<String>,
        /// `generation_config.json`.
        generation_config: Option<String>,
    },
    /// The keys `tokenizer.*` of a GGUF file.
    Gguf(&'a Metadata),
    /// The model has no tokenizer; it can still compute logits from ids.
    Absent,
}

/// A tensor, for listings.
#[derive(Clone, Debug)]
pub struct TensorInfo<'a> {
    /// Hugging Face spelling.
    pub name: &'a str,
    /// As the file spells it.
    pub file_name: &'a str,
    /// Element or block type.
    pub stored_as: String,
    /// As stored, outermost dimension first.
    pub shape: &'a [usize],
    /// Size in the file, as mapped.
    pub data: &'a [u8],
}

impl Checkpoint {
    /// Opens a `.gguf` file (any shard of a split model), a folder (Hugging Face checkpoint, MLX pack, or one GGUF model),
    /// a `.safetensors` file or the index of several beside their `config.json`.
    ///
    /// Files are mapped, not read, and must not change while the model lives (see the crate's documentation). All headers
    /// are checked: after this, reading any tensor stays inside its file. A model of an unknown architecture opens; whoever
    /// builds the model says that it cannot.
    ///
    /// # Errors
    /// If files are missing, cut short or damaged, or contradict each other.
    pub fn open(path: &Path) -> Result<Checkpoint, LoadError> {
        match Source::find(path)? {
            Source::Gguf(path) => Self::open_gguf(&path),
            Source::Folder(folder, named) => Self::open_folder(&folder, named.as_deref()),
        }
    }

    fn open_gguf(path: &Path) -> Result<Checkpoint, LoadError> {
        let files = gguf::split::open(path)?;
        let maps = files.iter().map(|file| file.map.clone()).collect();
        let shapes = files.iter().flat_map(|file| &file.tensors);
        let shapes = Shapes(shapes.map(|tensor| (tensor.name.as_str(), &tensor.shape[..])).collect());
        let converted = convert(&files[0].metadata, &shapes)?;
        // The first shard has the metadata of the whole model.
        let mut metadata = None;
        let mut tensors = Vec::with_capacity(files.len());
        for file in files {
            metadata.get_or_insert(file.metadata);
            tensors.push((file.path, file.tensors));
        }
        let metadata = metadata.expect("a model has at least one file");
        let path = tensors[0].0.clone();
        let config = Config::new(&path, converted.values, converted.origins);
        let store = Store::from_gguf(path, tensors, converted.names)?;
        Ok(Checkpoint { config, store, maps, tokenizer: TokenizerSource::Gguf(Box::new(metadata)) })
    }

    fn open_folder(folder: &Path, named: Option<&str>) -> Result<Checkpoint, LoadError> {
        let config_path = folder.join("config.json");
        let text = read_text(&config_path)?.ok_or_else(|| {
            LoadError::malformed(&config_path, "file is missing, expected beside the .safetensors files; fetch it")
        })?;
        let config = Config::from_json(&config_path, &text)?;
        let files = open_safetensors(folder, named)?;
        let maps = files.iter().map(|file| file.map.clone()).collect();
        let quantization = Quantization::read(&config)?;
        let written_by_mlx = files.iter().any(|file| file.metadata.get("format").is_some_and(|format| format == "mlx"));
        let container =
            if written_by_mlx || quantization.is_some() { Container::MlxPack } else { Container::HuggingFace };
        let path: Arc<Path> = match &files[..] {
            [file] => file.path.clone(),
            _ => folder.into(),
        };
        let store = Store::from_safetensors(path, files, container, quantization.unwrap_or_default())?;
        Ok(Checkpoint { config, store, maps, tokenizer: TokenizerSource::Folder(folder.into()) })
    }

    /// The model's configuration, with Hugging Face key names for GGUF, too.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What the model is packed in.
    pub fn container(&self) -> Container {
        self.store.container
    }

    /// All tensors, with Hugging Face names for GGUF, too (of the architectures that are known).
    pub fn weights(&self) -> Weights<'_> {
        Weights::root(&self.store)
    }

    /// The metadata of a GGUF model.
    pub fn gguf_metadata(&self) -> Option<&Metadata> {
        match &self.tokenizer {
            TokenizerSource::Gguf(metadata) => Some(metadata),
            TokenizerSource::Folder(_) => None,
        }
    }

    /// Reads the tokenizer's files.
    ///
    /// # Errors
    /// If a file is there but cannot be read.
    pub fn tokenizer_files(&self) -> Result<TokenizerFiles<'_>, LoadError> {
        let folder = match &self.tokenizer {
            TokenizerSource::Gguf(metadata) if metadata.get("tokenizer.ggml.model").is_some() => {
                return Ok(TokenizerFiles::Gguf(metadata));
            }
            TokenizerSource::Gguf(_) => return Ok(TokenizerFiles::Absent),
            TokenizerSource::Folder(folder) => folder,
        };
        let Some(tokenizer_json) = read_text(&folder.join("tokenizer.json"))? else {
            return Ok(TokenizerFiles::Absent);
        };
        Ok(TokenizerFiles::HuggingFace {
            tokenizer_json,
            tokenizer_config: read_text(&folder.join("tokenizer_config.json"))?,
            chat_template: read_text(&folder.join("chat_template.jinja"))?,
            generation_config: read_text(&folder.join("generation_config.json"))?,
        })
    }

    /// How the model wants its images: `preprocessor_config.json`, or `image_processor` in `processor_config.json`.
    ///
    /// # Errors
    /// If a file is there but cannot be read, or is not JSON.
    pub fn preprocessor_config(&self) -> Result<Option<Value>, LoadError> {
        let TokenizerSource::Folder(folder) = &self.tokenizer else { return Ok(None) };
        let read = |name: &str| {
            let path = folder.join(name);
            let Some(text) = read_text(&path)? else { return Ok(None) };
            let value = serde_json::from_str::<Value>(&text);
            let fail = |error| LoadError::malformed(&path, format!("is not JSON: {error}; fetch the file again"));
            value.map(Some).map_err(fail)
        };
        if let Some(config) = read("preprocessor_config.json")? {
            return Ok(Some(config));
        }
        Ok(read("processor_config.json")?.and_then(|mut config| Some(config.get_mut("image_processor")?.take())))
    }

    /// Tensors that no loader asked for, as the files spell them. Left out are tensors that follow from the configuration
    /// (`rotary_emb.inv_freq` and kin) and the output matrix of a model that says it is tied to the embedding.
    pub fn unused(&self) -> Vec<String> {
        let tied = self.config.bool_or("tie_word_embeddings", false).unwrap_or(false);
        let ignored = |name: &str| {
            DERIVED.iter().any(|ending| name.trim_end_matches(".weight").ends_with(ending))
                || (tied && name.starts_with("lm_head."))
        };
        let tensors = self.store.sorted().into_iter();
        tensors
            .filter(|(name, tensor)| !Store::is_used(tensor) && !ignored(name))
            .map(|(_, tensor)| tensor.name.clone())
            .collect()
    }

    /// All tensors, sorted by name.
    pub fn tensors(&self) -> impl Iterator<Item = TensorInfo<'_>> {
        self.store.sorted().into_iter().map(|(name, tensor)| TensorInfo {
            name,
            file_name: &tensor.name,
            stored_as: tensor.kind.to_string(),
            shape: &tensor.shape,
            data: &tensor.data,
        })
    }

    /// Size of all files together.
    pub fn file_bytes(&self) -> u64 {
        self.maps.iter().map(Map::len).sum()
    }

    /// Gives back the memory that holds the stored bytes of `weight`, once a device has its own copy. They can still be
    /// read, but come from the file again.
    pub fn release(&self, weight: &Weight) {
        for plane in weight.planes() {
            self.maps.iter().for_each(|map| map.release(plane));
        }
    }
}

/// Shapes of all shards' tensors, before names are translated.
struct Shapes<'a>(HashMap<&'a str, &'a [usize]>);

impl TensorTable for Shapes<'_> {
    fn shape(&self, name: &str) -> Option<&[usize]> {
        self.0.get(name).copied()
    }
}
