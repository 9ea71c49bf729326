//! The environment, which nothing else in the program reads (except `RUST_LOG`, which the logger reads). Variables that
//! stand for settings are in the table of `settings`; the others are here.

use std::ffi::OsString;
use std::path::PathBuf;

/// Names the configuration file, in place of `config.toml` in the usual folder.
pub(crate) const CONFIG: &str = "KAPITSA_CONFIG";

/// Read by the tests of the source tree only: where real models are, and whether they must be.
pub(crate) const OF_TESTS: [&str; 2] = ["KAPITSA_TEST_MODELS", "KAPITSA_REQUIRE_MODELS"];

/// The value of a variable; an empty one counts as none.
pub(crate) fn get(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The variables that are set and look like ours, in order.
pub(crate) fn ours() -> Vec<String> {
    let names = std::env::vars_os().filter(|(_, value)| !value.is_empty()).map(|(name, _)| name);
    let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    names.retain(|name| name.starts_with("KAPITSA_"));
    names.sort();
    names
}

/// The user's own folder.
pub(crate) fn user_folder() -> Option<PathBuf> {
    std::env::home_dir().filter(|folder| !folder.as_os_str().is_empty())
}

/// Where programs keep their configuration files: `XDG_CONFIG_HOME`, else `AppData\Roaming` on Windows and `~/.config`
/// elsewhere.
pub(crate) fn config_folder() -> Option<PathBuf> {
    // A relative path is invalid, says the XDG Base Directory Specification.
    let set = |name| get(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let of_windows = || if cfg!(windows) { set("APPDATA") } else { None };
    set("XDG_CONFIG_HOME").or_else(of_windows).or_else(|| Some(user_folder()?.join(".config")))
}

/// Address of the hub, as its own tools take it: `HF_ENDPOINT`.
pub(crate) fn hf_endpoint() -> Option<String> {
    get("HF_ENDPOINT")?.into_string().ok()
}

/// Token for the hub, as its own tools take it: `HF_TOKEN`, else the file that they keep it in (`HF_TOKEN_PATH`, or `token` in
/// `HF_HOME`, or in `~/.cache/huggingface`).
pub(crate) fn hf_token() -> Option<String> {
    let file = || {
        let home =
            || get("HF_HOME").map(PathBuf::from).or_else(|| Some(user_folder()?.join(".cache").join("huggingface")));
        let path = get("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| Some(home()?.join("token")))?;
        std::fs::read_to_string(path).ok()
    };
    let token = get("HF_TOKEN").and_then(|token| token.into_string().ok()).or_else(file)?;
    Some(token.trim().to_owned()).filter(|token| !token.is_empty())
}
