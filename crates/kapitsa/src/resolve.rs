//! From what a person types as a model to a file, or to a model that the hub brings here.

use std::path::{Path, PathBuf};

use kapitsa_hub::{Hub, HubOptions, Timing, Wanted};

use crate::{Error, Memory};

/// Where a model is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Located {
    /// A file or folder that exists.
    Path(PathBuf),
    /// By name: [`Hub::pull`] makes sure that it is here.
    Hub(Wanted),
}

/// Where models come from and go to, for this engine and this machine: they lie under `home`; `endpoint` is the address of
/// the Hugging Face hub or a mirror, the usual one if `None`; `token` is sent there and nowhere else.
///
/// # Errors
/// If the address is none that can be asked, or the token cannot be sent.
pub fn open_hub(home: &Path, endpoint: Option<&str>, token: Option<String>) -> Result<Hub, Error> {
    let memory = Memory::now();
    Ok(Hub::new(HubOptions {
        home: home.to_owned(),
        endpoint: endpoint.map(str::to_owned),
        token,
        families: kapitsa_models::families(),
        memory_bytes: memory.limit_bytes.unwrap_or(memory.total_bytes),
        timing: Timing::default(),
    })?)
}

/// Finds a model: an existing file or folder, or else one of the catalog (`NAME`, `NAME:VARIANT`) or of a repository
/// (`hf:owner/name[:file]`); the catalog's default for `None`. Asks nobody.
///
/// # Errors
/// If there is neither, or it cannot run here.
pub fn locate_model(hub: &Hub, model: Option<&str>) -> Result<Located, Error> {
    match model {
        Some(name) if Path::new(name).exists() => Ok(Located::Path(name.into())),
        name => Ok(Located::Hub(hub.find(name)?)),
    }
}
