//! `kapitsa doctor`: what this machine is and what it can do. `docs/doctor.md` explains the lines and the keys of `--json`.

use kapitsa::doctor::{Candidate, Fit, Origin, Report, examine};
use kapitsa::hub::{Hub, Local};
use serde_json::{Value, json};

use crate::args::DoctorArgs;
use crate::output::{Failure, print};
use crate::settings::{self, Settings};
use crate::{interrupt, models, progress};

const GIB: f64 = (1u64 << 30) as f64;

pub(crate) fn run(args: DoctorArgs) -> Result<(), Failure> {
    // Problems of the configuration are a part of the report, not the end of it.
    let settings = settings::current();
    let mut problems: Vec<String> = settings.problems.iter().chain(&settings.warnings).cloned().collect();
    let hub = match models::hub() {
        Err(Failure::Error(problem)) => {
            problems.push(problem);
            kapitsa::open_hub(&settings::home()?, None, None)?
        }
        hub => hub?,
    };
    let spinner = progress::spinner("looking around");
    let graceful = interrupt::Graceful::new();
    let report = examine(&hub, interrupt::requested(), &mut |step| spinner.set_message(step.label()));
    drop(graceful);
    spinner.finish_and_clear();
    let report = report.map_err(|_| Failure::Interrupted)?;
    let advice = [problems, report.advice()].concat();
    if args.json {
        return print(&format!("{:#}\n", to_json(&report, settings, &hub, &advice)));
    }
    let lines = lines(&report, settings, &hub);
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text: String = lines.iter().map(|(name, line)| format!("{name:width$}  {line}\n")).collect();
    text += &catalog(&report.catalog);
    text += "\n";
    match advice.is_empty() {
        true => text += "nothing is wrong\n",
        false => text.extend(advice.iter().map(|line| format!("! {line}\n"))),
    }
    print(&text)
}

/// A name and what there is to say of it, line by line.
fn lines(report: &Report, settings: &Settings, hub: &Hub) -> Vec<(&'static str, String)> {
    let Report { system, processor, memory, read_bandwidth, disk, models, .. } = report;
    let unknown = || "unknown".to_string();
    let kernel = system.kernel.as_ref().map(|kernel| format!("kernel {kernel}"));
    let of_system = [system.name.clone(), kernel, system.libc.clone()].into_iter().flatten().collect::<Vec<_>>();
    let cores = match processor.machine_cores {
        all if all == processor.cores => cores_of(all),
        all => format!("{} of {all} cores may be used", processor.cores),
    };
    let has = |wanted: bool| {
        let features = processor.features.iter().filter(|(_, has)| *has == wanted).map(|(name, _)| *name);
        features.collect::<Vec<_>>().join(" ")
    };
    let features = match (has(true).as_str(), has(false).as_str()) {
        ("", "") => "none that kernels ask for on this architecture".to_string(),
        ("", lacks) => format!("lacks {lacks}"),
        (has, "") => has.to_string(),
        (has, lacks) => format!("{has}, lacks {lacks}"),
    };
    let others: Vec<&str> = processor.sets.iter().rev().skip(1).map(|set| set.name()).collect();
    let others = if others.is_empty() { String::new() } else { format!(", also {}", others.join(", ")) };
    let limit = memory.limit_bytes.map_or(String::new(), |limit| format!(", a container may use {}", gib(limit)));
    let bandwidth = match read_bandwidth {
        Ok(speed) => format!("{} read by {}", gb(*speed), cores_of(processor.cores)),
        Err(_) => "not measured".to_string(),
    };
    let free = disk.free_bytes.as_ref().map_or_else(|_| unknown(), |&free| gib(free));
    let read = match &disk.read {
        Ok(read) => {
            format!("{} read from a new file, {} {}", gb(read.bytes_per_second), gib(read.bytes), origin(read.origin).1)
        }
        Err(_) => "not measured".to_string(),
    };
    let usual = || settings::usual_file().map_or_else(|| "none".into(), |file| format!("none at {}", file.display()));
    let file = settings.file.as_ref().map_or_else(usual, |file| file.display().to_string());
    let mut lines = vec![
        ("kapitsa", env!("CARGO_PKG_VERSION").to_string()),
        ("system", of_system.join(", ")),
        ("processor", format!("{}, {cores}", processor.model.as_ref().unwrap_or(&processor.architecture))),
        ("features", features),
        ("kernels", format!("{}{others}", processor.chosen().name())),
        ("device", "CPU; this build has no GPU backend".to_string()),
        ("memory", format!("{}, {} available{limit}", gib(memory.total_bytes), gib(memory.available_bytes))),
        ("memory speed", bandwidth),
        ("home", hub.home().display().to_string()),
        ("disk", format!("{free} free")),
        ("disk speed", read),
        ("configuration", file),
    ];
    let names = std::iter::once("models").chain(std::iter::repeat(""));
    match models.is_empty() {
        true => lines.push(("models", "none; `kapitsa pull` brings some".into())),
        false => lines.extend(names.zip(models.iter().map(local))),
    }
    lines
}

fn local(model: &Local) -> String {
    let state = if model.complete { "" } else { ", in part: `kapitsa pull` goes on with it" };
    format!("{}, {}{state}", model.name, gib(model.size_bytes))
}

/// What of the catalog fits, as a table. Variants of unknown size are left out.
fn catalog(candidates: &[Candidate]) -> String {
    let mut text = "\ncatalog               takes  fits    tokens/s at most\n".to_string();
    for candidate in candidates {
        let (Some(need), Some(fit)) = (candidate.need_bytes, candidate.fit) else { continue };
        let speed = candidate.tokens_per_second.map_or(String::new(), |speed| format!("{speed:.1}"));
        let note = match (candidate.is_built, candidate.has_source) {
            (false, _) => "not built yet",
            (true, false) => "known by name only",
            (true, true) if candidate.is_chosen => "chosen by the bare name",
            (true, true) => "",
        };
        let line = format!("{:17} {:>9}  {:6}  {speed:>8}  {note}", candidate.name, gib(need), fit_word(fit));
        text += &format!("{}\n", line.trim_end());
    }
    text
}

fn fit_word(fit: Fit) -> &'static str {
    match fit {
        Fit::Now => "now",
        Fit::Later => "later",
        Fit::Never => "never",
    }
}

fn to_json(report: &Report, settings: &Settings, hub: &Hub, advice: &[String]) -> Value {
    let Report { system, processor, memory, read_bandwidth, disk, models, catalog } = report;
    let features = |wanted: bool| {
        let features = processor.features.iter().filter(|(_, has)| *has == wanted);
        features.map(|(name, _)| *name).collect::<Vec<_>>()
    };
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "system": { "name": system.name, "kernel": system.kernel, "libc": system.libc },
        "processor": {
            "model": processor.model,
            "architecture": processor.architecture,
            "machine_cores": processor.machine_cores,
            "cores": processor.cores,
            "features": features(true),
            "lacking_features": features(false),
            "instruction_sets": processor.sets.iter().map(|set| set.name()).collect::<Vec<_>>(),
            "instruction_set": processor.chosen().name(),
        },
        "device": "cpu",
        "memory": {
            "total_bytes": memory.total_bytes,
            "limit_bytes": memory.limit_bytes,
            "available_bytes": memory.available_bytes,
            "read_bytes_per_second": read_bandwidth.as_ref().ok(),
        },
        "home": hub.home().display().to_string(),
        "disk": {
            "folder": disk.folder.display().to_string(),
            "free_bytes": disk.free_bytes.as_ref().ok(),
            "read_bytes_per_second": disk.read.as_ref().ok().map(|read| read.bytes_per_second),
            "read_bytes": disk.read.as_ref().ok().map(|read| read.bytes),
            "read_from": disk.read.as_ref().ok().map(|read| origin(read.origin).0),
        },
        "configuration_file": settings.file.as_ref().map(|file| file.display().to_string()),
        "models": models,
        "catalog": catalog.iter().map(candidate).collect::<Vec<_>>(),
        "advice": advice,
    })
}

fn candidate(candidate: &Candidate) -> Value {
    json!({
        "name": candidate.name,
        "built": candidate.is_built,
        "has_source": candidate.has_source,
        "chosen": candidate.is_chosen,
        "need_bytes": candidate.need_bytes,
        "fits": candidate.fit.map(fit_word),
        "tokens_per_second": candidate.tokens_per_second,
    })
}

/// For programs and for people.
fn origin(origin: Origin) -> (&'static str, &'static str) {
    match origin {
        Origin::Disk => ("disk", "that the system no longer had in memory"),
        Origin::Memory => ("memory", "that never left memory: not the disk's speed"),
        Origin::Unknown => ("unknown", "that the system may have kept in memory: the disk may be slower"),
    }
}

fn cores_of(count: usize) -> String {
    if count == 1 { "1 core".into() } else { format!("{count} cores") }
}

fn gib(bytes: u64) -> String {
    match bytes as f64 / GIB {
        size if size < 1.0 => format!("{:.0} MiB", size * 1024.0),
        size => format!("{size:.1} GiB"),
    }
}

/// A speed.
fn gb(bytes_per_second: f64) -> String {
    format!("{:.2} GB/s", bytes_per_second / 1e9)
}
