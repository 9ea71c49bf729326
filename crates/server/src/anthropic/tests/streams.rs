//! Streams and whole messages of the same turns.

use kapitsa::turn::{TurnEnd, TurnEvent, TurnUsage};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::reader;
use crate::anthropic::events::{Event, Writer};
use crate::anthropic::whole::Whole;
use crate::error::ApiError;

const PROMPT: TurnUsage = TurnUsage { prompt: 1000, cached: 900, written: 0, thinking: 0 };

/// What a writer is told.
#[derive(Clone, Debug)]
enum Told {
    Event(TurnEvent),
    Silence,
    Failure,
}
use Told::{Failure, Silence};

fn thinking(text: &str) -> Told {
    Told::Event(TurnEvent::Thinking(text.into()))
}

fn text(text: &str) -> Told {
    Told::Event(TurnEvent::Text { text: text.into(), tokens: vec![] })
}

fn begins(index: usize, name: &str) -> Told {
    Told::Event(TurnEvent::CallBegins { index, name: name.into() })
}

fn input(index: usize, piece: &str) -> Told {
    Told::Event(TurnEvent::CallInput { index, piece: piece.into() })
}

fn ends(index: usize) -> Told {
    Told::Event(TurnEvent::CallEnds { index })
}

fn finished(end: TurnEnd) -> Told {
    Told::Event(TurnEvent::Finished { end, usage: TurnUsage { written: 42, thinking: 7, ..PROMPT } })
}

fn stream(told: &[Told]) -> Vec<Event> {
    let (mut writer, mut events) = Writer::start("msg_1", "tiny", PROMPT);
    for told in told {
        match told {
            Told::Event(event) => events.extend(writer.hear(event.clone())),
            Silence => events.extend(writer.sign_of_life()),
            Failure => events.push(writer.fail(&ApiError::internal("the device is gone"))),
        }
    }
    events
}

fn whole(told: &[Told]) -> Value {
    let mut whole = Whole::start("msg_1", "tiny", PROMPT);
    for told in told {
        if let Told::Event(event) = told {
            whole.hear(event.clone());
        }
    }
    whole.message()
}

/// The blocks of a message without those that signs of life began, and without input that is no object.
fn real(message: &Value) -> Value {
    let mut blocks = message["content"].as_array().unwrap().clone();
    blocks.retain(|block| block["text"] != "");
    for block in blocks.iter_mut().filter(|block| block["type"] == "tool_use" && !block["input"].is_object()) {
        block["input"] = json!({});
    }
    blocks.into()
}

/// Compares the stream with its snapshot and the whole message with what a client makes of the stream.
fn check(name: &str, told: &[Told], reason: &str) {
    let events = stream(told);
    let seen = reader::read(&events);
    assert_eq!(seen.message["stop_reason"], reason, "{name}");
    let mut expected = seen.message;
    expected["content"] = real(&expected);
    assert_eq!(whole(told), expected, "{name}");
    snapshot(name, &events);
}

fn snapshot(name: &str, events: &[Event]) {
    let lines: Vec<_> = events.iter().map(|(name, data)| format!("{name}: {data}")).collect();
    insta::assert_snapshot!(name, lines.join("\n"));
}

#[test]
fn text_streams() {
    check("text", &[text("Hel"), text(""), text("lo"), finished(TurnEnd::Turn)], "end_turn");
    check("nothing", &[finished(TurnEnd::Turn)], "end_turn");
    check("stop_text", &[text("alpha "), finished(TurnEnd::StopText("beta".into()))], "stop_sequence");
}

#[test]
fn thinking_is_signed_where_text_begins() {
    check("thinking", &[thinking("Hm"), thinking("m."), text("Yes."), finished(TurnEnd::Turn)], "end_turn");
}

#[test]
fn calls_are_blocks_of_their_own() {
    let told = [
        text("Let me look."),
        begins(0, "Read"),
        input(0, r#"{"path": "#),
        input(0, r#""naïve 日本"}"#),
        ends(0),
        begins(1, "Grep"),
        input(1, r#"{"for":"x"}"#),
        ends(1),
        finished(TurnEnd::Calls),
    ];
    check("calls", &told, "tool_use");
    check("call_without_input", &[begins(0, "List"), ends(0), finished(TurnEnd::Calls)], "tool_use");
    // Agents stop where a turn does not end in calls.
    let told = [begins(0, "List"), ends(0), text("So. "), finished(TurnEnd::StopText("So".into()))];
    check("stop_text_after_a_call", &told, "tool_use");
}

#[test]
fn what_the_limit_cuts_is_closed() {
    check("cut_text", &[text("Once"), finished(TurnEnd::Length)], "max_tokens");
    check("cut_thinking", &[thinking("Hm"), finished(TurnEnd::Length)], "max_tokens");
    let cut = [begins(1, "Write"), input(1, r#"{"content": "on"#), finished(TurnEnd::Length)];
    let whole_call = [begins(0, "List"), input(0, "{}"), ends(0)];
    check("cut_call", &[&whole_call[..], &cut].concat(), "max_tokens");
    check("cut_before_input", &[begins(0, "Write"), finished(TurnEnd::Length)], "max_tokens");
}

#[test]
fn failures_are_told_and_nothing_follows() {
    let events = stream(&[text("Hel"), Failure, text("lo"), Silence, finished(TurnEnd::Turn)]);
    let error = json!({ "type": "api_error", "message": "the device is gone" });
    assert_eq!(reader::read(&events).error, Some(error));
    snapshot("failure", &events);
}

#[test]
fn signs_of_life_disturb_nothing() {
    let told = [
        Silence,
        Silence,
        Told::Event(TurnEvent::Prefill(512)),
        thinking("Hm."),
        Silence,
        thinking(" So"),
        text("Yes"),
        Silence,
        text("."),
        begins(0, "Read"),
        Silence,
        input(0, "{}"),
        Silence,
        ends(0),
        Silence,
        text("And"),
        finished(TurnEnd::Calls),
        Silence,
    ];
    let events = stream(&told);
    assert_eq!(whole(&told)["content"], real(&reader::read(&events).message));
    snapshot("signs_of_life", &events);
    // Text goes on in the block that a sign of life began.
    let events = stream(&[Silence, text("Yes"), finished(TurnEnd::Turn)]);
    assert_eq!(reader::read(&events).message["content"], json!([{ "type": "text", "text": "Yes" }]));
}

#[test]
fn usage_leaves_cached_tokens_out_of_the_input() {
    let events = stream(&[text("a"), finished(TurnEnd::Turn)]);
    let usage = |written: usize| {
        json!({
            "input_tokens": 100, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 900, "output_tokens": written,
        })
    };
    assert_eq!(events[0].1["message"]["usage"], usage(0));
    assert_eq!(reader::read(&events).message["usage"], usage(42));
}

fn anything() -> impl Strategy<Value = Told> {
    prop_oneof![
        2 => Just(Silence),
        1 => Just(Told::Event(TurnEvent::Prefill(9))),
        3 => "[a-c]{0,2}".prop_map(|piece| thinking(&piece)),
        3 => "[a-c]{0,2}".prop_map(|piece| text(&piece)),
        3 => (0..3_usize).prop_map(|index| begins(index, "Read")),
        3 => (0..3_usize, prop_oneof!["[a{}]?", Just("{}".to_owned())]).prop_map(|(index, piece)| input(index, &piece)),
        3 => (0..3_usize).prop_map(ends),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn whatever_happens_the_stream_is_well_formed(
        mut told in prop::collection::vec(anything(), 0..20),
        end in prop_oneof![
            Just(Failure), Just(finished(TurnEnd::Turn)), Just(finished(TurnEnd::Calls)), Just(finished(TurnEnd::Length)),
        ],
    ) {
        told.push(end);
        prop_assert_eq!(&whole(&told)["content"], &real(&reader::read(&stream(&told)).message));
    }
}
