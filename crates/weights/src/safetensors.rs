//! Safetensors files, single or sharded with an index.
//!
//! ```text
//! header length u64 · JSON {name: {dtype, shape, data_offsets}, "__metadata__": {...}} · data
//! ```
//! The header's entries are parsed with the types of the `safetensors` crate. Its checks are repeated here because they
//! must also find a name that occurs twice and must name the tensor: data follow each other without gap or overlap from
//! the first byte to the last, and each has the size that its shape demands.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use crate::LoadError;
use crate::error::short;
use crate::map::Map;

/// Largest header. The reference implementation's limit.
const MAX_HEADER_BYTES: u64 = 100_000_000;
const MAX_DIMENSIONS: usize = 8;

/// A tensor of a safetensors file.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: Dtype,
    pub(crate) data: Bytes,
}

/// One opened file.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: Arc<Path>,
    pub(crate) tensors: Vec<Tensor>,
    /// `__metadata__`, such as `format`: `pt` or `mlx`.
    pub(crate) metadata: HashMap<String, String>,
    pub(crate) map: Map,
}

impl File {
    /// Maps `path` and checks its header: after this every tensor lies inside the file and has the size of its shape.
    pub(crate) fn open(path: &Path) -> Result<Self, LoadError> {
        let map = Map::open(path)?;
        let (data, bytes) = (map.bytes(), map.len());
        let fail = |reason: String| LoadError::malformed(path, reason);
        let cut = |expected, what: String| LoadError::Truncated { path: path.into(), found: bytes, expected, what };

        let Some((length, rest)) = data.split_first_chunk::<8>() else {
            return Err(cut(8, "the length of the header".into()));
        };
        let length = u64::from_le_bytes(*length);
        if length > MAX_HEADER_BYTES {
            return Err(fail(format!(
                "header has a length of {length} bytes, expected at most {MAX_HEADER_BYTES}; this is not a safetensors file"
            )));
        }
        let Some(header) = rest.get(..length as usize) else {
            return Err(cut(8 + length, "the header".into()));
        };
        let header: Header =
            serde_json::from_slice(header).map_err(|error| fail(format!("header: {}", short(&error.to_string()))))?;
        let tensors = place(header.tensors, &data.slice(8 + length as usize..), |error| match error {
            PlaceError::Malformed(name, reason) => LoadError::tensor(name, reason).in_file(path),
            PlaceError::Truncated(expected) => cut((8 + length).saturating_add(expected), "all tensors".into()),
        })?;
        Ok(File { path: path.into(), tensors, metadata: header.metadata, map })
    }
}

enum PlaceError {
    Malformed(String, String),
    /// Bytes of data that the header announces.
    Truncated(u64),
}

/// Checks offsets and shapes against `data`.
fn place(
    mut entries: Vec<(String, TensorInfo)>,
    data: &Bytes,
    error: impl Fn(PlaceError) -> LoadError,
) -> Result<Vec<Tensor>, LoadError> {
    entries.sort_by_key(|(_, info)| info.data_offsets);
    let mut end = 0;
    let mut tensors = Vec::with_capacity(entries.len());
    for (name, info) in entries {
        let fail = |reason: String| error(PlaceError::Malformed(name.clone(), reason));
        let (first, last) = info.data_offsets;
        if first != end || last < first {
            return Err(fail(format!(
                "lies at bytes {first} to {last}, expected to begin at {end} where the one before ends"
            )));
        }
        if info.shape.len() > MAX_DIMENSIONS {
            return Err(fail(format!("has {} dimensions, expected at most {MAX_DIMENSIONS}", info.shape.len())));
        }
        let bits = info.shape.iter().try_fold(info.dtype.bitsize(), |bits, &dim| bits.checked_mul(dim));
        if bits.is_none_or(|bits| !bits.is_multiple_of(8) || bits / 8 != last - first) {
            return Err(fail(format!(
                "has {} bytes, which is not the size of {:?} {:?}",
                last - first,
                info.dtype,
                info.shape
            )));
        }
        end = last;
        // Cut files are told by their size, below.
        let bytes = if last <= data.len() { data.slice(first..last) } else { Bytes::new() };
        tensors.push(Tensor { name, shape: info.shape, dtype: info.dtype, data: bytes });
    }
    if end > data.len() {
        return Err(error(PlaceError::Truncated(end as u64)));
    }
    if end < data.len() {
        let name = tensors.last().map(|tensor| tensor.name.clone()).unwrap_or_default();
        let rest = data.len() - end;
        return Err(error(PlaceError::Malformed(
            name,
            format!("is followed by {rest} bytes that belong to no tensor"),
        )));
    }
    Ok(tensors)
}

/// The JSON header, with repeated names found.
#[derive(Default)]
struct Header {
    metadata: HashMap<String, String>,
    tensors: Vec<(String, TensorInfo)>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;
        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = Header;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header::default();
                let mut names = HashSet::new();
                while let Some(name) = map.next_key::<String>()? {
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom(format!("name `{}` occurs twice, expected once", short(&name))));
                    }
                    if name == "__metadata__" {
                        header.metadata = map.next_value()?;
                    } else {
                        header.tensors.push((name, map.next_value()?));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(HeaderVisitor)
    }
}

/// The files of a sharded model, from its index: `{"weight_map": {tensor: file}}`.
#[derive(Debug)]
pub(crate) struct Index {
    path: PathBuf,
    files: BTreeMap<String, BTreeSet<String>>,
}

impl Index {
    /// Reads an index. Names that leave the folder are refused.
    pub(crate) fn read(path: &Path, text: &str) -> Result<Self, LoadError> {
        #[derive(Deserialize)]
        struct Json {
            weight_map: HashMap<String, String>,
        }
        let json: Json = serde_json::from_str(text).map_err(|error| {
            LoadError::malformed(path, format!("is not an index: {}; fetch it again", short(&error.to_string())))
        })?;
        let mut files: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (tensor, file) in json.weight_map {
            let mut parts = Path::new(&file).components();
            let plain = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
            if !plain || file.contains(['/', '\\', ':']) {
                let reason = format!("lies in file `{}`, expected the name of a file in the same folder", short(&file));
                return Err(LoadError::tensor(tensor, reason).in_file(path));
            }
            files.entry(file).or_default().insert(tensor);
        }
        if files.is_empty() {
            return Err(LoadError::config("weight_map", "names no tensors, expected at least one").in_file(path));
        }
        Ok(Index { path: path.into(), files })
    }

    /// Whether the index names `file`.
    pub(crate) fn names(&self, file: &str) -> bool {
        self.files.contains_key(file)
    }

    /// Opens all files of the index, after looking whether they are all there.
    pub(crate) fn open(&self) -> Result<Vec<File>, LoadError> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let missing: Vec<&String> = self.files.keys().filter(|file| !folder.join(file).is_file()).collect();
        if let Some(first) = missing.first() {
            return Err(LoadError::malformed(
                folder.join(first),
                format!(
                    "this file is missing ({} of {} are); fetch it into the folder",
                    missing.len(),
                    self.files.len()
                ),
            ));
        }
        let mut opened = Vec::with_capacity(self.files.len());
        for (file, expected) in &self.files {
            let file = File::open(&folder.join(file))?;
            let found: HashSet<&str> = file.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
            if let Some(absent) = expected.iter().find(|name| !found.contains(name.as_str())) {
                let reason = format!("is not in this file although {} says so; fetch both again", self.path.display());
                return Err(LoadError::tensor(absent, reason).in_file(&file.path));
            }
            opened.push(file);
        }
        Ok(opened)
    }
}
