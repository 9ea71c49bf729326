//! How a call is written: what a model is held to when it must call a tool, in the words of its template.

/// The parts of a call, in order: `before_name`, the name, `after_name`, the arguments, `after_arguments`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// What every call begins with.
    pub before_name: &'static str,
    /// Between name and arguments.
    pub after_name: &'static str,
    /// How the arguments are written, and whether the name is the inside of a JSON string.
    pub arguments: Arguments,
    /// What every call ends with.
    pub after_arguments: &'static str,
    /// What tells in the middle of text that a call begins: a beginning of `before_name`, or of a call without its wrapper.
    /// Empty if calls begin answers only.
    pub triggers: &'static [&'static str],
    /// Between two calls of one answer; `None` if there is only one.
    pub between: Option<&'static str>,
}

/// How arguments are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// As one JSON object.
    Json,
    /// Each between tags: text as it is, other values as JSON.
    Tagged {
        /// Before the name of a parameter.
        before_name: &'static str,
        /// Between the name and the value.
        after_name: &'static str,
        /// After the value.
        after_value: &'static str,
    },
}
