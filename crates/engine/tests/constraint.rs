//! Replies that follow a constraint.

mod common;

use std::sync::{Arc, Mutex};

use common::{Heard, alone, gated_one, hear, limits, plain, request};
use kapitsa_engine::sample::SamplingOptions;
use kapitsa_engine::{Constraint, EngineError, FinishReason, Generation, Limits, Request, TokenSet};

const STOP: u32 = 7;

/// What the constraint of a test does when so many tokens have come.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Mask(usize),
    Accept(usize),
    Panic(usize),
    Nothing(usize),
}

/// Allows the tokens of one class modulo 4 after another: first 0, then 1, ... The stop token is of class 3.
#[derive(Clone, Debug, Default)]
struct Classes {
    accepted: Arc<Mutex<Vec<u32>>>,
    /// The reply may end once it has so many tokens.
    ends_from: Option<usize>,
    /// Nothing else may follow so many.
    complete_at: Option<usize>,
    /// Whether the engine hears of that before it asks for the next mask.
    says_complete: bool,
    fault: Option<Fault>,
}

impl Classes {
    fn len(&self) -> usize {
        self.accepted.lock().unwrap().len()
    }
}

impl Constraint for Classes {
    fn mask(&mut self, allowed: &mut TokenSet) -> Result<bool, String> {
        assert!(allowed.is_empty());
        let len = self.len();
        match self.fault {
            Some(Fault::Mask(at)) if at == len => return Err("ordered by the test".into()),
            Some(Fault::Panic(at)) if at == len => panic!("ordered by the test"),
            Some(Fault::Nothing(at)) if at == len => return Ok(false),
            _ => {}
        }
        if self.complete_at != Some(len) {
            (0..256).filter(|token| *token as usize % 4 == len % 4).for_each(|token| allowed.insert(token));
        }
        Ok(self.ends_from.is_some_and(|from| from <= len) || self.complete_at == Some(len))
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        if self.fault == Some(Fault::Accept(self.len())) {
            return Err("ordered by the test".into());
        }
        self.accepted.lock().unwrap().push(token);
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.says_complete && self.complete_at == Some(self.len())
    }

    fn fork(&self) -> Box<dyn Constraint> {
        let accepted = Arc::new(Mutex::new(self.accepted.lock().unwrap().clone()));
        Box::new(Classes { accepted, ..self.clone() })
    }
}

/// A request that follows classes of tokens.
fn constrained(seed: u64, tokens: usize, max_tokens: usize, classes: Classes) -> Request {
    Request { stop_tokens: vec![STOP], constraint: Some(Box::new(classes)), ..request(seed, tokens, max_tokens) }
}

fn follows_classes(ids: &[u32]) -> bool {
    ids.iter().enumerate().all(|(index, &id)| id as usize % 4 == index % 4)
}

#[test]
fn only_allowed_tokens_come_however_they_are_chosen() {
    let samplings = [
        SamplingOptions { temperature: 0.0, ..Default::default() },
        SamplingOptions { temperature: 1.0, seed: 3, ..Default::default() },
        SamplingOptions { temperature: 5.0, top_k: 2, seed: 3, ..Default::default() },
        SamplingOptions {
            temperature: 2.0,
            top_p: 0.5,
            min_p: 0.01,
            presence_penalty: 2.0,
            seed: 3,
            ..Default::default()
        },
        // A bias towards what is not allowed.
        SamplingOptions { logit_bias: (0..256).step_by(2).map(|id| (id, 100.0)).collect(), ..Default::default() },
    ];
    for sampling in samplings {
        let request = Request { sampling, ..constrained(1, 10, 40, Classes::default()) };
        let heard = alone(&request);
        assert_eq!((heard.ids.len(), heard.finish.unwrap().reason), (40, FinishReason::Length));
        assert!(follows_classes(&heard.ids), "{:?}: {:?}", request.sampling, heard.ids);
        let plain = alone(&Request { constraint: None, stop_tokens: vec![], ..request });
        assert!(!follows_classes(&plain.ids), "it would have said so anyway");
    }
}

#[test]
fn a_constraint_that_allows_everything_changes_nothing() {
    #[derive(Clone, Debug)]
    struct All;
    impl Constraint for All {
        fn mask(&mut self, allowed: &mut TokenSet) -> Result<bool, String> {
            allowed.extend_words(&[u32::MAX; 9]);
            Ok(true)
        }
        fn accept(&mut self, _: u32) -> Result<(), String> {
            Ok(())
        }
        fn is_complete(&self) -> bool {
            false
        }
        fn fork(&self) -> Box<dyn Constraint> {
            Box::new(All)
        }
    }
    let plain = Request { stop_tokens: vec![STOP], ..request(1, 30, 60) };
    let heard = alone(&Request { constraint: Some(Box::new(All)), ..plain.clone() });
    assert_eq!(heard.reply(), alone(&plain).reply());
}

#[test]
fn logprobs_are_shares_among_the_allowed_tokens() {
    let greedy = SamplingOptions { temperature: 0.0, ..Default::default() };
    let one = Request { sampling: greedy, ..constrained(1, 10, 1, Classes::default()) };
    let engine = plain(limits());
    let logits = engine.logits(&one.prompt, &[]).unwrap().logits;
    let row = &logits[9 * 256..];
    let sum: f64 = row.iter().step_by(4).map(|&logit| f64::from(logit).exp()).sum();
    let heard = hear(engine.submit(one).unwrap());
    assert_eq!(heard.logprobs[0].len(), 1 + 3);
    for &(id, bits) in &heard.logprobs[0] {
        let expected = f64::from(row[id as usize]) - sum.ln();
        assert!(id % 4 == 0 && (f64::from(f32::from_bits(bits)) - expected).abs() < 1e-5, "{id}");
    }
}

#[test]
fn constrained_and_free_replies_share_steps_and_equal_their_runs_alone() {
    let free = request(2, 9, 30);
    let requests = [constrained(1, 20, 30, Classes::default()), free, constrained(3, 33, 30, Classes::default())];
    let expected: Vec<Heard> = requests.iter().map(alone).collect();
    let (engine, gate) = gated_one(limits());
    let replies: Vec<Generation> = requests.iter().map(|request| engine.submit(request.clone()).unwrap()).collect();
    let steps = gate.open();
    for (reply, expected) in replies.into_iter().zip(&expected) {
        assert_eq!(hear(reply).reply(), expected.reply());
    }
    drop(engine);
    assert!(steps.iter().any(|rows| rows == 3));
    assert!(follows_classes(&expected[0].ids) && follows_classes(&expected[2].ids));
}

#[test]
fn stop_tokens_come_only_where_the_constraint_may_end() {
    let sampling = SamplingOptions { temperature: 0.0, logit_bias: [(STOP, 100.0)].into(), ..Default::default() };
    let heard = |classes| alone(&Request { sampling: sampling.clone(), ..constrained(1, 10, 40, classes) });
    let never = heard(Classes::default());
    assert_eq!((never.ids.len(), never.finish.unwrap().reason), (40, FinishReason::Length));
    assert!(!never.ids.contains(&STOP), "not even where a token of its class may come");
    let soon = heard(Classes { ends_from: Some(6), ..Classes::default() });
    assert_eq!((soon.ids.as_slice(), soon.finish.unwrap().reason), (&never.ids[..6], FinishReason::Stop));
}

#[test]
fn a_complete_reply_stops_without_a_stop_token() {
    for (says_complete, expected_steps) in [(true, 5), (false, 6)] {
        let (engine, gate) = gated_one(limits());
        let classes = Classes { complete_at: Some(5), says_complete, ..Classes::default() };
        let request = Request { stop_tokens: vec![], ..constrained(1, 10, 40, classes) };
        let reply = engine.submit(request).unwrap();
        let steps = gate.open();
        let heard = hear(reply);
        assert_eq!((heard.ids.len(), heard.finish.unwrap().reason), (5, FinishReason::Stop));
        assert_eq!(heard.finish.unwrap().reply_tokens, 5);
        drop(engine);
        assert_eq!(steps.iter().count(), expected_steps);
    }
    let at_once = alone(&constrained(1, 10, 40, Classes { complete_at: Some(0), ..Classes::default() }));
    assert_eq!((at_once.ids.len(), at_once.finish.unwrap().reason), (0, FinishReason::Stop));
}

#[test]
fn a_constraint_that_fails_ends_its_own_reply_only() {
    let faults = [
        (Fault::Mask(4), "the reply cannot follow its constraint: ordered by the test"),
        (Fault::Accept(4), "the reply cannot follow its constraint: ordered by the test"),
        (Fault::Nothing(4), "the reply cannot follow its constraint: no token may come next"),
        (Fault::Panic(4), "the step crashed (ordered by the test); this is a fault of Kapitsa, please report it"),
    ];
    for (fault, message) in faults {
        let engine = plain(limits());
        let fails = constrained(2, 10, 20, Classes { fault: Some(fault), ..Classes::default() });
        let others = [constrained(1, 10, 20, Classes::default()), request(3, 10, 20)];
        let [first, failing, last] =
            [&others[0], &fails, &others[1]].map(|request| engine.submit(request.clone()).unwrap());
        let failed = hear(failing);
        assert_eq!((failed.ids.len(), failed.error.unwrap().to_string().as_str()), (4, message));
        assert_eq!(hear(first).reply(), alone(&others[0]).reply());
        assert_eq!(hear(last).reply(), alone(&others[1]).reply());
        let stats = engine.stats();
        assert_eq!((stats.finished, stats.failed, stats.slots_busy), (2, 1, 0));
    }
    let refused = EngineError::Constraint { reason: "it".into() };
    assert_eq!(refused.to_string(), "the reply cannot follow its constraint: it");
}

/// Four pages of 64 tokens: too few for two replies that grow to three pages each.
#[test]
fn a_reply_that_is_read_again_goes_on_where_its_constraint_was() {
    let limits = Limits { context: 192, kv_tokens: 256, ..limits() };
    let seen: [Classes; 2] = Default::default();
    let requests = [70, 60].map(|tokens| constrained(tokens, tokens as usize, 500, Classes::default()));
    let (engine, gate) = gated_one(limits);
    let replies = [0, 1].map(|index| {
        let request = Request { constraint: Some(Box::new(seen[index].clone())), ..requests[index].clone() };
        engine.submit(request).unwrap()
    });
    let steps = gate.open();
    let heard = std::thread::scope(|scope| {
        replies.map(|reply| scope.spawn(|| hear(reply))).map(|thread| thread.join().unwrap())
    });
    drop(engine);
    for (index, heard) in heard.iter().enumerate() {
        let alone = plain(Limits { context: 192, ..common::limits() });
        assert_eq!(heard.reply(), hear(alone.submit(requests[index].clone()).unwrap()).reply());
        assert_eq!(*seen[index].accepted.lock().unwrap(), heard.ids, "each token once");
        assert!(follows_classes(&heard.ids) && heard.ids.len() > 100);
    }
    assert!(steps.iter().skip(2).any(|rows| rows > 60), "one was read again");
}
