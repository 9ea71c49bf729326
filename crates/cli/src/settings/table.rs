//! The table of all settings. `docs/configuration.md` shows it, and a test compares them.

use std::ffi::OsString;

/// Something that can be fixed once.
pub(crate) struct Setting {
    /// Its key in the configuration file: the name of a long option, or else something that `help` explains.
    pub(crate) key: &'static str,
    /// Its environment variable.
    pub(crate) variable: &'static str,
    pub(crate) kind: Kind,
    /// What it sets, where no option of this name says so: for the documentation.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test compares it with the documentation"))]
    pub(crate) help: Option<&'static str>,
    /// Whether its value is never shown.
    pub(crate) is_secret: bool,
}

/// What a setting holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    /// A text that may begin with `~/` in the file, where no shell has replaced it.
    Path,
    /// 0, 1, 2, ...
    Whole,
    Number,
    Switch,
    /// A list in the file; separated by commas in the environment.
    Texts,
}

pub(crate) const SETTINGS: &[Setting] = &[
    option("model", "KAPITSA_MODEL", Kind::Path),
    option("context", "KAPITSA_CONTEXT", Kind::Whole),
    option("threads", "KAPITSA_THREADS", Kind::Whole),
    option("kv", "KAPITSA_KV", Kind::Text),
    option("temperature", "KAPITSA_TEMPERATURE", Kind::Number),
    option("top-p", "KAPITSA_TOP_P", Kind::Number),
    option("top-k", "KAPITSA_TOP_K", Kind::Whole),
    option("min-p", "KAPITSA_MIN_P", Kind::Number),
    option("seed", "KAPITSA_SEED", Kind::Whole),
    option("host", "KAPITSA_HOST", Kind::Text),
    option("port", "KAPITSA_PORT", Kind::Whole),
    Setting { is_secret: true, ..option("api-key", "KAPITSA_API_KEY", Kind::Text) },
    option("slots", "KAPITSA_SLOTS", Kind::Whole),
    option("thinking-budget", "KAPITSA_THINKING_BUDGET", Kind::Whole),
    option("strict-models", "KAPITSA_STRICT_MODELS", Kind::Switch),
    option("path-prefix", "KAPITSA_PATH_PREFIX", Kind::Text),
    option("cors-origin", "KAPITSA_CORS_ORIGIN", Kind::Texts),
    option("allowed-host", "KAPITSA_ALLOWED_HOST", Kind::Texts),
    other("home", "KAPITSA_HOME", Kind::Path, "Folder of models and caches [default: ~/.cache/kapitsa]"),
    other("hf-endpoint", "KAPITSA_HF_ENDPOINT", Kind::Text, "Address of the Hugging Face hub or a mirror of it"),
    Setting {
        is_secret: true,
        ..other("hf-token", "KAPITSA_HF_TOKEN", Kind::Text, "Token for that address, which is sent nowhere else")
    },
];

const fn option(key: &'static str, variable: &'static str, kind: Kind) -> Setting {
    Setting { key, variable, kind, help: None, is_secret: false }
}

const fn other(key: &'static str, variable: &'static str, kind: Kind, help: &'static str) -> Setting {
    Setting { key, variable, kind, help: Some(help), is_secret: false }
}

impl Setting {
    /// The option of this name, if the command has one that may be left out.
    pub(crate) fn option<'a>(&self, command: &'a clap::Command) -> Option<&'a clap::Arg> {
        command.get_arguments().find(|arg| arg.get_long() == Some(self.key) && !arg.is_required_set())
    }
}

impl Kind {
    /// In words, for messages and the documentation.
    pub(crate) fn expected(self) -> &'static str {
        match self {
            Kind::Text => "a text",
            Kind::Path => "a text",
            Kind::Whole => "a whole number",
            Kind::Number => "a number",
            Kind::Switch => "true or false",
            Kind::Texts => "a list of texts",
        }
    }

    /// The values that a variable gives, or what it was found to be.
    pub(crate) fn of_variable(self, text: OsString) -> Result<Vec<OsString>, String> {
        match self {
            Kind::Text | Kind::Path | Kind::Whole | Kind::Number => Ok(vec![text]),
            Kind::Switch => match text.to_str() {
                Some("true" | "1") => Ok(vec!["true".into()]),
                Some("false" | "0") => Ok(vec!["false".into()]),
                _ => Err(format!("`{}`", text.display())),
            },
            Kind::Texts => {
                let texts = text.to_str().ok_or("not UTF-8")?.split(',').map(str::trim);
                Ok(texts.filter(|text| !text.is_empty()).map(OsString::from).collect())
            }
        }
    }
}
