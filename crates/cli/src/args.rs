//! What can be typed.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use kapitsa::{DType, OpenOptions};

/// Local inference for coding agents.
#[derive(Parser)]
#[command(name = "kapitsa", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
    Chat(ChatArgs),
    Tokenize(TokenizeArgs),
    Logits(LogitsArgs),
}

/// Answer a prompt.
///
/// The answer streams to stdout, statistics go to stderr. Without a prompt, or with `-`, the prompt is read from stdin.
#[derive(Parser)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
    /// Print one JSON object instead of streaming.
    #[arg(long)]
    pub(crate) json: bool,
    /// Add the log-probability of every token, and of the N likeliest instead [default without N: 0].
    #[arg(long, value_name = "N", requires = "json", require_equals = true, num_args = 0..=1, default_missing_value = "0")]
    pub(crate) logprobs: Option<usize>,
    /// What to answer.
    #[arg(value_name = "PROMPT")]
    pub(crate) prompt: Option<String>,
}

/// Talk with a model.
///
/// Each line is a message, `/help` lists the commands. Ctrl-C stops an answer, Ctrl-D ends the chat. If stdin or stdout is no
/// terminal, lines are read until the end or the first error, and nothing but answers is printed to stdout.
#[derive(Parser)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
}

/// Show the tokens of a text.
///
/// Spellings of control tokens count as control tokens. Without a text, or with `-`, it is read from stdin.
#[derive(Parser)]
pub(crate) struct TokenizeArgs {
    /// As for `run`.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// The text.
    #[arg(value_name = "TEXT")]
    pub(crate) text: Option<String>,
}

/// Compute the logits that follow each of some tokens.
///
/// Needs no tokenizer. Prints the likeliest next token of each position, or writes all logits to a file.
#[derive(Parser)]
pub(crate) struct LogitsArgs {
    /// As for `run`.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: String,
    /// Token ids separated by commas or spaces, or a file with them.
    #[arg(long, value_name = "IDS|FILE")]
    pub(crate) tokens: String,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Write `logits`, f32 [tokens, vocabulary], to this safetensors file.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which model answers, and how.
#[derive(clap::Args)]
pub(crate) struct AnswerArgs {
    /// A name of the catalog, a GGUF file, or a folder with a checkpoint or MLX pack [default: the catalog's default].
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    /// Longest answer, in tokens [default: what the context holds].
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<usize>,
    /// Instructions that come first.
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
}

/// How the model runs.
#[derive(clap::Args)]
pub(crate) struct DeviceArgs {
    /// Tokens that prompt and answer may have together [default: what the model was trained for, or
    /// less if memory is short].
    #[arg(long, value_name = "N")]
    context: Option<usize>,
    /// Element type of the KV cache [default: f16].
    #[arg(long, value_enum, conflicts_with = "exact")]
    kv: Option<Kv>,
    /// Worker threads [default: all cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// f32 activations and f32 KV cache everywhere.
    #[arg(long)]
    exact: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kv {
    F16,
    Bf16,
    F32,
}

impl DeviceArgs {
    pub(crate) fn options(&self) -> OpenOptions {
        let kv = match self.kv {
            Some(Kv::F16) => DType::F16,
            Some(Kv::Bf16) => DType::Bf16,
            Some(Kv::F32) => DType::F32,
            None => OpenOptions::default().kv,
        };
        let threads = self.threads.map(usize::from);
        // The command replies to one prompt at a time.
        let options = OpenOptions { threads, kv, context: self.context, slots: 1, ..OpenOptions::default() };
        if self.exact { options.exact() } else { options }
    }
}

/// How tokens are chosen. What is not given comes from the model's generation settings; without any, the likeliest token
/// is taken.
#[derive(clap::Args)]
pub(crate) struct SamplingArgs {
    /// Divides the logits; 0 takes the likeliest token.
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub(crate) temperature: Option<f64>,
    /// Keep the likeliest tokens until their probabilities reach P.
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub(crate) top_p: Option<f64>,
    /// Keep the K likeliest tokens; 0 keeps all.
    #[arg(long, value_name = "K")]
    pub(crate) top_k: Option<usize>,
    /// Keep tokens at least P times as likely as the likeliest.
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub(crate) min_p: Option<f64>,
    /// The same seed gives the same answer [default: a new one each time].
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}
