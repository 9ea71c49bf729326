//! What the type ids of GGUF tensors mean, and how many bytes a tensor has.

use kapitsa_tensor::Format;
use kapitsa_tensor::format::GgufType;

/// How a GGUF tensor is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TensorType {
    /// A weight format.
    Weight(Format),
    /// Numbers that no weight is made of.
    Number(&'static str, usize),
    /// An id that is not known: the size of the tensor is not, either.
    Unknown(u32),
}

/// Ids, names and sizes in bytes of plain numbers.
const NUMBERS: &[(u32, &str, usize)] = &[(24, "I8", 1), (25, "I16", 2), (26, "I32", 4), (27, "I64", 8), (28, "F64", 8)];

impl TensorType {
    pub(crate) fn from_id(id: u32) -> Self {
        if let Some(format) = Format::from_gguf_id(id) {
            return TensorType::Weight(format);
        }
        match NUMBERS.iter().find(|number| number.0 == id) {
            Some(&(_, name, bytes)) => TensorType::Number(name, bytes),
            None => TensorType::Unknown(id),
        }
    }

    /// The other meaning of an id that has two.
    pub(crate) fn alternative(self) -> Option<Self> {
        (self == TensorType::Weight(GgufType::Q2_0.into())).then(|| TensorType::Weight(GgufType::Q2_0Group128.into()))
    }

    /// Bytes of a tensor with `shape` (outermost dimension first, no dimension 0); 0 if unknown.
    ///
    /// # Errors
    /// Says why no tensor can have this shape.
    pub(crate) fn bytes(self, shape: &[usize]) -> Result<usize, String> {
        let (cols, outer) = shape.split_last().ok_or("has no dimensions, expected at least one")?;
        let too_large = || format!("shape {shape:?} is larger than the address space");
        let rows = outer.iter().try_fold(1usize, |rows, &dim| rows.checked_mul(dim)).ok_or_else(too_large)?;
        match self {
            TensorType::Weight(format) => Ok(format.planes(rows, *cols)?.iter().sum()),
            TensorType::Number(_, bytes) => {
                rows.checked_mul(*cols).and_then(|values| values.checked_mul(bytes)).ok_or_else(too_large)
            }
            TensorType::Unknown(_) => Ok(0),
        }
    }
}

impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TensorType::Weight(format) => format.fmt(f),
            TensorType::Number(name, _) => f.write_str(name),
            TensorType::Unknown(id) => write!(f, "unknown GGUF type {id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let q4_k = TensorType::from_id(12);
        assert_eq!(q4_k.bytes(&[3, 512]), Ok(3 * 2 * 144));
        assert!(q4_k.bytes(&[3, 500]).is_err());
        assert!(q4_k.bytes(&[usize::MAX, 256]).is_err());
        assert!(q4_k.bytes(&[]).is_err());
        assert_eq!(TensorType::from_id(27).bytes(&[5]), Ok(40));
        assert!(TensorType::from_id(27).bytes(&[usize::MAX]).is_err());
        assert_eq!(TensorType::from_id(4), TensorType::Unknown(4));
        assert!(TensorType::from_id(42).alternative().is_some() && q4_k.alternative().is_none());
    }
}
