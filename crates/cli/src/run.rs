//! `kapitsa run`: one prompt, one answer.

use std::time::{Duration, Instant};

use kapitsa::{FinishReason, Llm, Message, ReplyRequest, Tokenizer};
use serde_json::{Value, json};

use crate::args::RunArgs;
use crate::output::{Failure, note, print, text_or_stdin};
use crate::progress;
use crate::reply::{self, Answer};

pub(crate) fn run(args: RunArgs) -> Result<(), Failure> {
    let prompt = text_or_stdin(args.prompt)?;
    if prompt.trim().is_empty() {
        return Err(Failure::Error("the prompt is empty; give it as an argument or on stdin".into()));
    }
    let path = progress::resolve(args.answer.model.as_deref())?;
    let started = Instant::now();
    let llm = progress::open(&path, &args.answer.device.options())?;
    let loaded = started.elapsed();

    let request = ReplyRequest {
        prompt: prompt_tokens(&llm, &prompt, args.answer.system.as_deref())?,
        sampling: reply::sampling(&args.answer.sampling, llm.default_sampling()),
        stops: vec![],
        max_tokens: args.answer.max_tokens,
        logprobs: args.logprobs,
    };
    let answer = reply::answer(&llm, &request, !args.json)?;
    if args.json {
        let report = report(&path.display().to_string(), llm.tokenizer(), &request, &answer, loaded);
        print(&format!("{report}\n"))?;
    } else {
        print("\n")?;
        let mut line = format!("loaded in {:.2} s · ", loaded.as_secs_f64());
        line += &reply::statistics(&answer.reply, &answer.times);
        if request.sampling.temperature > 0.0 {
            line += &format!(" · seed {}", request.sampling.seed);
        }
        note(&line);
    }
    if answer.reply.reason == FinishReason::Cancelled { Err(Failure::Interrupted) } else { Ok(()) }
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
    Ok(llm.chat_prompt(&messages, Some(reply::now()))?)
}

fn report(model: &str, tokenizer: &Tokenizer, request: &ReplyRequest, answer: &Answer, loaded: Duration) -> Value {
    let Answer { text, reply, logprobs, times } = answer;
    let mut report = json!({
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
            "load": loaded.as_secs_f64(),
            "prefill": times.prefill.as_secs_f64(),
            "decode": times.decode.as_secs_f64(),
        },
    });
    if request.logprobs.is_some() {
        let tokens = logprobs.iter().map(|(id, of)| {
            let mut token = token(tokenizer, *id, of.logprob);
            token["top"] = of.top.iter().map(|top| self::token(tokenizer, top.id, top.logprob)).collect();
            token
        });
        report["logprobs"] = tokens.collect();
    }
    report
}

/// A token may be part of a character: `bytes` are exact, `text` shows what is no character as U+FFFD.
fn token(tokenizer: &Tokenizer, id: u32, logprob: f32) -> Value {
    let bytes = tokenizer.token_bytes(id);
    json!({ "id": id, "text": String::from_utf8_lossy(bytes), "bytes": bytes, "logprob": logprob })
}
