//! Where lines come from: an editor with history on a terminal, or stdin.

use std::io::{BufRead, IsTerminal, StdinLock};

use rustyline::error::ReadlineError;
use rustyline::{Config, DefaultEditor};

use crate::output::Failure;

pub(crate) enum Lines {
    Terminal(Box<DefaultEditor>),
    Piped(std::io::Lines<StdinLock<'static>>),
}

pub(crate) enum Next {
    Line(String),
    /// Ctrl-C.
    Interrupted,
    End,
}

impl Lines {
    pub(crate) fn new() -> Result<Self, Failure> {
        if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
            return Ok(Lines::Piped(std::io::stdin().lock().lines()));
        }
        let config = Config::builder().auto_add_history(true).build();
        DefaultEditor::with_config(config).map(|editor| Lines::Terminal(Box::new(editor))).map_err(unreadable)
    }

    /// Whether a person types them.
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self, Lines::Terminal(_))
    }

    pub(crate) fn next(&mut self) -> Result<Next, Failure> {
        match self {
            Lines::Terminal(editor) => match editor.readline("> ") {
                Ok(line) => Ok(Next::Line(line)),
                Err(ReadlineError::Interrupted) => Ok(Next::Interrupted),
                Err(ReadlineError::Eof) => Ok(Next::End),
                Err(error) => Err(unreadable(error)),
            },
            Lines::Piped(lines) => match lines.next() {
                Some(Ok(line)) => Ok(Next::Line(line)),
                None => Ok(Next::End),
                Some(Err(error)) => Err(unreadable(error)),
            },
        }
    }
}

fn unreadable(error: impl std::fmt::Display) -> Failure {
    Failure::Error(format!("cannot read stdin: {error}; expected UTF-8 text"))
}
