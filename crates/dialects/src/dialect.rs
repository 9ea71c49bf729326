//! The dialects that are known. A new one is a file and a row in each match here.

use crate::answer::{Opening, Place};
use crate::form::Form;
use crate::look::{Cursor, Look};
use crate::{glm, hermes, nemotron, plain, qwen};

/// How a model writes tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `<tool_call>\n{"name": N, "arguments": {...}}\n</tool_call>`: Qwen 2.5 and 3, Hermes.
    HermesJson,
    /// `<tool_call><function=N><parameter=P>value</parameter></function></tool_call>`: Qwen3-Coder, Qwen 3.5, Nemotron 3.
    /// Takes `<function=N>{...}</function>` and [`Dialect::HermesJson`] as well.
    QwenXml,
    /// `<TOOLCALL>[{"name": N, "arguments": {...}}, ...]</TOOLCALL>`: Nemotron Nano 2.
    NemotronJson,
    /// `<tool_call>N\n<arg_key>K</arg_key>\n<arg_value>V</arg_value></tool_call>`: GLM 4.5 to 4.7.
    Glm,
    /// The answer is `{"name": N, "parameters": {...}}`, or a list of such, maybe in a code fence: Llama 3.
    PlainJson,
}

/// What models write around thinking and calls, and have tokens for.
pub const MARKUP: &[&str] = &[
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<TOOLCALL>",
    "</TOOLCALL>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
];

impl Dialect {
    /// The dialect of a chat template, from what it tells the model or writes itself. The first that holds:
    ///
    /// | the template contains | dialect |
    /// | --- | --- |
    /// | `<arg_key>` | `Glm` |
    /// | `<function=` | `QwenXml` |
    /// | `<tool_call>` | `HermesJson` |
    /// | `<TOOLCALL>` | `NemotronJson` |
    /// | the word `tools` | `PlainJson` |
    ///
    /// A template with none of these knows no tools.
    pub fn detect(template: &str) -> Option<Self> {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        match () {
            () if template.contains("<arg_key>") => Some(Self::Glm),
            () if template.contains("<function=") => Some(Self::QwenXml),
            () if template.contains("<tool_call>") => Some(Self::HermesJson),
            () if template.contains("<TOOLCALL>") => Some(Self::NemotronJson),
            () if template.split(|c| !is_word(c)).any(|word| word == "tools") => Some(Self::PlainJson),
            () => None,
        }
    }

    /// How it writes a call.
    pub fn form(self) -> &'static Form {
        match self {
            Self::HermesJson => &hermes::FORM,
            Self::NemotronJson => &nemotron::FORM,
            Self::QwenXml => &qwen::FORM,
            Self::Glm => &glm::FORM,
            Self::PlainJson => &plain::FORM,
        }
    }

    /// Reads what a call begins with.
    pub(crate) fn open(self, at: &mut Cursor<'_>, place: Place) -> Look<Opening> {
        match self {
            Self::HermesJson => hermes::open(at, place),
            Self::NemotronJson => nemotron::open(at, place),
            Self::QwenXml => qwen::open(at, place),
            Self::Glm => glm::open(at),
            Self::PlainJson => plain::open(at, place),
        }
    }

    /// What may stand after a call without being text.
    pub(crate) fn strays(self) -> &'static [&'static str] {
        match self {
            Self::PlainJson => &["}", "]", "```"],
            Self::NemotronJson => &["}", "]"],
            _ => &["}"],
        }
    }

    /// What may be around calls ends with it.
    pub(crate) fn closer(self) -> &'static str {
        match self {
            Self::NemotronJson => "</TOOLCALL>",
            _ => "</tool_call>",
        }
    }
}
