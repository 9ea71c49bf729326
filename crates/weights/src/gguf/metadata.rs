//! Metadata of a GGUF file: typed key-value pairs.
//!
//! All strings must be UTF-8, those in arrays (tokens, merges) too: a token read as something else would silently get
//! other text. Byte tokens are spelled in ASCII (`<0x0A>`) or through the byte-level alphabet, so valid files never
//! need anything else.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use std::collections::BTreeMap;

use super::reader::{Fault, Reader};
use crate::LoadError;
use crate::error::short;

/// Longest key, from the file format's description.
const MAX_KEY_BYTES: u64 = 65535;
/// Keys in one file. Real files have 20 to 60.
const MAX_KEYS: u64 = 1 << 16;
/// Arrays inside arrays: depth of nesting, and inner arrays of one file together.
const MAX_DEPTH: usize = 4;
const MAX_INNER_ARRAYS: usize = 1 << 16;

/// The type of a fixed-size metadata value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum Scalar {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    U64,
    I64,
    F64,
}

impl Scalar {
    fn bytes(self) -> usize {
        match self {
            Scalar::U8 | Scalar::I8 | Scalar::Bool => 1,
            Scalar::U16 | Scalar::I16 => 2,
            Scalar::U32 | Scalar::I32 | Scalar::F32 => 4,
            Scalar::U64 | Scalar::I64 | Scalar::F64 => 8,
        }
    }

    /// The value in `bytes`, which has [`bytes`](Self::bytes) bytes.
    fn read(self, bytes: &[u8]) -> Value {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(wide);
        match self {
            Scalar::U8 | Scalar::U16 | Scalar::U32 | Scalar::U64 => Value::Unsigned(bits),
            Scalar::I8 => Value::Signed(i64::from(bits as i8)),
            Scalar::I16 => Value::Signed(i64::from(bits as i16)),
            Scalar::I32 => Value::Signed(i64::from(bits as i32)),
            Scalar::I64 => Value::Signed(bits as i64),
            Scalar::F32 => Value::Float(f64::from(f32::from_bits(bits as u32))),
            Scalar::F64 => Value::Float(f64::from_bits(bits)),
            Scalar::Bool => Value::Bool(bits != 0),
        }
    }
}

/// A metadata value. Numbers are widened; arrays keep their type.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// u8, u16, u32 or u64.
    Unsigned(u64),
    /// i8, i16, i32 or i64.
    Signed(i64),
    /// f32 or f64.
    Float(f64),
    /// One byte, 0 or 1.
    Bool(bool),
    /// UTF-8 text.
    String(String),
    /// Values of one type.
    Array(Array),
}

/// An array of metadata values.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// Numbers or bools, as little-endian bytes of the file.
    Scalars(Scalar, Bytes),
    /// Strings.
    Strings(Strings),
    /// Arrays, each with a type of its own.
    Arrays(Vec<Array>),
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::Scalars(scalar, data) => data.len() / scalar.bytes(),
            Array::Strings(strings) => strings.len(),
            Array::Arrays(arrays) => arrays.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers or bools of a scalar array; nothing for the other kinds.
    pub fn scalars(&self) -> impl Iterator<Item = Value> + '_ {
        let (scalar, data) = match self {
            Array::Scalars(scalar, data) => (*scalar, &data[..]),
            Array::Strings(_) | Array::Arrays(_) => (Scalar::U8, &[][..]),
        };
        data.chunks_exact(scalar.bytes()).map(move |bytes| scalar.read(bytes))
    }
}

/// An array of strings, stored as one text: vocabularies have 150 thousand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings {
    text: String,
    ends: Vec<u32>,
}

impl Strings {
    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// String `index`, if there is one.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)? as usize;
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        Some(&self.text[start..end])
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let text = &self.text[start..end as usize];
            start = end as usize;
            text
        })
    }
}

/// The metadata of an opened GGUF model (of its first shard, for a split one).
#[derive(Clone, Debug)]
pub struct Metadata {
    path: Arc<Path>,
    values: BTreeMap<String, Value>,
}

impl Metadata {
    pub(super) fn read(reader: &mut Reader<'_>, count: u64, path: Arc<Path>) -> Result<Self, Fault> {
        if count > MAX_KEYS {
            return Fault::malformed(format!("{count} metadata keys, expected at most {MAX_KEYS}"));
        }
        // Length (8), one character, type (4), one byte of value.
        reader.expect(count, 14, || format!("{count} metadata keys"))?;
        let mut values = BTreeMap::new();
        let mut inner_arrays = 0;
        for index in 0..count {
            let key = read_key(reader, index)?;
            let kind = reader.u32("the type of a metadata value")?;
            let value = read_value(reader, key, kind, &mut inner_arrays)?;
            if values.insert(key.to_string(), value).is_some() {
                return Fault::malformed(format!("metadata key `{}` occurs twice, expected once", short(key)));
            }
        }
        Ok(Metadata { path, values })
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// All keys and values, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// An error about `key` of this file.
    pub fn error(&self, key: &str, reason: impl Into<String>) -> LoadError {
        LoadError::config(key, reason).in_file(&self.path)
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, LoadError> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        match read(value) {
            Some(value) => Ok(Some(value)),
            None => Err(self.error(key, format!("is {}, expected {expected}", describe(value)))),
        }
    }

    /// A string, if the key is present.
    ///
    /// # Errors
    /// As for all accessors here: if the value has another type or does not fit.
    pub fn opt_str(&self, key: &str) -> Result<Option<&str>, LoadError> {
        self.typed(key, "a string", |value| match value {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// A non-negative integer of any width that fits in 32 bits, if the key is present.
    pub fn opt_u32(&self, key: &str) -> Result<Option<u32>, LoadError> {
        self.typed(key, "an integer from 0 to 4294967295", as_u32)
    }

    /// A number, if the key is present. Integers are accepted.
    pub fn opt_f32(&self, key: &str) -> Result<Option<f32>, LoadError> {
        self.typed(key, "a finite number", as_f32)
    }

    /// A bool, if the key is present.
    pub fn opt_bool(&self, key: &str) -> Result<Option<bool>, LoadError> {
        self.typed(key, "a bool", |value| match value {
            Value::Bool(value) => Some(*value),
            _ => None,
        })
    }

    /// An array of strings, if the key is present.
    pub fn opt_strings(&self, key: &str) -> Result<Option<&Strings>, LoadError> {
        self.typed(key, "an array of strings", |value| match value {
            Value::Array(Array::Strings(strings)) => Some(strings),
            _ => None,
        })
    }

    /// An array of integers, if the key is present.
    pub fn opt_u32s(&self, key: &str) -> Result<Option<Vec<u32>>, LoadError> {
        self.typed(key, "an array of integers from 0 to 4294967295", |value| scalars(value, as_u32))
    }

    /// An array of numbers, if the key is present.
    pub fn opt_f32s(&self, key: &str) -> Result<Option<Vec<f32>>, LoadError> {
        self.typed(key, "an array of finite numbers", |value| scalars(value, as_f32))
    }

    /// An array of bools, if the key is present.
    pub fn opt_bools(&self, key: &str) -> Result<Option<Vec<bool>>, LoadError> {
        self.typed(key, "an array of bools", |value| {
            scalars(value, |value| if let Value::Bool(value) = value { Some(*value) } else { None })
        })
    }
}

fn scalars<T>(value: &Value, read: impl Fn(&Value) -> Option<T>) -> Option<Vec<T>> {
    match value {
        Value::Array(array @ Array::Scalars(..)) => array.scalars().map(|value| read(&value)).collect(),
        // An empty array may have any element type.
        Value::Array(array) if array.is_empty() => Some(Vec::new()),
        _ => None,
    }
}

fn as_u32(value: &Value) -> Option<u32> {
    match value {
        Value::Unsigned(value) => u32::try_from(*value).ok(),
        Value::Signed(value) => u32::try_from(*value).ok(),
        _ => None,
    }
}

fn as_f32(value: &Value) -> Option<f32> {
    let value = match value {
        Value::Float(value) => *value as f32,
        Value::Unsigned(value) => *value as f32,
        Value::Signed(value) => *value as f32,
        _ => return None,
    };
    value.is_finite().then_some(value)
}

/// A value as an error message shows it.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Unsigned(value) => value.to_string(),
        Value::Signed(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::String(text) => format!("\"{}\"", short(text)),
        Value::Array(array) => match array {
            Array::Scalars(scalar, _) => format!("an array of {} {scalar:?}", array.len()),
            Array::Strings(_) => format!("an array of {} strings", array.len()),
            Array::Arrays(_) => format!("an array of {} arrays", array.len()),
        },
    }
}

fn read_key<'a>(reader: &mut Reader<'a>, index: u64) -> Result<&'a str, Fault> {
    let length = reader.u64("the length of a metadata key")?;
    if length == 0 || length > MAX_KEY_BYTES {
        return Fault::malformed(format!(
            "metadata key {index} has a length of {length} bytes, expected 1 to {MAX_KEY_BYTES}"
        ));
    }
    let bytes = reader.take(length, || format!("metadata key {index}"))?;
    std::str::from_utf8(bytes).map_err(|_| Fault::Malformed(format!("metadata key {index} is not UTF-8")))
}

const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// The type ids of the file format; strings and arrays are not scalars.
fn scalar(kind: u32) -> Option<Scalar> {
    Some(match kind {
        0 => Scalar::U8,
        1 => Scalar::I8,
        2 => Scalar::U16,
        3 => Scalar::I16,
        4 => Scalar::U32,
        5 => Scalar::I32,
        6 => Scalar::F32,
        7 => Scalar::Bool,
        10 => Scalar::U64,
        11 => Scalar::I64,
        12 => Scalar::F64,
        _ => return None,
    })
}

fn read_value(reader: &mut Reader<'_>, key: &str, kind: u32, inner_arrays: &mut usize) -> Result<Value, Fault> {
    let what = || format!("the value of metadata key `{}`", short(key));
    if let Some(scalar) = scalar(kind) {
        let bytes = reader.take(scalar.bytes() as u64, what)?;
        check_bools(scalar, bytes, key)?;
        return Ok(scalar.read(bytes));
    }
    match kind {
        STRING => Ok(Value::String(reader.string(what)?.to_string())),
        ARRAY => Ok(Value::Array(read_array(reader, key, 0, inner_arrays)?)),
        _ => unknown_type(key, kind),
    }
}

fn read_array(reader: &mut Reader<'_>, key: &str, depth: usize, inner_arrays: &mut usize) -> Result<Array, Fault> {
    let what = || format!("the array of metadata key `{}`", short(key));
    let kind = reader.u32("the type of an array")?;
    let count = reader.u64("the length of an array")?;
    if let Some(scalar) = scalar(kind) {
        let bytes = reader.expect(count, scalar.bytes(), what)?;
        let data = reader.take_shared(bytes as u64, what)?;
        check_bools(scalar, &data, key)?;
        return Ok(Array::Scalars(scalar, data));
    }
    match kind {
        STRING => read_strings(reader, key, count).map(Array::Strings),
        ARRAY => {
            if depth == MAX_DEPTH {
                return Fault::malformed(format!(
                    "metadata key `{}` nests arrays deeper than {MAX_DEPTH} levels",
                    short(key)
                ));
            }
            // Type (4) and length (8) of each inner array.
            reader.expect(count, 12, what)?;
            if count > (MAX_INNER_ARRAYS - *inner_arrays) as u64 {
                return Fault::malformed(format!(
                    "metadata key `{}` holds {count} arrays, expected at most {MAX_INNER_ARRAYS} in a file",
                    short(key)
                ));
            }
            *inner_arrays += count as usize;
            let arrays = (0..count).map(|_| read_array(reader, key, depth + 1, inner_arrays));
            arrays.collect::<Result<_, _>>().map(Array::Arrays)
        }
        _ => unknown_type(key, kind),
    }
}

fn read_strings(reader: &mut Reader<'_>, key: &str, count: u64) -> Result<Strings, Fault> {
    let what = || format!("the strings of metadata key `{}`", short(key));
    reader.expect(count, 8, what)?;
    let mut text = Vec::new();
    let mut ends = Vec::with_capacity(count as usize);
    for _ in 0..count {
        text.extend_from_slice(reader.bytes(what)?);
        let Ok(end) = u32::try_from(text.len()) else {
            return Fault::malformed(format!("metadata key `{}` has strings of over 4 GiB together", short(key)));
        };
        ends.push(end);
    }
    // Checked in one go, which is several times faster than string by string; then no string may end inside a character.
    let damaged = |at: usize| {
        let index = ends.partition_point(|&end| end as usize <= at);
        Fault::Malformed(format!("string {index} of metadata key `{}` is not UTF-8", short(key)))
    };
    let text = String::from_utf8(text).map_err(|error| damaged(error.utf8_error().valid_up_to()))?;
    match ends.iter().find(|&&end| !text.is_char_boundary(end as usize)) {
        Some(&end) => Err(damaged(end as usize - 1)),
        None => Ok(Strings { text, ends }),
    }
}

fn check_bools(scalar: Scalar, bytes: &[u8], key: &str) -> Result<(), Fault> {
    match bytes.iter().find(|&&byte| byte > 1) {
        Some(byte) if scalar == Scalar::Bool => {
            Fault::malformed(format!("metadata key `{}` holds a bool of {byte}, expected 0 or 1", short(key)))
        }
        _ => Ok(()),
    }
}

fn unknown_type<T>(key: &str, kind: u32) -> Result<T, Fault> {
    Fault::malformed(format!("metadata key `{}` has type {kind}, expected 0 to 12", short(key)))
}
