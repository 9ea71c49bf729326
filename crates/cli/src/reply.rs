//! What `run` and `chat` share: a reply that streams to the screen, and how long it took.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use kapitsa::{Event, Llm, LocalTime, Reply, ReplyRequest, SamplingOptions, TokenLogprobs};

use crate::args::SamplingArgs;
use crate::output::{Failure, print};
use crate::{interrupt, progress};

/// A reply, whole or cut off.
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) reply: Reply,
    /// Tokens with their log-probabilities, if these were asked for.
    pub(crate) logprobs: Vec<(u32, TokenLogprobs)>,
    pub(crate) times: Times,
}

pub(crate) struct Times {
    pub(crate) prefill: Duration,
    /// From the end of the prompt to the last token.
    pub(crate) decode: Duration,
}

/// Has the model reply. Text is printed as it comes if it `streams`. Ctrl-C ends the reply.
pub(crate) fn answer(llm: &Llm, request: &ReplyRequest, streams: bool) -> Result<Answer, Failure> {
    let mut listener = Listener::new(request.prompt.tokens.len(), streams);
    let graceful = interrupt::Graceful::new();
    let reply = llm.reply(request, &mut |event| listener.hear(event));
    drop(graceful);
    listener.bar.finish_and_clear();
    let reply = reply?;
    let Listener { text, logprobs, prefill, read_at, last_token, failure, .. } = listener;
    match failure {
        Some(failure) => Err(failure),
        None => Ok(Answer { text, reply, logprobs, times: Times { prefill, decode: last_token - read_at } }),
    }
}

/// Prints and collects a reply and notes when things happened.
struct Listener {
    bar: indicatif::ProgressBar,
    streams: bool,
    text: String,
    logprobs: Vec<(u32, TokenLogprobs)>,
    started: Instant,
    prefill: Duration,
    prompt_tokens: usize,
    read_at: Instant,
    last_token: Instant,
    failure: Option<Failure>,
}

impl Listener {
    fn new(prompt_tokens: usize, streams: bool) -> Self {
        let now = Instant::now();
        Listener {
            bar: progress::prompt(prompt_tokens),
            streams,
            text: String::new(),
            logprobs: vec![],
            started: now,
            prefill: Duration::ZERO,
            prompt_tokens,
            read_at: now,
            last_token: now,
            failure: None,
        }
    }

    fn hear(&mut self, event: Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Prefill(read) => {
                self.bar.set_position(read as u64);
                if read == self.prompt_tokens {
                    self.bar.finish_and_clear();
                    self.prefill = self.started.elapsed();
                    self.read_at = Instant::now();
                    self.last_token = self.read_at;
                }
            }
            Event::Token { id, logprobs } => {
                self.last_token = Instant::now();
                self.logprobs.extend(logprobs.map(|logprobs| (id, logprobs.clone())));
            }
            Event::Text(text) => {
                self.text.push_str(text);
                if self.streams
                    && let Err(failure) = print(text)
                {
                    self.failure = Some(failure);
                    return ControlFlow::Break(());
                }
            }
        }
        if interrupt::check().is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// How many tokens were read and written, how fast, and why the reply ended.
pub(crate) fn statistics(reply: &Reply, times: &Times) -> String {
    let rate = |tokens: usize, time: Duration| {
        let rate = tokens as f64 / time.as_secs_f64();
        if rate.is_normal() { format!(", {rate:.1} tok/s") } else { String::new() }
    };
    format!(
        "prompt {} tokens in {:.2} s{} · answer {} tokens in {:.2} s{} · {}",
        reply.prompt_tokens,
        times.prefill.as_secs_f64(),
        rate(reply.prompt_tokens, times.prefill),
        reply.reply_tokens,
        times.decode.as_secs_f64(),
        rate(reply.reply_tokens.saturating_sub(1), times.decode),
        reply.reason.name(),
    )
}

/// What the user asked for; the rest is what the model's makers recommend.
pub(crate) fn sampling(args: &SamplingArgs, model: &SamplingOptions) -> SamplingOptions {
    SamplingOptions {
        temperature: args.temperature.unwrap_or(model.temperature),
        top_p: args.top_p.unwrap_or(model.top_p),
        top_k: args.top_k.unwrap_or(model.top_k),
        min_p: args.min_p.unwrap_or(model.min_p),
        // The standard library's hash keys are random: no generator is needed for one number.
        seed: args.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish()),
        ..model.clone()
    }
}

/// For templates with a date.
pub(crate) fn now() -> LocalTime {
    let now = jiff::ZonedDateTime::now();
    LocalTime {
        year: now.year().into(),
        month: now.month() as u8,
        day: now.day() as u8,
        hour: now.hour() as u8,
        minute: now.minute() as u8,
        second: now.second() as u8,
    }
}
