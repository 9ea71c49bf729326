//! Turns of a model whose words a test writes: thinking, text and calls come out apart.

use kapitsa::Message;
use kapitsa::Specials;
use kapitsa::turn::{TurnEnd, TurnEvent, TurnRequest};

use crate::common::{HERMES, open, play, request, text};

#[test]
fn thinking_text_and_calls_come_out_apart() {
    let (llm, script) = open(HERMES);
    let said = "<think>Hm.</think>Look:<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"x\"}}\n</tool_call>                <tool_call>{\"name\": \"patch\", \"arguments\": {\"input\": \"*** a\\n\"}}</tool_call>";
    let events = play(&llm, &script, &request(), said);
    let (last, events) = events.split_last().unwrap();
    assert_eq!(
        events,
        [
            TurnEvent::Thinking("Hm.".into()),
            text("Look:"),
            TurnEvent::CallBegins { index: 0, name: "read".into() },
            TurnEvent::CallInput { index: 0, piece: "{\"path\": \"x\"}".into() },
            TurnEvent::CallEnds { index: 0 },
            TurnEvent::CallBegins { index: 1, name: "patch".into() },
            TurnEvent::CallInput { index: 1, piece: "*** a\n".into() },
            TurnEvent::CallEnds { index: 1 },
        ]
    );
    let TurnEvent::Finished { end: TurnEnd::Calls, usage } = last else { panic!("{last:?}") };
    assert_eq!(usage.written, llm.tokenizer().encode(said, Specials::AsText).unwrap().len());
    assert!(usage.thinking >= 3 && usage.thinking < usage.written, "{usage:?}");
}

#[test]
fn ends_say_why() {
    let (llm, script) = open(HERMES);
    let end = |request: &TurnRequest, text: &str| match play(&llm, &script, request, text).pop() {
        Some(TurnEvent::Finished { end, .. }) => end,
        other => panic!("{other:?}"),
    };
    assert_eq!(end(&request(), "done"), TurnEnd::Turn);
    let stops = TurnRequest { stops: vec!["ne".into()], ..request() };
    assert_eq!(end(&stops, "done"), TurnEnd::StopText("ne".into()));
    let short = TurnRequest { max_tokens: Some(60), ..request() };
    let call =
        format!("<tool_call>{{\"name\": \"read\", \"arguments\": {{\"path\": \"{}\"}}}}</tool_call>", "x".repeat(90));
    assert_eq!(end(&short, &call), TurnEnd::Length);
}

#[test]
fn a_turn_of_one_call_ends_with_it() {
    let (llm, script) = open(HERMES);
    let call = "<tool_call>{\"name\": \"read\", \"arguments\": {}}</tool_call>";
    let request = TurnRequest { one_call: true, ..request() };
    let events = play(&llm, &script, &request, &format!("{call}{call} and more"));
    let calls = events.iter().filter(|event| matches!(event, TurnEvent::CallBegins { .. })).count();
    assert!(calls == 1 && matches!(events.last(), Some(TurnEvent::Finished { end: TurnEnd::Calls, .. })), "{events:?}");
}

#[test]
fn without_tools_markup_is_text() {
    let (llm, script) = open(HERMES);
    let said = "<tool_call>{\"name\": \"read\", \"arguments\": {}}</tool_call>";
    assert_eq!(play(&llm, &script, &TurnRequest { tools: vec![], ..request() }, said)[0], text(said));
}

#[test]
fn a_prompt_that_ends_in_thinking_goes_on_with_it() {
    let (llm, script) = open(&format!("{HERMES}<think>\n"));
    let events = play(&llm, &script, &request(), "so\n</think>\n\nYes.");
    assert_eq!(events[..2], [TurnEvent::Thinking("so".into()), text("Yes.")]);
}

#[test]
fn a_prompt_is_counted_as_it_is_read() {
    let (llm, script) = open(HERMES);
    script.say(vec![]);
    let count = llm.count_turn(&request(), &[], None).unwrap();
    assert_eq!(llm.start_turn(&request(), &[], None).unwrap().prompt_tokens(), count);
    let more = TurnRequest { messages: vec![Message::user("go"), Message::assistant("no")], ..request() };
    assert!(llm.count_turn(&more, &[], None).unwrap() > count);
}
