//! The one error of this crate.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use kapitsa_tensor::WeightError;

/// Why a model cannot be loaded.
///
/// The message is always one line that names the file, then the tensor or key, what was found, what was expected and
/// what to do. Names that come from a file are shown without control characters and cut when they are very long.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The operating system refused to open, read or map a file.
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file ends before the data that its header announces.
    Truncated {
        /// The file.
        path: PathBuf,
        /// Size of the file in bytes.
        found: u64,
        /// Smallest size in bytes that the header allows.
        expected: u64,
        /// What reaches past the end.
        what: String,
    },
    /// A file or folder breaks the rules of its container.
    Malformed {
        /// The file or folder.
        path: PathBuf,
        /// What was found and what was expected.
        reason: String,
    },
    /// A valid file of a kind that cannot be loaded.
    Unsupported {
        /// The file or folder.
        path: PathBuf,
        /// What it is and what would work.
        reason: String,
    },
    /// A key of the configuration or metadata is missing or has an impossible value.
    Config {
        /// The file, if known.
        path: Option<PathBuf>,
        /// The key, as the file spells it.
        key: String,
        /// What was found and what was expected.
        reason: String,
    },
    /// A tensor is missing or does not have the expected shape or type.
    Tensor {
        /// The file, if known.
        path: Option<PathBuf>,
        /// The tensor's name, as the file spells it.
        name: String,
        /// What was found and what was expected.
        reason: String,
    },
}

impl LoadError {
    /// An error about configuration key `key`; the file is added by [`in_file`](Self::in_file), or use
    /// [`Config::error`](crate::Config::error), which knows it.
    pub fn config(key: impl Into<String>, reason: impl Into<String>) -> Self {
        LoadError::Config { path: None, key: key.into(), reason: reason.into() }
    }

    /// An error about tensor `name`; the file is added by [`in_file`](Self::in_file).
    pub fn tensor(name: impl Into<String>, reason: impl Into<String>) -> Self {
        LoadError::Tensor { path: None, name: name.into(), reason: reason.into() }
    }

    /// `path` is valid but of a kind that cannot be loaded.
    pub fn unsupported(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        LoadError::Unsupported { path: path.into(), reason: reason.into() }
    }

    /// `path` breaks the rules of its container.
    pub fn malformed(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        LoadError::Malformed { path: path.into(), reason: reason.into() }
    }

    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        LoadError::Read { path: path.into(), source }
    }

    /// Names the file of an error that does not know it yet.
    #[must_use]
    pub fn in_file(mut self, file: &Path) -> Self {
        if let LoadError::Config { path: path @ None, .. } | LoadError::Tensor { path: path @ None, .. } = &mut self {
            *path = Some(file.into());
        }
        self
    }
}

impl From<WeightError> for LoadError {
    fn from(error: WeightError) -> Self {
        LoadError::tensor(error.name, error.reason)
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LoadError::Read { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = match self {
            LoadError::Read { path, source } => format!("cannot read {}: {source}", path.display()),
            LoadError::Truncated { path, found, expected, what } => format!(
                "{}: file has {found} bytes, expected at least {expected} for {what}; it is cut short or damaged, fetch it again",
                path.display()
            ),
            LoadError::Malformed { path, reason } => format!("{}: {reason}", path.display()),
            LoadError::Unsupported { path, reason } => format!("{}: not supported: {reason}", path.display()),
            LoadError::Config { path, key, reason } => format!("{}key `{}`: {reason}", prefix(path), short(key)),
            LoadError::Tensor { path, name, reason } => format!("{}tensor `{}`: {reason}", prefix(path), short(name)),
        };
        if line.contains(char::is_control) {
            f.write_str(&line.replace(char::is_control, "\u{fffd}"))
        } else {
            f.write_str(&line)
        }
    }
}

fn prefix(path: &Option<PathBuf>) -> String {
    path.as_ref().map(|path| format!("{}: ", path.display())).unwrap_or_default()
}

/// A name or value from a file, cut to a length that fits in a message.
pub fn short(name: &str) -> String {
    const LIMIT: usize = 120;
    match name.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_line_and_short() {
        let error = LoadError::tensor("a\nb".repeat(1000), "has shape [2], expected [3]").in_file(Path::new("x.gguf"));
        let text = error.to_string();
        assert!(!text.contains('\n') && text.len() < 500, "{text}");
        assert!(text.starts_with("x.gguf: tensor `a"), "{text}");
    }

    #[test]
    fn the_first_file_named_stays() {
        let error = LoadError::config("k", "is absent").in_file(Path::new("a")).in_file(Path::new("b"));
        assert_eq!(error.to_string(), "a: key `k`: is absent");
    }
}
