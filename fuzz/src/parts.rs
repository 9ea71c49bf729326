//! Several files in one input: all but the last with their length (u32, little-endian) before them.

/// Joins files.
pub fn join(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut joined = vec![];
    for (index, part) in parts.iter().enumerate() {
        if index + 1 < parts.len() {
            joined.extend((part.len() as u32).to_le_bytes());
        }
        joined.extend(part);
    }
    joined
}

/// Splits an input into `N` files. A length that is too large ends at the end of the input.
pub fn split<const N: usize>(mut data: &[u8]) -> [&[u8]; N] {
    let mut parts = [&[][..]; N];
    for (index, part) in parts.iter_mut().enumerate() {
        if index + 1 == N {
            *part = data;
        } else if let Some((length, rest)) = data.split_first_chunk::<4>() {
            let length = (u32::from_le_bytes(*length) as usize).min(rest.len());
            (*part, data) = rest.split_at(length);
        }
    }
    parts
}
