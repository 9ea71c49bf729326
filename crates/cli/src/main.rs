//! The `kapitsa` command.
//!
//! Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 an error (one line says what and what to do),
//! 2 wrong usage, 130 interrupted.
#![forbid(unsafe_code)]

mod args;
mod chat;
mod doctor;
mod env;
mod interrupt;
mod logits;
mod models;
mod output;
mod packaging;
mod progress;
mod reply;
mod run;
mod serve;
mod settings;
mod tokenize;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use output::Failure;

fn main() -> ExitCode {
    // Help and wrong usage end here, whatever the configuration says.
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    interrupt::install();
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(Failure::Interrupted) => ExitCode::from(130),
        Err(Failure::Error(message)) => {
            output::error(&message);
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<(), Failure> {
    let args = if args.command.takes_settings() { settings::current().apply()? } else { args };
    match args.command {
        Command::Run(args) => run::run(args),
        Command::Chat(args) => chat::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Tokenize(args) => tokenize::run(args),
        Command::Logits(args) => logits::run(args),
        Command::Pull(args) => models::pull(args),
        Command::List(args) => models::list(args),
        Command::Rm(args) => models::rm(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Completions(args) => packaging::completions(args),
        Command::Man(args) => packaging::man(args),
    }
}
