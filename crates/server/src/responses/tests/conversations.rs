//! What a response said comes back as it was said: as items, or by the response's id.

use kapitsa::Message;
use kapitsa::turn::{TurnEnd, TurnEvent};
use serde_json::{Value, json};

use super::{begins, body, client, ends, finished, piece, request, stream, text, thinking};
use crate::responses::{Pending, Store, reasoning};

fn turn() -> Vec<TurnEvent> {
    vec![
        thinking("Look "),
        thinking("at a."),
        text("Reading."),
        begins(0, "read"),
        piece(0, "{ \"path\" :\"a\", \"all\": 1 }"),
        ends(0),
        begins(1, "apply_patch"),
        piece(1, "*** é\n"),
        ends(1),
        finished(TurnEnd::Calls),
    ]
}

fn said() -> Message {
    let call = |id: &str, name: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
    let calls = [
        call("call_5", "read", r#"{ "path" :"a", "all": 1 }"#),
        call("call_7", "apply_patch", r#"{"input":"*** é\n"}"#),
    ];
    let mut said = Message::assistant("Reading.");
    said.fields.insert("reasoning_content".into(), "Look at a.".into());
    said.fields.insert("tool_calls".into(), json!(calls));
    said
}

fn output(id: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": id, "output": "x" })
}

#[test]
fn items_sent_back_are_the_message_they_came_from() {
    let response = client::read(&stream(&request(&body()), &turn()));
    let mut items = vec![json!({ "role": "user", "content": "Fix it." })];
    items.extend(response["output"].as_array().unwrap().clone());
    items.extend([output("call_5"), output("call_7")]);
    let mut tool = Message::new("tool", "x");
    tool.fields.insert("tool_call_id".into(), "call_5".into());
    let check = |items: &[Value]| {
        let messages = request(&json!({ "input": items })).turn.messages;
        assert_eq!(messages[..3], [Message::user("Fix it."), said(), tool.clone()]);
        assert_eq!(messages.len(), 4);
    };
    check(&items);
    // The thinking also comes back from a client that keeps its sealed form alone, and from one that knows neither.
    items[1]["summary"] = json!([]);
    check(&items);
    items[1]["encrypted_content"] = "gAAAAA".into();
    items[1]["content"] = json!([{ "type": "reasoning_text", "text": "Look at a." }]);
    check(&items);
}

#[test]
fn a_response_can_be_gone_on_from_by_its_id() {
    let mut store = Store::new(2, 10_000);
    let mut sent = body();
    sent["instructions"] = "Be brief.".into();
    let first = request(&sent);
    let mut response = client::read(&stream(&first, &turn()));
    let pending = || Pending::new(&first).unwrap();
    store.keep(pending(), &response);

    let image = json!({ "type": "input_image", "image_url": "data:image/png;base64,AA==" });
    let outputs = [json!({ "type": "function_call_output", "call_id": "call_5", "output": [image] }), output("call_7")];
    let next = json!({ "previous_response_id": "resp_1", "instructions": "Be kind.", "input": outputs });
    let mut second = request(&next);
    store.resume(&mut second).unwrap();
    let messages = &second.turn.messages;
    assert_eq!(messages[..3], [Message::system("Be kind."), Message::user("Fix it."), said()]);
    assert_eq!((messages.len(), second.turn.images.len()), (5, 1));

    // Images go with what was said, in order.
    response["id"] = "resp_2".into();
    response["output"] = json!([]);
    store.keep(Pending::new(&second).unwrap(), &response);
    let user =
        json!([{ "role": "user", "content": [{ "type": "input_image", "image_url": "data:image/png;base64,AB==" }] }]);
    let mut third = request(&json!({ "previous_response_id": "resp_2", "input": user }));
    store.resume(&mut third).unwrap();
    let places: Vec<_> = third.turn.images.iter().map(|image| &image.place[..]).collect();
    assert_eq!(places, ["previous_response_id", "input[0].content[0].image_url"]);

    // The oldest leaves; what is too large for the store never comes in.
    response["id"] = "resp_3".into();
    store.keep(pending(), &response);
    response["id"] = "resp_4".into();
    response["output"] = json!([{ "type": "message", "role": "assistant", "content": "x".repeat(10_000) }]);
    store.keep(pending(), &response);
    let found = |id: &str| store.resume(&mut request(&json!({ "input": "x", "previous_response_id": id })));
    assert!(found("resp_2").is_ok() && found("resp_3").is_ok());
    for gone in ["resp_1", "resp_4", "other"] {
        let error = found(gone).unwrap_err();
        let body = serde_json::to_value(error.body()).unwrap();
        assert_eq!(error.status, 400);
        assert_eq!(body["error"]["code"], "previous_response_not_found");
        assert_eq!(body["error"]["param"], "previous_response_id");
    }
    assert!(Pending::new(&request(&json!({ "input": "x", "store": false }))).is_none());
}

#[test]
fn a_store_is_bounded_by_bytes() {
    let mut store = Store::new(100, 700);
    let asked = request(&json!({ "input": "x".repeat(300) }));
    let ids = ["a", "b", "c", "d"];
    for id in ids {
        store.keep(Pending::new(&asked).unwrap(), &json!({ "id": id, "output": [] }));
    }
    let found = |id: &&str| store.resume(&mut request(&json!({ "previous_response_id": id }))).is_ok();
    assert_eq!(ids.iter().filter(|id| found(id)).collect::<Vec<_>>(), [&"c", &"d"]);
}

#[test]
fn sealed_thinking_is_opened_and_foreign_values_are_not() {
    for text in ["", "Hm.", "naïve 日本\n"] {
        assert_eq!(reasoning::unseal(&reasoning::seal(text)).as_deref(), Some(text));
    }
    for foreign in ["", "c3R1Yg==", "kapitsa1.!", "kapitsa1./w==", "kapitsa2.SG0u"] {
        assert_eq!(reasoning::unseal(foreign), None, "{foreign}");
    }
}
