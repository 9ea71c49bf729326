//! Ctrl-C: ends the process at once, unless something is under way that ends by itself at its next step. Then the first
//! Ctrl-C asks for that, and the second one ends the process.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::output::Failure;

static GRACEFUL: AtomicBool = AtomicBool::new(false);
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Starts to listen for the signal.
pub(crate) fn install() {
    let handler = || {
        if REQUESTED.swap(true, Ordering::SeqCst) || !GRACEFUL.load(Ordering::SeqCst) {
            std::process::exit(130);
        }
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        // Without a handler Ctrl-C ends the process at once, which is what people expect of it anyway.
        crate::output::note(&format!("Ctrl-C cannot be caught: {error}"));
    }
}

/// While this lives, something looks at [`requested`] or [`check`] often.
pub(crate) struct Graceful(());

impl Graceful {
    pub(crate) fn new() -> Self {
        GRACEFUL.store(true, Ordering::SeqCst);
        Graceful(())
    }
}

impl Drop for Graceful {
    fn drop(&mut self) {
        GRACEFUL.store(false, Ordering::SeqCst);
    }
}

/// Whether the user asked to stop.
pub(crate) fn requested() -> &'static AtomicBool {
    &REQUESTED
}

/// Forgets that the user asked to stop, as what was to be stopped has.
pub(crate) fn forget() {
    REQUESTED.store(false, Ordering::SeqCst);
}

/// Fails if the user asked to stop.
pub(crate) fn check() -> Result<(), Failure> {
    if REQUESTED.load(Ordering::SeqCst) { Err(Failure::Interrupted) } else { Ok(()) }
}
