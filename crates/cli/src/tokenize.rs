//! `kapitsa tokenize`: the tokens of a text.

use kapitsa::Specials;
use serde_json::json;

use crate::args::TokenizeArgs;
use crate::output::{Failure, print, text_or_stdin};
use crate::progress;

pub(crate) fn run(args: TokenizeArgs) -> Result<(), Failure> {
    let text = text_or_stdin(args.text)?;
    let path = progress::resolve(args.model.as_deref())?;
    let tokenizer = kapitsa::open_tokenizer(&path)?;
    let ids = tokenizer.encode(&text, Specials::Parse).map_err(kapitsa::Error::from)?;
    // A token may be part of a character; what is no text by itself is shown as U+FFFD.
    let piece = |id: u32| String::from_utf8_lossy(tokenizer.token_bytes(id)).into_owned();
    if args.json {
        let tokens: Vec<String> = ids.iter().map(|&id| piece(id)).collect();
        return print(&format!("{}\n", json!({ "count": ids.len(), "ids": ids, "tokens": tokens })));
    }
    print(&ids.iter().map(|&id| format!("{id:>8}  {:?}\n", piece(id))).collect::<String>())
}
