//! Signs of life on stderr for whatever may take longer than a second. Nothing is drawn unless stderr is a terminal.

use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use kapitsa::hub::{Hub, Phase, Progress, Wanted};
use kapitsa::{Llm, Located, OpenOptions};

use crate::output::{Failure, note};
use crate::{interrupt, models};

/// The path of a model, fetched first if need be, under one bar.
pub(crate) fn resolve(model: Option<&str>) -> Result<PathBuf, Failure> {
    let hub = models::hub()?;
    match kapitsa::locate_model(&hub, model)? {
        Located::Path(path) => Ok(path),
        Located::Hub(wanted) => pull(&hub, &wanted),
    }
}

/// Brings a model here under one bar.
pub(crate) fn pull(hub: &Hub, wanted: &Wanted) -> Result<PathBuf, Failure> {
    let bar = ProgressBar::no_length();
    bar.set_style(style("{msg} {wide_bar} {bytes}/{total_bytes} {eta}"));
    let mut phase: Option<Phase> = None;
    let mut show = |progress: Progress| {
        if phase != Some(progress.phase) {
            phase = Some(progress.phase);
            bar.set_message(progress.phase.label());
            bar.reset();
            if bar.is_hidden() {
                note(&format!("{} {}", progress.phase.label(), wanted.name));
            }
        }
        bar.set_length(progress.total_bytes);
        bar.set_position(progress.done_bytes);
    };
    let _graceful = interrupt::Graceful::new();
    let path = hub.pull(wanted, interrupt::requested(), &mut show);
    bar.finish_and_clear();
    Ok(path?)
}

/// Opens a model under a spinner.
pub(crate) fn open(path: &Path, options: &OpenOptions) -> Result<Llm, Failure> {
    let spinner = spinner("loading the model");
    let llm = Llm::open(path, options);
    spinner.finish_and_clear();
    Ok(llm?)
}

/// A spinner that turns until it is cleared.
pub(crate) fn spinner(message: &'static str) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(message);
    bar.set_style(style("{spinner} {msg} {elapsed}"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// A bar over the tokens of a prompt that also shows that time passes.
pub(crate) fn prompt(tokens: usize) -> ProgressBar {
    let bar = ProgressBar::new(tokens as u64).with_message("reading the prompt");
    bar.set_style(style("{spinner} {msg} {wide_bar} {pos}/{len} tokens {elapsed}"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a template of ours")
}
