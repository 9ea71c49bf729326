//! Hashes of files: the SHA-256 of large ones, and git's blob id (SHA-1 over a header and the bytes) of small ones.

use std::io::{self, Read};

use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::{Digest, Sha256};

const BUFFER_BYTES: usize = 1 << 20;

/// What makes a file the right one, in lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Hash {
    /// Of the bytes.
    Sha256(String),
    /// Of `blob SIZE\0` and the bytes, as git has it.
    GitBlob(String),
}

impl Hash {
    /// A hash from outside, if it is one.
    pub(crate) fn sha256(text: &str) -> Option<Hash> {
        is_hex(text, 64).then(|| Hash::Sha256(text.to_owned()))
    }

    /// A hash from outside, if it is one.
    pub(crate) fn git_blob(text: &str) -> Option<Hash> {
        is_hex(text, 40).then(|| Hash::GitBlob(text.to_owned()))
    }

    /// Its digits.
    pub(crate) fn digits(&self) -> &str {
        match self {
            Hash::Sha256(digits) | Hash::GitBlob(digits) => digits,
        }
    }

    /// Its kind, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Hash::Sha256(_) => "sha256",
            Hash::GitBlob(_) => "git blob id",
        }
    }

    /// The same kind of hash of `bytes` that are read to their end. `seen` gets the count after each step and may stop it.
    pub(crate) fn of<E: From<io::Error>>(
        &self,
        size_bytes: u64,
        mut bytes: impl Read,
        mut seen: impl FnMut(u64) -> Result<(), E>,
    ) -> Result<String, E> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut done = 0;
        let mut each = |digest: &mut dyn FnMut(&[u8])| -> Result<(), E> {
            loop {
                seen(done)?;
                match bytes.read(&mut buffer)? {
                    0 => return Ok(()),
                    read => {
                        digest(&buffer[..read]);
                        done += read as u64;
                    }
                }
            }
        };
        match self {
            Hash::Sha256(_) => {
                let mut hash = Sha256::new();
                each(&mut |bytes| hash.update(bytes))?;
                Ok(hex(&hash.finalize()))
            }
            Hash::GitBlob(_) => {
                let mut hash = Sha1::new();
                hash.update(format!("blob {size_bytes}\0"));
                each(&mut |bytes| hash.update(bytes))?;
                Ok(hex(&hash.finalize()))
            }
        }
    }
}

/// Whether a text is `digits` lower-case hexadecimal digits.
pub(crate) fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hashes() {
        let of = |hash: Hash| hash.of::<io::Error>(6, &b"hello\n"[..], |_| Ok(())).unwrap();
        assert_eq!(of(Hash::Sha256(String::new())), "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
        // `printf 'hello\n' | git hash-object --stdin`
        assert_eq!(of(Hash::GitBlob(String::new())), "ce013625030ba8dba906f756967f9e9ca394464a");
    }

    #[test]
    fn only_digits_of_the_right_length_are_hashes() {
        assert!(Hash::sha256(&"a1".repeat(32)).is_some() && Hash::git_blob(&"0f".repeat(20)).is_some());
        for text in ["", "a", &"A1".repeat(32), &"a1".repeat(20), &"g1".repeat(32), &"é1".repeat(32)] {
            assert_eq!(Hash::sha256(text), None, "{text}");
        }
    }
}
