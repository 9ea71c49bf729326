//! A cursor over untrusted bytes: every read is checked, nothing is allocated before the bytes are known to be there.

use bytes::Bytes;

/// Why a header could not be read. The file's path is added by the caller.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The header announces at least `expected` bytes (counted from the start of the file), more than there are.
    Truncated { expected: u64, what: String },
    /// The header contradicts itself or the format.
    Malformed(String),
    /// A valid header of a kind that is not read.
    Unsupported(String),
}

impl Fault {
    pub(super) fn malformed<T>(reason: impl Into<String>) -> Result<T, Fault> {
        Err(Fault::Malformed(reason.into()))
    }
}

/// Position in a file that begins at byte 0 of `data`.
pub(super) struct Reader<'a> {
    data: &'a Bytes,
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(data: &'a Bytes) -> Self {
        Reader { data, at: 0 }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn remaining(&self) -> usize {
        self.data.len() - self.at
    }

    /// Fails unless `count` items of at least `item_bytes` bytes each can still follow.
    pub(super) fn expect(&self, count: u64, item_bytes: usize, what: impl Fn() -> String) -> Result<usize, Fault> {
        let bytes = count.saturating_mul(item_bytes as u64);
        if bytes > self.remaining() as u64 {
            return Err(Fault::Truncated { expected: bytes.saturating_add(self.at as u64), what: what() });
        }
        // At most the size of the file, which is mapped, so it fits.
        Ok(bytes as usize)
    }

    /// The next `count` bytes.
    #[inline]
    pub(super) fn take(&mut self, count: u64, what: impl Fn() -> String) -> Result<&'a [u8], Fault> {
        let bytes = self.expect(count, 1, what)?;
        let taken = &self.data[self.at..][..bytes];
        self.at += bytes;
        Ok(taken)
    }

    /// The next `count` bytes as a view that keeps the file mapped.
    pub(super) fn take_shared(&mut self, count: u64, what: impl Fn() -> String) -> Result<Bytes, Fault> {
        let bytes = self.expect(count, 1, what)?;
        let taken = self.data.slice(self.at..self.at + bytes);
        self.at += bytes;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Fault> {
        let bytes = self.take(N as u64, || what.to_string())?;
        Ok(bytes.try_into().expect("take returns as many bytes as asked for"))
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, Fault> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, Fault> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A length in bytes (u64) and as many bytes.
    #[inline]
    pub(super) fn bytes(&mut self, what: impl Fn() -> String) -> Result<&'a [u8], Fault> {
        let length = self.take(8, &what)?;
        let length = u64::from_le_bytes(length.try_into().expect("take returns as many bytes as asked for"));
        self.take(length, what)
    }

    /// A string: its length in bytes (u64), then UTF-8.
    pub(super) fn string(&mut self, what: impl Fn() -> String) -> Result<&'a str, Fault> {
        let bytes = self.bytes(&what)?;
        std::str::from_utf8(bytes).map_err(|_| Fault::Malformed(format!("{} is not UTF-8", what())))
    }
}
