//! Every environment variable that the command reads (`RUST_LOG` is read by the logger).

use std::path::PathBuf;

use crate::output::Failure;

/// Where models and caches live: `KAPITSA_HOME`, else `~/.cache/kapitsa`.
pub(crate) fn home() -> Result<PathBuf, Failure> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("KAPITSA_HOME")
        .or_else(|| Some(set("HOME").or_else(|| set("USERPROFILE"))?.join(".cache").join("kapitsa")))
        .ok_or_else(|| Failure::Error("there is no home folder to keep models in; set KAPITSA_HOME".into()))
}
