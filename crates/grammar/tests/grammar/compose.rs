//! Grammars put together as tool calls need them.

use kapitsa_grammar::Grammar;
use serde_json::json;

use crate::common::{real_models, small_models};

fn call(name: &str, arguments: Grammar) -> Grammar {
    let head = format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": ");
    Grammar::concat([Grammar::literal(&head), arguments, Grammar::literal("}\n</tool_call>")])
}

fn arguments() -> Grammar {
    let path = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"], "additionalProperties": false});
    Grammar::json_schema(&path).unwrap()
}

#[test]
fn one_of_several_tools_with_its_own_arguments() {
    let tools = Grammar::choice([call("ls", arguments()), call("list_all", Grammar::any_json_object())]);
    for model in small_models().into_iter().take(1).chain(real_models()) {
        let accepts = |text: &str| model.accepts(&tools, text);
        assert!(accepts(
            "<tool_call>\n{\"name\": \"ls\", \"arguments\": {\"path\": \"</tool_call> é\"}}\n</tool_call>"
        ));
        assert!(accepts("<tool_call>\n{\"name\": \"list_all\", \"arguments\": {\"x\": [1, {}]}}\n</tool_call>"));
        assert!(!accepts("<tool_call>\n{\"name\": \"ls\", \"arguments\": {}}\n</tool_call>"));
        assert!(!accepts("<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>"));
        assert!(!accepts("Let me see. <tool_call>"));
    }
}

#[test]
fn free_text_with_calls_in_it() {
    let body = Grammar::concat([Grammar::literal("{\"arguments\": "), arguments(), Grammar::literal("}</tool_call>")]);
    let grammar = Grammar::text_with_calls("<tool_call>", body);
    for model in small_models().into_iter().take(1).chain(real_models()) {
        let accepts = |text: &str| model.accepts(&grammar, text);
        let call = "<tool_call>{\"arguments\": {\"path\": \"a\"}}</tool_call>";
        assert!(accepts("") && accepts("Just text, a < b.\n") && accepts("a <tool_call or so"));
        assert!(accepts(call) && accepts(&format!("First {call}\n{call} and done.")));
        assert!(!accepts("a <tool_call>") && !accepts("<tool_call>{}") && !accepts(&format!("{call}<tool_call>no")));
    }
}

#[test]
fn thinking_then_a_call() {
    let grammar = Grammar::concat([Grammar::text_until("</think>"), Grammar::literal("\n\n"), call("ls", arguments())]);
    let model = &small_models()[0];
    let call = "<tool_call>\n{\"name\": \"ls\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>";
    assert!(model.accepts(&grammar, &format!("Should I <tool_call>? Yes.</think>\n\n{call}")));
    assert!(!model.accepts(&grammar, "Hm.</think>\n\nNo."));
    assert!(!model.accepts(&grammar, "Hm."));
}

#[test]
fn parts_repeat_and_may_be_left_out() {
    let model = &small_models()[0];
    let check = |grammar: &Grammar, good: &[&str], bad: &[&str]| {
        good.iter().for_each(|text| assert!(model.accepts(grammar, text), "{text}"));
        bad.iter().for_each(|text| assert!(!model.accepts(grammar, text), "{text}"));
    };
    let word = || Grammar::regex("[a-c]+;").unwrap();
    check(&word().repeat(2, Some(3)), &["a;b;", "a;b;c;"], &["a;", "a;a;a;a;"]);
    check(&word().repeat(1, None), &["a;", "ab;b;c;a;"], &[""]);
    check(&word().optional(), &["", "a;"], &["a;a;"]);
    check(&Grammar::concat([]), &[""], &["a"]);
    check(&Grammar::regex("").unwrap(), &[""], &["a"]);
    check(&Grammar::regex("/a\n|\\d").unwrap(), &["/a\n", "7"], &["a"]);
    check(&Grammar::literal("\"\\\u{7f}\u{1}é/i"), &["\"\\\u{7f}\u{1}é/i"], &["é"]);
    check(&Grammar::text_without(&["ab", "c"]), &["", "aab".split_at(1).0, "ba"], &["xaby", "c"]);
    check(&Grammar::lark("start: \"a\" x\nx: \"b\" | \"(\" x \")\""), &["ab", "a((b))"], &["a((b)"]);
    let two = [Grammar::lark("start: \"x\""), Grammar::lark("start: \"y\"")];
    check(&Grammar::concat(two), &["xy"], &["x", "yx"]);
}
