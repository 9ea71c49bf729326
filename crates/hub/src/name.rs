//! Names from outside that become paths and addresses: repositories and the files in them.
//!
//! A name that is accepted here stays inside the model's folder on every file system: relative, of plain parts, none of
//! them hidden (the folder's own notes are), reserved, or too long.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A repository of the hub: `owner/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Repository(String);

/// A file of a repository, with forward slashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FileName(String);

/// The longest part of a file's name in bytes. File systems allow 255; partial files have a longer name.
const MAX_PART_BYTES: usize = 180;
const MAX_FILE_BYTES: usize = 1000;
const MAX_PARTS: usize = 8;
const MAX_REPOSITORY_PART: usize = 96;

/// Names of devices on Windows, with any extension.
const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "conin$", "conout$"];

impl Repository {
    /// Two parts of letters, digits and `-._`; None if the text is something else.
    pub fn parse(text: &str) -> Option<Repository> {
        let (owner, name) = text.split_once('/')?;
        let is_part = |part: &str| {
            part.len() <= MAX_REPOSITORY_PART
                && part.starts_with(|c: char| c.is_ascii_alphanumeric())
                && part.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
                && !part.contains("..")
                && why_not_part(part).is_none()
        };
        (is_part(owner) && is_part(name)).then(|| Repository(text.to_owned()))
    }

    /// Owner and name.
    pub fn parts(&self) -> (&str, &str) {
        self.0.split_once('/').expect("parse found a slash")
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FileName {
    /// Takes a name if it stays inside a folder.
    ///
    /// # Errors
    /// What is wrong with it, to be read after the name.
    pub fn parse(text: &str) -> Result<FileName, &'static str> {
        if text.len() > MAX_FILE_BYTES {
            return Err("is too long");
        }
        if text.split('/').count() > MAX_PARTS {
            return Err("has too many folders");
        }
        match text.split('/').find_map(why_not_part) {
            Some(reason) => Err(reason),
            None => Ok(FileName(text.to_owned())),
        }
    }

    /// The name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its parts: folders, then the file.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// The last part.
    pub fn last(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// Whether it lies in the repository's folder itself.
    pub fn is_top(&self) -> bool {
        !self.0.contains('/')
    }

    /// Where it lies below `folder`.
    pub fn below(&self, folder: &Path) -> PathBuf {
        self.parts().fold(folder.to_owned(), |path, part| path.join(part))
    }

    /// What two names have in common if a file system that ignores case takes them for one.
    pub fn folded(&self) -> String {
        self.0.to_lowercase()
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for FileName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        FileName::parse(&text).map_err(|reason| format!("the file name `{}` {reason}", shorten(&text)))
    }
}

impl From<FileName> for String {
    fn from(name: FileName) -> String {
        name.0
    }
}

/// What is wrong with one part of a path.
fn why_not_part(part: &str) -> Option<&'static str> {
    if part.is_empty() {
        return Some("is absolute or has an empty part");
    }
    if part.starts_with('.') {
        return Some("has a part that begins with a dot");
    }
    if part.len() > MAX_PART_BYTES {
        return Some("is too long");
    }
    // Bidirectional and invisible marks are no control characters, but make a name look like another one.
    let is_bad = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    if part.chars().any(|c| is_bad(c) || r#"\:<>"|?*"#.contains(c)) {
        return Some("has a character that file systems do not take");
    }
    if part.ends_with(['.', ' ']) || part.starts_with(' ') {
        return Some("has a part that ends with a dot, or begins or ends with a space");
    }
    let stem = part.split('.').next().unwrap_or(part).trim_end().to_ascii_lowercase();
    let mut last = stem.chars();
    let is_port =
        matches!(last.next_back(), Some('0'..='9' | '¹' | '²' | '³')) && ["com", "lpt"].contains(&last.as_str());
    (is_port || DEVICES.contains(&stem.as_str())).then_some("is the name of a device")
}

/// The beginning of a text from outside, printable, for a message.
pub(crate) fn shorten(text: &str) -> String {
    const LIMIT: usize = 120;
    let clean = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut short: String = text.chars().take(LIMIT).map(clean).collect();
    if text.chars().nth(LIMIT).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use std::path::Component;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_leave_the_folder_or_trouble_a_file_system_are_refused() {
        let long = "a".repeat(181);
        let deep = "a/".repeat(8) + "b";
        for name in [
            "",
            ".",
            "..",
            "../x",
            "a/../b",
            "/etc/passwd",
            "a//b",
            "a/",
            "\\x",
            "a\\..\\b",
            "C:x",
            "C:/x",
            "a:stream",
            ".hidden",
            "a/.git/config",
            "a\0b",
            "a\nb",
            "a\u{7f}",
            "a\u{202e}b",
            "nul",
            "NUL.txt",
            "Con.gguf",
            "com1",
            "a/LPT9.x",
            "com¹",
            "a.",
            "a ",
            " a",
            "a?",
            "a*",
            "a|b",
            "<a>",
            "\"a\"",
            &long,
            &deep,
            "nul .txt",
        ] {
            assert!(FileName::parse(name).is_err(), "{name:?}");
        }
        for name in [
            "config.json",
            "a/b c/model-00001-of-00002.safetensors",
            "日本語.gguf",
            "com.json",
            "nullable",
            "a+b@c~d,(e).x",
        ] {
            assert_eq!(FileName::parse(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn repositories_have_an_owner_and_a_name() {
        for text in
            ["", "a", "a/b/c", "/b", "a/", "../b", "a/..", "-a/b", "a/b c", "a/b?x", "a/b..c", "nul/x", "a/b.", "é/b"]
        {
            assert_eq!(Repository::parse(text), None, "{text}");
        }
        assert_eq!(Repository::parse(&format!("a/{}", "b".repeat(97))), None);
        assert_eq!(Repository::parse("z-lab/Qwen3.5-4B_x").unwrap().parts(), ("z-lab", "Qwen3.5-4B_x"));
    }

    proptest! {
        #[test]
        fn an_accepted_name_stays_below_its_folder(text in r"[a-c./\\: \x00-\x20~nul日-]{0,24}|(\.\.?/|[a-z]{1,3}/|//){0,9}[a-z.]{0,4}|\PC{0,40}") {
            if let Ok(name) = FileName::parse(&text) {
                let path = name.below(Path::new("folder"));
                prop_assert!(path.starts_with("folder") && path.components().count() >= 2);
                prop_assert!(path.components().all(|part| matches!(part, Component::Normal(_))));
                prop_assert!(!text.contains(['\\', ':', '\0']) && name.parts().all(|part| !part.starts_with('.')));
            }
        }
    }
}
