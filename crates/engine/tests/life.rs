//! The life of requests: refused, queued, cancelled, slow, failed.

mod common;

use common::{Heard, Order, alone, gated_one, hear, limits, plain, request};
use kapitsa_engine::sample::SamplingOptions;
use kapitsa_engine::{Engine, EngineError, Event, FinishReason, Generation, Limits, Request};

/// One slot, and just the memory for one context.
fn narrow() -> Limits {
    Limits { context: 512, slots: 1, queue: 2, kv_tokens: 512 }
}

/// Why a request is refused.
fn refusal(engine: &Engine, request: Request) -> EngineError {
    engine.submit(request).err().expect("should be refused")
}

#[test]
fn a_caller_who_leaves_while_the_prompt_is_read_costs_no_further_step() {
    let (engine, gate) = gated_one(narrow());
    let leaves = engine.submit(request(1, 500, 5)).unwrap();
    let stays = engine.submit(request(2, 505, 5)).unwrap();
    assert_eq!(gate.step(), 128);
    assert_eq!(gate.begun(), 128);
    drop(leaves);
    gate.order(Order::Run); // the step that was running
    let steps = gate.open();
    assert_eq!(hear(stays).reply(), alone(&request(2, 505, 5)).reply());
    drop(engine);
    // All that follows is of the other request.
    assert_eq!(steps.iter().collect::<Vec<_>>(), [128, 128, 128, 121, 1, 1, 1, 1]);
}

#[test]
fn a_caller_who_leaves_in_mid_reply_costs_no_further_step() {
    let (engine, gate) = gated_one(narrow());
    let mut leaves = engine.submit(request(1, 100, 400)).unwrap();
    let stays = engine.submit(request(2, 505, 1)).unwrap();
    assert_eq!([gate.step(), gate.step(), gate.step()], [100, 1, 1]);
    assert!(matches!(leaves.recv(), Some(Event::Prefill { read: 100 })));
    assert_eq!(gate.begun(), 1);
    leaves.cancel();
    gate.order(Order::Run);
    let steps = gate.open();
    assert_eq!(hear(stays).ids.len(), 1);
    drop(engine);
    assert_eq!(steps.iter().collect::<Vec<_>>(), [128, 128, 128, 121]);
}

#[test]
fn requests_that_are_left_while_they_wait_are_gone_from_the_queue() {
    let (engine, gate) = gated_one(narrow());
    let runs = engine.submit(request(1, 10, 2)).unwrap();
    assert_eq!(gate.begun(), 10);
    let mut waiting: Vec<Generation> = (2..4).map(|seed| engine.submit(request(seed, 20, 2)).unwrap()).collect();
    let message = refusal(&engine, request(9, 20, 2)).to_string();
    assert_eq!(message, "too busy: 1 requests run and 2 wait, which is the limit; try again later");
    drop(waiting.remove(0));
    waiting.push(engine.submit(request(4, 30, 2)).unwrap());
    gate.order(Order::Run);
    let steps = gate.open();
    [runs].into_iter().chain(waiting).for_each(|reply| assert_eq!(hear(reply).ids.len(), 2));
    drop(engine);
    assert_eq!(steps.iter().collect::<Vec<_>>(), [1, 20, 1, 30, 1]);
}

#[test]
fn what_cannot_be_served_is_refused_at_once() {
    let (engine, _gate) = gated_one(narrow());
    let refused = |change: &dyn Fn(&mut Request)| {
        let mut request = request(1, 5, 5);
        change(&mut request);
        refusal(&engine, request).to_string()
    };
    assert_eq!(refused(&|r| r.prompt.clear()), "the prompt is empty; at least one token is needed");
    assert_eq!(refused(&|r| r.prompt[3] = 256), "token 256 is outside the vocabulary of 256");
    assert_eq!(
        refused(&|r| r.prompt = vec![1; 512]),
        "the prompt has 512 tokens, the context 512; shorten the prompt or raise --context"
    );
    assert_eq!(
        refused(&|r| r.logprobs = Some(21)),
        "21 alternatives for each token were asked for, expected at most 20"
    );
    assert!(refused(&|r| r.sampling.top_p = 2.0).starts_with("top_p is 2"));
    assert!(engine.logits(&vec![1; 513], &[]).unwrap_err().to_string().contains("has 513 tokens"));
}

#[test]
fn replies_end_at_their_limits() {
    let engine = plain(narrow());
    let reply = |request: Request| hear(engine.submit(request).unwrap());
    let whole = reply(request(1, 500, 1000));
    assert_eq!((whole.ids.len(), whole.finish.unwrap().reason), (12, FinishReason::Length));
    let none = reply(request(1, 500, 0));
    assert_eq!((none.reads.len(), none.ids.len(), none.finish.unwrap().reply_tokens), (0, 0, 0));
    let stops = Request { stop_tokens: vec![whole.ids[5]], ..request(1, 500, 1000) };
    let stopped = reply(stops);
    let first = whole.ids.iter().position(|&id| id == whole.ids[5]).unwrap();
    assert_eq!((stopped.ids.as_slice(), stopped.finish.unwrap().reason), (&whole.ids[..first], FinishReason::Stop));
}

#[test]
fn a_slow_reader_stops_its_own_reply_only() {
    let (engine, gate) = gated_one(limits());
    let slow = engine.submit(request(1, 10, 300)).unwrap();
    let quick = engine.submit(request(2, 10, 300)).unwrap();
    let steps = gate.open();
    assert_eq!(hear(quick).reply(), alone(&request(2, 10, 300)).reply());
    // It slept until now, or will: its reader wakes it.
    assert_eq!(hear(slow).reply(), alone(&request(1, 10, 300)).reply());
    drop(engine);
    let rows: Vec<usize> = steps.iter().collect();
    assert!(rows[100..260].iter().all(|&rows| rows == 1), "{rows:?}");
}

#[test]
fn readers_of_every_pace_hear_everything() {
    let engine = plain(limits());
    let requests: Vec<Request> = (0..3).map(|seed| request(seed, 5, 200)).collect();
    let expected: Vec<Heard> = requests.iter().map(alone).collect();
    std::thread::scope(|scope| {
        for (pace, (request, expected)) in requests.iter().zip(&expected).enumerate() {
            let engine = &engine;
            scope.spawn(move || {
                let mut reply = engine.submit(request.clone()).unwrap();
                let mut heard = Heard::default();
                while let Some(event) = reply.recv() {
                    heard.hear(event);
                    (0..50 * pace).for_each(|_| std::thread::yield_now());
                }
                assert_eq!(heard.reply(), expected.reply());
            });
        }
    });
}

#[test]
fn an_engine_that_is_dropped_ends_its_replies() {
    let (engine, gate) = gated_one(narrow());
    let replies: Vec<Generation> = (1..3).map(|seed| engine.submit(request(seed, 10, 400)).unwrap()).collect();
    let _steps = gate.open();
    drop(engine); // neither can end by itself: nobody reads
    for reply in replies {
        assert!(matches!(hear(reply).error, Some(EngineError::Stopped)));
    }
}

#[test]
fn a_request_that_fails_harms_no_other() {
    let (engine, gate) = gated_one(limits());
    let replies: Vec<Generation> = (1..4).map(|seed| engine.submit(request(seed, 10, 20)).unwrap()).collect();
    assert_eq!([gate.step(), gate.step(), gate.step()], [10, 11, 12]);
    assert_eq!(gate.begun(), 3);
    gate.order(Order::Nan(1));
    let _steps = gate.open();
    let heard: Vec<Heard> = replies.into_iter().map(hear).collect();
    assert!(matches!(heard[1].error, Some(EngineError::Sample(_))));
    for (heard, seed) in [(&heard[0], 1), (&heard[2], 3)] {
        assert_eq!(heard.reply(), alone(&request(seed, 10, 20)).reply());
    }
}

#[test]
fn a_step_that_fails_is_taken_apart_and_ends_only_those_that_fail_alone() {
    for fault in [Order::Fail, Order::Panic] {
        let (engine, gate) = gated_one(limits());
        let replies: Vec<Generation> = (1..4).map(|seed| engine.submit(request(seed, 10, 20)).unwrap()).collect();
        assert_eq!([gate.step(), gate.step(), gate.step()], [10, 11, 12]);
        assert_eq!(gate.begun(), 3);
        gate.order(fault);
        for (rows, order) in [(1, Order::Run), (1, fault), (1, Order::Run)] {
            assert_eq!(gate.begun(), rows);
            gate.order(order);
        }
        let _steps = gate.open();
        let heard: Vec<Heard> = replies.into_iter().map(hear).collect();
        let error = heard[1].error.as_ref().expect("a failure").to_string();
        match fault {
            Order::Fail => assert!(error.starts_with("out of memory: 1 more bytes for a test"), "{error}"),
            _ => assert!(error.starts_with("the step crashed (ordered by the test)"), "{error}"),
        }
        for (heard, seed) in [(&heard[0], 1), (&heard[2], 3)] {
            assert_eq!(heard.reply(), alone(&request(seed, 10, 20)).reply());
        }
        let next = engine.submit(request(4, 10, 20)).unwrap();
        assert_eq!(hear(next).reply(), alone(&request(4, 10, 20)).reply());
        assert!(engine.is_alive());
        let stats = engine.stats();
        assert_eq!((stats.finished, stats.failed, stats.cancelled, stats.slots_busy), (3, 1, 0, 0));
    }
}

#[test]
fn nobody_waits_for_a_thread_that_has_crashed() {
    let (engine, gate) = gated_one(narrow());
    let replies: Vec<Generation> = (1..3).map(|seed| engine.submit(request(seed, 10, 20)).unwrap()).collect();
    gate.begun();
    gate.order(Order::Crash);
    for reply in replies {
        assert!(matches!(hear(reply).error, Some(EngineError::Stopped)));
    }
    assert!(!engine.is_alive());
    assert!(matches!(refusal(&engine, request(1, 10, 20)), EngineError::Stopped));
    assert!(matches!(engine.logits(&[1], &[]), Err(EngineError::Stopped)));
}

#[test]
fn an_engine_that_is_stopped_ends_its_replies_and_takes_on_no_more() {
    let (engine, gate) = gated_one(narrow());
    let replies: Vec<Generation> = (1..3).map(|seed| engine.submit(request(seed, 10, 400)).unwrap()).collect();
    let _steps = gate.open();
    engine.stop();
    for reply in replies {
        assert!(matches!(hear(reply).error, Some(EngineError::Stopped)));
    }
    assert!(!engine.is_alive());
    assert!(matches!(refusal(&engine, request(1, 10, 20)), EngineError::Stopped));
}

#[test]
fn the_numbers_say_what_became_of_every_request() {
    let (engine, gate) = gated_one(narrow());
    let mut finishes = engine.submit(request(1, 200, 3)).unwrap();
    assert_eq!(gate.begun(), 128);
    let mut waiting: Vec<Generation> = (2..4).map(|seed| engine.submit(request(seed, 20, 5)).unwrap()).collect();
    assert!(matches!(refusal(&engine, request(9, 20, 2)), EngineError::Busy { .. }));
    assert!(matches!(engine.check_room(), Err(EngineError::Busy { running: 1, queued: 2 })));
    let stats = engine.stats();
    assert_eq!((stats.slots, stats.slots_busy, stats.queue, stats.queue_limit), (1, 1, 2, 2));
    gate.order(Order::Run);
    assert_eq!([gate.step(), gate.step(), gate.step()], [72, 1, 1]);
    while finishes.recv().is_some() {}
    // Enough for its reader, such as at a stop text.
    let enough = waiting.remove(0);
    assert_eq!(gate.begun(), 20);
    enough.finish();
    drop(waiting);
    gate.order(Order::Run);
    let _steps = gate.open();
    assert_eq!(hear(engine.submit(request(5, 10, 2)).unwrap()).ids.len(), 2);
    let stats = engine.stats();
    assert_eq!((stats.finished, stats.cancelled, stats.failed, stats.refused), (3, 1, 0, 2));
    assert!(engine.check_room().is_ok());
    assert_eq!((stats.slots_busy, stats.queue), (0, 0));
    // The reply that was enough had been read, and its first token was on its way.
    assert_eq!((stats.tokens_read, stats.tokens_written, stats.tokens_reused), (200 + 20 + 10, 3 + 1 + 2, 0));
    assert_eq!(stats.step_times.steps(), 4 + 1 + 2);
}

#[test]
fn a_reply_may_be_awaited() {
    let engine = plain(limits());
    let mut reply = engine.submit(request(1, 10, 60)).unwrap();
    let mut heard = Heard::default();
    while let Some(event) = pollster(reply.next()) {
        heard.hear(event);
    }
    assert_eq!(heard.reply(), alone(&request(1, 10, 60)).reply());
}

/// Blocks on a future.
fn pollster<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn logprobs_are_those_of_the_model_before_sampling() {
    let engine = plain(limits());
    let strict = SamplingOptions { temperature: 0.1, top_k: 1, ..Default::default() };
    let request = Request { sampling: strict, ..request(1, 10, 1) };
    let logits = engine.logits(&request.prompt, &[]).unwrap().logits;
    let row = &logits[9 * 256..];
    let sum: f64 = row.iter().map(|&logit| f64::from(logit).exp()).sum();
    let Some(Event::Token { id, logprobs: Some(found) }) = ({
        let mut reply = engine.submit(request).unwrap();
        reply.recv();
        reply.recv()
    }) else {
        panic!("a token with log-probabilities");
    };
    assert_eq!((found.top.len(), found.top[0].id, found.top[0].logprob), (3, id, found.logprob));
    for top in &found.top {
        let expected = f64::from(row[top.id as usize]) - sum.ln();
        assert!((f64::from(top.logprob) - expected).abs() < 1e-5, "{top:?}, expected {expected}");
    }
}
