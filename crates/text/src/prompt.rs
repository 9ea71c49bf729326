//! A text for the model, with marks on what must not be read as control tokens.

use std::ops::Range;

/// A rendered prompt.
///
/// `From<&str>` and `From<String>` make one in which all control tokens count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The text.
    pub text: String,
    /// Byte ranges of `text`, ascending and apart, that spell control tokens but came from a message or a tool: these
    /// are encoded as text.
    pub plain: Vec<Range<usize>>,
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Self { text, plain: Vec::new() }
    }
}

impl std::fmt::Display for Prompt {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.text)
    }
}
