//! `docs/architecture.md` shows every crate and names every check.

use super::{CHECKS, Finding};
use crate::tree::Tree;

const MAP: &str = "docs/architecture.md";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(map) = tree.get(MAP) else {
        let missing = |file| Finding::new(file, 1, format!("{MAP} does not exist"), "write it");
        return tree.files.first().map(missing).into_iter().collect();
    };
    let text = map.text.as_deref().unwrap_or_default();
    let is_named = |name: &str| text.contains(&format!("`{name}`"));
    let crates = tree.manifests().filter(|(name, _)| !is_named(name));
    let crates = crates.map(|(name, _)| Finding::new(map, 1, format!("crate `{name}` is absent"), "add it to the map"));
    let checks = CHECKS.iter().filter(|check| !is_named(check.name));
    let checks = checks.map(|check| {
        Finding::new(map, 1, format!("check `{}` is absent", check.name), "say which invariant it guards")
    });
    crates.chain(checks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::expect;

    #[test]
    fn a_crate_or_check_that_the_map_lacks_is_found() {
        let checks: Vec<String> = CHECKS.iter().map(|check| format!("`{}`", check.name)).collect();
        let full = format!("`tensor` {}", checks.join(" "));
        let manifest = ("crates/tensor/Cargo.toml", "");
        expect(check, &[manifest, (MAP, &full)], &[]);
        expect(check, &[manifest, ("crates/ops/Cargo.toml", ""), (MAP, &full)], &["docs/architecture.md:1"]);
        expect(check, &[manifest, (MAP, &full.replace("`purity`", ""))], &["docs/architecture.md:1"]);
        expect(check, &[manifest], &["crates/tensor/Cargo.toml:1"]);
    }
}
