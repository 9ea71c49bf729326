//! The tokens of a model: spelling, meaning in bytes, kind.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable, hash_table::Entry};

use super::strings::Strings;
use crate::error::{TextError, shown};

/// Ids must lie below this. The largest published vocabularies have 262,144 tokens; the bound keeps a hostile id from
/// reserving memory for billions of holes.
pub(crate) const MAX_TOKENS: usize = 1 << 22;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No token has this id.
    Missing,
    /// A piece of text.
    Normal,
    /// One raw byte (`<0x41>`), for characters without a token of their own. Never written in text.
    Byte,
    /// Reserved: may take part in merges, is never produced, decodes to nothing.
    Unused,
    /// Matched whole in text before any merging, and shown when decoded.
    UserDefined,
    /// Steers the model. Hidden when decoded, never produced from plain text.
    Control,
    /// Stands for what has no token. Hidden when decoded, never matched in text.
    Unknown,
}

/// All tokens by id, and ids by spelling.
#[derive(Clone)]
pub(crate) struct Vocabulary {
    spellings: Strings,
    bytes: Strings,
    kinds: Vec<Kind>,
    by_spelling: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Vocabulary {
    pub(crate) fn with_capacity(tokens: usize) -> Self {
        Self {
            spellings: Strings::with_capacity(tokens),
            bytes: Strings::with_capacity(tokens),
            kinds: Vec::with_capacity(tokens),
            by_spelling: HashTable::with_capacity(tokens),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// Adds the token with the next id. `bytes` is what it decodes to. Where two tokens share a spelling the later one
    /// is found by it, as in the reference implementations.
    pub(crate) fn push(&mut self, spelling: &str, bytes: &[u8], kind: Kind) -> Result<(), TextError> {
        let id = self.kinds.len();
        if id >= MAX_TOKENS {
            return Err(TextError::vocabulary(format!("more than {MAX_TOKENS} tokens")));
        }
        self.spellings.push(spelling.as_bytes())?;
        self.bytes.push(bytes)?;
        self.kinds.push(kind);
        if kind != Kind::Missing {
            let (spellings, hasher) = (&self.spellings, &self.hasher);
            let hash_of = |id: &u32| hasher.hash_one(spellings.get(*id as usize).unwrap_or_default());
            let same = |other: &u32| spellings.get(*other as usize) == Some(spelling.as_bytes());
            match self.by_spelling.entry(hasher.hash_one(spelling.as_bytes()), same, hash_of) {
                Entry::Occupied(mut entry) => *entry.get_mut() = id as u32,
                Entry::Vacant(entry) => drop(entry.insert(id as u32)),
            }
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    pub(crate) fn kind(&self, id: u32) -> Kind {
        self.kinds.get(id as usize).copied().unwrap_or(Kind::Missing)
    }

    pub(crate) fn set_kind(&mut self, id: u32, kind: Kind) {
        if let Some(slot) = self.kinds.get_mut(id as usize) {
            *slot = kind;
        }
    }

    /// The spelling in the file; empty for an id without a token.
    pub(crate) fn spelling(&self, id: u32) -> &str {
        let bytes = self.spellings.get(id as usize).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default() // pushed as &str
    }

    /// What the token decodes to; empty for an id without a token.
    pub(crate) fn bytes(&self, id: u32) -> &[u8] {
        self.bytes.get(id as usize).unwrap_or_default()
    }

    /// The id of a spelling, of any kind.
    pub(crate) fn id_of(&self, spelling: &[u8]) -> Option<u32> {
        let same = |id: &u32| self.spellings.get(*id as usize) == Some(spelling);
        self.by_spelling.find(self.hasher.hash_one(spelling), same).copied()
    }

    /// The id of a spelling that plain text may become: not a control, unknown or byte token.
    pub(crate) fn piece(&self, spelling: &[u8]) -> Option<u32> {
        self.id_of(spelling).filter(|&id| matches!(self.kind(id), Kind::Normal | Kind::Unused | Kind::UserDefined))
    }

    /// Checks an id from a file.
    pub(crate) fn check(&self, name: &str, id: u32) -> Result<u32, TextError> {
        if self.kind(id) == Kind::Missing {
            return Err(TextError::vocabulary(format!("{name} is {id}, but there are only {} tokens", self.len())));
        }
        Ok(id)
    }

    /// The id of the token for each raw byte (`<0x00>` to `<0xFF>`).
    pub(crate) fn byte_tokens(&self) -> [Option<u32>; 256] {
        std::array::from_fn(|byte| self.id_of(format!("<0x{byte:02X}>").as_bytes()))
    }

    /// The token in a message: spelling in quotes, shortened.
    pub(crate) fn shown(&self, id: u32) -> String {
        format!("`{}`", shown(self.spelling(id)))
    }
}
