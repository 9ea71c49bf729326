//! `kapitsa run`: one prompt, one answer.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kapitsa::{Error, FinishReason, ImageLimits, Llm, Message, Prompt, ReplyRequest, Tokenizer};
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
    let images = args.image.iter().map(|path| read_image(path)).collect::<Result<Vec<_>, _>>()?;
    let path = progress::resolve(args.answer.model.as_deref())?;
    let started = Instant::now();
    let llm = progress::open(&path, &args.answer.device.options())?;
    let loaded = started.elapsed();

    let request = ReplyRequest {
        prompt: make_prompt(&llm, &prompt, args.answer.system.as_deref(), &args.image, images)?,
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

/// The bytes of an image; of one that is too large, enough to say so.
fn read_image(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![];
    let limit = ImageLimits::default().max_bytes as u64 + 1;
    match File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(Failure::Error(format!("cannot read image {}: {error}", path.display()))),
    }
}

/// The prompt in the model's chat format, after the images; models without one continue it.
fn make_prompt(
    llm: &Llm,
    prompt: &str,
    system: Option<&str>,
    paths: &[PathBuf],
    images: Vec<Vec<u8>>,
) -> Result<Prompt, Failure> {
    if !llm.has_chat_template() {
        for (option, is_given) in [("--system", system.is_some()), ("--image", !images.is_empty())] {
            if is_given {
                return Err(Failure::Error(format!(
                    "the model has no chat template, so {option} has no place; leave it out"
                )));
            }
        }
        note("the model has no chat template: it continues the prompt");
        return Ok(llm.plain_prompt(prompt)?);
    }
    let mut message = Message::user(prompt);
    if !images.is_empty() {
        let parts = images.iter().map(|_| json!({ "type": "image" }));
        message.content = parts.chain([json!({ "type": "text", "text": prompt })]).collect();
    }
    let messages: Vec<Message> = system.map(Message::system).into_iter().chain([message]).collect();
    let files = llm.image_files(images);
    files.and_then(|files| llm.chat_prompt(&messages, &files, Some(reply::now()))).map_err(|error| match error {
        Error::Image { index, source } => Failure::Error(format!("{}: {source}", paths[index].display())),
        error => error.into(),
    })
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
