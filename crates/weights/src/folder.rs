//! Which files of a folder are the model.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::gguf::split::ShardName;
use crate::safetensors::Index;
use crate::{LoadError, safetensors as st};

/// Text files (configurations, tokenizers, templates) are read up to this size. The largest real tokenizers have 40 MB.
const MAX_TEXT_BYTES: u64 = 256 << 20;
const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";

/// What a path stands for.
#[derive(Debug)]
pub(crate) enum Source {
    /// A GGUF file, maybe one of several shards.
    Gguf(PathBuf),
    /// A folder with `config.json` and safetensors files; the named one only, if any.
    Folder(PathBuf, Option<String>),
}

impl Source {
    /// Looks at `path` without opening any model file.
    pub(crate) fn find(path: &Path) -> Result<Self, LoadError> {
        // A shard's own file may be the missing one, which its siblings can tell better.
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if ShardName::parse(name).is_some() {
            return Ok(Source::Gguf(path.into()));
        }
        let metadata = fs::metadata(path).map_err(|source| LoadError::read(path, source))?;
        if metadata.is_dir() {
            return Self::in_folder(path);
        }
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("gguf") => Ok(Source::Gguf(path.into())),
            Some("safetensors") => Ok(Source::Folder(folder, Some(name.into()))),
            Some("json") if name == "config.json" => Ok(Source::Folder(folder, None)),
            Some("json") if name.ends_with(".safetensors.index.json") => Ok(Source::Folder(folder, Some(name.into()))),
            _ if starts_like_gguf(path)? => Ok(Source::Gguf(path.into())),
            _ => Err(LoadError::unsupported(
                path,
                "this kind of file; expected a .gguf or .safetensors file, or a folder with a model",
            )),
        }
    }

    fn in_folder(folder: &Path) -> Result<Self, LoadError> {
        let names = file_names(folder)?;
        let has = |ending: &str| names.iter().any(|name| name.ends_with(ending));
        if names.iter().any(|name| name == "config.json") && (has(".safetensors") || has(".safetensors.index.json")) {
            return Ok(Source::Folder(folder.into(), None));
        }
        // Shards of one model count once, by the first that is there. Vision projectors are no models of their own.
        let mut models = BTreeMap::new();
        for name in names.iter().filter(|name| name.ends_with(".gguf") && !name.contains("mmproj")) {
            let model = ShardName::parse(name).map_or(name.clone(), |shard| shard.model());
            models.entry(model).or_insert(name);
        }
        let mut found = models.values();
        match (found.next(), found.next()) {
            (Some(name), None) => Ok(Source::Gguf(folder.join(name))),
            (Some(first), Some(second)) => {
                let reason = format!("holds {} models, such as {first} and {second}; name one of them", models.len());
                Err(LoadError::malformed(folder, reason))
            }
            (None, _) if has(".safetensors") => Err(LoadError::malformed(
                folder,
                "has no config.json, expected one beside the .safetensors files; fetch it",
            )),
            (None, _) => {
                let reason = "holds no model, expected a .gguf file, or config.json and .safetensors files";
                Err(LoadError::malformed(folder, reason))
            }
        }
    }
}

/// Opens the safetensors files of `folder`, or those that `named` stands for.
pub(crate) fn open_safetensors(folder: &Path, named: Option<&str>) -> Result<Vec<st::File>, LoadError> {
    let index_name = named.filter(|name| name.ends_with(".json")).unwrap_or(INDEX);
    let index_path = folder.join(index_name);
    if let Some(text) = read_text(&index_path)? {
        let index = Index::read(&index_path, &text)?;
        // A file that is not in the index is a model of its own.
        if named.is_none_or(|name| name == index_name || index.names(name)) {
            return index.open();
        }
    }
    if let Some(name) = named {
        return Ok(vec![st::File::open(&folder.join(name))?]);
    }
    let names: Vec<String> = file_names(folder)?.into_iter().filter(|name| name.ends_with(".safetensors")).collect();
    match &names[..] {
        _ if names.iter().any(|name| name == SINGLE) => Ok(vec![st::File::open(&folder.join(SINGLE))?]),
        [name] => Ok(vec![st::File::open(&folder.join(name))?]),
        _ => Err(LoadError::malformed(
            folder,
            format!(
                "holds {} .safetensors files but no {INDEX}, expected {SINGLE} or an index; fetch the index",
                names.len()
            ),
        )),
    }
}

/// A text file, or `None` if there is no such file.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>, LoadError> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LoadError::read(path, error)),
    };
    let mut text = Vec::new();
    // One byte more than allowed tells a file that is too large.
    file.take(MAX_TEXT_BYTES + 1).read_to_end(&mut text).map_err(|error| LoadError::read(path, error))?;
    if text.len() as u64 > MAX_TEXT_BYTES {
        return Err(LoadError::malformed(
            path,
            format!("is larger than {MAX_TEXT_BYTES} bytes, too large for this file"),
        ));
    }
    match String::from_utf8(text) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(LoadError::malformed(path, "is not UTF-8; fetch the file again")),
    }
}

fn starts_like_gguf(path: &Path) -> Result<bool, LoadError> {
    let mut magic = [0; 4];
    let read = fs::File::open(path).and_then(|mut file| file.read(&mut magic));
    read.map_err(|source| LoadError::read(path, source)).map(|_| &magic == b"GGUF")
}

/// Names of the files in `folder`, sorted. Names that are not UTF-8 are left out: no model has them.
fn file_names(folder: &Path) -> Result<Vec<String>, LoadError> {
    let fail = |source| LoadError::read(folder, source);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if let Ok(name) = entry.file_name().into_string() {
            // `metadata` of the path follows links, which download caches use.
            if fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_file()) {
                names.push(name);
            }
        }
    }
    names.sort_unstable();
    Ok(names)
}
