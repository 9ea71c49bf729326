//! Why a reply cannot be held to a grammar.

/// Why a grammar or a vocabulary is refused, or a reply has left its grammar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// A JSON schema that cannot be enforced.
    #[error("JSON schema: `{keyword}` at `#{place}`: {reason}")]
    Schema {
        /// JSON pointer to the schema that has the keyword.
        place: String,
        /// The keyword.
        keyword: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A regular expression that does not parse.
    #[error("regular expression `{expression}`: {reason}")]
    Regex {
        /// The expression, shortened.
        expression: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The grammar as a whole does not compile: it contradicts itself, or is larger than the limits.
    #[error("grammar: {reason}")]
    Grammar {
        /// What the compiler said.
        reason: String,
    },
    /// The vocabulary is larger than masks can be made for.
    #[error("vocabulary: {reason}")]
    Vocabulary {
        /// Which limit it passes.
        reason: String,
    },
    /// A reply cannot be followed any further.
    #[error("the reply cannot follow its grammar: {reason}")]
    Reply {
        /// Why.
        reason: String,
    },
}

/// The first line of what `llguidance` said: what follows are dumps of its state.
pub(crate) fn first_line(error: &impl ToString) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    shown(line, 300)
}

/// At most so many characters of a text from outside.
pub(crate) fn shown(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
