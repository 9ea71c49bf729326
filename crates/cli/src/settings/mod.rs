//! Settings: what can be fixed once, in the environment or the configuration file, rather than typed each time.
//!
//! A setting named after a long option becomes the default of that option, in every command that has it. So an option that
//! is given wins over the environment, the environment over the file, and the file over what is built in.

mod file;
mod table;
#[cfg(test)]
mod tests;

use std::error::Error as _;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches};

use crate::args::Args;
use crate::env;
use crate::output::{Failure, note};
use table::{SETTINGS, Setting};

/// What the environment and the configuration file say.
#[derive(Default)]
pub(crate) struct Settings {
    /// The configuration file, if there is one.
    pub(crate) file: Option<PathBuf>,
    /// What is wrong with file and environment, a line each.
    pub(crate) problems: Vec<String>,
    /// What looks like a mistake but does no harm, a line each.
    pub(crate) warnings: Vec<String>,
    values: Vec<Value>,
}

/// A setting that is set.
struct Value {
    setting: &'static Setting,
    /// As an option would have them: one, or several for a list.
    texts: Vec<OsString>,
    /// Where it is set, for messages: `FILE:LINE: KEY`, or the variable.
    place: String,
}

static CURRENT: OnceLock<Settings> = OnceLock::new();

/// The settings of this process, read when they are first asked for.
pub(crate) fn current() -> &'static Settings {
    CURRENT.get_or_init(Settings::read)
}

/// Where models and caches live: the setting `home`, else `~/.cache/kapitsa`.
pub(crate) fn home() -> Result<PathBuf, Failure> {
    let set = current().get("home").map(PathBuf::from);
    set.or_else(|| Some(env::user_folder()?.join(".cache").join("kapitsa")))
        .ok_or_else(|| Failure::Error("there is no home folder to keep models in; set KAPITSA_HOME".into()))
}

/// Where the configuration file is, unless another one is named.
pub(crate) fn usual_file() -> Option<PathBuf> {
    Some(env::config_folder()?.join("kapitsa").join("config.toml"))
}

impl Settings {
    fn read() -> Settings {
        let mut settings = Settings { warnings: unknown_variables(), ..Settings::default() };
        settings.read_file();
        for setting in SETTINGS {
            let Some(text) = env::get(setting.variable) else { continue };
            let place = setting.variable.to_string();
            match setting.kind.of_variable(text) {
                Ok(texts) => settings.add(Value { setting, texts, place }),
                Err(found) => settings.problems.push(wrong(setting, &place, &found, setting.kind.expected())),
            }
        }
        let command = Args::command();
        settings.problems.extend(settings.values.iter().filter_map(|value| value.check(&command).err()));
        settings
    }

    fn read_file(&mut self) {
        let named = env::get(env::CONFIG).map(PathBuf::from);
        let Some(path) = named.clone().or_else(usual_file) else { return };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => {
                let named = if named.is_some() { " that KAPITSA_CONFIG names" } else { "" };
                self.problems
                    .push(format!("{}: the configuration file{named} cannot be read: {error}", path.display()));
                return;
            }
        };
        let (values, problems) = file::parse(&path, &text);
        self.file = Some(path);
        self.problems.extend(problems);
        values.into_iter().for_each(|value| self.add(value));
    }

    /// Adds a value; the later one of a setting counts.
    fn add(&mut self, value: Value) {
        self.values.retain(|other| other.setting.key != value.setting.key);
        self.values.push(value);
    }

    /// The value of a setting that is no list.
    pub(crate) fn get(&self, key: &str) -> Option<&OsString> {
        self.values.iter().find(|value| value.setting.key == key)?.texts.first()
    }

    /// The command line, with the settings as defaults of what was not given. Says what looks like a mistake, and fails for
    /// what is one.
    pub(crate) fn apply(&self) -> Result<Args, Failure> {
        self.warnings.iter().for_each(|warning| note(&format!("warning: {warning}")));
        if let Some(problem) = self.problems.first() {
            return Err(Failure::Error(problem.clone()));
        }
        let mut command = Args::command();
        let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_string()).collect();
        for name in names {
            command = command.mut_subcommand(name, |sub| self.values.iter().fold(sub, |sub, value| value.set(sub)));
        }
        Ok(Args::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit()))
    }
}

impl Value {
    /// Makes this the default of its option, if the command has that.
    fn set(&self, command: clap::Command) -> clap::Command {
        let id = self.setting.option(&command).map(|arg| arg.get_id().clone());
        match id {
            Some(id) => command.mut_arg(id, |arg| arg.default_values(self.texts.clone())),
            None => command,
        }
    }

    /// Fails unless the option takes the value: what an option takes is said only there.
    fn check(&self, command: &clap::Command) -> Result<(), String> {
        let Some(command) = command.get_subcommands().find(|sub| self.setting.option(sub).is_some()) else {
            return Ok(());
        };
        let command = self.set(command.clone()).no_binary_name(true).mut_args(|arg| arg.required(false));
        let Err(error) = command.try_get_matches_from([""; 0]) else { return Ok(()) };
        let kind = self.setting.kind.expected();
        let expected = match (error.get(ContextKind::ValidValue), error.source()) {
            (Some(ContextValue::Strings(values)), _) if !values.is_empty() => values.join(" or "),
            (_, Some(source)) if !self.setting.is_secret => format!("{kind} ({source})"),
            _ => kind.to_string(),
        };
        let found = self.texts.iter().map(|text| format!("`{}`", text.display())).collect::<Vec<_>>().join(", ");
        Err(wrong(self.setting, &self.place, &found, &expected))
    }
}

/// A line about a value that does not do. Secrets are not shown.
fn wrong(setting: &Setting, place: &str, found: &str, expected: &str) -> String {
    let found = if setting.is_secret { "not what it takes" } else { found };
    format!("{place} is {found}, expected {expected}")
}

fn unknown_variables() -> Vec<String> {
    let known = || SETTINGS.iter().map(|setting| setting.variable).chain([env::CONFIG]);
    let is_unknown = |name: &String| !known().chain(env::OF_TESTS).any(|known| known == name);
    let warning = |name: String| format!("{name} means nothing to kapitsa{}", nearest(&name, known()));
    env::ours().into_iter().filter(is_unknown).map(warning).collect()
}

/// The end of a message about an unknown name.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let nearest = known.map(|known| (strsim::damerau_levenshtein(name, known), known)).min();
    match nearest.filter(|(distance, known)| *distance <= 1 + known.len() / 4) {
        Some((_, known)) => format!("; did you mean `{known}`?"),
        None => "; docs/configuration.md lists what there is".into(),
    }
}
