//! `kapitsa pull`, `list` and `rm`: the models that are here, and those that could be.

use kapitsa::hub::catalog::{Catalog, Model, Source, Variant};
use kapitsa::hub::{Hub, Local};
use serde_json::{Value, json};

use crate::args::{ListArgs, PullArgs, RmArgs};
use crate::output::{Failure, note, print};
use crate::{env, progress, settings};

/// Where models come from and go to, as the settings say.
pub(crate) fn hub() -> Result<Hub, Failure> {
    let text = |key, others: fn() -> Option<String>| {
        settings::current().get(key).and_then(|value| value.to_str().map(str::to_owned)).or_else(others)
    };
    let endpoint = text("hf-endpoint", env::hf_endpoint);
    Ok(kapitsa::open_hub(&settings::home()?, endpoint.as_deref(), text("hf-token", env::hf_token))?)
}

pub(crate) fn pull(args: PullArgs) -> Result<(), Failure> {
    let hub = hub()?;
    // Names first: nobody wants to wait for one model to read that the next was misspelled.
    let wanted: Vec<_> = args.names.iter().map(|name| hub.find(Some(name))).collect::<Result<_, _>>()?;
    let mut models = Vec::new();
    for wanted in &wanted {
        let path = progress::pull(&hub, wanted)?;
        if args.json {
            models.push(json!({ "name": wanted.name, "path": path.display().to_string() }));
        } else {
            print(&format!("{}\n", path.display()))?;
        }
    }
    if args.json { print(&format!("{}\n", json!({ "models": models }))) } else { Ok(()) }
}

pub(crate) fn list(args: ListArgs) -> Result<(), Failure> {
    let hub = hub()?;
    let here = hub.list();
    if args.json {
        let mut report = json!({ "models": here });
        if args.all {
            report["catalog"] =
                Catalog::builtin().models().iter().map(|model| model_json(&hub, model, &here)).collect();
        }
        return print(&format!("{report}\n"));
    }
    let mut lines: Vec<[String; 4]> = here.iter().map(local_line).collect();
    if here.is_empty() {
        note(&format!(
            "there is no model in {}; `kapitsa list --all` shows what `kapitsa pull` can bring",
            hub.home().display()
        ));
    }
    if args.all {
        for model in Catalog::builtin().models() {
            lines.extend(model.variants.iter().map(|variant| catalog_line(&hub, model, variant)));
            if model.variants.is_empty() {
                lines.push([
                    model.name.clone(),
                    String::new(),
                    state(&hub, model, None).into(),
                    model.description.clone(),
                ]);
            }
        }
    }
    print(&table(&lines))
}

pub(crate) fn rm(args: RmArgs) -> Result<(), Failure> {
    let removed = hub()?.remove(&args.name)?;
    for file in removed.iter().flat_map(|removed| &removed.left) {
        note(&format!("{} was left: no pull brought it", file.display()));
    }
    if args.json {
        return print(&format!("{}\n", json!({ "removed": removed })));
    }
    let line =
        |removed: &kapitsa::hub::Removed| format!("removed {}: {} freed\n", removed.name, size(removed.freed_bytes));
    print(&removed.iter().map(line).collect::<String>())
}

fn local_line(local: &Local) -> [String; 4] {
    let revision = local.revision.as_deref().unwrap_or_default().chars().take(7).collect::<String>();
    let state = match local.complete {
        true => revision,
        false => format!("{revision}, {} here: pull again", size(local.here_bytes)),
    };
    [local.name.clone(), size(local.size_bytes), state, local.path.display().to_string()]
}

fn catalog_line(hub: &Hub, model: &Model, variant: &Variant) -> [String; 4] {
    let name = format!("{}:{}", model.name, variant.name);
    [
        name,
        variant.size_bytes().map(size).unwrap_or_default(),
        state(hub, model, Some(variant)).into(),
        model.description.clone(),
    ]
}

/// Whether a variant of the catalog can be had and run.
fn state(hub: &Hub, model: &Model, variant: Option<&Variant>) -> &'static str {
    match (hub.is_built(&model.family), variant.is_some_and(|variant| !variant.sources.is_empty())) {
        (true, true) => "can be pulled",
        (true, false) => "known by name only",
        (false, _) => "not built yet",
    }
}

fn model_json(hub: &Hub, model: &Model, here: &[Local]) -> Value {
    let variant = |variant: &Variant| {
        let name = format!("{}:{}", model.name, variant.name);
        json!({
            "name": name,
            "bits": variant.bits,
            "size_bytes": variant.size_bytes(),
            "measured": variant.measured,
            "sources": variant.sources.iter().map(source).collect::<Vec<_>>(),
            "here": here.iter().any(|local| local.name == name && local.complete),
        })
    };
    json!({
        "name": model.name,
        "description": model.description,
        "default": model.default,
        "license": model.license,
        "family": model.family,
        "built": hub.is_built(&model.family),
        "sampling": model.sampling,
        "drafter": model.drafter,
        "mtp": model.mtp,
        "variants": model.variants.iter().map(variant).collect::<Vec<_>>(),
    })
}

fn source(source: &Source) -> String {
    match source {
        Source::HuggingFace(repository) => format!("hf:{repository}"),
        Source::Pip(pip) => format!("pip:{}=={}", pip.package, pip.version),
    }
}

/// Columns under each other; the last one is free.
fn table(lines: &[[String; 4]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    let line = |[name, size, state, last]: &[String; 4]| {
        format!("{name:<0$}  {size:>1$}  {state:<2$}  {last}\n", widths[0], widths[1], widths[2])
    };
    lines.iter().map(line).collect()
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1000)),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}
