//! What goes to the screen, and how a command ends.

use std::io::{Read, Write};

/// Why a command did not get to its end.
pub(crate) enum Failure {
    /// A line for the user.
    Error(String),
    /// The user pressed Ctrl-C.
    Interrupted,
    /// Whoever read stdout has gone.
    ClosedPipe,
}

impl From<kapitsa::Error> for Failure {
    fn from(error: kapitsa::Error) -> Self {
        match error {
            kapitsa::Error::Hub(kapitsa::hub::HubError::Cancelled { .. }) => Failure::Interrupted,
            error => Failure::Error(error.to_string()),
        }
    }
}

impl From<kapitsa::hub::HubError> for Failure {
    fn from(error: kapitsa::hub::HubError) -> Self {
        kapitsa::Error::from(error).into()
    }
}

/// Writes to stdout at once.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Writes to stdout at once.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
        _ => Failure::Error(format!("cannot write to stdout: {error}")),
    })
}

/// Tells the user something beside the result.
pub(crate) fn note(text: &str) {
    // There is nowhere to report that stderr is closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Tells the user what went wrong, in one line.
pub(crate) fn error(message: &str) {
    note(&format!("error: {}", message.replace(['\n', '\r'], " ")));
}

/// The text given as an argument, or stdin.
pub(crate) fn text_or_stdin(text: Option<String>) -> Result<String, Failure> {
    match text {
        Some(text) if text != "-" => Ok(text),
        _ => {
            let mut text = String::new();
            match std::io::stdin().read_to_string(&mut text) {
                Ok(_) => Ok(text),
                Err(error) => Err(Failure::Error(format!("cannot read stdin: {error}; expected UTF-8 text"))),
            }
        }
    }
}
