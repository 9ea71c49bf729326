//! `kapitsa logits`: what the model computes, for comparison with others.

use std::path::Path;

use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use serde_json::json;

use crate::args::LogitsArgs;
use crate::output::{Failure, print};
use crate::progress;

pub(crate) fn run(args: LogitsArgs) -> Result<(), Failure> {
    let tokens = tokens(&args.tokens)?;
    let path = progress::resolve(Some(&args.model))?;
    let spinner = progress::spinner("computing");
    let engine = kapitsa::open_engine(&path, &args.device.options())?;
    let vocab = engine.model().vocab;
    let logits = engine.logits(&tokens, &[]).map_err(kapitsa::Error::from)?.logits;
    spinner.finish_and_clear();
    match &args.out {
        Some(out) => write(out, &logits, vocab),
        None => print_best(&tokens, &logits, vocab, args.json),
    }
}

/// Ids in the text itself, or else in the file of that name.
fn tokens(text: &str) -> Result<Vec<u32>, Failure> {
    let parse = |text: &str| -> Result<Vec<u32>, String> {
        text.split(|c: char| c == ',' || c.is_whitespace())
            .filter(|id| !id.is_empty())
            .map(|id| id.parse().map_err(|_| id.chars().take(40).collect()))
            .collect()
    };
    if let Ok(ids) = parse(text) {
        return Ok(ids);
    }
    let file = std::fs::read_to_string(text).map_err(|error| {
        Failure::Error(format!("--tokens `{text}` is neither a list of ids nor a readable file: {error}"))
    })?;
    parse(&file)
        .map_err(|word| Failure::Error(format!("{text}: `{word}` is not a token id, expected numbers and commas")))
}

fn write(out: &Path, logits: &[f32], vocab: usize) -> Result<(), Failure> {
    let bytes: Vec<u8> = logits.iter().flat_map(|v| v.to_le_bytes()).collect();
    let view = TensorView::new(Dtype::F32, vec![logits.len() / vocab, vocab], &bytes);
    view.and_then(|view| serialize_to_file([("logits", view)], None, out))
        .map_err(|error| Failure::Error(format!("cannot write {}: {error}", out.display())))
}

/// The likeliest next token after each token, and its log-probability.
fn print_best(tokens: &[u32], logits: &[f32], vocab: usize, as_json: bool) -> Result<(), Failure> {
    let best: Vec<(usize, f64)> = logits
        .chunks_exact(vocab)
        .map(|row| {
            let best = (0..vocab).reduce(|a, b| if row[b] > row[a] { b } else { a }).expect("a vocabulary");
            let sum: f64 = row.iter().map(|&v| f64::from(v - row[best]).exp()).sum();
            (best, -sum.ln())
        })
        .collect();
    if as_json {
        let rows =
            tokens.iter().zip(&best).map(|(token, best)| json!({ "token": token, "next": best.0, "logprob": best.1 }));
        return print(&format!("{}\n", json!({ "vocabulary": vocab, "positions": rows.collect::<Vec<_>>() })));
    }
    let line = |(token, (next, logprob)): (&u32, &(usize, f64))| format!("{token:>8} -> {next:>8}  {logprob:.6}\n");
    print(&tokens.iter().zip(&best).map(line).collect::<String>())
}
