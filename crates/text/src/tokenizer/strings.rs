//! Many short byte strings in one allocation, numbered from 0.

use crate::error::TextError;

/// An append-only list of byte strings. One allocation for all bytes: a vocabulary has 150,000 strings of six bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strings {
    bytes: Vec<u8>,
    /// End of string i; its start is the end of string i - 1.
    ends: Vec<u32>,
}

impl Strings {
    pub(crate) fn with_capacity(strings: usize) -> Self {
        Self { bytes: Vec::with_capacity(strings * 6), ends: Vec::with_capacity(strings) }
    }

    pub(crate) fn push(&mut self, string: &[u8]) -> Result<(), TextError> {
        let end = u32::try_from(self.bytes.len() + string.len())
            .map_err(|_| TextError::vocabulary("the tokens together have more than 4 GiB"))?;
        self.bytes.extend_from_slice(string);
        self.ends.push(end);
        Ok(())
    }

    pub(crate) fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)? as usize;
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        Some(&self.bytes[start..end])
    }
}
