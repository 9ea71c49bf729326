//! Table, commands and documentation agree.

use std::path::Path;

use clap::CommandFactory;

use super::file::parse;
use super::table::SETTINGS;
use crate::args::Args;

#[test]
fn every_setting_is_an_option_or_explains_itself() {
    let command = Args::command();
    for setting in SETTINGS {
        let option = command.get_subcommands().find_map(|sub| setting.option(sub));
        assert_eq!(option.is_some(), setting.help.is_none(), "`{}`", setting.key);
        assert_eq!(setting.variable, format!("KAPITSA_{}", setting.key.to_uppercase().replace('-', "_")));
    }
}

#[test]
fn the_documentation_shows_the_table() {
    let command = Args::command();
    let row = |setting: &super::Setting| {
        let users = command.get_subcommands().filter(|sub| setting.option(sub).is_some());
        let users = users.map(|sub| format!("`{}`", sub.get_name())).collect::<Vec<_>>().join(", ");
        let option = command.get_subcommands().find_map(|sub| setting.option(sub));
        let help = option.and_then(|arg| arg.get_help()).map(ToString::to_string);
        let help = help.as_deref().or(setting.help).unwrap().replace('|', "\\|");
        let users = if users.is_empty() { "all" } else { &users };
        format!("| `{}` | `{}` | {} | {users} | {help} |\n", setting.key, setting.variable, setting.kind.expected())
    };
    let table: String = SETTINGS.iter().map(row).collect();
    let page = include_str!("../../../../docs/configuration.md");
    assert!(page.contains(&table), "docs/configuration.md should have these rows:\n{table}");
}

#[test]
fn lines_and_types_of_a_file() {
    let text = "# mine\n\nthreads = 0x10\ntemperature = 1\ntop-p = 9_5e-2\nmodel = \"a\"\nkv = 5\n";
    let (values, problems) = parse(Path::new("c.toml"), text);
    let values: Vec<_> =
        values.iter().map(|v| (v.setting.key, v.texts[0].to_str().unwrap(), v.place.as_str())).collect();
    let expected = [
        ("threads", "16", "c.toml:3: `threads`"),
        ("temperature", "1", "c.toml:4: `temperature`"),
        ("top-p", "95e-2", "c.toml:5: `top-p`"),
        ("model", "a", "c.toml:6: `model`"),
    ];
    assert_eq!(values, expected);
    assert_eq!(problems, ["c.toml:7: `kv` is of type integer, expected a text"]);
}

#[test]
fn whatever_a_file_holds_is_a_line_at_most() {
    for text in [
        "=",
        "a",
        "\u{feff}threads = 1\n[",
        "threads = 1\nthreads = 2",
        "[serve]\nport = 1",
        "x = \"\"\"\n\n",
        "a.b = 1",
    ] {
        let (_, problems) = parse(Path::new("c.toml"), text);
        assert_eq!(problems.len(), 1, "{text:?}");
        assert!(!problems[0].contains('\n') && problems[0].starts_with("c.toml:"), "{problems:?}");
    }
    let deep = format!("threads = {}", "[".repeat(100_000));
    assert_eq!(parse(Path::new("c.toml"), &deep).1.len(), 1);
}
