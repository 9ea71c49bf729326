//! `kapitsa run`: one prompt, one answer.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use kapitsa::{Event, FinishReason, Llm, LocalTime, Message, Reply, ReplyRequest, SamplingOptions};
use serde_json::json;

use crate::args::{RunArgs, SamplingArgs};
use crate::output::{Failure, note, print, text_or_stdin};
use crate::{interrupt, progress};

pub(crate) fn run(args: RunArgs) -> Result<(), Failure> {
    let prompt = text_or_stdin(args.prompt)?;
    if prompt.trim().is_empty() {
        return Err(Failure::Error("the prompt is empty; give it as an argument or on stdin".into()));
    }
    let path = progress::resolve(args.model.as_deref())?;
    let started = Instant::now();
    let spinner = progress::spinner("loading the model");
    let llm = Llm::open(&path, &args.device.options())?;
    spinner.finish_and_clear();
    let loaded = started.elapsed();

    let request = ReplyRequest {
        prompt: prompt_tokens(&llm, &prompt, args.system.as_deref())?,
        sampling: sampling(&args.sampling, llm.default_sampling()),
        stops: vec![],
        max_tokens: args.max_tokens,
        logprobs: None,
    };
    let mut listener = Listener::new(request.prompt.len(), args.json);
    let graceful = interrupt::Graceful::new();
    let reply = llm.reply(&request, &mut |event| listener.hear(event));
    drop(graceful);
    listener.bar.finish_and_clear();
    let reply = reply?;
    if let Some(failure) = listener.failure {
        return Err(failure);
    }
    let times = Times { load: loaded, prefill: listener.prefill, decode: listener.last_token - listener.read_at };
    if args.json {
        print(&format!("{}\n", report(&path.display().to_string(), &listener.text, &request, &reply, &times)))?;
    } else {
        print("\n")?;
        note(&statistics(&request, &reply, &times));
    }
    if reply.reason == FinishReason::Cancelled { Err(Failure::Interrupted) } else { Ok(()) }
}

/// The prompt in the model's chat format; models without one continue it.
fn prompt_tokens(llm: &Llm, prompt: &str, system: Option<&str>) -> Result<Vec<u32>, Failure> {
    if !llm.has_chat_template() {
        if system.is_some() {
            return Err(Failure::Error(
                "the model has no chat template, so --system has no place; leave it out".into(),
            ));
        }
        note("the model has no chat template: it continues the prompt");
        return Ok(llm.plain_prompt(prompt)?);
    }
    let messages: Vec<Message> = system.map(Message::system).into_iter().chain([Message::user(prompt)]).collect();
    Ok(llm.chat_prompt(&messages, Some(now()))?)
}

fn now() -> LocalTime {
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

fn sampling(args: &SamplingArgs, model: &SamplingOptions) -> SamplingOptions {
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

/// Prints or collects the reply and notes when things happened.
struct Listener {
    bar: indicatif::ProgressBar,
    collect: bool,
    text: String,
    started: Instant,
    prefill: Duration,
    prompt_tokens: usize,
    read_at: Instant,
    last_token: Instant,
    failure: Option<Failure>,
}

impl Listener {
    fn new(prompt_tokens: usize, collect: bool) -> Self {
        let now = Instant::now();
        Listener {
            bar: progress::prompt(prompt_tokens),
            collect,
            text: String::new(),
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
            Event::Token { .. } => self.last_token = Instant::now(),
            Event::Text(text) if self.collect => self.text.push_str(text),
            Event::Text(text) => {
                if let Err(failure) = print(text) {
                    self.failure = Some(failure);
                    return ControlFlow::Break(());
                }
            }
        }
        if interrupt::check().is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

struct Times {
    load: Duration,
    prefill: Duration,
    /// From the end of the prompt to the last token.
    decode: Duration,
}

fn statistics(request: &ReplyRequest, reply: &Reply, times: &Times) -> String {
    let rate = |tokens: usize, time: Duration| {
        let rate = tokens as f64 / time.as_secs_f64();
        if rate.is_normal() { format!(", {rate:.1} tok/s") } else { String::new() }
    };
    let mut line = format!(
        "loaded in {:.2} s · prompt {} tokens in {:.2} s{} · answer {} tokens in {:.2} s{} · {}",
        times.load.as_secs_f64(),
        reply.prompt_tokens,
        times.prefill.as_secs_f64(),
        rate(reply.prompt_tokens, times.prefill),
        reply.reply_tokens,
        times.decode.as_secs_f64(),
        rate(reply.reply_tokens.saturating_sub(1), times.decode),
        reply.reason.name(),
    );
    if request.sampling.temperature > 0.0 {
        line += &format!(" · seed {}", request.sampling.seed);
    }
    line
}

fn report(model: &str, text: &str, request: &ReplyRequest, reply: &Reply, times: &Times) -> serde_json::Value {
    json!({
        "model": model,
        "text": text,
        "finish_reason": reply.reason.name(),
        "seed": request.sampling.seed,
        "usage": {
            "prompt_tokens": reply.prompt_tokens,
            "completion_tokens": reply.reply_tokens,
            "total_tokens": reply.prompt_tokens + reply.reply_tokens,
        },
        "seconds": {
            "load": times.load.as_secs_f64(),
            "prefill": times.prefill.as_secs_f64(),
            "decode": times.decode.as_secs_f64(),
        },
    })
}
