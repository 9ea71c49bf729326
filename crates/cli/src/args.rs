//! What can be typed.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use kapitsa::{DType, OpenOptions};

const AFTER_HELP: &str = "\
Options can be fixed by environment variables (`--top-p` by KAPITSA_TOP_P) and in ~/.config/kapitsa/config.toml (`top-p = 0.9`); an \
option that is given wins.

Exit codes: 0 done, 1 an error (one line on stderr says what and what to do), 2 wrong usage, 130 interrupted by Ctrl-C.";

/// Local inference for coding agents.
#[derive(Parser)]
#[command(name = "kapitsa", version, after_long_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
    Chat(ChatArgs),
    Serve(ServeArgs),
    Tokenize(TokenizeArgs),
    Logits(LogitsArgs),
    Pull(PullArgs),
    List(ListArgs),
    Rm(RmArgs),
    Doctor(DoctorArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

impl Command {
    /// Whether settings are defaults of its options. The others work even if the configuration is broken.
    pub(crate) fn takes_settings(&self) -> bool {
        !matches!(self, Command::Doctor(_) | Command::Completions(_) | Command::Man(_))
    }
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
    /// Show the model this image (PNG, JPEG, WebP, GIF or BMP) before the prompt. Can be given more than once.
    #[arg(long, value_name = "FILE")]
    pub(crate) image: Vec<PathBuf>,
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

/// Serve a model over HTTP, in the forms of the OpenAI API.
///
/// Chat Completions, Completions and Models under /v1 and without it, /health, /metrics and /openapi.json. Once it is ready, one
/// line on stderr says where. Ctrl-C ends it; running replies get a few seconds.
#[derive(Parser)]
pub(crate) struct ServeArgs {
    /// A name as for `pull`, a GGUF file, or a folder with a checkpoint or MLX pack [default: the catalog's default].
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Name or address to listen on [default: 127.0.0.1, which only this machine reaches].
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// Port to listen on; 0 takes any free one [default: 8000].
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Key that clients must send.
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
    /// Replies under way at a time; more requests wait [default: 4].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) slots: Option<u16>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Most tokens of thinking in a turn, then the answer begins; requests may ask for another number.
    #[arg(long, value_name = "N")]
    pub(crate) thinking_budget: Option<usize>,
    /// Refuse model names that are not the loaded model's.
    #[arg(long)]
    pub(crate) strict_models: bool,
    /// Put this before every path, such as /llm.
    #[arg(long, value_name = "PATH")]
    pub(crate) path_prefix: Option<String>,
    /// Let pages of this origin use the server, such as `https://example.com`; * lets all. Can be given more than once.
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) cors_origin: Vec<String>,
    /// Take requests for this host name besides those of this machine; needed without a key only. Can be given more than once.
    #[arg(long, value_name = "HOST")]
    pub(crate) allowed_host: Vec<String>,
    /// Print the line about where as a JSON object on stdout.
    #[arg(long)]
    pub(crate) json: bool,
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

/// Bring models here.
///
/// What was begun goes on where it broke off. Prints where each model lies.
#[derive(Parser)]
pub(crate) struct PullArgs {
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Names of the catalog (NAME, or NAME:VARIANT; a bare name picks the most precise variant that fits this machine), or
    /// repositories: hf:owner/name, hf:owner/name:file.gguf.
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
}

/// List the models that are here.
#[derive(Parser)]
pub(crate) struct ListArgs {
    /// Add the whole catalog.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Remove a model that was pulled.
#[derive(Parser)]
pub(crate) struct RmArgs {
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// NAME (all its variants), NAME:VARIANT, or hf:owner/name[:file.gguf].
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// Show what this machine is and what it can do.
///
/// Every number is read or measured now, which takes some seconds.
#[derive(Parser)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print a script that completes commands and options in a shell.
///
/// Packagers put it where the shell looks; `source <(kapitsa completions bash)` tries it.
#[derive(Parser)]
pub(crate) struct CompletionsArgs {
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

/// Print the man page, or write the pages of all commands.
#[derive(Parser)]
pub(crate) struct ManArgs {
    /// Write kapitsa.1 and a page for each command to this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// Which model answers, and how.
#[derive(clap::Args)]
pub(crate) struct AnswerArgs {
    /// A name as for `pull`, a GGUF file, or a folder with a checkpoint or MLX pack [default: the catalog's default].
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
    /// Worker threads [default: one for each core].
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
