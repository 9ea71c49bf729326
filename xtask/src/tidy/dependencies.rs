//! Crates depend in one direction only.

use super::Finding;
use crate::tree::{File, Tree};

/// Each crate and the crates of this workspace that it may depend on. Tests may use any.
const ALLOWED: &[(&str, &[&str])] = &[
    ("tensor", &[]),
    ("ops", &["tensor"]),
    ("cpu", &["ops", "tensor"]),
    ("weights", &["tensor"]),
    ("models", &["ops", "tensor", "weights"]),
    ("engine", &["models", "ops", "tensor"]),
    ("text", &[]),
    ("vision", &[]),
    ("grammar", &["text"]),
    ("dialects", &[]),
    ("hub", &[]),
    (
        "kapitsa",
        &["cpu", "dialects", "engine", "grammar", "hub", "models", "ops", "tensor", "text", "vision", "weights"],
    ),
    ("server", &["kapitsa"]),
    ("cli", &["kapitsa", "server"]),
    ("testkit", &["ops", "tensor"]),
    ("xtask", &[]),
];

/// Packages from elsewhere that only the crates listed may use outside tests.
const RESERVED: &[(&str, &[&str])] = &[
    ("axum", &["server"]),
    ("bytemuck", &["cpu", "ops"]),
    ("clap", &["cli"]),
    ("clap_complete", &["cli"]),
    ("clap_mangen", &["cli"]),
    ("hyper", &["server"]),
    ("image", &["vision"]),
    ("indicatif", &["cli"]),
    ("llguidance", &["grammar"]),
    ("memmap2", &["cpu", "weights"]),
    ("minijinja", &["text"]),
    ("regex-syntax", &["grammar"]),
    ("rustyline", &["cli"]),
    ("strsim", &["cli"]),
    ("sysinfo", &["kapitsa"]),
    ("tokenizers", &["text"]),
    ("tokio", &["engine", "server"]),
    ("tracing-subscriber", &["cli"]),
    ("ureq", &["hub"]),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.manifests().flat_map(|(name, manifest)| of_crate(name, manifest)).collect()
}

fn of_crate(name: &str, manifest: &File) -> Vec<Finding> {
    let text = manifest.text.as_deref().unwrap_or_default();
    let table: toml::Table = match text.parse() {
        Ok(table) => table,
        Err(error) => return vec![Finding::new(manifest, 1, format!("not TOML: {}", error.message()), "correct it")],
    };
    let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
        let to_do = "add it to ALLOWED in xtask/src/tidy/dependencies.rs and say why in the commit";
        return vec![Finding::new(manifest, 1, format!("crate `{name}` is new"), to_do)];
    };
    let mut findings = vec![];
    for package in normal_dependencies(&table) {
        let line = text.lines().position(|line| line.trim_start().starts_with(&package)).map_or(1, |index| index + 1);
        let mut find = |to_do: String| {
            findings.push(Finding::new(manifest, line, format!("`{name}` depends on `{package}`"), to_do))
        };
        let ours = package.strip_prefix("kapitsa-").unwrap_or(&package);
        if ours == "testkit" {
            find("move it to [dev-dependencies]: testkit is for tests".into());
        } else if ALLOWED.iter().any(|(known, _)| *known == ours) && !allowed.contains(&ours) {
            find(match allowed.is_empty() {
                true => "it may depend on no other crate of the workspace; move the shared part down".into(),
                false => format!("it may depend on {}; move the shared part down", allowed.join(", ")),
            });
        } else if let Some((_, users)) =
            RESERVED.iter().find(|(known, users)| *known == package && !users.contains(&name))
        {
            find(match users.is_empty() {
                true => "only tests may use it".into(),
                false => format!("only {} may use it outside tests", users.join(", ")),
            });
        }
    }
    findings
}

/// Packages in `[dependencies]` and `[build-dependencies]`, for all targets.
fn normal_dependencies(table: &toml::Table) -> Vec<String> {
    let targets = table.get("target").and_then(toml::Value::as_table);
    let tables =
        targets.into_iter().flat_map(|targets| targets.values()).filter_map(toml::Value::as_table).chain([table]);
    let sections = tables.flat_map(|table| ["dependencies", "build-dependencies"].map(|key| table.get(key)));
    let entries = sections.flatten().filter_map(toml::Value::as_table).flatten();
    entries
        .map(|(name, entry)| entry.get("package").and_then(toml::Value::as_str).unwrap_or(name).to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::expect;

    #[test]
    fn a_dependency_against_the_direction_is_found_where_it_stands() {
        let manifest = "[dependencies]\nkapitsa-tensor.workspace = true\nkapitsa-models.workspace = true\n";
        expect(check, &[("crates/engine/Cargo.toml", manifest)], &[]);
        expect(check, &[("crates/ops/Cargo.toml", manifest)], &["crates/ops/Cargo.toml:3"]);
        let renamed = "[target.'cfg(unix)'.dependencies]\nx = { package = \"kapitsa-models\", path = \"../models\" }\n";
        expect(check, &[("crates/text/Cargo.toml", renamed)], &["crates/text/Cargo.toml:1"]);
    }

    #[test]
    fn tests_may_use_testkit_and_nothing_else_may() {
        expect(check, &[("crates/ops/Cargo.toml", "[dev-dependencies]\nkapitsa-testkit.workspace = true\n")], &[]);
        let normal = "[dependencies]\nkapitsa-testkit.workspace = true\n";
        expect(check, &[("crates/cli/Cargo.toml", normal)], &["crates/cli/Cargo.toml:2"]);
    }

    #[test]
    fn reserved_packages_and_new_crates_are_found() {
        let memmap = "[dependencies]\nmemmap2.workspace = true\n";
        expect(check, &[("crates/weights/Cargo.toml", memmap)], &[]);
        expect(check, &[("crates/engine/Cargo.toml", memmap)], &["crates/engine/Cargo.toml:2"]);
        expect(check, &[("crates/telepathy/Cargo.toml", "")], &["crates/telepathy/Cargo.toml:1"]);
        expect(check, &[("crates/ops/Cargo.toml", "[dependencies")], &["crates/ops/Cargo.toml:1"]);
    }
}
