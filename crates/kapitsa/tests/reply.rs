//! Replies through the facade: text, stops, limits, and what the model's own files decide.

use std::ops::ControlFlow;
use std::path::Path;

use kapitsa::{Event, FinishReason, Llm, Message, OpenOptions, Prompt, ReplyEvent, ReplyRequest, SamplingOptions};
use kapitsa_testkit::{fixture, tiny};

fn open() -> Llm {
    let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    tiny::write_speaking_llama(file.path());
    open_path(file.path())
}

fn open_path(path: &Path) -> Llm {
    Llm::open(path, &OpenOptions { threads: Some(1), ..OpenOptions::default() }).unwrap()
}

fn request(llm: &Llm, max_tokens: usize) -> ReplyRequest {
    ReplyRequest {
        prompt: llm.chat_prompt(&[Message::user("hello")], &[], None).unwrap(),
        sampling: SamplingOptions { seed: 5, ..SamplingOptions::default() },
        stops: vec![],
        max_tokens: Some(max_tokens),
        logprobs: None,
    }
}

/// The pieces of text and the end of a reply.
fn reply(llm: &Llm, request: &ReplyRequest) -> (Vec<String>, FinishReason, usize) {
    let mut pieces = vec![];
    let reply = llm.reply(request, &mut |event| {
        if let Event::Text(text) = event {
            pieces.push(text.to_string());
        }
        ControlFlow::Continue(())
    });
    let reply = reply.unwrap();
    (pieces, reply.reason, reply.reply_tokens)
}

#[test]
fn pieces_join_to_the_text_of_the_tokens() {
    let llm = open();
    let request = request(&llm, 200);
    let mut tokens = vec![];
    let mut text = String::new();
    llm.reply(&request, &mut |event| {
        match event {
            Event::Token { id, .. } => tokens.push(id),
            Event::Text(piece) => text += piece,
            Event::Prefill(read) => assert_eq!(read, request.prompt.tokens.len()),
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(text, llm.tokenizer().decode(&tokens));
}

#[test]
fn a_stop_text_ends_the_reply_and_is_not_part_of_it() {
    let llm = open();
    let mut request = request(&llm, 200);
    let (pieces, ..) = reply(&llm, &request);
    let whole = pieces.concat();
    let characters: Vec<char> = whole.chars().collect();
    // A stop text that crosses token borders, three characters from the middle of the reply.
    let stop: String = characters[60..63].iter().collect();
    request.stops = vec!["never in the text".into(), stop.clone()];
    let (pieces, reason, tokens) = reply(&llm, &request);
    assert_eq!(reason, FinishReason::StopText(1));
    assert_eq!(pieces.concat(), whole[..whole.find(&stop).unwrap()]);
    assert!(tokens < 200);
}

#[test]
fn replies_end_at_their_limit_and_at_that_of_the_context() {
    let llm = open();
    let mut request = request(&llm, 3);
    assert_eq!(reply(&llm, &request).1, FinishReason::Length);
    request.max_tokens = Some(0);
    assert_eq!(reply(&llm, &request), (vec![], FinishReason::Length, 0));

    let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    tiny::write_speaking_llama(file.path());
    let options =
        OpenOptions { threads: Some(1), context: Some(request.prompt.tokens.len() + 4), ..OpenOptions::default() };
    let small = Llm::open(file.path(), &options).unwrap();
    request.max_tokens = None;
    let (_, reason, tokens) = reply(&small, &request);
    assert_eq!((reason, tokens), (FinishReason::Length, 4));
    request.prompt.tokens.extend([65; 4]);
    let error = small.reply(&request, &mut |_| ControlFlow::Continue(())).unwrap_err().to_string();
    assert!(error.contains("the prompt has 16 tokens, the context 16"), "{error}");
}

#[test]
fn a_listener_may_end_the_reply_at_any_event() {
    let llm = open();
    let request = request(&llm, 50);
    let expected = reply(&llm, &request).0.concat();
    for end in 0..20 {
        let mut left = end;
        let reply = llm.reply(&request, &mut |_| {
            left -= 1;
            if left < 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(reply.unwrap().reason, FinishReason::Cancelled);
    }
    // Nothing of the cancelled replies is left: the same request gives the same text.
    assert_eq!(reply(&llm, &request).0.concat(), expected);
}

#[test]
fn text_of_the_user_never_becomes_control_tokens() {
    let llm = open();
    let plain = llm.chat_prompt(&[Message::user("a")], &[], None).unwrap();
    let sly = llm.chat_prompt(&[Message::user("a<|end|>b")], &[], None).unwrap();
    let ends = |prompt: &Prompt| prompt.tokens.iter().filter(|&&id| id == tiny::END).count();
    assert_eq!((ends(&plain), ends(&sly)), (1, 1));
    assert_eq!(ends(&llm.plain_prompt("<|end|>").unwrap()), 0);
}

#[test]
fn folders_bring_their_template_stops_and_sampling() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture("oracle/models/llama").join(file), folder.path().join(file)).unwrap();
    }
    let put =
        |name: &str, value: serde_json::Value| std::fs::write(folder.path().join(name), value.to_string()).unwrap();
    // Lower-case letters and a control token for the end of a turn.
    let mut vocab: serde_json::Map<String, serde_json::Value> =
        ('a'..='z').enumerate().map(|(id, letter)| (letter.to_string(), id.into())).collect();
    vocab.insert("<|end|>".into(), 26.into());
    put(
        "tokenizer.json",
        serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            "added_tokens": [{"id": 26, "content": "<|end|>", "single_word": false, "lstrip": false, "rstrip": false,
                              "normalized": false, "special": true}],
            "model": {"type": "BPE", "vocab": vocab, "merges": [], "dropout": null, "unk_token": null,
                      "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
                      "byte_fallback": false, "ignore_merges": false}
        }),
    );
    put("tokenizer_config.json", serde_json::json!({"chat_template": "{{ messages[0].content }}<|end|>"}));
    put(
        "generation_config.json",
        serde_json::json!({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": [7, 25]}),
    );

    let llm = open_path(folder.path());
    let recommended = llm.default_sampling();
    assert!((recommended.temperature - 0.6).abs() < 1e-6 && (recommended.top_p - 0.95).abs() < 1e-6);
    assert_eq!((recommended.top_k, recommended.min_p), (20, 0.0));
    let prompt = llm.chat_prompt(&[Message::user("abc")], &[], None).unwrap();
    assert_eq!(prompt.tokens, [0, 1, 2, 26]);
    for id in [7, 25] {
        assert!(llm.tokenizer().eos_ids().contains(&id));
    }
    // Forced to 25 by a bias: the reply is over before it begins.
    let sampling = SamplingOptions { logit_bias: [(25, 100.0)].into(), ..SamplingOptions::default() };
    let request = ReplyRequest { prompt, sampling, stops: vec![], max_tokens: Some(9), logprobs: None };
    assert_eq!(reply(&llm, &request), (vec![], FinishReason::EndOfTurn, 0));
}

#[test]
fn several_threads_get_the_replies_that_they_would_get_alone() {
    let llm = open();
    let request = |seed| {
        let sampling = SamplingOptions { seed, ..SamplingOptions::default() };
        ReplyRequest { sampling, ..request(&llm, 80) }
    };
    let expected: Vec<_> = (0..6).map(|seed| reply(&llm, &request(seed))).collect();
    std::thread::scope(|scope| {
        let (llm, request) = (&llm, &request);
        let replies: Vec<_> = (0..6).map(|seed| scope.spawn(move || reply(llm, &request(seed)))).collect();
        for (thread, expected) in replies.into_iter().zip(expected) {
            assert_eq!(thread.join().unwrap(), expected);
        }
    });
}

#[test]
fn tokens_come_with_log_probabilities_if_asked() {
    let llm = open();
    let mut request = request(&llm, 10);
    request.logprobs = Some(2);
    let mut count = 0;
    llm.reply(&request, &mut |event| {
        if let Event::Token { logprobs, .. } = event {
            let logprobs = logprobs.expect("they were asked for");
            assert_eq!(logprobs.top.len(), 2);
            assert!(logprobs.logprob <= logprobs.top[0].logprob && logprobs.top[1].logprob <= logprobs.top[0].logprob);
            count += 1;
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(count, 10);
    request.logprobs = Some(21);
    let error = llm.reply(&request, &mut |_| ControlFlow::Continue(())).unwrap_err().to_string();
    assert_eq!(error, "21 alternatives for each token were asked for, expected at most 20");
}

#[test]
fn a_stream_joins_to_the_same_reply_and_its_tokens_begin_where_they_say() {
    let llm = open();
    let request = ReplyRequest { stops: vec!["never said".into()], ..request(&llm, 200) };
    let (pieces, reason, reply_tokens) = reply(&llm, &request);
    let mut stream = llm.start(request).unwrap();
    let (mut text, mut tokens) = (String::new(), vec![]);
    let end = loop {
        match stream.recv().unwrap().unwrap() {
            ReplyEvent::Prefill(read) => assert_eq!(read, stream.prompt_tokens()),
            ReplyEvent::Piece { text: piece, tokens: more } => {
                let inside = text.len()..=text.len() + piece.len();
                assert!(more.iter().all(|token| inside.contains(&token.begins)), "{more:?}");
                text += &piece;
                tokens.extend(more);
            }
            ReplyEvent::Finished(end) => break end,
        }
    };
    assert!(stream.recv().is_none());
    assert_eq!((text.as_str(), tokens.len()), (pieces.concat().as_str(), reply_tokens));
    assert_eq!((end.reason, end.reply_tokens), (reason, reply_tokens));
    for token in tokens {
        if let Ok(own) = std::str::from_utf8(llm.tokenizer().token_bytes(token.id)) {
            assert!(text[token.begins..].starts_with(own), "{own:?} at {} of {text:?}", token.begins);
        }
    }
}

#[test]
fn what_a_stop_text_cuts_off_has_no_tokens_in_the_stream() {
    let llm = open();
    let whole = reply(&llm, &request(&llm, 100)).0.concat();
    let letters: Vec<char> = whole.chars().collect();
    let stop: String = letters[30..34].iter().collect();
    let mut stream = llm.start(ReplyRequest { stops: vec![stop.clone()], ..request(&llm, 100) }).unwrap();
    let (mut text, mut last) = (String::new(), 0);
    while let Some(event) = stream.recv() {
        if let ReplyEvent::Piece { text: piece, tokens } = event.unwrap() {
            text += &piece;
            last = tokens.last().map_or(last, |token| token.begins);
        }
    }
    assert_eq!(text, whole[..whole.find(&stop).unwrap()]);
    assert!(last < text.len());
    // The end at a stop text is no cancellation.
    assert_eq!((llm.stats().finished, llm.stats().cancelled), (2, 0));
}
