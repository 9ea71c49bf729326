//! Ctrl-C: the first one ends the work at its next step, the second one ends the process.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::output::Failure;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Starts to listen for the signal.
pub(crate) fn install() {
    let handler = || {
        if REQUESTED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        // Without a handler Ctrl-C ends the process at once, which is what people expect of it anyway.
        crate::output::note(&format!("Ctrl-C cannot be caught: {error}"));
    }
}

/// Whether the user asked to stop.
pub(crate) fn requested() -> &'static AtomicBool {
    &REQUESTED
}

/// Fails if the user asked to stop.
pub(crate) fn check() -> Result<(), Failure> {
    if REQUESTED.load(Ordering::SeqCst) { Err(Failure::Interrupted) } else { Ok(()) }
}
