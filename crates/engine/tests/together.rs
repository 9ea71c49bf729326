//! Replies made together are those made alone, bit for bit.

mod common;

use common::{Gate, alone, backends, gated, gated_one, hear, limits, plain, request};
use kapitsa_engine::{FinishReason, Limits};

#[test]
fn three_replies_share_each_forward_call_and_equal_their_runs_alone() {
    let requests = [request(1, 20, 20), request(2, 9, 20), request(3, 33, 20)];
    let expected: Vec<_> = requests.iter().map(alone).collect();
    for (name, make) in backends() {
        let (engine, gate) = gated(&make, limits());
        let replies: Vec<_> = requests.iter().map(|request| engine.submit(request.clone()).unwrap()).collect();
        let steps = gate.open();
        let heard: Vec<_> = replies.into_iter().map(hear).collect();
        drop(engine);
        for (heard, expected) in heard.iter().zip(&expected) {
            assert_eq!(heard.reply(), expected.reply(), "{name}");
            assert_eq!(heard.ids.len(), 20);
        }
        // A prompt joins in each of the first steps, then all three go on until the first is done.
        let rows: Vec<usize> = steps.iter().collect();
        let expected_rows: Vec<usize> = [20, 1 + 9, 2 + 33].into_iter().chain([3; 17]).chain([2, 1]).collect();
        assert_eq!(rows, expected_rows, "{name}");
    }
}

#[test]
fn a_long_prompt_lets_a_short_one_pass_and_replies_go_on() {
    let (engine, gate) = gated_one(limits());
    let long = engine.submit(request(1, 400, 3)).unwrap();
    let short = engine.submit(request(2, 30, 8)).unwrap();
    let steps = gate.open();
    let (long, short) = (hear(long), hear(short));
    drop(engine);
    // 128 of the long one, the short one, then 64 at a time beside the reply; at last both reply.
    assert_eq!(steps.iter().collect::<Vec<_>>(), [128, 30, 65, 65, 65, 65, 17, 2, 2]);
    assert_eq!(long.reads, [128, 192, 256, 320, 384, 400]);
    assert_eq!(long.reply(), alone(&request(1, 400, 3)).reply());
    assert_eq!(short.reply(), alone(&request(2, 30, 8)).reply());
}

/// Four pages of 64 tokens: too few for two replies that grow to three pages each.
#[test]
fn a_reply_that_gave_its_memory_up_continues_as_if_nothing_had_been() {
    let limits = Limits { context: 192, kv_tokens: 256, ..limits() };
    let requests = [request(1, 70, 500), request(2, 60, 500)];
    let (engine, gate) = gated_one(limits);
    let replies = requests.clone().map(|request| engine.submit(request).unwrap());
    let steps = gate.open();
    let heard = std::thread::scope(|scope| {
        replies.map(|reply| scope.spawn(|| hear(reply))).map(|thread| thread.join().unwrap())
    });
    drop(engine);
    for (heard, request) in heard.iter().zip(&requests) {
        let expected = hear(plain(Limits { context: 192, ..common::limits() }).submit(request.clone()).unwrap());
        assert_eq!(heard.reply(), expected.reply());
        assert_eq!(heard.finish.unwrap().reason, FinishReason::Length);
        assert_eq!(heard.reads, [request.prompt.len()], "reading again is not told");
    }
    let rows: Vec<usize> = steps.iter().collect();
    assert_eq!(rows[..2], [70, 61]);
    assert!(rows[2..].iter().any(|&rows| rows > 60), "the second was read again: {rows:?}");
}

#[test]
fn logits_in_between_disturb_nothing_though_they_take_the_memory() {
    let limits = Limits { context: 192, kv_tokens: 192, ..limits() };
    let request = request(1, 70, 100);
    let (engine, gate) = gated_one(limits);
    let reply = engine.submit(request.clone()).unwrap();
    let tokens: Vec<u32> = (0..150).collect();
    let (logits, heard) = std::thread::scope(|scope| {
        gate.step();
        let logits = scope.spawn(|| engine.logits(&tokens, &[]).unwrap().logits);
        let _steps = Gate::open(gate);
        (logits.join().unwrap(), hear(reply))
    });
    assert_eq!(heard.reply(), alone(&request).reply());
    assert_eq!(logits, plain(common::limits()).logits(&tokens, &[]).unwrap().logits);
}
