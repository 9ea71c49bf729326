//! Models with recurrent layers, whose sequences cannot go back: replies made together, after a failure or a preemption are
//! those made alone, bit for bit.

mod common;

use common::{Gate, Heard, Order, backends, gated_on, hear, limits, request};
use kapitsa_engine::{Engine, Generation, Limits, Request};

const CASES: [&str; 2] = ["qwen3_5-text", "nemotron_h"];

fn gated(case: &str, limits: Limits) -> (Engine, Gate) {
    gated_on(case, &backends().remove(0).1, limits)
}

fn alone(case: &str, request: &Request, limits: Limits) -> Heard {
    let (engine, gate) = gated(case, limits);
    drop(gate);
    hear(engine.submit(request.clone()).unwrap())
}

#[test]
fn replies_share_forward_calls() {
    for case in CASES {
        // Four requests for three slots: the last one takes a state that has been used.
        let requests = [request(1, 20, 20), request(2, 9, 10), request(3, 200, 20), request(4, 30, 20)];
        for (name, make) in backends() {
            let (engine, gate) = gated_on(case, &make, limits());
            let replies: Vec<_> = requests.iter().map(|request| engine.submit(request.clone()).unwrap()).collect();
            let _steps = gate.open();
            for (reply, request) in replies.into_iter().zip(&requests) {
                assert_eq!(hear(reply).reply(), alone(case, request, limits()).reply(), "{case} {name}");
            }
        }
    }
}

#[test]
fn a_step_that_fails_moves_no_state() {
    for (case, fault) in CASES.into_iter().flat_map(|case| [(case, Order::Fail), (case, Order::Panic)]) {
        let (engine, gate) = gated(case, limits());
        let requests = [1, 2, 3].map(|seed| request(seed, 150, 20));
        let replies: Vec<Generation> = requests.clone().map(|request| engine.submit(request).unwrap()).into();
        // Long prompts in turn until all three reply, then a step that is taken apart: each part is read again and runs alone.
        while gate.begun() != 3 {
            gate.order(Order::Run);
        }
        gate.order(fault);
        for part in 0..3 {
            while gate.begun() != 1 {
                gate.order(Order::Run);
            }
            gate.order(if part == 1 { fault } else { Order::Run });
        }
        let _steps = gate.open();
        let heard: Vec<Heard> = replies.into_iter().map(hear).collect();
        assert!(heard[1].error.is_some(), "{case}");
        for i in [0, 2] {
            assert_eq!(heard[i].reply(), alone(case, &requests[i], limits()).reply(), "{case}");
        }
    }
}

#[test]
fn a_reply_that_gave_its_memory_up_is_read_again() {
    for case in CASES {
        let limits = Limits { context: 192, kv_tokens: 256, ..limits() };
        let requests = [request(1, 70, 500), request(2, 60, 500)];
        let (engine, gate) = gated(case, limits);
        let replies = requests.clone().map(|request| engine.submit(request).unwrap());
        let _steps = gate.open();
        let heard = std::thread::scope(|scope| {
            replies.map(|reply| scope.spawn(|| hear(reply))).map(|thread| thread.join().unwrap())
        });
        for (heard, request) in heard.iter().zip(&requests) {
            let expected = alone(case, request, Limits { context: 192, ..common::limits() });
            assert_eq!(heard.reply(), expected.reply(), "{case}");
        }
    }
}
