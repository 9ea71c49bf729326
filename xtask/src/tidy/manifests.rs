//! Every crate takes lints, version, edition and licence from the workspace and is named after its folder.

use super::Finding;
use crate::tree::{File, Tree};

const INHERITED: &[&str] = &["version", "edition", "rust-version", "license", "publish"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.manifests().flat_map(|(name, manifest)| of_crate(name, manifest)).collect()
}

fn of_crate(name: &str, manifest: &File) -> Vec<Finding> {
    // A manifest that cannot be parsed is found by `dependencies`.
    let table: toml::Table = manifest.text.as_deref().unwrap_or_default().parse().unwrap_or_default();
    let find = |what: String, to_do: String| Finding::new(manifest, 1, what, to_do);
    let mut findings = vec![];
    let lints = table.get("lints").and_then(|lints| lints.get("workspace")).and_then(toml::Value::as_bool);
    if lints != Some(true) {
        findings.push(find("lints are its own".into(), "add `[lints]` with `workspace = true`".into()));
    }
    let package = table.get("package");
    for key in INHERITED {
        let value = package.and_then(|package| package.get(key)).and_then(|value| value.get("workspace"));
        if value.and_then(toml::Value::as_bool) != Some(true) {
            findings.push(find(format!("`{key}` is its own"), format!("write `{key}.workspace = true`")));
        }
    }
    let expected = if matches!(name, "kapitsa" | "xtask") { name.into() } else { format!("kapitsa-{name}") };
    let found = package.and_then(|package| package.get("name")).and_then(toml::Value::as_str).unwrap_or_default();
    if found != expected {
        findings.push(find(format!("package is named `{found}`, expected `{expected}`"), "rename it".into()));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::expect;

    const GOOD: &str = "\
[package]
name = \"kapitsa-ops\"
version.workspace = true
edition.workspace = true
rust-version.workspace = true
license.workspace = true
publish.workspace = true
[lints]
workspace = true
";

    #[test]
    fn what_a_crate_does_not_inherit_is_found() {
        expect(check, &[("crates/ops/Cargo.toml", GOOD)], &[]);
        let place = ["crates/ops/Cargo.toml:1"];
        expect(check, &[("crates/ops/Cargo.toml", &GOOD.replace("[lints]", "[profile]"))], &place);
        expect(
            check,
            &[("crates/ops/Cargo.toml", &GOOD.replace("edition.workspace = true", "edition = \"2018\""))],
            &place,
        );
        expect(check, &[("crates/add/Cargo.toml", GOOD)], &["crates/add/Cargo.toml:1"]);
    }
}
