//! A model whose words a test writes.

use kapitsa::turn::{Tool, ToolInput, TurnEvent, TurnRequest};
use kapitsa::{Llm, Message, OpenOptions, Specials};
use kapitsa_testkit::script::Script;
use kapitsa_testkit::tiny;
use serde_json::json;

/// A model that knows tools, and what it will say.
pub(crate) fn open(template: &str) -> (Llm, Script) {
    let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    tiny::speaking_llama().set("tokenizer.chat_template", template).write(file.path());
    let script = Script::default();
    let options = OpenOptions { threads: Some(1), ..OpenOptions::default() };
    let llm = Llm::open_on(file.path(), &options, Some(script.backend(tiny::END))).unwrap();
    (llm, script)
}

pub(crate) const HERMES: &str =
    "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}{{ tools }}<tool_call>>";

pub(crate) fn request() -> TurnRequest {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let tool = |name: &str, input| {
        let place = format!("tools[{name}]");
        Tool { name: name.into(), description: None, input, place }
    };
    TurnRequest {
        messages: vec![Message::user("go")],
        tools: vec![
            tool("read", ToolInput::Json { schema, strict: false }),
            tool("patch", ToolInput::Text { grammar: None }),
        ],
        ..TurnRequest::default()
    }
}

/// All events of a turn in which the model says `text`, pieces of one kind joined.
pub(crate) fn play(llm: &Llm, script: &Script, request: &TurnRequest, text: &str) -> Vec<TurnEvent> {
    script.say(llm.tokenizer().encode(text, Specials::AsText).unwrap());
    let mut stream = llm.start_turn(request, &[], None).unwrap();
    let mut events: Vec<TurnEvent> = vec![];
    while let Some(event) = stream.recv() {
        match (events.last_mut(), event.unwrap()) {
            (_, TurnEvent::Prefill(_)) => {}
            (Some(TurnEvent::Thinking(all)), TurnEvent::Thinking(more)) => all.push_str(&more),
            (Some(TurnEvent::Text { text: all, .. }), TurnEvent::Text { text: more, .. }) => all.push_str(&more),
            (Some(TurnEvent::CallInput { piece: all, .. }), TurnEvent::CallInput { piece: more, .. }) => {
                all.push_str(&more);
            }
            (_, TurnEvent::Text { text, .. }) => events.push(TurnEvent::Text { text, tokens: vec![] }),
            (_, event) => events.push(event),
        }
    }
    events
}

pub(crate) fn text(text: &str) -> TurnEvent {
    TurnEvent::Text { text: text.into(), tokens: vec![] }
}
