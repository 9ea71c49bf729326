//! Everything that can go wrong in this crate, as values whose text a person can act on.

/// An error of a tokenizer, a chat template or a stop list.
///
/// Messages are lower case without a full stop and name the thing, what was found and what was expected. Text from
/// files is quoted in shortened form, so a hostile file cannot make a message long.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The tokenizer model (`tokenizer.ggml.model` or `model.type`) is of a kind that is not implemented.
    #[error("tokenizer model `{found}` is not supported; supported: {supported}")]
    UnsupportedModel {
        /// The name in the file.
        found: String,
        /// The names that work.
        supported: &'static str,
    },
    /// The pre-tokenizer named by `tokenizer.ggml.pre` is not in the table.
    #[error("pre-tokenizer `{found}` is not supported; supported: {supported}")]
    UnsupportedPreTokenizer {
        /// The name in the file.
        found: String,
        /// The names that work.
        supported: String,
    },
    /// A part of `tokenizer.json` that is not implemented.
    #[error("tokenizer.json: {what} is not supported")]
    Unsupported {
        /// The part and its value.
        what: String,
    },
    /// Tokenizer data that contradicts itself or is out of range.
    #[error("tokenizer data: {what}")]
    Vocabulary {
        /// What is wrong, with the index, id or token.
        what: String,
    },
    /// A JSON file that does not parse or does not have the expected shape.
    #[error("{file}: {}", one_line(&source.to_string()))]
    Json {
        /// The file's usual name.
        file: &'static str,
        /// The parser's complaint with line and column.
        source: serde_json::Error,
    },
    /// A text that cannot be encoded with this vocabulary.
    #[error("cannot encode the text: {what}")]
    Encode {
        /// What is wrong, with the place.
        what: String,
    },
    /// A chat template that does not compile. Found when the template is loaded, not at the first request.
    #[error("chat template does not compile: line {line}: {}", one_line(reason))]
    TemplateSyntax {
        /// Line in the template, from 1; 0 when unknown.
        line: usize,
        /// The compiler's complaint.
        reason: String,
    },
    /// A chat template that failed on these messages.
    #[error("chat template failed at line {line}: {}", one_line(reason))]
    TemplateRender {
        /// Line in the template, from 1; 0 when unknown.
        line: usize,
        /// What failed.
        reason: String,
    },
    /// The template itself refused the messages (its `raise_exception`).
    #[error("the model's chat template refuses these messages: {}", one_line(reason))]
    TemplateRefused {
        /// The template's own words.
        reason: String,
    },
    /// The template ran past its limits on steps, memory or output.
    #[error("chat template exceeded its {what} limit")]
    TemplateLimit {
        /// Which limit.
        what: &'static str,
    },
    /// A chat message that cannot be given to a template.
    #[error("message {index}: {what}")]
    Message {
        /// Index of the message, from 0.
        index: usize,
        /// What is wrong.
        what: String,
    },
    /// A stop string of zero length would stop every reply at once.
    #[error("stop string {index} is empty; leave it out or give it at least one character")]
    EmptyStop {
        /// Index in the list, from 0.
        index: usize,
    },
}

impl TextError {
    pub(crate) fn vocabulary(what: impl Into<String>) -> Self {
        Self::Vocabulary { what: what.into() }
    }

    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into() }
    }

    pub(crate) fn encode(what: impl Into<String>) -> Self {
        Self::Encode { what: what.into() }
    }
}

/// Words that a file or a library chose, as part of a message: on one line, at most 300 characters.
fn one_line(text: &str) -> String {
    const MAX: usize = 300;
    let mut out: String = text.chars().take(MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MAX).is_some() {
        out.push('…');
    }
    out
}

/// A piece of outside text for a message: control characters escaped, at most 60 characters.
pub(crate) fn shown(text: &str) -> String {
    const MAX: usize = 60;
    let mut out: String = text.chars().take(MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX).is_some() {
        out.push('…');
    }
    out
}
