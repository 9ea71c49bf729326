//! Turns as streams and as one response.

use kapitsa::ReplyToken;
use kapitsa::turn::{TurnEnd, TurnEvent};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Event, begins, body, client, ends, finished, piece, request, stream, text, thinking, writer};
use crate::error::ApiError;
use crate::responses::Whole;

/// The stream of a turn, read by the client, a line an event; responses without what they repeat of the request.
fn shown(turn: &[TurnEvent]) -> String {
    let request = request(&body());
    let events = stream(&request, turn);
    client::read(&events);
    lines(&events)
}

fn lines(events: &[Event]) -> String {
    let echo = request(&body()).echo;
    let line = |(name, data): &Event| {
        let mut data = data.clone();
        if let Some(response) = data.get_mut("response").and_then(Value::as_object_mut) {
            response.retain(|name, _| !echo.contains_key(name));
        }
        let data = data.as_object_mut().unwrap();
        data.shift_remove("type");
        format!("{name} {}\n", json!(data))
    };
    events.iter().map(line).collect()
}

#[test]
fn plain_text() {
    insta::assert_snapshot!(shown(&[TurnEvent::Prefill(100), text("Hel"), text("lo."), finished(TurnEnd::Turn)]));
}

#[test]
fn thinking_then_text() {
    insta::assert_snapshot!(shown(&[
        thinking("I should "),
        thinking("greet."),
        text("Hello."),
        finished(TurnEnd::StopText("\n".into()))
    ]));
}

#[test]
fn text_and_two_calls() {
    insta::assert_snapshot!(shown(&[
        text("Two files."),
        begins(0, "read"),
        piece(0, r#"{"path": "#),
        piece(0, r#""a"}"#),
        ends(0),
        begins(1, "close_agent"),
        piece(1, "{}"),
        ends(1),
        finished(TurnEnd::Calls),
    ]));
}

#[test]
fn call_of_a_tool_that_takes_text() {
    insta::assert_snapshot!(shown(&[
        begins(0, "apply_patch"),
        piece(0, "*** Begin Patch\n"),
        piece(0, "*** End Patch\n"),
        ends(0),
        finished(TurnEnd::Calls),
    ]));
}

#[test]
fn call_without_arguments() {
    insta::assert_snapshot!(shown(&[begins(0, "close_agent"), ends(0), finished(TurnEnd::Calls)]));
}

#[test]
fn cut_in_text() {
    insta::assert_snapshot!(shown(&[text("Hel"), finished(TurnEnd::Length)]));
}

#[test]
fn cut_in_thinking() {
    insta::assert_snapshot!(shown(&[thinking("I sh"), finished(TurnEnd::Length)]));
}

#[test]
fn cut_in_a_call() {
    let turn =
        [begins(0, "read"), piece(0, "{}"), ends(0), begins(1, "read"), piece(1, r#"{"pa"#), finished(TurnEnd::Length)];
    insta::assert_snapshot!(shown(&turn));
}

#[test]
fn failure_and_signs_of_life() {
    let request = request(&body());
    let mut writer = writer(&request);
    let mut events = writer.begin();
    events.extend(writer.sign_of_life());
    events.extend(writer.hear(thinking("Hm.")));
    events.extend(writer.hear(text("Hel")));
    events.extend(writer.sign_of_life());
    events.extend(writer.fail(&ApiError::internal("the device is gone")));
    client::read(&events);
    insta::assert_snapshot!(lines(&events));
    for late in [writer.hear(text("x")), writer.sign_of_life(), writer.fail(&ApiError::internal("again"))] {
        assert!(late.is_empty(), "{late:?}");
    }
    // An error that has a code keeps it.
    let error = ApiError::too_long(10, 11, "");
    let failed = self::writer(&request).fail(&error).remove(0).1;
    assert_eq!(failed["response"]["error"]["code"], "context_length_exceeded");
}

#[test]
fn an_empty_turn_has_no_items() {
    let response = client::read(&stream(&request(&body()), &[text(""), thinking(""), finished(TurnEnd::Turn)]));
    assert_eq!((&response["status"], &response["output"]), (&"completed".into(), &json!([])));
}

#[test]
fn a_response_repeats_its_request() {
    let mut sent = body();
    sent["instructions"] = "Be brief.".into();
    sent["reasoning"] = json!({ "effort": "low" });
    sent["temperature"] = 0.5.into();
    sent["prompt_cache_key"] = "k".into();
    sent["client_metadata"] = json!({ "a": 1 });
    let events = stream(&request(&sent), &[text("Yes."), finished(TurnEnd::Turn)]);
    for response in [&events[0].1["response"], &client::read(&events)] {
        for name in ["instructions", "reasoning", "temperature", "prompt_cache_key", "tools"] {
            assert_eq!(response[name], sent[name], "{name}");
        }
        assert_eq!(response["parallel_tool_calls"], true);
        assert_eq!(response.get("client_metadata"), None);
    }
}

#[test]
fn logprobs_are_in_deltas_and_in_the_whole() {
    let token = |id| ReplyToken { id, begins: 0, logprobs: None };
    let turn = [
        TurnEvent::Text { text: "a".into(), tokens: vec![token(1), token(2)] },
        // The end of a reply may be tokens without text.
        TurnEvent::Text { text: "".into(), tokens: vec![token(3)] },
        finished(TurnEnd::Turn),
    ];
    let events = stream(&request(&body()), &turn);
    let count = |value: &Value| value["logprobs"].as_array().unwrap().len();
    let deltas: Vec<usize> =
        events.iter().filter(|event| event.0 == "response.output_text.delta").map(|event| count(&event.1)).collect();
    assert_eq!(deltas, [2, 1]);
    assert_eq!(count(&client::read(&events)["output"][0]["content"][0]), 3);
}

fn any_event() -> impl Strategy<Value = TurnEvent> {
    let (index, name, piece_of) = (0..3usize, "read|apply_patch|close_agent|other", "[a-z{}\"é ]{0,4}");
    prop_oneof![
        piece_of.prop_map(|text| thinking(&text)),
        piece_of.prop_map(|text| super::text(&text)),
        (index.clone(), name).prop_map(|(index, name)| begins(index, &name)),
        (index.clone(), piece_of).prop_map(|(index, text)| piece(index, &text)),
        index.prop_map(ends),
    ]
}

proptest! {
    /// Whatever comes in whatever order, the stream obeys the protocol, and the whole response is its last one.
    #[test]
    fn any_turn_is_a_stream(turn in vec(any_event(), 0..20), life in vec(0..20usize, 0..3), is_cut: bool) {
        let request = request(&body());
        let mut writer = writer(&request);
        let mut whole = Whole::new(self::writer(&request));
        let mut events = writer.begin();
        for (at, event) in turn.into_iter().enumerate() {
            if life.contains(&at) {
                events.extend(writer.sign_of_life());
            }
            prop_assert_eq!(whole.hear(event.clone()), None);
            events.extend(writer.hear(event));
        }
        let end = finished(if is_cut { TurnEnd::Length } else { TurnEnd::Turn });
        events.extend(writer.hear(end.clone()));
        prop_assert_eq!(whole.hear(end), Some(client::read(&events)));
    }
}
