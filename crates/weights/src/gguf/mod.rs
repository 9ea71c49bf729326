//! GGUF files: header, metadata and tensor table of versions 2 and 3, little-endian.
//!
//! ```text
//! magic "GGUF" · version u32 · tensor count u64 · key count u64
//! keys:    length u64, UTF-8 · type u32 · value            (metadata.rs)
//! tensors: length u64, UTF-8 · dimensions u32 · sizes u64... · type u32 · offset u64
//! padding to `general.alignment` · tensor data; offsets count from here
//! ```
//! Sizes are stored innermost first; `Tensor::shape` has the usual order, outermost first.

pub(crate) mod config;
pub(crate) mod metadata;
pub(crate) mod names;
mod reader;
pub(crate) mod split;
pub(crate) mod types;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::LoadError;
use crate::error::short;
use crate::map::Map;
pub use metadata::{Array, Metadata, Scalar, Strings, Value};
use reader::{Fault, Reader};
use types::TensorType;

const MAGIC: &[u8; 4] = b"GGUF";
/// Dimensions of a tensor. The file format's own limit.
const MAX_DIMENSIONS: u32 = 4;
/// Bytes of a tensor's name. Real names have under 64.
const MAX_NAME_BYTES: u64 = 1024;
const DEFAULT_ALIGNMENT: u32 = 32;
/// Larger alignments are damage: 2^16 is already 16 pages.
const MAX_ALIGNMENT: u32 = 1 << 16;

/// A tensor of a GGUF file.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    /// Outermost dimension first.
    pub(crate) shape: Vec<usize>,
    pub(crate) kind: TensorType,
    /// Empty if the type is unknown.
    pub(crate) data: Bytes,
}

/// One opened file.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: Arc<Path>,
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) map: Map,
}

impl File {
    /// Maps `path` and checks its header: after this every tensor of a known type lies inside the file.
    pub(crate) fn open(path: &Path) -> Result<Self, LoadError> {
        let map = Map::open(path)?;
        let (data, bytes) = (map.bytes(), map.len());
        let path: Arc<Path> = path.into();
        let (metadata, tensors) = read(&data, path.clone()).map_err(|fault| match fault {
            Fault::Truncated { expected, what } => {
                LoadError::Truncated { path: path.to_path_buf(), found: bytes, expected, what }
            }
            Fault::Malformed(reason) => LoadError::malformed(&*path, reason),
            Fault::Unsupported(reason) => LoadError::unsupported(&*path, reason),
        })?;
        Ok(File { path, metadata, tensors, map })
    }
}

fn read(data: &Bytes, path: Arc<Path>) -> Result<(Metadata, Vec<Tensor>), Fault> {
    let mut reader = Reader::new(data);
    let magic = reader.array::<4>("the magic number")?;
    if &magic != MAGIC {
        return Fault::malformed(format!(
            "begins with \"{}\", expected \"GGUF\"; this is not a GGUF file",
            magic.escape_ascii()
        ));
    }
    check_version(reader.u32("the version")?)?;
    let num_tensors = reader.u64("the number of tensors")?;
    let num_keys = reader.u64("the number of metadata keys")?;
    let metadata = Metadata::read(&mut reader, num_keys, path)?;
    let alignment = alignment(&metadata)?;

    // Name length (8), one character, dimension count (4), one size (8), type (4), offset (8).
    reader.expect(num_tensors, 33, || format!("{num_tensors} tensors"))?;
    let mut entries = Vec::new();
    let mut names = HashSet::new();
    for index in 0..num_tensors {
        let entry = Entry::read(&mut reader, index, alignment)?;
        if !names.insert(entry.name) {
            return Fault::malformed(format!("tensor `{}` occurs twice, expected once", short(entry.name)));
        }
        entries.push(entry);
    }
    let tensors = place(entries, data, reader.position(), alignment)?;
    Ok((metadata, tensors))
}

fn check_version(version: u32) -> Result<(), Fault> {
    match version {
        2 | 3 => Ok(()),
        1 => Err(Fault::Unsupported("GGUF version 1, expected 2 or 3; convert the model again".into())),
        _ if matches!(version.swap_bytes(), 1..=3) => Err(Fault::Unsupported(
            "big-endian GGUF, expected little-endian; convert the model for this machine".into(),
        )),
        _ => Err(Fault::Unsupported(format!("GGUF version {version}, expected 2 or 3"))),
    }
}

fn alignment(metadata: &Metadata) -> Result<u64, Fault> {
    let key = "general.alignment";
    let found = match metadata.get(key) {
        None => return Ok(u64::from(DEFAULT_ALIGNMENT)),
        Some(Value::Unsigned(found)) => *found,
        Some(other) => {
            return Fault::malformed(format!("metadata key `{key}` is {}, expected a u32", metadata::describe(other)));
        }
    };
    if !found.is_power_of_two() || found > u64::from(MAX_ALIGNMENT) {
        return Fault::malformed(format!(
            "metadata key `{key}` is {found}, expected a power of two up to {MAX_ALIGNMENT}"
        ));
    }
    Ok(found)
}

/// A line of the tensor table.
struct Entry<'a> {
    name: &'a str,
    shape: Vec<usize>,
    kind: TensorType,
    offset: u64,
}

impl<'a> Entry<'a> {
    fn read(reader: &mut Reader<'a>, index: u64, alignment: u64) -> Result<Self, Fault> {
        let length = reader.u64("the length of a tensor's name")?;
        if length == 0 || length > MAX_NAME_BYTES {
            return Fault::malformed(format!(
                "the name of tensor {index} has {length} bytes, expected 1 to {MAX_NAME_BYTES}"
            ));
        }
        let name = reader.take(length, || format!("the name of tensor {index}"))?;
        let name = std::str::from_utf8(name)
            .map_err(|_| Fault::Malformed(format!("the name of tensor {index} is not UTF-8")))?;
        let fail = |reason: String| Fault::malformed(format!("tensor `{}` {reason}", short(name)));

        let num_dimensions = reader.u32("a tensor's dimensions")?;
        if num_dimensions == 0 || num_dimensions > MAX_DIMENSIONS {
            return fail(format!("has {num_dimensions} dimensions, expected 1 to {MAX_DIMENSIONS}"));
        }
        let mut shape = Vec::with_capacity(num_dimensions as usize);
        for _ in 0..num_dimensions {
            let size = reader.u64("a tensor's shape")?;
            match usize::try_from(size) {
                Ok(size) if size > 0 => shape.push(size),
                _ => return fail(format!("has a dimension of size {size}, expected at least 1")),
            }
        }
        shape.reverse();
        if shape.iter().try_fold(1, |product: usize, &size| product.checked_mul(size)).is_none() {
            return fail(format!("has shape {shape:?}, more values than can be addressed"));
        }
        let kind = TensorType::from_id(reader.u32("a tensor's type")?);
        let offset = reader.u64("a tensor's offset")?;
        if !offset.is_multiple_of(alignment) {
            return fail(format!("begins at offset {offset}, expected a multiple of the alignment {alignment}"));
        }
        Ok(Entry { name, shape, kind, offset })
    }
}

/// Finds the bytes of each tensor; `header` is the size of everything before the data's padding.
fn place(entries: Vec<Entry<'_>>, data: &Bytes, header: usize, alignment: u64) -> Result<Vec<Tensor>, Fault> {
    let file = data.len() as u64;
    // The header lies in the file, so this cannot overflow.
    let start = (header as u64).next_multiple_of(alignment);
    let other_meaning = prefers_alternative(&entries, file.saturating_sub(start), alignment);

    let mut tensors = Vec::with_capacity(entries.len());
    let mut places = Vec::with_capacity(entries.len());
    // The message tells the size that the whole file should have, so all tensors are looked at.
    let mut needed: Option<(u64, &str)> = None;
    for Entry { name, shape, kind, offset } in entries {
        let kind = kind.alternative().filter(|_| other_meaning).unwrap_or(kind);
        let size = match kind.bytes(&shape) {
            Ok(size) => size as u64,
            Err(reason) => return Fault::malformed(format!("tensor `{}`: {reason}", short(name))),
        };
        let first = start.saturating_add(offset);
        let end = first.saturating_add(size);
        if end > file {
            needed = needed.filter(|&(most, _)| most >= end).or(Some((end, name)));
            continue;
        }
        let data = if size == 0 { Bytes::new() } else { data.slice(first as usize..end as usize) };
        places.push((first, end, tensors.len()));
        tensors.push(Tensor { name: name.to_string(), shape, kind, data });
    }
    if let Some((expected, name)) = needed {
        return Err(Fault::Truncated { expected, what: format!("tensor `{}`", short(name)) });
    }
    check_apart(places, &tensors)?;
    Ok(tensors)
}

/// Tensors that share bytes are damage, and would let a small file fill the memory: vectors are widened and copied.
/// `places` has the first byte, the end and the index of each tensor.
fn check_apart(mut places: Vec<(u64, u64, usize)>, tensors: &[Tensor]) -> Result<(), Fault> {
    places.retain(|&(first, end, _)| first < end);
    places.sort_unstable();
    match places.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        Some(pair) => {
            let [one, other] = [pair[0].2, pair[1].2].map(|index| short(&tensors[index].name));
            Fault::malformed(format!("tensors `{one}` and `{other}` share bytes, expected each to have its own"))
        }
        None => Ok(()),
    }
}

/// Whether the id with two meanings has the second one in this file: tensors follow each other without gaps, so the
/// right sizes fill the file and the wrong ones do not.
fn prefers_alternative(entries: &[Entry<'_>], data_bytes: u64, alignment: u64) -> bool {
    if entries.iter().all(|entry| entry.kind.alternative().is_none()) {
        return false;
    }
    let mut offsets: Vec<u64> = entries.iter().map(|entry| entry.offset).collect();
    offsets.sort_unstable();
    let fills = |entry: &Entry<'_>, kind: TensorType| {
        let next = offsets.get(offsets.partition_point(|&offset| offset <= entry.offset));
        let room = next.copied().unwrap_or(data_bytes).saturating_sub(entry.offset);
        let size = kind.bytes(&entry.shape).map_or(u64::MAX, |size| size as u64);
        size == room || size.checked_next_multiple_of(alignment) == Some(room)
    };
    let mut doubtful = entries.iter().filter_map(|entry| Some((entry, entry.kind.alternative()?)));
    doubtful.clone().any(|(entry, _)| !fills(entry, entry.kind)) && doubtful.all(|(entry, other)| fills(entry, other))
}
