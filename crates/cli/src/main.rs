//! The `kapitsa` command.
//!
//! Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 an error (one line says what and what to do),
//! 2 wrong usage, 130 interrupted.
#![forbid(unsafe_code)]

mod args;
mod chat;
mod env;
mod interrupt;
mod logits;
mod output;
mod progress;
mod reply;
mod run;
mod tokenize;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use output::Failure;

fn main() -> ExitCode {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    interrupt::install();
    let result = match args.command {
        Command::Run(args) => run::run(args),
        Command::Chat(args) => chat::run(args),
        Command::Tokenize(args) => tokenize::run(args),
        Command::Logits(args) => logits::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(Failure::Interrupted) => ExitCode::from(130),
        Err(Failure::Error(message)) => {
            output::error(&message);
            ExitCode::FAILURE
        }
    }
}
